"""A folder that is taken away, emptied, closed or slow under a daemon: requests go on, metrics and log say so."""

import contextlib
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import time

import pytest
from ask import proof
from served import BIN
from tiers import DiskDaemon, ask, cold_proofs, need_faulty, prompt, reach, running, segments, verify, whole_blocks

NOBODY = 65534


@contextlib.contextmanager
def own_folder(tmp_path):
    yield tmp_path / "kv", []


@contextlib.contextmanager
def folder_of_somebody(tmp_path):
    """Permissions say nothing to root, so a daemon of root's is made one of nobody's."""
    if os.geteuid() != 0:
        yield tmp_path / "kv", []
        return
    folder = pathlib.Path(tempfile.mkdtemp(prefix="quire-e2e-"))
    os.chown(folder, NOBODY, NOBODY)
    try:
        yield folder / "kv", ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    finally:
        shutil.rmtree(folder)


def move_away(cache):
    cache.rename(cache.with_name("elsewhere"))


def move_back(cache):
    cache.with_name("elsewhere").rename(cache)


def close(cache):
    for path in segments(cache):
        path.chmod(0o400)
    cache.chmod(0o500)


def open_again(cache):
    cache.chmod(0o700)
    for path in segments(cache):
        path.chmod(0o600)


def cover_read_only(cache):
    """A file system with files open for writing cannot be remounted; one that is read-only can be mounted over it."""
    r = subprocess.run(["mount", "-t", "tmpfs", "-o", "ro,size=1M,mode=0700", "tmpfs", str(cache)], capture_output=True)
    if r.returncode != 0:
        pytest.skip("no file system can be mounted here")


def uncover(cache):
    subprocess.run(["umount", "-l", str(cache)], check=True)


# Whose folder, what is done to it, and what mends that: then blocks are stored again.
WAYS = {
    "moved_away": (own_folder, move_away, move_back),
    "removed": (own_folder, shutil.rmtree, None),
    "not_writable": (folder_of_somebody, close, open_again),
    "read_only": (own_folder, cover_read_only, uncover),
}


def stored(d):
    return d.disk("quire_tier_moved_blocks_total", direction="store")


def noticed(d):
    return d.trouble() + d.samples("quire_tier_refused_blocks_total")['{reason="broken"}']


def until(happens, again=lambda: None):
    end = time.monotonic() + 30
    while not happens():
        again()
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.mark.parametrize("way", WAYS)
def test_a_folder_that_goes_away_fails_no_request(twin, tmp_path, way):
    place, spoil, mend = WAYS[way]
    prompts = [prompt(seed, 500) for seed in range(8)]
    expected = cold_proofs(twin, prompts, folder=tmp_path)

    with place(tmp_path) as (cache, prefix):
        model = shutil.copy(twin, cache.parent)
        os.chmod(model, 0o644)
        with running(cache, "--disk-cache-max", "6M", model=model, blocks=96, environment=prefix) as d:

            def round_of_all():
                assert [proof(ask(d, ids)) for ids in prompts] == expected

            round_of_all()
            until(lambda: stored(d) > 0)
            assert noticed(d) == 0
            spoil(cache)
            try:
                until(lambda: noticed(d) > 0, again=round_of_all)
                round_of_all()
                assert d.http.get("/health").status_code == 200
            finally:
                if mend:
                    mend(cache)
            if mend:
                before = stored(d)
                until(lambda: stored(d) > before, again=round_of_all)
        assert " warn tier_trouble " in d.output()
        assert re.search(r" warn tier_(damaged|error) file=\S+ offset=-?\d+ what=\S", d.output())


def test_a_removed_folder_is_made_again_and_used(twin, cache):
    """Its blocks are gone, which costs their computation once."""
    ids = prompt(1)
    with running(cache, model=twin) as d:
        first = proof(ask(d, ids))
        d.flush()
        used = d.disk("quire_tier_used_bytes")
        shutil.rmtree(cache)
        assert proof(ask(d, ids)) == first
        d.http.post("/v1/kv/flush")
        until(lambda: segments(cache), again=lambda: [ask(d, prompt(time.monotonic_ns())), d.http.post("/v1/kv/flush")])
        assert cache.stat().st_mode & 0o777 == 0o700
        assert d.disk("quire_tier_used_bytes") <= used
    assert re.search(r" warn tier_error file=\. offset=-1 what=\"the folder was removed", d.output())
    assert verify(cache)["blocks"] > 0


def test_a_folder_that_cannot_be_written_is_served_from(twin, tmp_path):
    ids = prompt(2)
    with folder_of_somebody(tmp_path) as (cache, prefix):
        model = shutil.copy(twin, cache.parent)
        os.chmod(model, 0o644)
        with running(cache, model=model, environment=prefix) as d:
            first = proof(ask(d, ids))
        close(cache)
        before = {path.name: path.stat().st_mtime_ns for path in cache.iterdir()}
        with running(cache, "--disk-write", "off", model=model, environment=prefix) as d:
            reply = ask(d, ids)
            assert proof(reply) == first and reach(reply) == whole_blocks(ids)
            assert proof(ask(d, prompt(3))) is not None
            assert d.trouble() == 0
        assert {path.name: path.stat().st_mtime_ns for path in cache.iterdir()} == before
        command = [BIN, "serve", "--model", model, "--socket", str(cache.parent / "t.sock"), "--disk-cache", str(cache)]
        refused = subprocess.run(["env", *prefix, *command], capture_output=True, text=True, timeout=60, check=False)
        assert refused.returncode != 0 and "cannot be written" in refused.stderr
        open_again(cache)


def test_a_signal_ends_a_start_that_reads_a_slow_disk(twin, cache):
    """Each read takes a second, and there are many; the start must not wait for them all."""
    need_faulty()
    with running(cache, "--disk-cache-max", "6M", model=twin, blocks=96) as d:
        for seed in range(8):
            ask(d, prompt(seed, 500))
        d.flush()
    before = {path.name: path.read_bytes() for path in segments(cache)}
    assert len(before) >= 5
    d = DiskDaemon(cache, "--disk-cache-max", "6M", model=twin, blocks=96, faults="delay=1000000", wait=False)
    until(lambda: os.path.exists(d.path))
    time.sleep(0.5)  # the index is being read by then, or has not begun: either must end soon
    started = time.monotonic()
    d.stop()
    assert time.monotonic() - started < 8, d.output()
    assert "load_failed" not in d.output() and d.output().count("loaded in") == 1, "only the first was ever ready"
    assert {path.name: path.read_bytes() for path in segments(cache)} == before
    with running(cache, "--disk-cache-max", "6M", model=twin, blocks=96) as d:
        assert any(reach(ask(d, prompt(seed, 500))) for seed in range(8))
