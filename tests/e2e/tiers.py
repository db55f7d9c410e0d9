"""Daemons with a cache on disk: starting and killing them, prompts with answers to compare with, and looking into the folder.

The model is one of make_models' twins: small enough to start in a moment, and slow enough that reading a block is always
faster than computing it.
"""

import contextlib
import json
import os
import pathlib
import random
import subprocess

import pytest
from ask import cached, complete, proof
from models import make_models
from served import BIN, Daemon

FAULTY = os.environ.get("QUIRE_FAULTY", str(pathlib.Path(BIN).with_name("quire_faulty")))
BLOCK = 16
PAGE = 4096
POOL = ("--context", "1024", "--kv-blocks")


def prompt(seed, count=256):
    """Token ids that no other seed shares a block of."""
    chance = random.Random(seed)
    return [chance.randrange(3, 500) for _ in range(count)]


def whole_blocks(ids, block=BLOCK):
    """What of a prompt can be cached: all but the last token, in whole blocks."""
    return (len(ids) - 1) // block * block


class DiskDaemon(Daemon):
    """A daemon over a folder of cached blocks. `faults` makes it the faulty build."""

    def __init__(self, cache, *flags, model, blocks=512, faults=None, folder=None, environment=None, **more):
        command = None
        folder = str(folder or pathlib.Path(cache).parent)
        self.start_flags = [*POOL, str(blocks), "--disk-cache", str(cache), "--disk-cache-max", "256M", *flags]
        binary = FAULTY if faults is not None else BIN
        variables = [f"QUIRE_FAULTS={faults or ''}", *(environment or [])]
        command = ["env", *variables, binary, "serve", "--model", model, "--socket", os.path.join(folder, "s.sock")]
        super().__init__(folder=folder, model=model, command=[*command, *self.start_flags], **more)

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.http.close()

    def flush(self):
        reply = self.http.post("/v1/kv/flush")
        assert reply.status_code == 200, reply.text
        return reply.json()

    def samples(self, name):
        """The samples of a metric by their labels."""
        found = {}
        for line in self.http.get("/metrics").text.splitlines():
            if line.startswith((name + "{", name + " ")):
                found[line.rsplit(" ", 1)[0][len(name) :]] = float(line.rsplit(" ", 1)[1])
        return found

    def disk(self, name, **labels):
        labels = {"tier": "disk", **labels}
        return self.samples(name)["{" + ",".join(f'{k}="{v}"' for k, v in labels.items()) + "}"]

    def faults_met(self):
        """What the faulty build counted, when it has ended."""
        line = [line for line in self.output().splitlines() if line.startswith("faults: ")][-1]
        return {key: int(count) for key, count in (pair.split("=") for pair in line.split()[1:])}

    def trouble(self):
        """Everything that was noticed to be wrong with files."""
        return self.disk("quire_tier_damaged_total") + self.disk("quire_tier_errors_total")


@contextlib.contextmanager
def running(*arguments, expected=0, **more):
    """A daemon that must be idle and end cleanly, unless it is killed before."""
    d = DiskDaemon(*arguments, **more)
    try:
        yield d
        if d.process.poll() is None:
            d.wait_idle()
            d.stop(expected)
    finally:
        if d.process.poll() is None:
            d.kill()


def ask(d, ids, **more):
    return complete(d, ids, explain_cache=True, **more)


def hit(reply):
    return cached(reply)


def reach(reply):
    """Tokens that were found, loaded or not: a load may rightly be refused when the machine is busy."""
    entry = reply["kv"][0]
    return entry["matched_tokens"] + entry["stored_tokens"]


def cold_proofs(model, prompts, *flags, folder, **more):
    """What each prompt answers without any cache."""
    command = [BIN, "serve", "--model", model, "--socket", os.path.join(folder, "s.sock"), *POOL, "512", "--no-cache", *flags]
    d = Daemon(folder=str(folder), command=command)
    try:
        answers = [proof(complete(d, ids, **more)) for ids in prompts]
        d.stop()
        return answers
    finally:
        if d.process.poll() is None:
            d.process.kill()
            d.process.wait()


def quire_cache(verb, *flags, expected=0):
    """What `quire cache VERB --json` says."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("QUIRE_")}
    r = subprocess.run(
        [BIN, "cache", verb, "--json", *map(str, flags)], capture_output=True, text=True, timeout=120, env=environment
    )
    assert r.returncode == expected, f"{r.returncode}: {r.stdout} {r.stderr}"
    return json.loads(r.stdout) if r.stdout else {"error": r.stderr}


def damaged(cache):
    """How many records of the folder do not prove themselves."""
    r = subprocess.run([BIN, "cache", "verify", "--json", "--disk-cache", str(cache)], capture_output=True, text=True, timeout=120)
    assert r.returncode in (0, 1) and r.stdout, r.stderr
    return json.loads(r.stdout)["damaged"]


def verify(cache):
    """Nothing in the folder is damaged."""
    found = quire_cache("verify", "--disk-cache", cache)
    assert found["damaged"] == 0 and not [flaw for flaw in found["flaws"] if flaw["kind"] == "damaged"]
    return found


def segments(cache):
    return sorted(pathlib.Path(cache).glob("segment-*.quire"))


def change(path, at, byte=None):
    with open(path, "r+b") as file:
        file.seek(at)
        old = file.read(1)
        file.seek(at)
        file.write(bytes([old[0] ^ 0x40]) if byte is None else byte)


def record_pages(path):
    """Where records begin in a segment."""
    data = path.read_bytes()
    return [at for at in range(PAGE, len(data), PAGE) if data[at : at + 8] == b"QUIREREC"]


def every_record(offset):
    def spoil(path):
        for at in record_pages(path):
            change(path, at + offset)

    return spoil


def folder_bytes(cache):
    """Real use of the file system, in bytes. Files may go meanwhile."""
    total = 0
    for path in pathlib.Path(cache).iterdir():
        with contextlib.suppress(FileNotFoundError):
            total += path.stat().st_blocks * 512
    return total


def counted(reply):
    return hit(reply), reply["kv"][0]


@pytest.fixture(scope="module", name="twins")
def twins_fixture(tmp_path_factory):
    return make_models(tmp_path_factory.mktemp("twins"))


@pytest.fixture(scope="module", name="twin")
def twin_fixture(twins):
    return twins("twin_a")


@pytest.fixture(name="cache")
def cache_fixture(tmp_path):
    return tmp_path / "kv"


def need_faulty():
    if not os.path.exists(FAULTY):
        pytest.fail(f"{FAULTY} is not built")
