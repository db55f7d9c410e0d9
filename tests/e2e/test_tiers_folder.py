"""A folder that is taken away, emptied or closed under a running daemon: requests go on, metrics and log say so."""

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
from models import make_models  # noqa: F401
from tiers import ask, cold_proofs, prompt, running, segments, twin_fixture, twins_fixture  # noqa: F401

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
