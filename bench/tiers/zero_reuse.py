"""What the disk tier costs when nothing is ever reused: throughput, processor time and instructions, on and off, in pairs.

Every prompt is new. One pair is the same work on a server with the tier and on one without, in slices of a second or two that take
turns (on off off on ...), so that a machine that changes its speed does so for both. Processor time, and a second figure of
throughput, count until the last block is written, so that work put off is not work saved. Instructions are counted where the machine has
counters (perf); a virtual machine often has none, then that field is null. With --valgrind they are counted by callgrind instead, on
one thread: work that a server does between start and stop, less that of one that is started and stopped without any.
"""
import concurrent.futures
import random
import re
import signal
import subprocess
import time

import figures
import servers


class Instructions:
    """Instructions of a process, all threads, user and kernel, by perf stat while it is open."""

    def __init__(self, pid):
        self.count = None
        self.command = ["perf", "stat", "-x", ",", "-e", "instructions", "-p", str(pid)]

    def __enter__(self):
        try:
            self.process = subprocess.Popen(self.command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        except FileNotFoundError:
            self.process = None
        time.sleep(0.2)
        return self

    def __exit__(self, *_):
        if not self.process:
            return
        self.process.send_signal(signal.SIGINT)
        found = re.search(r"^(\d+),", self.process.communicate()[1], re.M)
        self.count = int(found.group(1)) if found else None


class Side:
    def __init__(self, server, options):
        self.server, self.options = server, options
        self.cached = self.written_tokens = 0
        self.forget()

    def forget(self):
        """What was measured so far was to warm up."""
        self.tokens_per_s, self.written_tokens_per_s, self.cpu_s, self.instructions = [], [], [], []
        self.begin_pair()

    def begin_pair(self):
        self.tokens, self.seconds, self.written_seconds, self.cpu, self.counted = 0, 0.0, 0.0, 0.0, 0

    def end_pair(self):
        self.tokens_per_s.append(self.tokens / self.seconds)
        self.written_tokens_per_s.append(self.tokens / self.written_seconds)
        self.cpu_s.append(self.cpu)
        self.instructions.append(self.counted)
        self.begin_pair()

    def measure(self, prompts):
        before = self.server.cpu_seconds()
        with Instructions(self.server.process.pid) as counter:
            begun = time.monotonic()
            with concurrent.futures.ThreadPoolExecutor(self.options.at_once) as pool:
                answers = list(pool.map(lambda prompt: self.server.complete(prompt, self.options.answer_tokens), prompts))
            ended = written = time.monotonic()
            if self.server.disk:
                self.written_tokens, written = self.server.wait_written()
        self.seconds += ended - begun
        self.written_seconds += written - begun
        self.tokens += sum(answer.prompt_tokens + len(answer.tokens) for answer in answers)
        self.cpu += self.server.cpu_seconds() - before
        self.counted += counter.count or 0
        self.cached += sum(answer.cached_tokens for answer in answers)


def report(policy, on, off):
    row = {"bench": "zero_reuse", "disk_write": policy, "pairs": len(on.cpu_s), "cached_tokens": on.cached + off.cached,
           "stored_tokens": on.written_tokens}
    for name, side in (("on", on), ("off", off)):
        row[f"{name}_tokens_per_s"] = round(figures.percentile(side.tokens_per_s, 50), 1)
        row[f"{name}_cpu_s"] = round(figures.percentile(side.cpu_s, 50), 3)
    row["throughput"] = figures.pair_ratio(on.tokens_per_s, off.tokens_per_s)
    row["throughput_until_written"] = figures.pair_ratio(on.written_tokens_per_s, off.written_tokens_per_s)
    row["cpu_time"] = figures.pair_ratio(on.cpu_s, off.cpu_s)
    counted = all(on.instructions + off.instructions)
    row["instructions"] = figures.pair_ratio(on.instructions, off.instructions) if counted else None
    return row


def run_policy(policy, options, emit, quiet):
    source = random.Random(f"{options.seed} {policy}")

    def prompts():
        return [[source.randrange(*options.token_range) for _ in range(options.cold_tokens)] for _ in range(options.cold_requests)]

    with servers.scratch(options) as folder:
        flags = ["--context", "4096"]
        blocks = options.at_once * (options.cold_tokens + options.answer_tokens) // 16 * 2
        on = Side(servers.Quire("on", options, folder / "on", *flags, "--disk-write", policy, disk=folder / "cache",
                                pool_blocks=blocks), options)
        off = Side(servers.Quire("off", options, folder / "off", *flags, pool_blocks=blocks), options)
        with servers.running(on.server, off.server):
            for pair in range(-1, options.rounds or 12):
                for number in range(options.cold_slices):
                    batch = prompts()
                    for side in (on, off) if (pair + number) % 2 else (off, on):
                        with quiet():
                            side.measure(batch)
                on.end_pair()
                off.end_pair()
                if pair < 0:  # warm-up
                    on.forget()
                    off.forget()
        emit(report(policy, on, off))


class ValgrindQuire(servers.Quire):
    """Counts its own instructions, from the first to the last."""

    silence_s = 3600

    def command(self):
        return ["valgrind", "--tool=callgrind", f"--callgrind-out-file={self.folder / 'counts'}", *super().command()]

    def counted(self):
        found = re.search(r"^(?:summary|totals): (\d+)", (self.folder / "counts").read_text(encoding="ascii", errors="replace"), re.M)
        return int(found.group(1))


def count_under_valgrind(name, options, prompts, *flags):
    """Instructions of a whole life. AVX2: valgrind does not know AVX-512."""
    with servers.scratch(options) as folder:
        disk = folder / "cache" if "--disk-write" in flags else None
        server = ValgrindQuire(name, options, folder / name, "--context", "1024", "--cpu-path", "avx2", *flags, disk=disk, pool_blocks=128)
        with servers.running(server):
            for prompt in prompts:
                server.complete(prompt, 16)
        return server.counted()


def run_valgrind(policy, options, emit):
    source = random.Random(f"{options.seed} valgrind")
    prompts = [[source.randrange(*options.token_range) for _ in range(256)]]
    threads, options.threads = options.threads, 1
    try:
        off = count_under_valgrind("off", options, prompts) - count_under_valgrind("off", options, [])
        flags = ["--disk-write", policy]
        on = count_under_valgrind("on", options, prompts, *flags) - count_under_valgrind("on", options, [], *flags)
    finally:
        options.threads = threads
    emit({"bench": "zero_reuse", "counted_by": "callgrind", "disk_write": policy, "prompt_tokens": 256, "completion_tokens": 16,
          "on_instructions": on, "off_instructions": off, "ratio": round(on / off, 4)})


def run(options, emit, quiet):
    for policy in options.policies.split(","):
        if options.valgrind:
            run_valgrind(policy, options, emit)
        else:
            run_policy(policy, options, emit, quiet)
