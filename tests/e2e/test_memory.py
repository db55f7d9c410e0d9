"""The sum on the start screen is what the daemon takes once its pool has been full, and no more."""

import random
import re

import pytest
from served import Daemon

MIB = 1 << 20


def smaps(pid):
    """Bytes by name of smaps_rollup."""
    with open(f"/proc/{pid}/smaps_rollup") as lines:
        found = [re.match(r"(\w+): +(\d+) kB", line) for line in lines]
    return {match[1]: int(match[2]) * 1024 for match in found if match}


def fill(d):
    """Different prompts until the cache has had to give up blocks, then many choices with scores."""
    seed = 0
    while d.metric("quire_kv_blocks_evicted_total") == 0:
        ids = [random.Random(seed).randrange(300, 40000) for _ in range(900)]
        assert d.http.post("/v1/completions", json={"prompt": ids, "max_tokens": 2}).status_code == 200
        seed += 1
    body = {"prompt": "Once upon a time", "max_tokens": 8, "n": 16, "logprobs": 5}
    assert d.http.post("/v1/completions", json=body).status_code == 200


@pytest.mark.parametrize("disk", (False, True))
def test_a_filled_pool_takes_what_the_start_screen_says(tmp_path, disk):
    tiers = ("--disk-cache", str(tmp_path / "cache"), "--disk-cache-max", "256M") if disk else ()
    d = Daemon("--context", "1024", "--kv-memory", "64M", *tiers, folder=str(tmp_path))
    fill(d)
    planned, taken = d.kv()["total_bytes"], smaps(d.process.pid)
    screen = float(re.search(r"^  sum +([0-9.]+) MiB", d.output(), re.MULTILINE)[1])
    assert abs(screen * MIB - planned) < MIB
    assert (d.kv()["disk"]["memory_bytes"] > 0) == disk
    assert abs(taken["Anonymous"] + taken["Locked"] - planned) < planned / 10
    # Weights were repacked: their file pages are given back.
    assert d.kv()["weights"]["mapped_bytes"] == 0
    with open(f"/proc/{d.process.pid}/maps") as maps:
        assert ".gguf" not in maps.read()
    d.stop()
