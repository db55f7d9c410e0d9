#!/usr/bin/env python3
"""Plants one fault at a time in the CUDA code and demands that the mode named for it notices.

    run_faults.py CONFIG_JSON [--build plain|asan|tsan|ptx] [--only NAME ...]

A fault is a line of faults.py: a file, a replacement in it, and the run that must fail with a certain message. The file is
patched in a copy, the sources that hold it are compiled again, and the test program is linked with them in place of the
sound ones. Before that each program must pass as it is, or being caught would mean nothing. CONFIG_JSON is written by CMake
and says how objects are compiled and linked in each build.
"""
import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

from faults import FAULTS, MODES

OUTPUT_MAX = 20000
RUN_SECONDS = 120


class Workshop:
    """Builds and runs programs with a patched file."""

    def __init__(self, config, folder):
        self.config = config
        self.root = pathlib.Path(config["root"])
        self.folder = pathlib.Path(folder)

    def patch(self, fault):
        """A tree with the patched file alone; it comes before the project's root among include paths."""
        text = (self.root / fault.file).read_text()
        if text.count(fault.old) != 1:
            raise ValueError(f"{fault.file} has the text {text.count(fault.old)} times: {fault.old!r}")
        overlay = self.folder / re.sub(r"\W+", "_", fault.name)
        patched = overlay / fault.file
        patched.parent.mkdir(parents=True)
        patched.write_text(text.replace(fault.old, fault.new))
        return overlay

    def source(self, overlay, name):
        patched = overlay / name
        return patched if patched.exists() else self.root / name

    def command(self, arguments):
        done = subprocess.run(arguments, capture_output=True, text=True, check=False)
        if done.returncode:
            raise ValueError(" ".join(map(str, arguments)) + "\n" + done.stderr[:OUTPUT_MAX])

    def compile(self, overlay, build, fault, name):
        source = self.source(overlay, name)
        output = overlay / (source.name + "." + build + ".o")
        compiler = [self.config["cc"]] if source.suffix == ".c" else [self.config["cxx"], "-std=c++17"]
        language = ["-x", "c++"] if source.suffix == ".cu" else []
        self.command(compiler + [f"-I{overlay}"] + self.config["compile"] + self.shapes(fault) + self.config[build]["flags"]
                     + language + ["-c", str(source), "-o", str(output)])
        return output

    @staticmethod
    def shapes(fault):
        return [f"-DQR_CUDA_ONLY_HEAD_DIM={fault.head_dim}"]

    def link(self, overlay, build, fault):
        program = self.config[build]["programs"][fault.program]
        fresh = [self.compile(overlay, build, fault, name) for name in fault.sources]
        replaced = {pathlib.Path(name).name + ".o" for name in fault.sources}
        kept = [o for o in program["objects"] if pathlib.Path(o).name not in replaced]
        output = overlay / (fault.program + ".bin")
        self.command([self.config["cxx"]] + self.config[build]["flags"] + ["-rdynamic", "-o", str(output)] + list(map(str, fresh))
                     + kept + program["link"] + self.config[build]["libraries"])
        return output, {}

    def ptx(self, overlay, fault):
        """The sound program, given PTX of the patched sources."""
        program = self.config["plain"]["programs"][fault.program]
        files = list(program["ptx"])
        for name in fault.sources:
            source = self.source(overlay, name)
            output = overlay / (source.stem + ".ptx")
            self.command(self.config["nvcc"] + [f"-I{overlay}"] + self.config["nvcc_flags"] + self.shapes(fault)
                         + ["-ptx", "-o", str(output), str(source)])
            files = [f for f in files if not pathlib.Path(f).name.startswith(source.stem + "_")] + [str(output)]
        return pathlib.Path(program["binary"]), {"EMU_PTX": ":".join(files)}

    def run(self, binary, program, head_dim, environment):
        """(exit status, output); a hang counts as a failure that says so."""
        arguments = [str(binary)]
        if self.config["plain"]["programs"][program]["by_head_dim"]:
            arguments += ["--head-dim", str(head_dim)]
        environment = {**os.environ, "TSAN_OPTIONS": "halt_on_error=1:atexit_sleep_ms=0", **environment}
        try:
            done = subprocess.run(arguments, capture_output=True, text=True, errors="replace", check=False, env=environment,
                                  timeout=RUN_SECONDS)
        except subprocess.TimeoutExpired:
            return 124, "timed out"
        return done.returncode, (done.stdout + done.stderr)[:OUTPUT_MAX]

    def check_sound(self, program, mode, head_dim):
        """The program as it is must pass in this mode."""
        build, environment = MODES[mode]
        entry = self.config["plain" if build == "ptx" else build]["programs"][program]
        if build == "ptx":
            environment = {**environment, "EMU_PTX": ":".join(entry["ptx"])}
        status, output = self.run(entry["binary"], program, head_dim, environment)
        return "" if status == 0 else f"{program} fails without a fault in mode {mode}:\n{output[:2000]}"

    def check_fault(self, fault):
        """Empty when the fault is caught as it should be."""
        build, environment = MODES[fault.mode]
        overlay = self.patch(fault)
        binary, extra = self.ptx(overlay, fault) if build == "ptx" else self.link(overlay, build, fault)
        status, output = self.run(binary, fault.program, fault.head_dim, {**environment, **extra})
        if status == 0:
            return "not caught"
        return "" if re.search(fault.says, output) else f"caught, but with another message:\n{output[:2000]}"


def report(kind, name, wrong):
    print(f"{'ok    ' if not wrong else 'FAILED'} {kind} {name}" + (f": {wrong}" if wrong else ""), flush=True)
    return bool(wrong)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("config")
    parser.add_argument("--build", choices=["plain", "asan", "tsan", "ptx"])
    parser.add_argument("--only", action="append", metavar="NAME")
    arguments = parser.parse_args()
    config = json.loads(pathlib.Path(arguments.config).read_text())
    chosen = [f for f in FAULTS if (not arguments.build or MODES[f.mode][0] == arguments.build)
              and (not arguments.only or f.name in arguments.only)]
    failures = 0
    with tempfile.TemporaryDirectory() as folder:
        workshop = Workshop(config, folder)
        for program, mode, head_dim in sorted({(f.program, f.mode, f.head_dim) for f in chosen}):
            failures += report("sound", f"{program} {head_dim} ({mode})", workshop.check_sound(program, mode, head_dim))
        for fault in chosen:
            try:
                wrong = workshop.check_fault(fault)
            except ValueError as error:
                wrong = str(error)
            failures += report("fault", f"{fault.name} ({fault.mode})", wrong)
    print(f"{len(chosen)} faults, {failures} failures")
    return failures != 0 or not chosen


if __name__ == "__main__":
    sys.exit(main())
