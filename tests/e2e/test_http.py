"""Raw sockets and curl: framing, hostile bodies, vanishing clients (R24 to R28)."""

import json
import os
import shutil
import subprocess
import time

import pytest
from served import post

HEALTH = b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"


def test_three_requests_glued_and_byte_by_byte(daemon):
    three = HEALTH + post("/v1/completions", {"prompt": "a", "max_tokens": 2}) + HEALTH
    for pieces in (None, 1):
        answer = daemon.raw(three, pieces)
        assert answer.count(b"HTTP/1.1 200 OK") == 3
        assert answer.index(b'"ok"') < answer.index(b"text_completion") < answer.rindex(b'"ok"')


def test_a_request_without_length_has_no_body(daemon):
    answer = daemon.raw(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\n\r\n" + HEALTH)
    assert answer.startswith(b"HTTP/1.1 400") and answer.count(b"HTTP/1.1 ") == 2 and b'"ok"' in answer


def test_chunked_body_cut_inside_a_character(daemon):
    body = json.dumps({"content": "ä"}, ensure_ascii=False).encode()
    cut = body.index(b"\xa4")
    chunked = b"%x;ext=1\r\n%s\r\n%x\r\n%s\r\n0\r\nTrailer: x\r\n\r\n" % (cut, body[:cut], len(body) - cut, body[cut:])
    head = b"POST /tokenize HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    plain = daemon.http.post("/tokenize", content=body).json()
    answer = daemon.raw(head + chunked + HEALTH)
    assert answer.count(b"HTTP/1.1 200 OK") == 2 and json.dumps(plain, separators=(",", ":")).encode() in answer


@pytest.mark.parametrize(
    "body,status",
    [
        (b"", 400),
        (b"{", 400),
        (b'{"prompt":"a"} x', 400),
        (b'\xef\xbb\xbf{"prompt":"a"}', 400),
        (b'{"prompt":"\xff"}', 400),
        (b'{"prompt":"\\ud800"}', 400),
        (b'{"prompt":"a","temperature":1e400}', 400),
        (b"[" * 3000, 400),
        (b'{"prompt":"a","prompt":"b"}', 400),
        (b'{"prompt":"a\\u0000b","max_tokens":1}', 200),
    ],
)
def test_hostile_bodies(daemon, body, status):
    r = daemon.http.post("/v1/completions", content=body)
    assert r.status_code == status
    assert json.loads(r.content.decode("utf-8"))


def test_a_megabyte_of_prompt(daemon):
    r = daemon.http.post("/v1/completions", json={"prompt": "x" * (1 << 20)})
    assert r.status_code == 400 and r.json()["error"]["type"] == "exceed_context_size_error"
    start = time.monotonic()
    r = daemon.http.post("/tokenize", json={"content": "word " * 200000})
    assert r.status_code == 200 and r.json()["count"] >= 200000 and time.monotonic() - start < 20


def test_three_gigabytes_are_refused_unread(daemon):
    answer = daemon.raw(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 3221225472\r\n\r\n{")
    assert answer.startswith(b"HTTP/1.1 413")


def test_streams_are_valid_utf8_events(daemon):
    body = {"messages": [{"role": "user", "content": "Write 🙂 é 漢字 and repeat them."}], "stream": True, "max_tokens": 30}
    with daemon.http.stream("POST", "/v1/chat/completions", json=body) as r:
        events = b"".join(r.iter_bytes()).split(b"\n\n")
    assert events[-1] == b"" and events[-2] == b"data: [DONE]"
    for event in events[:-2]:
        assert event.startswith(b"data: ") and event.count(b"\n") == 0
        json.loads(event[6:].decode("utf-8"))


def test_vanishing_clients_return_to_baseline(daemon):
    baseline = daemon.wait_idle()
    descriptors = len(os.listdir(f"/proc/{daemon.process.pid}/fd"))
    request = post("/v1/completions", {"prompt": "word " * 300, "max_tokens": 500, "stream": True, "ignore_eos": True})
    whole = post("/v1/completions", {"prompt": "other " * 300, "max_tokens": 500, "ignore_eos": True})
    for i in range(200):
        s = daemon.connect()
        data = (request, whole)[i % 2]
        s.sendall(data if i % 5 else data[: i % 90 + 1])
        if i % 20 == 7:
            s.recv(2000)
        s.close()
    ledger = daemon.wait_idle()
    assert ledger["pool"]["blocks"] == baseline["pool"]["blocks"]
    assert ledger["pool"]["blocks_free"] + ledger["pool"]["blocks_cached"] == ledger["pool"]["blocks"]
    for _ in range(100):
        if len(os.listdir(f"/proc/{daemon.process.pid}/fd")) <= descriptors:
            break
        time.sleep(0.05)
    assert len(os.listdir(f"/proc/{daemon.process.pid}/fd")) <= descriptors
    assert daemon.http.post("/v1/completions", json={"prompt": "a", "max_tokens": 1}).status_code == 200


def test_metrics_are_possible_values(daemon):
    daemon.wait_idle()
    text = daemon.http.get("/metrics").text
    seen = {}
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            name, kind = line.split()[2:]
            assert name not in seen
            assert (kind == "counter") == name.endswith("_total"), name
            seen[name] = kind
        elif not line.startswith("#"):
            assert float(line.rsplit(" ", 1)[1]) >= 0
    assert 0 <= daemon.metric("quire_kv_usage_ratio") <= 1
    assert daemon.metric("quire_requests_running") == daemon.metric("quire_requests_waiting") == 0
    hits = daemon.metric('quire_prefix_cache_hit_tokens_total{tier="device"}')
    assert hits <= daemon.metric("quire_prefix_cache_lookup_tokens_total")
    if shutil.which("promtool"):
        assert subprocess.run(["promtool", "check", "metrics"], input=text.encode()).returncode == 0


def test_curl(daemon):
    if not shutil.which("curl"):
        pytest.skip("no curl")
    out = subprocess.run(
        ["curl", "-sS", "--unix-socket", daemon.path, "http://localhost/v1/chat/completions", "-H", "Content-Type: application/json",
         "-d", json.dumps({"messages": [{"role": "user", "content": "hi"}], "max_tokens": 4})],
        capture_output=True, check=True,
    )  # fmt: skip
    assert json.loads(out.stdout)["usage"]["completion_tokens"] <= 4


def test_prompt_text_is_not_logged(daemon):
    marker = "zanzibarquux"
    daemon.http.post("/v1/completions", json={"prompt": marker, "max_tokens": 2})
    daemon.http.post("/v1/completions", content=b'{"prompt": "' + marker.encode() + b'" oops')
    assert marker not in daemon.output()
