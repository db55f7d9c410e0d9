"""Every C file is compiled with contraction off, and none with flags that let the compiler change arithmetic or tie the
build to this machine.

    compile_flags.py COMPILE_COMMANDS_JSON     check a build
    compile_flags.py --self-test               the check itself can fail
"""
import json
import re
import shlex
import sys

REQUIRED = "-ffp-contract=off"
FORBIDDEN = re.compile(
    r"-ffast-math|-Ofast|-fassociative-math|-funsafe-math-optimizations|-freciprocal-math|-fno-signed-zeros|-ffinite-math-only"
    r"|-fno-trapping-math|-ffp-contract=(fast|on)|-m(arch|tune|cpu)=native"
    r"|--?use_fast_math|--?fmad=true|--?ftz=true|--?prec-(div|sqrt)=false"
)
NVCC_REQUIRED = "-fmad=false"  # the same promise for the GPU


# Built as a stranger would build them, without arithmetic: CMake's check that public headers stand alone, and examples.
ELSEWHERE = re.compile(r"_verify_interface_header_sets/|/examples/[^/]*$")


def arguments_of(entry):
    """The arguments of a command; what nvcc hands to the C++ compiler counts as given to that."""
    arguments = []
    for argument in entry.get("arguments") or shlex.split(entry["command"]):
        host = argument.removeprefix("-Xcompiler=")
        arguments += host.split(",") if host != argument else [argument]
    return arguments


def wrong_flags(arguments):
    """What is wrong with one command; the last -ffp-contract counts."""
    contract = [a for a in arguments if a.startswith("-ffp-contract=")]
    wrong = [a for a in arguments if FORBIDDEN.fullmatch(a) and not a.startswith("-ffp-contract=")]
    if not contract or contract[-1] != REQUIRED:
        wrong.append("no " + REQUIRED)
    if arguments[0].endswith("nvcc") and NVCC_REQUIRED not in arguments:
        wrong.append("no " + NVCC_REQUIRED)
    return wrong


def check(entries):
    lines = []
    for entry in entries:
        if ELSEWHERE.search(entry["file"]) or not entry["file"].endswith((".c", ".cc", ".cpp", ".cu")):
            continue
        lines += [f"{entry['file']}: {flag}" for flag in wrong_flags(arguments_of(entry))]
    return lines


def self_test():
    good = ["cc -O3 -ffp-contract=off -mavx2 -mfma -c a.c", "nvcc -fmad=false -Xcompiler=-Wall,-ffp-contract=off -c a.cu"]
    bad = [
        "cc -O3 -c a.c",
        "cc -ffp-contract=off -ffast-math -c a.c",
        "cc -ffp-contract=off -fassociative-math -c a.c",
        "cc -ffp-contract=off -march=native -c a.c",
        "cc -ffp-contract=off -ffp-contract=fast -c a.c",
        "cc -Ofast -ffp-contract=off -c a.c",
        "nvcc -Xcompiler=-ffp-contract=off -c a.cu",
        "nvcc -fmad=false -c a.cu",
        "nvcc -fmad=false -Xcompiler=-ffp-contract=off --use_fast_math -c a.cu",
    ]
    for command in good:
        assert not check([{"file": "a.c", "command": command}]), command
    for command in bad:
        assert check([{"file": "a.c", "command": command}]), command
    return 0


def main():
    if sys.argv[1] == "--self-test":
        return self_test()
    with open(sys.argv[1], encoding="utf-8") as file:
        entries = json.load(file)
    lines = check(entries)
    print("\n".join(lines) if lines else f"{len(entries)} compile commands are as they should be")
    return 1 if lines or not entries else 0


if __name__ == "__main__":
    sys.exit(main())
