"""A working set of several times the device pool: hit rate and time to first token with the disk tier, without, and llama.cpp.

Sessions of several turns, each turn of all sessions in a new random order, a few at once. All servers live for the whole run and
take turns turn by turn, so that a noisy minute hurts all alike; each gets the same pause after its turn (what a person thinks).
In the middle all of them are stopped with SIGTERM and started again.

Memory is made equal: what Quire with the disk tier has for KV (pool, bookkeeping, buffers of the tier, page cache of its files) is
what the others get. Without the tier it is a larger pool; llama.cpp gets the same pool as its KV buffer and the rest as
--cache-ram. Weights, activations and code are not counted; the resident sizes of the processes are printed beside it.
"""
import concurrent.futures
import random
import time

import figures
import servers


class Session:
    def __init__(self, seed, options):
        self.source = random.Random(seed)
        self.options = options
        self.tokens = []

    def next_prompt(self, turn):
        count = self.options.first_tokens if turn == 0 else self.options.user_tokens
        return self.tokens + [self.source.randrange(*self.options.token_range) for _ in range(count)]


class Side:
    """One server and its own copy of the conversations (answers may differ between servers)."""

    def __init__(self, server, options, round_number):
        self.server, self.options = server, options
        self.sessions = [Session(f"{options.seed} {round_number} {i}", options) for i in range(options.sessions)]
        self.turns = []  # [turn] of lists of Answer
        self.failures = 0
        self.page_cache_max = 0

    def _one(self, session, turn):
        prompt = session.next_prompt(turn)
        try:
            answer = self.server.complete(prompt, self.options.answer_tokens)
        except (OSError, RuntimeError):
            self.failures += 1
            session.tokens = prompt
            return None
        session.tokens = prompt + answer.tokens
        return answer

    def run_turn(self, turn):
        order = list(self.sessions)
        random.Random(f"{self.options.seed} order {turn}").shuffle(order)  # the same for every side
        with concurrent.futures.ThreadPoolExecutor(self.options.at_once) as pool:
            answers = list(pool.map(lambda session: self._one(session, turn), order))
        self.turns.append([answer for answer in answers if answer])
        time.sleep(self.options.pause_s)
        if isinstance(self.server, servers.Quire):
            self.page_cache_max = max(self.page_cache_max, self.server.tier_memory()["page_cache"])


def hit_rate(turns):
    prompt = sum(answer.prompt_tokens for turn in turns for answer in turn)
    return round(sum(answer.cached_tokens for turn in turns for answer in turn) / prompt, 4) if prompt else None


def times(turns):
    return figures.summary_ms([answer.ttft_s for turn in turns for answer in turn])


def ceiling(options):
    """The hit rate of a cache that loses nothing, over the turns after the first."""
    prompts = [options.first_tokens + turn * (options.answer_tokens + options.user_tokens) for turn in range(options.turns)]
    return round(sum(p - options.user_tokens for p in prompts[1:]) / sum(prompts[1:]), 4)


def pool_blocks(options):
    last = options.first_tokens + options.answer_tokens + (options.turns - 1) * (options.user_tokens + options.answer_tokens)
    return options.sessions * last // options.working_set // 16


def make_servers(options, folder):
    """Three servers with the same memory for KV, and what that is."""
    blocks = pool_blocks(options)
    context = ["--context", "4096"]
    on = servers.Quire("quire, disk", options, folder / "on", *context, disk=folder / "cache", pool_blocks=blocks)
    off = servers.Quire("quire, no disk", options, folder / "off", *context, pool_blocks=blocks)
    with servers.running(on, off):
        on_bytes, off_bytes = sum(on.tier_memory().values()), sum(off.tier_memory().values())
        block_bytes = off.ledger()["pool"]["block_bytes"]
    off.pool_blocks += max(0, on_bytes - off_bytes) // block_bytes
    pool_bytes = blocks * block_bytes
    cache_ram = max(1, round((on_bytes - pool_bytes) / 2**20))
    built = [on, off]
    if options.llama_server:
        built.append(servers.Llama("llama.cpp", options, folder / "llama", "-np", str(options.at_once + 1), "-c", str(blocks * 16),
                                   "-kvu", "--cache-ram", str(cache_ram)))  # a slot more: it stays warm without a copy
    return built, {"pool_blocks": blocks, "pool_tokens": blocks * 16, "kv_mib": {
        on.name: round(on_bytes / 2**20, 1),
        off.name: round((off_bytes + (off.pool_blocks - blocks) * block_bytes) / 2**20, 1),
        "llama.cpp": round(pool_bytes / 2**20 + cache_ram, 1)}, "llama_cache_ram_mib": cache_ram}


def report_side(side, options):
    half = options.turns // 2
    row = {
        "bench": "working_set", "side": side.server.name, "failures": side.failures,
        "hit_rate_by_turn": [hit_rate([turn]) for turn in side.turns],
        "hit_rate_later_turns": hit_rate(side.turns[1:]),
        "hit_rate_turn_before_restart": hit_rate(side.turns[half - 1:half]),
        "hit_rate_turn_after_restart": hit_rate(side.turns[half:half + 1]),
        "first_turn": times(side.turns[:1]), "later_turns": times(side.turns[1:]),
        "after_restart": times(side.turns[half:half + 1]),
        "rss_mib": {key: round(value / 2**20, 1) for key, value in side.server.memory().items()},
    }
    if isinstance(side.server, servers.Quire):
        row["tier_memory_mib"] = {key: round(value / 2**20, 1) for key, value in side.server.tier_memory().items()}
        row["page_cache_max_mib"] = round(side.page_cache_max / 2**20, 1)
    return row


def run(options, emit, quiet):
    for round_number in range(options.rounds or 1):
        with servers.scratch(options) as folder:
            built, memory = make_servers(options, folder)
            emit({"bench": "working_set", "side": "all", "sessions": options.sessions, "turns": options.turns,
                  "at_once": options.at_once, "working_set_tokens": memory["pool_tokens"] * options.working_set,
                  "hit_rate_ceiling": ceiling(options), **memory})
            sides = [Side(server, options, round_number) for server in built]
            with servers.running(*built):
                for turn in range(options.turns):
                    if turn == options.turns // 2:
                        for server in built:
                            server.stop()
                            server.start()
                    for side in sides[turn % len(sides):] + sides[:turn % len(sides)]:
                        with quiet():
                            side.run_turn(turn)
                for side in sides:
                    emit(report_side(side, options))
