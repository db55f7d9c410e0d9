#!/usr/bin/env python3
"""No fault is built into the command: its bytes say nothing of them, and those of the faulty command do."""
import pathlib
import sys

WORDS = [b"QUIRE_FAULTS", b"flip_read", b"eio_write", b"injected:", b"faulty_files", b"__wrap_preadv"]


def found(path):
    data = pathlib.Path(path).read_bytes()
    return [word.decode() for word in WORDS if word in data]


def main():
    release, faulty = sys.argv[1:]
    in_release, in_faulty = found(release), found(faulty)
    if in_release:
        sys.exit(f"{release} knows of faults: {', '.join(in_release)}")
    if "QUIRE_FAULTS" not in in_faulty or "flip_read" not in in_faulty or "injected:" not in in_faulty:
        sys.exit(f"{faulty} should know of faults, and this test should see it; it sees {in_faulty}")
    print(f"none in {release}; {', '.join(in_faulty)} in {faulty}")


main()
