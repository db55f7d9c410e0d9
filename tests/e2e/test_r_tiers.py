"""R09 to R12 from outside: damaged files, full disks, another model's cache, and isolation between requests."""

import contextlib
import os
import random
import shutil
import subprocess
import threading
import time

import pytest
from ask import proof
from served import BIN
from tiers import (
    PAGE,
    ask,
    change,
    cold_proofs,
    every_record,
    folder_bytes,
    hit,
    need_faulty,
    prompt,
    quire_cache,
    reach,
    running,
    segments,
    verify,
    whole_blocks,
)

KILLS = int(os.environ.get("QUIRE_E2E_KILLS", "50"))
ROUNDS = int(os.environ.get("QUIRE_E2E_ROUNDS", "200"))


# ---- R09 ----


@pytest.fixture(scope="module", name="stored")
def stored_fixture(twin, tmp_path_factory):
    """A folder with three prompts in it, and their cold answers."""
    folder = tmp_path_factory.mktemp("stored")
    prompts = [prompt(seed, 320) for seed in range(3)]
    expected = cold_proofs(twin, prompts, folder=folder)
    with running(folder / "kv", model=twin) as d:
        assert [proof(ask(d, ids)) for ids in prompts] == expected
    return folder / "kv", prompts, expected


def replace_by_folder(path):
    path.unlink()
    path.mkdir()


DAMAGES = {
    "one_byte_short": lambda path: os.truncate(path, path.stat().st_size - 1),
    "empty": lambda path: os.truncate(path, 0),
    "segment_header_flipped": lambda path: change(path, 60),
    "record_header_flipped": every_record(64),
    "token_flipped": every_record(132),
    "payload_flipped": every_record(PAGE + 777),
    "deleted": lambda path: path.unlink(),
    "a_folder": replace_by_folder,
    "all_zeros": lambda path: path.write_bytes(bytes(path.stat().st_size)),
    "noise": lambda path: path.write_bytes(random.Random(5).randbytes(path.stat().st_size)),
}


# Every record holds, and is proved by itself: the last byte of a file is spare, and its first page is read at the start only.
HARMLESS = {("one_byte_short", "before_the_start"), ("one_byte_short", "while_indexed"), ("segment_header_flipped", "while_indexed")}


@pytest.mark.parametrize("when", ["before_the_start", "while_indexed"])
@pytest.mark.parametrize("damage", DAMAGES)
def test_r09_a_damaged_file_is_a_miss(twin, cache, stored, damage, when):
    folder, prompts, expected = stored
    shutil.copytree(folder, cache)
    if when == "before_the_start":
        for path in segments(cache):
            DAMAGES[damage](path)
    with running(cache, model=twin) as d:
        if when == "while_indexed":
            for path in segments(cache):
                DAMAGES[damage](path)
        replies = [ask(d, ids) for ids in prompts]
        assert [proof(reply) for reply in replies] == expected
        if (damage, when) not in HARMLESS:
            assert all(reply["kv"][0]["tiers"]["disk"] == 0 for reply in replies)
            assert d.trouble() > 0 or (damage, when) == ("deleted", "before_the_start")
        if damage in ("token_flipped", "payload_flipped") and when == "while_indexed":
            assert {reply["kv"][0]["cause"] for reply in replies} & {"damaged", "load_abandoned"}
        assert [proof(ask(d, ids)) for ids in prompts] == expected


class Load:
    """Clients that ask until the daemon is gone."""

    def __init__(self, d, prompts, clients=3):
        self.d, self.prompts = d, prompts
        self.answers = []
        self.threads = [threading.Thread(target=self.run, args=(i,)) for i in range(clients)]
        for thread in self.threads:
            thread.start()

    def run(self, i):
        chance = random.Random(i)
        with contextlib.suppress(Exception):  # the daemon is killed under it
            while True:
                which = chance.randrange(len(self.prompts))
                self.answers.append((which, proof(ask(self.d, self.prompts[which], max_tokens=4))))

    def join(self):
        for thread in self.threads:
            thread.join()


def test_r09_killed_at_any_moment(twin, cache, tmp_path):
    """kill -9 while blocks are written, read and evicted: nothing wrong is ever used, and what was published is a hit."""
    chance = random.Random(int(os.environ.get("QUIRE_SEED", "1")))
    prompts = [prompt(seed, chance.randrange(100, 500)) for seed in range(12)]
    expected = cold_proofs(twin, prompts, folder=tmp_path, max_tokens=4)
    marked = None
    for kill in range(KILLS):
        with running(cache, "--disk-cache-max", "24M", model=twin, blocks=96) as d:
            if marked:
                assert reach(ask(d, marked, max_tokens=4)) >= whole_blocks(marked), f"published before kill {kill}"
            for which in chance.sample(range(len(prompts)), 3):
                assert proof(ask(d, prompts[which], max_tokens=4)) == expected[which], f"after kill {kill}"
            marked = prompt(1000 + kill, 100)
            ask(d, marked, max_tokens=4)
            d.flush()
            load = Load(d, prompts)
            time.sleep(chance.random() * 0.4)
            d.kill()
            load.join()
            assert all(answer == expected[which] for which, answer in load.answers)
        if kill % 5 == 0:
            verify(cache)
    with running(cache, "--disk-cache-max", "24M", model=twin, blocks=96) as d:
        assert [proof(ask(d, ids, max_tokens=4)) for ids in prompts] == expected
        assert d.disk("quire_tier_blocks") > 0
    assert verify(cache)["unfinished"] == 0, "what was cut off is not left counted"


# ---- R10 ----


@contextlib.contextmanager
def small_disk(folder, size):
    """A file system of so many bytes, where the machine lets us make one."""
    folder.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size},mode=0700", "tmpfs", str(folder)], capture_output=True)
    if made.returncode != 0:
        pytest.skip("no file system can be mounted here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def test_r10_a_disk_smaller_than_a_segment(twin, tmp_path):
    prompts = [prompt(seed, 1000) for seed in range(8)]
    expected = cold_proofs(twin, prompts, folder=tmp_path)
    with small_disk(tmp_path / "disk", "64M") as disk:
        filler = disk / "filler"
        filler.write_bytes(bytes(56 << 20))
        cache = disk / "kv"
        with running(cache, "--disk-cache-max", "100M", model=twin, blocks=96, folder=tmp_path) as d:
            for _ in range(2):
                assert [proof(ask(d, ids)) for ids in prompts] == expected
            assert d.samples("quire_tier_refused_blocks_total")['{reason="no_space"}'] > 0
            assert not segments(cache), "no partial files remain"
            filler.unlink()
            end = time.monotonic() + 20
            while d.kv()["disk"]["blocks"] == 0:
                assert time.monotonic() < end, "writing does not resume"
                assert [proof(ask(d, ids)) for ids in prompts] == expected
        verify(cache)


def test_r10_a_disk_that_fills_under_a_running_daemon(twin, cache, tmp_path):
    """The same by the fault seam, where nothing can be mounted."""
    need_faulty()
    prompts = [prompt(seed, 1000) for seed in range(8)]
    expected = cold_proofs(twin, prompts, folder=tmp_path)
    with running(cache, model=twin, blocks=96, faults="nospace=8M") as d:
        for _ in range(2):
            assert [proof(ask(d, ids)) for ids in prompts] == expected
        assert d.samples("quire_tier_refused_blocks_total")['{reason="no_space"}'] > 0
    verify(cache)


def test_r10_the_cap_holds_through_three_restarts(twin, cache, tmp_path):
    cap = 32 << 20
    prompts = [prompt(seed, 1000) for seed in range(22)]
    expected = cold_proofs(twin, prompts, folder=tmp_path, max_tokens=2)
    largest = 0
    for start in range(4):
        with running(cache, "--disk-cache-max", "32M", model=twin, blocks=192) as d:
            for i, ids in enumerate(prompts[start * 5 :] + prompts[: start * 5]):
                assert proof(ask(d, ids, max_tokens=2)) == expected[(i + start * 5) % len(prompts)]
                largest = max(largest, folder_bytes(cache))
            assert d.kv()["disk"]["bytes"] <= cap
        largest = max(largest, folder_bytes(cache))
        assert largest <= cap
    assert d.process.returncode == 0 and largest > cap / 2
    verify(cache)


# ---- R11 ----


def test_r11_the_cache_of_another_model(twins, cache, tmp_path):
    ids = prompt(1)
    runs = [
        (twins("twin_a"), ()),
        (twins("twin_b"), ()),
        (twins("twin_a"), ("--kv-type", "f32")),
        (twins("twin_a"), ("--block-tokens", "32")),
    ]
    expected = [cold_proofs(model, [ids], *flags, folder=tmp_path)[0] for model, flags in runs]
    assert expected[0] != expected[1]
    for which, (model, flags) in enumerate(runs):
        with running(cache, *flags, model=model) as d:
            reply = ask(d, ids)
            assert hit(reply) == 0 and reach(reply) == 0
            assert proof(reply) == expected[which]
            causes = ("never_stored", "other_fingerprint", "other_fingerprint", "never_stored")  # other blocks: not comparable
            assert reply["kv"][0]["cause"] == causes[which]
    with running(cache, model=twins("twin_a")) as d:
        reply = ask(d, ids)
        assert proof(reply) == expected[0] and reach(reply) >= whole_blocks(ids), "its own records are still there"
    assert len({segment["weights"] for segment in quire_cache("ls", "--disk-cache", cache)["segment_files"]}) == 2


# ---- R12 ----


def rounds_of_eight(d, prompts, expected, rounds):
    """Eight prompts at a time, each in an order of its own; every answer must be the one of its solo run."""
    wrong = []

    def client(which):
        for turn in range(rounds):
            at = (which + turn * 3) % len(prompts)
            reply = ask(d, prompts[at], max_tokens=4)
            if proof(reply) != expected[at]:
                wrong.append((which, turn, at, reply["kv"]))

    threads = [threading.Thread(target=client, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong, wrong[:3]


def marked(seed):
    """A prompt with words of its own among words that all share."""
    word = f" <marker-{seed}-{seed * 7919 % 1000}>"
    return "The same beginning for everyone. " + "".join(f"{i}{word}" for i in range(8))


@pytest.mark.parametrize("faults", [None, "slow=40M,delay=1000,seed=7", "host_tier,copy_delay=20,reorder,seed=7"])
def test_r12_no_request_sees_another_ones_blocks(twin, cache, tmp_path, faults):
    if faults is not None:
        need_faulty()
    prompts = [marked(seed) for seed in range(24)]
    expected = cold_proofs(twin, prompts, folder=tmp_path, max_tokens=4)
    assert len({str(answer) for answer in expected}) > 12
    rounds = ROUNDS if faults is None else ROUNDS // 4
    flags = ("--host-cache", "4M") if faults and "host_tier" in faults else ()
    with running(cache, *flags, "--max-sequences", "8", model=twin, blocks=160, faults=faults) as d:
        rounds_of_eight(d, prompts, expected, rounds)
        below = "host" if flags else "disk"
        for direction in ("store", "load"):
            moved = d.samples("quire_tier_moved_blocks_total")[f'{{tier="{below}",direction="{direction}"}}']
            assert moved > 0, f"nothing to see: no {direction}"
        assert d.samples("quire_prefix_cache_hit_tokens_total")[f'{{tier="{below}"}}'] > 0
        assert d.trouble() == 0
    verify(cache)


def test_the_command_is_the_one_that_was_built():
    assert subprocess.run([BIN, "--version"], capture_output=True, check=True).stdout.startswith(b"quire ")
