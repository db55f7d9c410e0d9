"""Time to first token of a cached conversation: from the pool, from disk (page cache dropped), and cold; and the restore rate.

Every round has a new conversation: cold, then again (pool), then another prompt as large as the pool pushes it out, the files of
the tier are dropped from the page cache, and it is asked for once more (disk). Alone, and beside streams that decode all the
time. A disk hit counts only if the answer says that its tokens were not computed.

Restore rate: bytes of the blocks over the time that the disk hit took longer than the hit in the pool, beside a sequential read of
the same files without the page cache by this program (4 MiB at a time, one reader), in the same round.
"""
import mmap
import os
import random
import statistics
import time

import figures
import servers

READ_BYTES, RAW_BYTES = 4 << 20, 512 << 20


def raw_read_rate(folder):
    """Bytes per second of reading the tier's oldest files from the medium: the newest may have room that was never written, which
    the file system does not read."""
    buffer = mmap.mmap(-1, READ_BYTES)  # page-aligned, as direct reads need
    done, begun = 0, time.monotonic()
    segments = sorted(path for path in servers.files_of(folder) if path.suffix == ".quire")
    for path in segments[:-1] or segments:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECT)
        try:
            for offset in range(0, os.path.getsize(path) - READ_BYTES + 1, READ_BYTES):
                if done < RAW_BYTES:
                    done += os.preadv(fd, [buffer], offset)
        finally:
            os.close(fd)
    return done / (time.monotonic() - begun)


class Case:
    def __init__(self, server, options, streams):
        self.server, self.options = server, options
        self.streams = streams
        self.source = random.Random(f"{options.seed} {streams}")
        self.seconds = {"cold": [], "pool": [], "disk": []}
        self.hits = {"pool": [], "disk": []}  # tokens from the pool, from disk
        self.restore_rates, self.raw_rates, self.stayed = [], [], 0

    def prompt(self, count):
        return [self.source.randrange(*self.options.token_range) for _ in range(count)]

    def _ask(self, kind, prompt):
        answer = self.server.complete(prompt, 2)
        self.seconds[kind].append(answer.ttft_s)
        if kind != "cold":
            self.hits[kind].append(answer.disk_tokens if kind == "disk" else answer.cached_tokens - answer.disk_tokens)
        return answer

    def _measured(self, kind, prompt):
        """With the background streams running, or alone."""
        if not self.streams:
            return self._ask(kind, prompt)
        with self.server.background([self.prompt(64) for _ in range(self.streams)], self.options.background_tokens):
            time.sleep(0.2)
            return self._ask(kind, prompt)

    def run_round(self, filler_tokens):
        conversation = self.prompt(self.options.conversation_tokens)
        self._measured("cold", conversation)
        self._measured("pool", conversation)
        self.server.complete(self.prompt(filler_tokens), 1)
        self.server.flush()
        self.stayed = max(self.stayed, servers.drop_page_cache(self.server.disk))
        answer = self._measured("disk", conversation)
        extra = self.seconds["disk"][-1] - self.seconds["pool"][-1]
        if answer.disk_tokens and extra > 0:
            self.restore_rates.append(answer.disk_tokens * self.server.token_bytes / extra)
        servers.drop_page_cache(self.server.disk)
        self.raw_rates.append(raw_read_rate(self.server.disk))

    def report(self):
        row = {"bench": "cached_conversation", "conversation_tokens": self.options.conversation_tokens,
               "background_streams": self.streams, **{kind: figures.summary_ms(values) for kind, values in self.seconds.items()}}
        row["hit_tokens"] = {kind: [min(values), max(values)] for kind, values in self.hits.items()}
        row["disk_to_cold"] = figures.pair_ratio(self.seconds["disk"], self.seconds["cold"])
        row["page_cache_left_bytes"] = self.stayed
        row["raw_read_mb_s"] = round(statistics.median(self.raw_rates) / 1e6, 1)
        if self.restore_rates and len(self.restore_rates) == len(self.raw_rates):
            row["restore_mb_s"] = round(statistics.median(self.restore_rates) / 1e6, 1)
            row["restore_to_raw"] = figures.pair_ratio(self.restore_rates, self.raw_rates)
        return row


def run(options, emit, quiet):
    with servers.scratch(options) as folder:
        # Room for the conversation, the streams, and a prompt that takes nearly all of it.
        stream_blocks = options.streams * ((64 + options.background_tokens) // 16 + 1)
        blocks = options.conversation_tokens // 16 + stream_blocks + 128
        server = servers.Quire("quire", options, folder / "quire", "--disk-cache-max", "20G", disk=folder / "cache", pool_blocks=blocks)
        with servers.running(server):
            server.token_bytes = server.ledger()["pool"]["bytes_per_token"]
            context = server.ledger()["sessions"]["context_tokens"]
            filler = min(blocks * 16, context) - 32
            cases = [Case(server, options, 0), Case(server, options, options.streams)]
            with quiet():
                Case(server, options, 0).run_round(filler)  # warm-up
            for _ in range(options.rounds or 9):
                for case in cases:
                    with quiet():
                        case.run_round(filler)
            for case in cases:
                emit(case.report())
