"""R25 to R28 against the real engine: Expect, odd bytes in paths, clients that read nothing or leave, refusals of streams."""

import json
import os
import re
import threading
import time

import pytest
from ask import complete, events, user
from served import post


def resident(d):
    with open(f"/proc/{d.process.pid}/status", encoding="ascii") as file:
        return int(re.search(r"VmRSS:\s+(\d+) kB", file.read()).group(1)) * 1024


def descriptors(d):
    return len(os.listdir(f"/proc/{d.process.pid}/fd"))


HEALTH = b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"


@pytest.mark.parametrize(
    "head,status",
    [
        (b"POST /tokenize HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabc", 400),
        (b"POST /tokenize HTTP/1.1\r\nHost: x\r\nContent-Length: +3\r\n\r\nabc", 400),
        (b"POST /tokenize HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999\r\n\r\n", 400),
        (b"GET /health HTTP/1.1\r\nHost : x\r\n\r\n", 400),
        (b"GET /health HTTP/1.1\r\nHost: x\r\nA: " + b"a" * 40000 + b"\r\n\r\n", 431),
        (b"GET /health HTTP/1.1\r\nHost: x\r\n" + b"A: b\r\n" * 101 + b"\r\n", 431),
    ],
)
def test_r24_bad_framing_ends_the_connection(daemon, head, status):
    answer = daemon.raw(head + HEALTH)
    assert answer.startswith(b"HTTP/1.1 %d " % status) and answer.count(b"HTTP/1.1 ") == 1
    assert b"Connection: close" in answer


def test_r25_expect_is_answered_without_delay(daemon):
    request = post("/tokenize", {"content": "z"})
    head, body = request.split(b"\r\n\r\n")
    s = daemon.connect()
    start = time.monotonic()
    s.sendall(head + b"\r\nExpect: 100-continue\r\n\r\n")
    assert s.recv(4096) == b"HTTP/1.1 100 Continue\r\n\r\n" and time.monotonic() - start < 0.5
    s.sendall(body)
    assert s.recv(4096).startswith(b"HTTP/1.1 200 OK")
    s.close()
    assert daemon.raw(head + b"\r\nExpect: something\r\n\r\n" + body).startswith(b"HTTP/1.1 417")


@pytest.mark.parametrize("target", [b"/nowhere\xff\xfe", b"/%ff%fe", b"/a?x=%ff", b"/\xc3", b"/\x01", b"/v1/models/%ff"])
def test_r26_error_replies_are_valid_text(daemon, target):
    answer = daemon.raw(b"GET " + target + b" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    head, body = answer.split(b"\r\n\r\n", 1)
    assert re.match(rb"HTTP/1.1 4\d\d ", head)
    assert json.loads(body.decode("utf-8"))["error"]["message"]


@pytest.mark.parametrize("field", [b'"cache_salt":"\xff"', b'"\xff":1', b'"stop":["\xc3"]', b'"model":"\xed\xa0\x80"'])
def test_r26_bodies_that_are_not_utf8(daemon, field):
    r = daemon.http.post("/v1/completions", content=b'{"prompt":"a",' + field + b"}")
    assert r.status_code == 400 and json.loads(r.content.decode("utf-8"))["error"]["message"]


def test_r27_a_stream_that_is_never_read(daemon):
    """Its buffer is bounded and three normal clients do not notice. That it is dropped is tested with a short time limit in
    unit.server: server_connection/a_client_that_never_reads_is_dropped."""
    expected = complete(daemon, "Name three fruits:", max_tokens=24)["choices"]
    s = daemon.connect()
    before = resident(daemon)
    body = {"prompt": "a", "max_tokens": 3000, "stream": True, "ignore_eos": True, "logprobs": 20}
    s.sendall(post("/v1/completions", body))
    replies = [None] * 3

    def ask(i):
        replies[i] = complete(daemon, "Name three fruits:", max_tokens=24)["choices"]

    for _ in range(2):
        threads = [threading.Thread(target=ask, args=(i,)) for i in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert replies == [expected] * 3
    assert daemon.kv()["sessions"]["running"] == 1, "the one that does not read was still there"
    assert resident(daemon) - before < 32 << 20
    s.close()
    daemon.wait_idle()


def leave(d, i):
    """One of five ways to go away."""
    prompt = list(range(1000 * (i % 7), 1000 * (i % 7) + 400))
    body = {"prompt": prompt, "max_tokens": 300, "ignore_eos": True, "stream": i % 5 != 4}
    data = post("/v1/completions", body)
    s = d.connect()
    kind = i % 5
    s.sendall(data[:40] if kind == 0 else data)  # 0: during the headers
    if kind == 1:  # while queued or at the start of its prefill
        pass
    elif kind == 2:  # during its prefill
        time.sleep(0.03)
    elif kind == 3:  # in the middle of its stream
        s.recv(1)
    s.close()


def test_r27_two_hundred_clients_leave(serve):
    d = serve("--context", "1024", "--kv-blocks", "128", "--max-sequences", "4", "--max-waiting", "300")
    for i in range(3):  # every page of the pool has been touched
        complete(d, list(range(20000 + 1000 * i, 20900 + 1000 * i)), max_tokens=1)
    for i in range(20):
        leave(d, i)
    d.wait_idle()
    before, open_before = resident(d), descriptors(d)
    started = d.metric("quire_prompt_tokens_total")
    for i in range(200):
        leave(d, i)
    start = time.monotonic()
    ledger = d.wait_idle()
    assert time.monotonic() - start < 5, "nobody is computed for a client that left"
    assert ledger["pool"]["blocks_free"] + ledger["pool"]["blocks_cached"] == ledger["pool"]["blocks"]
    for _ in range(100):
        if descriptors(d) <= open_before:
            break
        time.sleep(0.05)
    assert descriptors(d) <= open_before
    assert resident(d) - before < 16 << 20
    assert d.metric("quire_prompt_tokens_total") - started <= 160 * 400, "those still queued never start"
    assert complete(d, "a", max_tokens=1)["usage"]["completion_tokens"] == 1


@pytest.mark.parametrize(
    "path,body",
    [
        ("/v1/chat/completions", {"messages": user("x"), "temperature": -1}),
        ("/v1/chat/completions", {"messages": []}),
        ("/v1/chat/completions", {"messages": user("x"), "stop": ""}),
        ("/v1/completions", {"prompt": "word " * 5000}),
        ("/v1/completions", {"prompt": [10**9]}),
    ],
)
def test_r28_a_bad_request_is_no_stream(daemon, path, body):
    r = daemon.http.post(path, json={**body, "stream": True})
    assert r.status_code == 400 and r.headers["content-type"].startswith("application/json")
    assert r.json()["error"]["message"]


def test_r28_a_stream_from_its_role_to_its_end(daemon):
    chunks = events(daemon, "/v1/chat/completions", {"messages": user("Say hello."), "max_tokens": 12, "n": 2})
    for index in range(2):
        mine = [c for chunk in chunks for c in chunk["choices"] if c["index"] == index]
        assert mine[0]["delta"]["role"] == "assistant" and all("role" not in c["delta"] for c in mine[1:])
        assert mine[-1]["finish_reason"] and all(c["finish_reason"] is None for c in mine[:-1])
    assert len({chunk["id"] for chunk in chunks}) == len({chunk["created"] for chunk in chunks}) == 1
