"""R20, R37, R39 and R40: models that misbehave, metrics that add up, plans that are true."""

import json
import re
import subprocess
import threading
import time

import pytest
from ask import complete, events
from served import BIN, MODEL, post
from serving import serving


def plan(*arguments):
    done = subprocess.run([BIN, "plan", *arguments], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def plan_json(*arguments):
    return json.loads(plan(*arguments, "--json"))


# ---- R20 ----


def test_r20_unusable_logits_end_one_request(serve, models):
    """The letter Z spoils the logits of whatever comes after it."""
    d = serve("--kv-blocks", "256", model=models("spoiled"))
    good = {"prompt": "abc", "max_tokens": 200, "ignore_eos": True}
    expected = complete(d, **good)["choices"]
    replies = []
    running = threading.Thread(target=lambda: replies.append(complete(d, **good)["choices"]))
    running.start()
    for temperature in (0, 1):
        r = d.http.post("/v1/completions", json={"prompt": "abcZ", "max_tokens": 4, "temperature": temperature})
        assert r.status_code == 500 and r.json()["error"]["message"]
    running.join()
    assert replies == [expected], "others are not touched"
    with d.http.stream("POST", "/v1/completions", json={"prompt": "abcZ", "max_tokens": 4, "stream": True}) as r:
        body = b"".join(r.iter_bytes())
    assert r.status_code == 500 or body.count(b'data: {"error"') == 1
    assert complete(d, **good)["choices"] == expected


# ---- R37 ----


def test_r37_every_truncation_ends_the_command(models, tmp_path):
    """Also of a real header: exit 1, within a second and 256 MiB, and the file is named."""
    whole = open(models("chat"), "rb").read()
    real = open(MODEL, "rb").read(3 << 20)
    cuts = [(whole, len(whole) * i // 12) for i in range(12)] + [(real, len(real) * i // 6) for i in range(1, 7)]
    for data, length in cuts:
        path = tmp_path / "cut.gguf"
        path.write_bytes(data[:length])
        start = time.monotonic()
        done = subprocess.run(
            ["sh", "-c", 'ulimit -v 600000; exec "$0" plan "$1"', BIN, str(path)], capture_output=True, text=True, check=False
        )
        assert done.returncode == 1 and "cut.gguf" in done.stderr, (length, done)
        assert time.monotonic() - start < 1


# ---- R39 ----

LABELS = r'\{(?:[a-zA-Z_]\w*="(?:[^"\\\n]|\\["\\n])*",?)+\}'
SAMPLE = re.compile(rf"^([a-zA-Z_:][a-zA-Z0-9_:]*)({LABELS})? (-?[0-9.e+-]+|[+-]Inf|NaN)$")


def parse_metrics(text):
    """Strictly: HELP and TYPE before the samples of a family, families together, no sample twice. {sample: value}"""
    types, values, family = {}, {}, None
    assert text.endswith("\n")
    for line in text[:-1].split("\n"):
        if line.startswith("# "):
            word, name, rest = line[2:].split(" ", 2)
            assert word in ("HELP", "TYPE") and rest
            if word == "TYPE":
                assert name not in types and rest in ("counter", "gauge", "histogram")
                types[name], family = rest, name
            continue
        match = SAMPLE.match(line)
        assert match, line
        name = match.group(1)
        base = re.sub(r"_(bucket|sum|count)$", "", name) if types.get(family) == "histogram" else name
        assert base == family, line
        key = line.rsplit(" ", 1)[0]
        assert key not in values, line
        values[key] = float(match.group(3))
    return types, values


def metrics(d):
    r = d.http.get("/metrics")
    assert r.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    return parse_metrics(r.content.decode("utf-8"))


def check_possible(types, values):
    for key, value in values.items():
        assert value >= 0, key
    assert values["quire_kv_usage_ratio"] <= 1
    blocks = [values[f'quire_kv_blocks{{state="{state}"}}'] for state in ("free", "cached", "used")]
    hits = values['quire_prefix_cache_hit_tokens_total{tier="device"}']
    assert hits <= values["quire_prefix_cache_lookup_tokens_total"]
    assert values["quire_cached_tokens_total"] <= values["quire_prompt_tokens_total"]
    for name, kind in types.items():
        if kind == "histogram":
            buckets = [value for key, value in values.items() if key.startswith(name + "_bucket")]
            assert buckets == sorted(buckets) and buckets[-1] == values[name + "_count"]
    return sum(blocks)


def monotonic(types, before, after):
    for key, value in before.items():
        name = key.split("{")[0]
        if types.get(name) == "counter" or types.get(re.sub(r"_(bucket|sum|count)$", "", name)) == "histogram":
            assert after[key] >= value, key


def test_r39_metrics_agree_with_replies(serve):
    d = serve("--context", "1024", "--kv-blocks", "64", "--metrics-compat", "vllm")
    types, last = metrics(d)
    total = check_possible(types, last)
    sent = hits = generated = 0
    for i in range(24):
        prompt = list(range(100, 150 + i % 5)) if i % 2 else list(range(1000 * i, 1000 * i + 60))
        kind = i % 4
        if kind == 3:
            s = d.connect()
            s.sendall(post("/v1/completions", {"prompt": prompt[:8], "max_tokens": 300, "ignore_eos": True}))
            time.sleep(0.05)
            s.close()
            d.wait_idle()
            types, last = metrics(d)
            continue
        before = last
        if kind == 2:
            assert d.http.post("/v1/completions", json={"prompt": prompt * 30}).status_code == 400
            usage = None
        elif kind == 1:
            body = {"prompt": prompt, "max_tokens": 3, "stream_options": {"include_usage": True}}
            usage = events(d, "/v1/completions", body)[-1]["usage"]
        else:
            usage = complete(d, prompt, max_tokens=5)["usage"]
        d.wait_idle()
        types, last = metrics(d)
        assert check_possible(types, last) == total
        monotonic(types, before, last)
        if usage:
            sent += usage["prompt_tokens"]
            hits += usage["prompt_tokens_details"]["cached_tokens"]
            generated += usage["completion_tokens"]
            for name, amount in (
                ("quire_prompt_tokens_total", usage["prompt_tokens"]),
                ("quire_cached_tokens_total", usage["prompt_tokens_details"]["cached_tokens"]),
                ('quire_prefix_cache_hit_tokens_total{tier="device"}', usage["prompt_tokens_details"]["cached_tokens"]),
                ("quire_prefix_cache_lookup_tokens_total", usage["prompt_tokens"]),
                ("quire_generated_tokens_total", usage["completion_tokens"]),
            ):
                assert last[name] - before[name] == amount, name
    assert hits > 0 and sent > hits and generated > 0
    for state in ("running", "waiting", "paused"):
        assert last[f"quire_requests_{state}"] == 0
    assert last['quire_kv_blocks{state="used"}'] == 0 and last["quire_kv_usage_ratio"] == 0
    assert last['quire_requests_finished_total{reason="cancelled"}'] > 0
    assert last["quire_requests_total"] == sum(v for k, v in last.items() if k.startswith("quire_requests_finished_total"))
    assert last["vllm:prompt_tokens_total"] == last["quire_prompt_tokens_total"]


def test_r39_paused_requests_too(serve):
    """More than the pool holds: some are paused and resumed; afterwards nothing is left."""
    d = serve("--context", "1024", "--kv-blocks", "64")
    long = {"max_tokens": 250, "ignore_eos": True}
    prompts = [list(range(1000 * i, 1000 * i + 100)) for i in range(1, 5)]
    threads = [threading.Thread(target=complete, args=(d, prompt), kwargs=long) for prompt in prompts]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        check_possible(*metrics(d))
        time.sleep(0.02)
    d.wait_idle()
    _, values = metrics(d)
    assert values["quire_preemptions_total"] > 0 and values["quire_requests_paused"] == 0
    assert values['quire_kv_blocks{state="used"}'] == 0
    assert values['quire_prefix_cache_hit_tokens_total{tier="device"}'] <= values["quire_prefix_cache_lookup_tokens_total"]


def test_r39_odd_model_names(serve, models):
    d = serve("--kv-blocks", "64", model=models("odd_name"))
    _, values = metrics(d)
    (info,) = [key for key in values if key.startswith("quire_build_info")]
    assert r'model="a \"quoted\" \\ name' in info and "\ufffd" in info
    assert d.http.get("/v1/models").json()["data"][0]["id"]


# ---- R40 ----


@pytest.mark.parametrize(
    "name,per_token,context,session",
    [
        ("llama3_8b", 128 << 10, 8192, 1 << 30),
        ("forty", 163840, 8192, 163840 * 8192),
        ("thirty_six", 147456, 32768, 9 << 29),  # 4.5 GiB
        ("unequal", 184320, 8192, 184320 * 8192),
        ("fallen_back", 40 * 8 * (160 + 160) * 2, 8192, 40 * 8 * 320 * 2 * 8192),  # 5120 / 32
    ],
)
def test_r40_known_models(models, name, per_token, context, session):
    p = plan_json(models(name), "--memory", "100G", "--context", str(context))
    assert p["kv_bytes_per_token"] == per_token
    assert p["kv_bytes_per_session"] == session
    assert p["kv_bytes_per_block"] == 16 * per_token
    assert p["blocks_per_session"] == context // 16
    assert p["sessions"] == p["blocks"] // p["blocks_per_session"] > 0
    assert p["kv_pool_bytes"] == p["blocks"] * p["kv_bytes_per_block"] > 1 << 32
    parts = ("weight_bytes", "kv_pool_bytes", "kv_bookkeeping_bytes", "work_bytes")
    assert p["total_bytes"] == sum(p[part] for part in parts) <= 100 << 30
    assert p["total_bytes"] + p["kv_bytes_per_block"] + (1 << 20) > 100 << 30, "one more block would not fit"


def test_r40_llama_3_8b_in_full(models):
    p = plan_json(models("llama3_8b"), "--kv-blocks", "512")
    assert p["parameters"] == 8030261248
    assert 2 * p["parameters"] <= p["weight_bytes"] < 2.01 * p["parameters"]
    text = plan(models("llama3_8b"), "--kv-blocks", "512")
    for words in ("128 KiB per token", "2 MiB per block of 16", "512 blocks, 8192 tokens", "1 GiB of blocks"):
        assert words in text, text
    assert re.search(r"room for +1 sessions? of the full context of 8192 tokens", text), text


def test_r40_a_thousand_tokens_take_63_blocks(models):
    p = plan_json(models("forty"), "--context", "1000", "--kv-blocks", "630")
    assert p["blocks_per_session"] == 63 and p["sessions"] == 10 and p["pool_tokens"] == 10080
    assert plan_json(models("forty"), "--context", "1000", "--kv-blocks", "629")["sessions"] == 9


def test_r40_sums_are_64_bit(models):
    p = plan_json(models("unequal"), "--context", "131072", "--kv-blocks", "4000000")
    assert p["kv_pool_bytes"] == 4000000 * 16 * 184320 and p["pool_tokens"] == 64000000
    assert p["total_bytes"] > 10**13 and p["sessions"] == 4000000 // 8192


def serve_ledger(*flags):
    with serving(*flags) as d, open(f"/proc/{d.process.pid}/status", encoding="ascii") as file:
        return d.kv(), int(re.search(r"VmSize:\s+(\d+) kB", file.read()).group(1)) * 1024


def test_r40_the_plan_is_what_serve_takes():
    sizes = []
    for blocks in (512, 4096):
        flags = ("--context", "2048", "--kv-blocks", str(blocks), "--threads", "2")
        p = plan_json(MODEL, *flags)
        ledger, virtual = serve_ledger(*flags)
        assert ledger["weights"]["bytes"] == p["weight_bytes"] and ledger["work"]["bytes"] == p["work_bytes"]
        pool = ledger["pool"]
        assert (pool["bytes"], pool["blocks"]) == (p["kv_pool_bytes"], p["blocks"])
        assert (pool["bytes_per_token"], pool["block_bytes"]) == (p["kv_bytes_per_token"], p["kv_bytes_per_block"])
        assert ledger["tree"]["bytes"] == p["kv_bookkeeping_bytes"] and ledger["total_bytes"] == p["total_bytes"]
        assert ledger["sessions"]["at_full_context"] == p["sessions"]
        sizes.append((p["total_bytes"], virtual))
    planned, taken = sizes[1][0] - sizes[0][0], sizes[1][1] - sizes[0][1]
    assert abs(taken - planned) < planned * 0.02, "the system was asked for what the plan says"


def test_r40_a_budget_gives_serve_the_blocks_of_the_plan():
    flags = ("--context", "1024", "--kv-memory", "100M", "--kv-type", "f32")
    p = plan_json(MODEL, *flags)
    ledger, _ = serve_ledger(*flags)
    assert ledger["pool"]["blocks"] == p["blocks"] and ledger["total_bytes"] == p["total_bytes"]
    assert ledger["pool"]["bytes"] + ledger["tree"]["bytes"] <= 100 << 20
