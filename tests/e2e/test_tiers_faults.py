"""A disk that fails in every way: each answer has the bits of a cold run, the fault is counted, and the daemon ends cleanly."""

import contextlib
import dataclasses
import re
import time

import httpx
import pytest
from ask import proof
from tiers import (
    BLOCK,
    PAGE,
    DiskDaemon,
    ask,
    cold_proofs,
    damaged,
    every_record,
    hit,
    need_faulty,
    prompt,
    reach,
    running,
    segments,
    verify,
    whole_blocks,
)

COUNT = 8


@pytest.fixture(scope="module", name="work")
def work_fixture(twin, tmp_path_factory):
    prompts = [prompt(seed, 500) for seed in range(COUNT)]
    return prompts, cold_proofs(twin, prompts, folder=tmp_path_factory.mktemp("cold"))


@pytest.fixture(autouse=True)
def faulty_is_built():
    need_faulty()


def rounds(d, work, count=3):
    """Turns over a working set that is larger than the pool; flushes may fail."""
    prompts, expected = work
    replies = []
    for _ in range(count):
        replies = [ask(d, ids) for ids in prompts]
        assert [proof(reply) for reply in replies] == expected
        d.http.post("/v1/kv/flush", json={"timeout": 2})
    return replies


@dataclasses.dataclass
class Fault:
    """What goes wrong; what quire_faulty must have counted as having happened; what the daemon must have noticed."""

    text: str
    happened: tuple[str, ...]
    noticed: tuple[str, ...] = ()
    cap: str = "16M"


FAULTS = {
    "slow": Fault("slow=20M", ("delayed",)),
    "late": Fault("delay=2000", ("delayed",)),
    "bits_flip_when_read": Fault("flip_read=0.2,seed=3", ("flips",), ("damaged",)),
    "bits_flip_when_written": Fault("flip_write=0.2,seed=3", ("flips",), ("damaged",)),
    "reads_fail": Fault("eio_read=0.3,seed=3", ("failures",), ("errors",)),
    "every_read_fails": Fault("eio_read=1.0", ("failures",), ("errors",)),
    "writes_fail": Fault("eio_write=0.3,seed=3", ("failures",), ("errors", "broken")),
    "every_write_fails": Fault("eio_write=1.0", ("failures",), ("errors", "broken")),
    "syncs_fail": Fault("eio_sync=0.5,seed=3", ("failures",), ("errors",)),
    "opens_fail": Fault("eio_open=0.3,seed=3", ("failures",), ("errors",)),
    "the_disk_is_full": Fault("full", ("no_space",), ("no_space",)),
    "the_disk_fills": Fault("nospace=3M", (), ("no_space",)),  # the store asks how much is free before it takes any
    "space_cannot_be_taken": Fault("nospace_allocate=0.5,seed=3", ("no_space",)),
    "removing_fails": Fault("eio_remove=0.5,seed=3", ("failures",), ("errors",), cap="6M"),  # segments must go
    "short_reads_and_writes": Fault("short_read=0.3,short_write=0.3,interrupt=0.2,seed=3", ("system_calls",)),
    "everything": Fault(
        "slow=50M,flip_read=0.05,flip_write=0.05,eio_read=0.05,eio_write=0.05,eio_sync=0.05,seed=9",
        ("delayed", "flips", "failures"),
        ("damaged", "errors"),
    ),
}


def noticed(d):
    """The counters that faults can raise."""
    refused = d.samples("quire_tier_refused_blocks_total")
    return {
        "damaged": d.disk("quire_tier_damaged_total"),
        "errors": d.disk("quire_tier_errors_total"),
        "no_space": refused['{reason="no_space"}'],
        "broken": refused['{reason="broken"}'],
    }


def rounds_until_noticed(d, work, kinds, limit=120):
    """
    Which calls meet a fault is chance, and how many calls there are depends on what failed before them: a folder that
    cannot be written is left alone for a while. So there are more rounds until everything has come up.
    """
    rounds(d, work)
    late = time.monotonic() + limit
    while not all(noticed(d)[kind] > 0 for kind in kinds) and time.monotonic() < late:
        rounds(d, work, 1)
    return noticed(d)


@pytest.mark.parametrize("name", FAULTS)
def test_answers_are_right_whatever_fails(twin, cache, work, name):
    """And what failed did fail, and is counted under its own name and no other."""
    fault = FAULTS[name]
    with running(cache, "--disk-cache-max", fault.cap, model=twin, blocks=96, faults=fault.text) as d:
        counts = rounds_until_noticed(d, work, fault.noticed)
        assert all(counts[kind] > 0 for kind in fault.noticed), counts
        if not {"flips", "failures"} & set(fault.happened):
            assert counts["damaged"] == counts["errors"] == 0, counts
        assert d.http.get("/health").status_code == 200
    met = d.faults_met()
    assert all(met[kind] > 0 for kind in fault.happened), met
    logged = "warn tier_trouble " in d.output()
    assert logged == bool(counts["damaged"] + counts["errors"] + counts["broken"])
    with running(cache, "--disk-cache-max", fault.cap, model=twin, blocks=96) as d:
        rounds(d, work, 1)


def test_without_faults_none_is_counted(twin, cache, work):
    with running(cache, "--disk-cache-max", "16M", model=twin, blocks=96, faults="") as d:
        rounds(d, work)
        counts = noticed(d)
        assert counts["damaged"] == counts["errors"] == counts["broken"] == 0, counts
    assert set(d.faults_met().values()) == {0}
    assert "tier_trouble" not in d.output()


def test_a_full_disk_is_a_refusal_and_no_error_of_a_request(twin, cache, work):
    with running(cache, model=twin, blocks=96, faults="full") as d:
        rounds(d, work)
        assert d.samples("quire_tier_refused_blocks_total")['{reason="no_space"}'] > 0
        assert d.kv()["disk"]["blocks"] == 0


def test_a_slow_disk_is_not_waited_for(twin, cache, work):
    """Loading would take longer than computing: it is refused or given up, and the reply says so."""
    prompts, _ = work
    with running(cache, model=twin, blocks=512) as d:
        rounds(d, work, 1)
    with running(cache, model=twin, blocks=96, faults="slow=200K") as d:
        replies = rounds(d, work)
        causes = {reply["kv"][0]["cause"] for reply in replies}
        assert causes & {"slower_than_recomputing", "load_abandoned"}
        refused = d.samples("quire_tier_refused_blocks_total")
        assert refused['{reason="slower"}'] + refused['{reason="abandoned"}'] > 0


def test_what_is_damaged_says_so_and_is_computed(twin, cache, work):
    """Every record is spoilt under a daemon that knows them all."""
    prompts, expected = work
    with running(cache, model=twin) as d:
        rounds(d, work, 1)
    with running(cache, model=twin) as d:
        known = d.disk("quire_tier_blocks")
        assert known >= sum(whole_blocks(ids) for ids in prompts) // BLOCK and noticed(d)["damaged"] == 0
        for path in segments(cache):
            every_record(PAGE + 777)(path)
        replies = [ask(d, ids) for ids in prompts]
        assert [proof(reply) for reply in replies] == expected
        assert all(hit(reply) == 0 for reply in replies)
        causes = [reply["kv"][0]["cause"] for reply in replies]
        assert "damaged" in causes and set(causes) <= {"damaged", "load_abandoned", "slower_than_recomputing"}, causes
        assert noticed(d)["damaged"] >= causes.count("damaged")
        assert d.kv()["disk"]["damaged"] == noticed(d)["damaged"]
    assert re.search(r" warn tier_trouble damaged=[1-9]", d.output())


def test_a_disk_that_always_lies_is_never_believed(twin, cache, work):
    """Bits flip in every read, those of the start too: nothing is used, whatever was found."""
    prompts, expected = work
    with running(cache, model=twin) as d:
        rounds(d, work, 1)
    with running(cache, model=twin, faults="flip_read=1.0") as d:
        replies = [ask(d, ids) for ids in prompts]
        assert [proof(reply) for reply in replies] == expected
        assert all(hit(reply) == 0 for reply in replies)
        assert noticed(d)["damaged"] > 0
    assert d.faults_met()["flips"] > 0


def starts(d):
    """Waits until it serves or has ended; an end must be a plain refusal."""
    while d.process.poll() is None:
        with contextlib.suppress(httpx.TransportError):
            if d.http.get("/health").status_code == 200:
                return True
        time.sleep(0.02)
    assert d.process.returncode == 1 and "memory" in d.output()
    return False


def test_no_memory_is_no_wrong_answer(twin, cache, work):
    """Allocations fail now and then: it may not start and requests may be refused, but no answer is wrong and it lives on."""
    prompts, expected = work
    with running(cache, model=twin, blocks=96) as d:
        rounds(d, work, 1)
    served = 0
    for seed in range(12):
        d = DiskDaemon(cache, model=twin, blocks=96, faults=f"alloc_fail=0.002,seed={seed}", wait=False)
        try:
            for which, ids in enumerate(prompts if starts(d) else []):
                body = {"prompt": ids, "temperature": 0, "max_tokens": 8, "return_token_ids": True, "return_logits_digest": True}
                try:
                    reply = d.http.post("/v1/completions", json=body)
                except httpx.TransportError:  # no memory even for the refusal
                    assert d.process.poll() is None
                    continue
                assert reply.status_code in (200, 503)
                served += reply.status_code == 200
                assert reply.status_code == 503 or proof(reply.json()) == expected[which]
        finally:
            d.process.terminate()
            assert d.process.wait(60) in (0, 1)
    assert served > 0
    verify(cache)
    with running(cache, model=twin, blocks=96) as d:
        rounds(d, work, 1)


def test_after_the_faults_are_gone_it_heals(twin, cache, work):
    prompts, _ = work
    with running(cache, model=twin, blocks=96, faults="flip_write=0.3,eio_read=0.2,seed=11") as d:
        rounds(d, work)
    # What was written wrong is found when it is read, and goes; a busy machine may rather compute than read, for a while.
    for _ in range(20):
        with running(cache, model=twin, blocks=96) as d:
            replies = rounds(d, work)
            d.flush()
            trouble = d.trouble()
        if trouble == 0 and not damaged(cache):
            break
    assert trouble == 0
    assert sum(reach(reply) for reply in replies) >= 0.9 * sum(whole_blocks(ids) for ids in prompts)
    verify(cache)
