"""p95 of time to first token with the disk tier on, for slow and fast disks, beside recomputing: a hit is not slower than a miss.

Conversations are written once; every server gets a copy of the folder and a disk of its own speed (QUIRE_FAULTS=slow=20M and so on,
in the test build of the command, quire_faulty; "native" is the release build). The pool is small, so each conversation comes from
disk every time. Servers take turns request by request, beside streams that decode all the time on the server that is asked.
"""
import random
import shutil
import time

import figures
import servers


def conversations(options):
    source = random.Random(options.seed)
    return [[source.randrange(*options.token_range) for _ in range(options.session_tokens)] for _ in range(options.conversations)]


def store(options, folder, prompts, flags, blocks):
    """A folder that holds every conversation, written by the release build and hibernated."""
    writer = servers.Quire("writer", options, folder / "writer", *flags, disk=folder / "stored", pool_blocks=blocks)
    with servers.running(writer):
        for prompt in prompts:
            writer.complete(prompt, 1)
    return folder / "stored"


class Side:
    def __init__(self, server, streams, options):
        self.server, self.streams, self.options = server, streams, options
        self.seconds, self.cached, self.causes = [], [], {}

    def ask(self, prompts):
        with self.server.background(self.streams, self.options.background_tokens):
            time.sleep(0.1)
            for prompt in prompts:
                answer = self.server.complete(prompt, 2)
                self.seconds.append(answer.ttft_s)
                self.cached.append(answer.cached_tokens)
                self.causes[answer.cause] = self.causes.get(answer.cause, 0) + 1


def make_sides(options, folder, flags, blocks, stored):
    source = random.Random(f"{options.seed} streams")
    streams = [[source.randrange(*options.token_range) for _ in range(64)] for _ in range(options.streams)]
    built = [servers.Quire("recompute", options, folder / "recompute", *flags, pool_blocks=blocks)]
    for speed in options.speeds.split(","):
        disk = folder / f"cache-{speed}"
        shutil.copytree(stored, disk)
        built.append(servers.Quire(speed, options, folder / f"quire-{speed}", *flags, disk=disk, pool_blocks=blocks,
                                   faults=None if speed == "native" else f"slow={speed}"))
    return [Side(server, streams, options) for server in built]


def report(side, base):
    def p95(values):
        return figures.percentile(values, 95)

    value, low, high = figures.interval(lambda a, b: p95(a) / p95(b), side.seconds, base.seconds)
    return {"bench": "disk_speeds", "side": side.server.name, "background_streams": side.options.streams,
            "prompt_tokens": side.options.session_tokens, **figures.summary_ms(side.seconds),
            "cached_share": round(sum(side.cached) / (len(side.cached) * side.options.session_tokens), 4), "causes": side.causes,
            "p95_to_recompute": {"ratio": round(value, 4), "low": round(low, 4), "high": round(high, 4)},
            "p50_to_recompute": figures.pair_ratio(side.seconds, base.seconds)}


def run(options, emit, quiet):
    prompts = conversations(options)
    stream_blocks = options.streams * ((64 + options.background_tokens) // 16 + 1)
    blocks = options.session_tokens // 16 + stream_blocks + 32
    flags = ["--context", "4096"]
    with servers.scratch(options) as folder:
        stored = store(options, folder, prompts, flags, blocks)
        sides = make_sides(options, folder, flags, blocks, stored)
        with servers.running(*(side.server for side in sides)):
            for side in sides:  # warm-up; bandwidth and prefill speed are measured from here on
                side.ask(prompts[:2])
                side.seconds, side.cached, side.causes = [], [], {}
            for _ in range(options.rounds or 2):
                for at in range(2, len(prompts), 2):
                    for side in sides[at // 2 % len(sides):] + sides[:at // 2 % len(sides)]:
                        with quiet():
                            if side.server.disk:
                                servers.drop_page_cache(side.server.disk)
                            side.ask(prompts[at:at + 2])
            for side in sides:
                emit(report(side, sides[0]))
