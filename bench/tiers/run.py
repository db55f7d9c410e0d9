#!/usr/bin/env python3
"""The lower tiers end to end: what a client of the daemon sees. One JSON line per figure.

    bench/tiers/run.py [--quire build/release/quire] [--llama-server FILE] [BENCH ...]

BENCH: working_set, cached_conversation, disk_speeds, zero_reuse (default: all); each file says what it measures. Build the peer
with bench/peers/build-llama.sh. Needs Python 3.10 and nothing else. The machine should be quiet; --lock FILE is held (flock) while
something is measured, for machines that several people share. Every line names the CPU and the share of it that other
programs had meanwhile.
"""
import argparse
import contextlib
import fcntl
import json
import os
import pathlib
import signal
import sys
import time

import cached_conversation
import disk_speeds
import servers
import working_set
import zero_reuse

ROOT = pathlib.Path(__file__).resolve().parents[2]
BENCHES = {"working_set": working_set, "cached_conversation": cached_conversation, "disk_speeds": disk_speeds,
           "zero_reuse": zero_reuse}


def parse():
    cache = os.environ.get("XDG_CACHE_HOME", os.path.expanduser("~/.cache"))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("benches", nargs="*", metavar="BENCH", help="default: all")
    parser.add_argument("--quire", default=str(ROOT / "build/release/quire"))
    parser.add_argument("--quire-faulty", default=str(ROOT / "build/release/quire_faulty"),
                        help="the command with injected faults, a test executable")
    parser.add_argument("--llama-server", default=None, help="the peer; without it working_set has two sides")
    parser.add_argument("--model", default=os.environ.get("QUIRE_MODEL", f"{cache}/quire/models/SmolLM2-135M-Instruct.Q4_1.gguf"))
    parser.add_argument("--folder", default=None, help="where the tiers' files go: the disk to measure (default: $TMPDIR)")
    parser.add_argument("--lock", default=None, help="held while something is measured")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--rounds", type=int, default=0, help="repetitions (default: by bench)")
    parser.add_argument("--seed", default="1")
    parser.add_argument("--token-range", type=int, nargs=2, default=[1000, 40000], help="ids that prompts are drawn from")
    group = parser.add_argument_group("working_set")
    group.add_argument("--sessions", type=int, default=16)
    group.add_argument("--turns", type=int, default=4)
    group.add_argument("--first-tokens", type=int, default=1216)
    group.add_argument("--user-tokens", type=int, default=64)
    group.add_argument("--answer-tokens", type=int, default=32, help="also of zero_reuse")
    group.add_argument("--at-once", type=int, default=3, help="also of zero_reuse")
    group.add_argument("--working-set", type=int, default=4, help="in pools")
    group.add_argument("--pause-s", type=float, default=1.0)
    group = parser.add_argument_group("cached_conversation and disk_speeds")
    group.add_argument("--conversation-tokens", type=int, default=4000)
    group.add_argument("--streams", type=int, default=2, help="that decode in the background")
    group.add_argument("--background-tokens", type=int, default=512, help="of one background answer")
    group.add_argument("--speeds", default="20M,100M,500M,native")
    group.add_argument("--conversations", type=int, default=32)
    group.add_argument("--session-tokens", type=int, default=1536)
    group = parser.add_argument_group("zero_reuse")
    group.add_argument("--policies", default="complete,evict", help="of --disk-write")
    group.add_argument("--valgrind", action="store_true", help="count instructions with callgrind: slow, nothing else is measured")
    group.add_argument("--cold-tokens", type=int, default=768)
    group.add_argument("--cold-requests", type=int, default=6, help="of a slice")
    group.add_argument("--cold-slices", type=int, default=6, help="of a pair, on each side")
    options = parser.parse_args()
    unknown = [name for name in options.benches if name not in BENCHES]
    if unknown:
        parser.error(f"no bench {unknown[0]}: {', '.join(BENCHES)}")
    return options


def others_seconds():
    """Processor time of everything but this program and its servers: other programs, and what the host gave to others."""
    with open("/proc/stat", encoding="ascii") as file:
        fields = [int(x) for x in file.readline().split()[1:]]
    busy = (sum(fields[:3]) + sum(fields[5:8])) / servers.TICKS
    return busy - time.process_time() - sum(server.cpu_seconds() for server in servers.live)


class Quiet:
    """Holds the lock while something is measured and adds up how much of the machine others used meanwhile."""

    def __init__(self, path):
        self.path, self.others, self.wall = path, 0.0, 0.0

    def others_share(self):
        return round(self.others / (self.wall * os.cpu_count()), 3) if self.wall else None

    @contextlib.contextmanager
    def __call__(self):
        with open(self.path or os.devnull, "a", encoding="ascii") as file:
            if self.path:
                fcntl.flock(file, fcntl.LOCK_EX)
            begun, others = time.monotonic(), others_seconds()
            try:
                yield
            finally:
                self.wall += time.monotonic() - begun
                self.others += others_seconds() - others


def stop(*_):
    """Requests under way would be waited for, so their servers go first; folders are removed on the way out."""
    for server in list(servers.live):
        server.process.kill()
    sys.exit("stopped")


def main():
    options = parse()
    signal.signal(signal.SIGTERM, stop)
    for name in options.benches or BENCHES:
        quiet = Quiet(options.lock)

        def emit(row, quiet=quiet):
            row |= {"cpu": servers.cpu_name(), "threads": options.threads, "model": pathlib.Path(options.model).name,
                    "measured_s": round(quiet.wall, 1), "others_share": quiet.others_share()}
            print(json.dumps(row), flush=True)

        print(f"{name} ...", file=sys.stderr, flush=True)
        BENCHES[name].run(options, emit, quiet)


if __name__ == "__main__":
    main()
