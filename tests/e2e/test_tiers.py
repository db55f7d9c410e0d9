"""The cache on disk as its users see it: hits over eviction and restart with the bits of a cold run, privacy, and its folder."""

import json
import os
import re
import signal
import stat
import struct
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from ask import cached, complete, proof
from served import BIN, MODEL
from tiers import ask, cold_proofs, hit, need_faulty, prompt, quire_cache, reach, running, segments, verify, whole_blocks

KV_TYPES = ("f32", "f16", "bf16")


def until_something_is_loaded():
    """Starts of a daemon: where others keep the machine busy, recomputing may rightly seem faster once, but not every time."""
    yield from range(5)
    pytest.fail("nothing was loaded in five runs")


@pytest.mark.parametrize("kv_type", KV_TYPES)
def test_law_1_through_eviction_and_restart(twin, cache, tmp_path, kv_type):
    """A working set of four times the pool, then restarts: every answer has the bits of a cold run."""
    prompts = [prompt(seed) for seed in range(16)]
    flags = ("--kv-type", kv_type)
    expected = cold_proofs(twin, prompts, *flags, folder=tmp_path)
    with running(cache, *flags, model=twin, blocks=72) as d:
        for turn in range(3):
            replies = [ask(d, ids) for ids in prompts]
            assert [proof(reply) for reply in replies] == expected
            d.flush()
        assert all(reach(reply) >= whole_blocks(ids) for ids, reply in zip(prompts, replies))
        assert d.trouble() == 0
    for _ in until_something_is_loaded():
        with running(cache, *flags, model=twin, blocks=72) as d:
            replies = [ask(d, ids) for ids in prompts]
            assert [proof(reply) for reply in replies] == expected
            assert all(reach(reply) >= whole_blocks(ids) for ids, reply in zip(prompts, replies))
            loaded = sum(reply["kv"][0]["tiers"]["disk"] for reply in replies)
            assert loaded == d.samples("quire_prefix_cache_hit_tokens_total")['{tier="disk"}']
        if loaded:
            break
    verify(cache)


@pytest.mark.parametrize("kv_type", KV_TYPES)
def test_law_1_after_a_kill(twin, cache, tmp_path, kv_type):
    """The same after kill -9: nothing is flushed, and whatever was published is there and right."""
    prompts = [prompt(seed) for seed in range(8)]
    flags = ("--kv-type", kv_type)
    expected = cold_proofs(twin, prompts, *flags, folder=tmp_path)
    with running(cache, *flags, model=twin, blocks=72) as d:
        for ids in prompts:
            ask(d, ids)
        published = d.kv()["disk"]["blocks"]
        d.kill()
    for _ in until_something_is_loaded():
        with running(cache, *flags, model=twin, blocks=72) as d:
            assert d.kv()["disk"]["found_at_start"] >= published
            replies = [ask(d, ids) for ids in prompts]
            assert [proof(reply) for reply in replies] == expected
            assert d.trouble() == 0
        if any(reply["kv"][0]["tiers"]["disk"] for reply in replies):
            break
    verify(cache)


def test_term_hibernates(twin, cache):
    """What was in memory only is a hit after a restart, and the start screen says what was found."""
    ids = prompt(1, 500)
    with running(cache, "--disk-write", "evict", model=twin) as d:
        first = ask(d, ids)
        assert hit(first) == 0 and first["kv"][0]["cause"] == "never_stored"
        assert d.kv()["disk"]["blocks"] == 0
    with running(cache, model=twin) as d:
        screen = d.output()
        assert str(cache) in screen and "found there" in screen
        reply = ask(d, ids)
        assert proof(reply) == proof(first)
        assert hit(reply) == reply["kv"][0]["tiers"]["disk"] and reach(reply) == whole_blocks(ids)
        assert d.kv()["disk"]["found_at_start"] >= 31
        assert hit(ask(d, ids)) >= whole_blocks(ids), "it is in the pool now"
        assert d.kv()["disk"]["damaged"] == 0


def test_without_time_nothing_hibernates(twin, cache):
    ids = prompt(1)
    with running(cache, "--disk-write", "evict", "--hibernate-seconds", "0", model=twin) as d:
        ask(d, ids)
    with running(cache, model=twin) as d:
        assert reach(ask(d, ids)) == 0


def test_r30_hibernation_has_a_limit_and_leaves_whole_records(twin, cache):
    """A slow disk: the limit passes while blocks are being written."""
    need_faulty()
    prompts = [prompt(seed, 1000) for seed in range(4)]
    with running(cache, "--disk-write", "evict", "--hibernate-seconds", "1", model=twin, faults="slow=1M") as d:
        for ids in prompts:
            ask(d, ids)
        started = time.monotonic()
        d.stop()
        assert time.monotonic() - started < 10
    found = verify(cache)
    assert found["unfinished"] == 0, "writes are complete or absent"
    assert 0 < found["blocks"] < 4 * 62
    with running(cache, model=twin) as d:
        assert any(reach(ask(d, ids)) > 0 for ids in prompts)


def test_r30_a_second_signal_ends_hibernation(twin, cache):
    need_faulty()
    with running(cache, "--disk-write", "evict", "--hibernate-seconds", "600", model=twin, faults="slow=1M") as d:
        for seed in range(4):
            ask(d, prompt(seed, 1000))
        d.process.send_signal(signal.SIGTERM)
        time.sleep(0.3)
        started = time.monotonic()
        d.process.send_signal(signal.SIGTERM)
        assert d.process.wait(60) != 0 and time.monotonic() - started < 30
    assert verify(cache)["unfinished"] == 0


def test_flush_makes_everything_last(twin, cache):
    """After the answer nothing is lost by a kill."""
    prompts = [prompt(seed) for seed in range(4)]
    with running(cache, "--disk-write", "evict", model=twin) as d:
        for ids in prompts:
            ask(d, ids)
        reply = d.flush()
        assert reply["flushed"] and reply["blocks_left"] == 0 and reply["written_blocks"] >= 4 * 15
        assert d.flush()["written_blocks"] == 0
        d.kill()
    with running(cache, model=twin) as d:
        assert all(reach(ask(d, ids)) >= whole_blocks(ids) for ids in prompts)
    verify(cache)


def test_write_off_only_reads(twin, cache):
    ids, other = prompt(1), prompt(2)
    with running(cache, model=twin) as d:
        ask(d, ids)
    before = quire_cache("stat", "--disk-cache", cache)["blocks"]
    with running(cache, "--disk-write", "off", model=twin) as d:
        assert reach(ask(d, ids)) >= whole_blocks(ids)
        ask(d, other)
    assert quire_cache("stat", "--disk-cache", cache)["blocks"] == before


def test_a_days_budget_is_kept(twin, cache):
    """Over a restart too."""
    prompts = [prompt(seed, 1000) for seed in range(6)]
    with running(cache, "--disk-write-budget", "3M/day", model=twin) as d:
        for ids in prompts:
            ask(d, ids)
        d.http.post("/v1/kv/flush", json={"timeout": 2})
        assert d.disk("quire_tier_written_bytes_total") <= 3 << 20
        assert d.samples("quire_tier_refused_blocks_total")['{reason="budget"}'] > 0
        left = d.kv()["disk"]["day_budget_left_bytes"]
        assert left < 1 << 20
    assert re.search(r"hibernated lasts=no blocks_left=[1-9]\d* refused_blocks=[1-9]", d.output())
    with running(cache, "--disk-write-budget", "3M/day", model=twin) as d:
        assert d.kv()["disk"]["day_budget_left_bytes"] <= left


# ---- verification ----


def test_verification_recomputes_and_compares(twin, cache, tmp_path):
    prompts = [prompt(seed) for seed in range(6)]
    expected = cold_proofs(twin, prompts, folder=tmp_path)
    with running(cache, model=twin) as d:
        for ids in prompts:
            ask(d, ids)
    with running(cache, "--verify-kv", "always", model=twin) as d:
        replies = [ask(d, ids) for ids in prompts]
        assert [proof(reply) for reply in replies] == expected
        assert all(reply["kv"][0]["cause"] == "verifying" for reply in replies)
        d.wait_idle()
        assert d.metric("quire_kv_verified_blocks_total") >= 6 * 15
        assert d.metric("quire_kv_verify_mismatches_total") == 0
    with running(cache, "--verify-kv", "sample=3", model=twin) as d:
        replies = [ask(d, ids) for ids in prompts]
        assert [proof(reply) for reply in replies] == expected
        causes = [reply["kv"][0]["cause"] for reply in replies]
        assert causes.count("verifying") == 2


# ---- privacy at rest ----


def needle(ids, at):
    """Eight token ids as they lie in a record."""
    return struct.pack("<8i", *ids[at : at + 8])


def found_in(cache, bytes_):
    return [path.name for path in cache.iterdir() if bytes_ in path.read_bytes()]


def payload_sample(cache, ids):
    """Some bytes of the keys and values of a record of this prompt."""
    for path in segments(cache):
        data = path.read_bytes()
        at = data.find(needle(ids, 32))
        if at >= 0:
            record = at // 4096 * 4096
            return data[record + 4096 + 512 : record + 4096 + 1024]
    raise AssertionError("the prompt is in no file")


def test_what_is_deleted_is_in_no_file(twin, cache):
    secret, other = prompt(1, 400), prompt(2, 400)
    salt = "a-salt-that-nobody-else-has"
    with running(cache, model=twin) as d:
        ask(d, secret, cache_salt=salt)
        ask(d, other)
        d.flush()
        sample = payload_sample(cache, secret)
        assert len(set(sample)) > 16
        for bytes_ in (needle(secret, 32), needle(secret, 384), salt.encode(), sample, needle(other, 32)):
            assert found_in(cache, bytes_)
        reply = d.http.request("DELETE", "/v1/kv", json={"cache_salt": salt})
        assert reply.status_code == 200 and reply.json()["erasing"] == 0, reply.text
        for at in range(0, 392, 8):
            assert not found_in(cache, needle(secret, at))
        assert not found_in(cache, salt.encode()) and not found_in(cache, sample)
        assert found_in(cache, needle(other, 32)) and hit(ask(d, other)) >= whole_blocks(other)
        assert reach(ask(d, secret, cache_salt=salt)) == 0
        d.forget()
    names = quire_cache("ls", "--disk-cache", cache)
    verify(cache)
    assert names["blocks"] == 0
    assert not found_in(cache, needle(other, 32)) and not found_in(cache, needle(secret, 32))
    with running(cache, model=twin) as d:
        assert reach(ask(d, other)) == 0


def wait_for_requests(d, count):
    end = time.monotonic() + 30
    while d.metric("quire_requests_total") < count:
        assert time.monotonic() < end, "the engine never heard of it"


def test_what_ran_or_waited_when_its_salt_was_forgotten_is_not_kept(twin, cache):
    """Both were given before the DELETE; they go on, and leave nothing behind."""
    runs, waits = prompt(1, 300), prompt(2, 300)
    with running(cache, "--max-sequences", "1", model=twin) as d, ThreadPoolExecutor(2) as pool:
        answers = [pool.submit(ask, d, runs, cache_salt="s", max_tokens=500, ignore_eos=True)]
        wait_for_requests(d, 1)
        answers.append(pool.submit(ask, d, waits, cache_salt="s"))
        wait_for_requests(d, 2)
        reply = d.http.request("DELETE", "/v1/kv", json={"cache_salt": "s"})
        assert reply.status_code == 200 and reply.json()["erasing"] == 0, reply.text
        for answer in answers:
            answer.result()
        d.flush()
        for ids in (runs, waits):
            assert not any(found_in(cache, needle(ids, at)) for at in range(0, 288, 16))
        assert reach(ask(d, waits, cache_salt="s")) == 0


def test_nothing_forgotten_comes_back_after_a_kill(twin, cache):
    secret = prompt(1, 400)
    with running(cache, model=twin) as d:
        ask(d, secret, cache_salt="s")
        d.flush()
        assert d.http.request("DELETE", "/v1/kv?cache_salt=s").status_code == 200
        d.kill()
    assert not found_in(cache, needle(secret, 32))
    with running(cache, model=twin) as d:
        assert reach(ask(d, secret, cache_salt="s")) == 0


def test_salts_do_not_meet_on_disk(twin, cache):
    ids = prompt(1)
    with running(cache, model=twin) as d:
        ask(d, ids, cache_salt="one")
    with running(cache, model=twin) as d:
        reply = ask(d, ids, cache_salt="two")
        assert reach(reply) == 0
        assert reach(ask(d, ids)) == 0
        assert reach(ask(d, ids, cache_salt="one")) >= whole_blocks(ids)


def test_files_are_private(twin, cache):
    old = os.umask(0)
    try:
        with running(cache, model=twin) as d:
            ask(d, prompt(1))
            d.flush()
            assert stat.S_IMODE(os.stat(cache).st_mode) == 0o700
            files = list(cache.iterdir())
            assert segments(cache)
            assert all(stat.S_IMODE(path.lstat().st_mode) == 0o600 for path in files)
    finally:
        os.umask(old)


# ---- the folder ----


def start_fails(model, cache, *flags):
    command = [BIN, "serve", "--model", model, "--socket", str(cache.parent / "other.sock"), "--context", "512", "--kv-blocks"]
    r = subprocess.run([*command, "64", "--disk-cache", str(cache), *flags], capture_output=True, text=True, timeout=60)
    assert r.returncode != 0
    return r.stderr


def test_a_second_daemon_is_refused(twin, cache):
    ids = prompt(1)
    with running(cache, model=twin) as d:
        ask(d, ids)
        d.flush()
        message = start_fails(twin, cache)
        assert str(cache) in message and str(d.process.pid) in message
        assert hit(ask(d, ids)) >= whole_blocks(ids)
    with running(cache, model=twin) as d:
        assert reach(ask(d, ids)) >= whole_blocks(ids), "nothing was lost"


def test_a_cap_that_is_too_small_is_refused_with_the_numbers(twin, cache):
    message = start_fails(twin, cache, "--disk-cache-max", "64K")
    assert "--disk-cache-max" in message and "0.1 MiB" in message and "at least" in message
    r = subprocess.run([BIN, "plan", twin, "--disk-cache", str(cache), "--json"], capture_output=True, check=True)
    least = json.loads(r.stdout)["disk_bytes_min"]
    assert str(cache.parent) and "--disk-cache-max" in start_fails(twin, cache, "--disk-cache-max", str(least - 1))
    with running(cache, "--disk-cache-max", str(least), model=twin) as d:
        ask(d, prompt(1))


def test_a_folder_that_cannot_be_used_is_named(twin, cache):
    cache.write_text("a file")
    assert str(cache) in start_fails(twin, cache)
    assert cache.read_text() == "a file"
    cache.unlink()
    os.symlink("/tmp", cache)
    assert str(cache) in start_fails(twin, cache)
    cache.unlink()
    cache.mkdir(mode=0o777)
    os.chmod(cache, 0o777)
    assert str(cache) in start_fails(twin, cache)


# ---- the real model ----


def test_a_conversation_goes_on_after_a_restart(cache, tmp_path):
    if not os.path.exists(MODEL):
        pytest.skip("no model")
    text = "The lighthouse keeper writes down the weather every evening before the lamp is lit. " * 20
    with running(cache, model=MODEL) as d:
        first = complete(d, text, explain_cache=True)
    for _ in until_something_is_loaded():
        with running(cache, model=MODEL) as d:
            again = complete(d, text, explain_cache=True)
        assert proof(again) == proof(first)
        assert again["usage"]["prompt_tokens"] == first["usage"]["prompt_tokens"]
        assert cached(again) == again["kv"][0]["tiers"]["disk"] == again["timings"]["cache_n"]
        if cached(again) >= 0.9 * again["usage"]["prompt_tokens"]:
            break
