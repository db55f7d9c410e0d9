"""`quire cache`: what it shows of a folder and of a running daemon, what it finds, and what it never prints."""

import json
import os
import subprocess

from served import BIN
from tiers import ask, folder_bytes, prompt, quire_cache, reach, running, segments, verify, whole_blocks

SECRET_SALT = "salt-of-a-secret"


def text(verb, *flags):
    environment = {key: value for key, value in os.environ.items() if not key.startswith("QUIRE_")}
    command = [BIN, "cache", verb, *map(str, flags)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment)


def fill(d):
    ask(d, prompt(1, 320))
    ask(d, prompt(2, 160), cache_salt=SECRET_SALT)
    d.flush()


def test_ls_and_stat_of_a_folder(twin, cache):
    with running(cache, model=twin) as d:
        fill(d)
        live = quire_cache("ls", "--disk-cache", cache)
        assert live["in_use_by"] == d.process.pid
        assert str(d.process.pid) in text("ls", "--disk-cache", cache).stdout
    found = quire_cache("ls", "--disk-cache", cache)
    assert found["in_use_by"] is None and found["damaged"] == found["unfinished"] == 0
    spaces = {space["namespace"]: space for space in found["namespaces"]}
    assert spaces["(no salt)"]["tokens"] == 16 * spaces["(no salt)"]["blocks"] >= 320
    assert len(spaces) == 2 and sum(space["blocks"] for space in spaces.values()) == found["blocks"] >= 30
    assert sum(row["file_bytes"] for row in found["segment_files"]) == found["file_bytes"]
    assert len(found["segment_files"]) == found["segments"] == len(segments(cache))
    shown = text("ls", "--disk-cache", cache)
    assert shown.returncode == 0 and segments(cache)[0].name in shown.stdout
    assert f"blocks      {found['blocks']}, " in shown.stdout and f"room for {found['segment_files'][0]['slots']}" in shown.stdout
    assert SECRET_SALT not in shown.stdout + str(found)
    sums = quire_cache("stat", "--disk-cache", cache)
    assert sums["blocks"] == found["blocks"] and sums["file_bytes"] == found["file_bytes"]


def test_reading_does_not_disturb_a_running_daemon(twin, cache):
    ids = prompt(1, 320)
    with running(cache, model=twin) as d:
        fill(d)
        before = {path.name: path.stat().st_mtime_ns for path in cache.iterdir()}
        for verb in ("ls", "stat", "verify"):
            quire_cache(verb, "--disk-cache", cache)
        assert {path.name: path.stat().st_mtime_ns for path in cache.iterdir()} == before
        assert reach(ask(d, ids)) >= whole_blocks(ids)


def test_verify_names_what_is_damaged(twin, cache):
    with running(cache, model=twin) as d:
        fill(d)
    blocks = verify(cache)["blocks"]
    path = segments(cache)[0]
    data = bytearray(path.read_bytes())
    pages = [at for at in range(4096, len(data), 4096) if data[at : at + 8] == b"QUIREREC"]
    data[pages[1] + 4096 + 300] ^= 1
    data[pages[2] + 130] ^= 1
    path.write_bytes(data)
    found = quire_cache("verify", "--disk-cache", cache, expected=1)
    assert found["damaged"] == 2 and found["blocks"] == blocks - 2
    assert sorted(flaw["offset"] for flaw in found["flaws"]) == pages[1:3]
    shown = text("verify", "--disk-cache", cache)
    assert shown.returncode == 1
    for page in pages[1:3]:
        assert f"damaged: {path.name}: offset {page}: " in shown.stdout


def test_flush_stat_and_clear_of_a_running_daemon(twin, cache):
    ids = prompt(1, 320)
    with running(cache, "--disk-write", "evict", model=twin) as d:
        ask(d, ids)
        ask(d, ids, cache_salt="x")
        flushed = quire_cache("flush", "--socket", d.path)
        assert flushed["flushed"] and flushed["written_blocks"] >= 40
        assert quire_cache("stat", "--socket", d.path)["disk"]["blocks"] >= 40
        shown = text("stat", "--socket", d.path)
        assert shown.returncode == 0 and "disk" in shown.stdout and "blocks" in shown.stdout
        assert quire_cache("clear", "--socket", d.path, "--salt", "x")["erasing"] == 0
        assert reach(ask(d, ids, cache_salt="x", max_tokens=1)) == 0
        assert reach(ask(d, ids)) >= whole_blocks(ids)
        assert quire_cache("clear", "--socket", d.path)["forgotten"] == "all"
        assert reach(ask(d, ids)) == 0
        refused = text("clear", "--disk-cache", cache)
        assert refused.returncode != 0 and str(d.process.pid) in refused.stderr and "Without --disk-cache" in refused.stderr


def test_clear_of_a_folder(twin, cache):
    with running(cache, model=twin) as d:
        fill(d)
    assert folder_bytes(cache) > 1 << 20
    cleared = quire_cache("clear", "--disk-cache", cache)
    assert cleared["segments"] > 0 and cleared["bytes"] > 0
    assert not segments(cache) and folder_bytes(cache) < 1 << 16
    with running(cache, model=twin) as d:
        assert reach(ask(d, prompt(1, 320))) == 0


def test_mistakes_are_named(tmp_path):
    nowhere = tmp_path / "nowhere"
    for flags, word in (
        (("ls",), "--disk-cache"),
        (("verify", "--socket", "/tmp/x"), "--disk-cache"),
        (("flush", "--disk-cache", nowhere), "--socket"),
        (("clear", "--disk-cache", nowhere, "--salt", "x"), "--salt"),
        (("ls", "--disk-cache", nowhere), "nowhere"),
        (("clear", "--disk-cache", nowhere), "nowhere"),
        (("stat", "--socket", nowhere), "nowhere"),
        (("stat", "--socket", nowhere, "--disk-cache", nowhere), "not both"),
        (("shrink",), "ls, stat"),
        (("ls", nowhere), "--disk-cache DIR"),
        (("flush", "--timeout", "never"), "--timeout"),
    ):
        r = text(*flags)
        assert r.returncode != 0 and word in r.stderr, (flags, r.stderr)
    assert not nowhere.exists()


def test_a_daemon_without_a_disk_says_so(twin, tmp_path):
    from served import Daemon

    d = Daemon("--context", "512", "--kv-blocks", "64", folder=str(tmp_path), model=twin)
    try:
        r = text("flush", "--socket", d.path)
        assert r.returncode != 0 and "--disk-cache" in r.stderr
        assert quire_cache("stat", "--socket", d.path)["disk"]["present"] is False
        assert "none" in text("stat", "--socket", d.path).stdout
        d.stop()
    finally:
        if d.process.poll() is None:
            d.process.kill()


def test_plan_says_what_a_disk_cache_holds(twin, tmp_path):
    folder, size = tmp_path / "nowhere", 1 << 30
    command = [BIN, "plan", twin, "--disk-cache", str(folder), "--context", "512", "--kv-blocks", "64", "--disk-cache-max"]
    r = subprocess.run([*command, str(size), "--json"], capture_output=True, text=True, check=True)
    plan = json.loads(r.stdout)
    assert plan["disk_bytes_max"] == size and plan["tiers_bytes"] > 0
    assert 0.8 * size < plan["disk_blocks_max"] * plan["disk_bytes_per_block"] <= size
    assert str(folder) in subprocess.run([*command, str(size)], capture_output=True, text=True, check=True).stdout
    least = plan["disk_bytes_min"]
    subprocess.run([*command, str(least)], capture_output=True, check=True)
    refused = subprocess.run([*command, str(least - 1)], capture_output=True, text=True, check=False)
    assert refused.returncode != 0 and "--disk-cache-max" in refused.stderr and "at least" in refused.stderr
    assert not folder.exists()
