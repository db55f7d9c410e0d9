"""R01 to R08 from outside: whatever the cache holds, an answer has the bits of a cold run."""

import contextlib
import json
import threading
import time

import pytest
from ask import cached, chat, complete, content, proof, user
from served import post
from serving import serving


def ids(count, first=1000):
    return list(range(first, first + count))


def cold(daemon, prompt, **more):
    daemon.forget()
    return complete(daemon, prompt, **more)


@pytest.mark.parametrize("count", [1, 15, 16, 17, 31, 32, 33])
def test_r01_a_prompt_sent_three_times(daemon, count):
    prompt = ids(count, 1000 * count)
    first, *later = [complete(daemon, prompt, logprobs=5) for _ in range(3)]
    assert cached(first) == 0
    for reply in later:
        assert proof(reply) == proof(first)
        assert cached(reply) == count - 1  # what was generated after it is cached too, so its last block is complete


def test_r01_one_more_token_than_32_cached_ones(daemon):
    prompt = ids(32, 5000)
    complete(daemon, prompt)
    longer = complete(daemon, prompt + [77])
    assert cached(longer) == 32
    assert proof(longer) == proof(cold(daemon, prompt + [77]))


def test_r02_the_middle_of_a_prompt_changes(daemon):
    changed = [10, 11, 14, 15, 17, 18]
    expected = proof(cold(daemon, changed))
    daemon.forget()
    complete(daemon, ids(9, 10), max_tokens=24)
    reply = complete(daemon, changed)
    assert cached(reply) <= 2 and proof(reply) == expected


def test_r02_the_oldest_turn_is_dropped(daemon):
    system = [{"role": "system", "content": "You are a careful assistant who likes short answers. " * 4}]
    turns = []
    for question in ("Name a fruit.", "Name an animal.", "Name a colour."):
        turns += user(question)
        turns.append({"role": "assistant", "content": content(chat(daemon, system + turns))})
    shorter = system + turns[2:] + user("Name a city.")
    warm = chat(daemon, shorter, return_logits_digest=True)
    assert cached(warm) > 0
    daemon.forget()
    again = chat(daemon, shorter, return_logits_digest=True)
    assert cached(again) == 0
    assert content(warm) == content(again) and warm["choices"][0]["logits_digest"] == again["choices"][0]["logits_digest"]


def test_r03_namespaces_and_fifty_prompts(daemon):
    daemon.forget()
    prompt = ids(64)
    assert [cached(complete(daemon, prompt, cache_salt=salt)) for salt in ("a", "b", "a", "b")] == [0, 0, 63, 63]
    assert cached(complete(daemon, prompt)) == 0
    prompts = [ids(40)[:i] + [7] + ids(40)[i + 1 :] for i in range(0, 40, 4)] * 5
    expected = {}
    for prompt in prompts:
        assert expected.setdefault(json.dumps(prompt), proof(complete(daemon, prompt))) == proof(complete(daemon, prompt))


@pytest.fixture(scope="module", name="patient")
def patient_fixture():
    """A daemon whose steps are short, so that a long prompt takes several."""
    with serving("--context", "2048", "--kv-blocks", "512", "--step-ms", "20", "--threads", "1") as d:
        yield d


def test_r04_a_client_leaves_during_its_prefill(patient):
    prompt = ids(1500)
    expected = proof(cold(patient, prompt))
    patient.forget()
    s = patient.connect()
    s.sendall(post("/v1/completions", {"prompt": prompt, "max_tokens": 8, "stream": True, "return_progress": True}))
    seen = b""
    while b'"processed"' not in seen:
        seen += s.recv(65536)
    s.close()
    patient.wait_idle()
    again = complete(patient, prompt)
    assert 0 < cached(again) < 1499, "it left in the middle"
    assert proof(again) == expected


def test_r05_evicted_while_queued(serve):
    d = serve("--context", "512", "--kv-blocks", "32", "--max-sequences", "1", "--policy", "lru")
    prompt = ids(200)
    expected = proof(complete(d, prompt))
    replies = {}

    def send(name, tokens, **more):
        replies[name] = complete(d, tokens, **more)

    running = threading.Thread(target=send, args=("running", ids(300, 3000)), kwargs={"max_tokens": 200, "ignore_eos": True})
    running.start()
    while d.kv()["sessions"]["running"] == 0:
        time.sleep(0.01)
    queued = threading.Thread(target=send, args=("queued", prompt))
    queued.start()
    running.join()
    queued.join()
    assert cached(replies["queued"]) < 199, "its prefix was evicted by the one before it"
    assert proof(replies["queued"]) == expected


def test_r07_mixed_endings_leave_no_used_block(daemon):
    daemon.forget()
    blocks = daemon.wait_idle()["pool"]["blocks"]
    for i in range(60):
        body = {"prompt": ids(20 + i, 100 * (i % 7)), "max_tokens": 1 + i % 9, "n": 1 + i % 3, "temperature": 1}
        kind = i % 6
        if kind == 0:
            complete(daemon, body["prompt"], n=body["n"], max_tokens=body["max_tokens"], temperature=1)
        elif kind == 1:
            daemon.http.post("/v1/completions", json={**body, "stop": ["e", " the"]})
        elif kind == 2:
            assert daemon.http.post("/v1/completions", json={**body, "timeout": 0.001}).status_code == 200
        elif kind == 3:
            assert daemon.http.post("/v1/completions", json={**body, "top_p": 7}).status_code == 400
        else:
            s = daemon.connect()
            s.sendall(post("/v1/completions", {**body, "max_tokens": 400, "ignore_eos": True, "stream": kind == 4}))
            if i % 4:
                time.sleep(0.01 * (i % 5))
            s.close()
    pool = daemon.wait_idle()["pool"]
    assert pool["blocks_used"] == 0 and pool["blocks_free"] + pool["blocks_cached"] == blocks
    daemon.forget()
    assert daemon.kv()["pool"]["blocks_free"] == blocks


@pytest.fixture(scope="module", name="small_pool")
def small_pool_fixture():
    with serving("--context", "4096", "--kv-blocks", "64") as d:
        yield d


@contextlib.contextmanager
def behind(d):
    """A small request sent now must be answered while the body runs, whatever the body waits for."""
    start = time.monotonic()
    answered = []

    def small():
        complete(d, ids(10, 9000), max_tokens=4)
        answered.append(time.monotonic() - start)

    thread = threading.Thread(target=small)
    thread.start()
    yield
    thread.join(60)
    assert answered and answered[0] < 30


def test_r08_a_prompt_that_can_never_fit(small_pool):
    with behind(small_pool):
        start = time.monotonic()
        r = small_pool.http.post("/v1/completions", json={"prompt": ids(2000), "max_tokens": 1})
        assert time.monotonic() - start < 2
    assert 400 <= r.status_code < 500
    assert "2000" in r.text and "1024" in r.text, "both numbers are named"


def test_r08_a_reply_that_reaches_the_end_of_the_pool(small_pool):
    with behind(small_pool):
        reply = complete(small_pool, ids(900), max_tokens=500, ignore_eos=True)
    assert reply["choices"][0]["finish_reason"] == "length" and reply["usage"]["total_tokens"] == 1024


def test_r08_four_streams_that_do_not_fit_together(small_pool):
    prompts = [ids(100, 1000 * i) for i in range(1, 5)]
    replies = [None] * 4

    def send(i):
        replies[i] = complete(small_pool, prompts[i], max_tokens=300, ignore_eos=True)

    threads = [threading.Thread(target=send, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    with behind(small_pool):
        for thread in threads:
            thread.join()
    assert small_pool.metric("quire_preemptions_total") > 0
    for prompt, reply in zip(prompts, replies):
        assert proof(reply) == proof(cold(small_pool, prompt, max_tokens=300, ignore_eos=True))
