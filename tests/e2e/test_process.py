"""Start, socket and shutdown (R29, R30)."""

import os
import resource
import select
import signal
import socket
import stat
import subprocess
import time

import httpx
import pytest
from served import BIN, MODEL, Daemon, post

SMALL = ("--context", "512", "--kv-blocks", "128")


def start_fails(folder, path):
    r = subprocess.run([BIN, "serve", "--model", MODEL, "--socket", path, *SMALL], capture_output=True, timeout=60)
    assert r.returncode != 0
    return r.stderr.decode()


def test_kill_and_start_again(tmp_path):
    d = Daemon(*SMALL, folder=str(tmp_path))
    assert stat.S_IMODE(os.stat(d.path).st_mode) == 0o600
    assert d.path in start_fails(tmp_path, d.path)
    assert d.http.get("/health").status_code == 200
    d.process.kill()
    d.process.wait()
    assert os.path.exists(d.path)
    d = Daemon(*SMALL, folder=str(tmp_path))
    d.stop()


def test_what_is_not_ours_stays(tmp_path):
    path = str(tmp_path / "x")
    open(path, "w").close()
    assert path in start_fails(tmp_path, path)
    assert os.path.isfile(path)
    os.remove(path)
    os.symlink(str(tmp_path / "nowhere"), path)
    assert path in start_fails(tmp_path, path)
    assert os.path.islink(path)
    assert "107" in start_fails(tmp_path, str(tmp_path / ("y" * 120)))


def test_term_drains(tmp_path):
    d = Daemon(*SMALL, "--max-sequences", "1", folder=str(tmp_path))
    running, queued, idle = d.connect(), d.connect(), d.connect()
    running.sendall(post("/v1/completions", {"prompt": "a", "max_tokens": 150, "stream": True, "ignore_eos": True}))
    running.recv(1)
    queued.sendall(post("/v1/completions", {"prompt": "b", "max_tokens": 5, "stream": True}))
    time.sleep(0.1)
    d.process.send_signal(signal.SIGTERM)
    assert queued.recv(4096).startswith(b"HTTP/1.1 503")
    assert idle.recv(1) == b""
    late = d.connect()
    late.sendall(post("/v1/completions", {"prompt": "c"}))
    answer = late.recv(4096)
    assert answer.startswith(b"HTTP/1.1 503") and b"Connection: close" in answer
    data = b""
    while chunk := running.recv(65536):
        data += chunk
    assert data.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")
    d.stop(signalled=True)


def test_second_signal_ends_at_once(tmp_path):
    d = Daemon(*SMALL, folder=str(tmp_path))
    s = d.connect()
    s.sendall(post("/v1/completions", {"prompt": "a", "max_tokens": 400, "stream": True, "ignore_eos": True}))
    s.recv(1)
    d.process.send_signal(signal.SIGTERM)
    time.sleep(0.1)
    started = time.monotonic()
    d.process.send_signal(signal.SIGTERM)
    assert d.process.wait(10) != 0 and time.monotonic() - started < 3
    assert not os.path.exists(d.path)


def test_closed_standard_files(tmp_path):
    """The log of a daemon without stderr must not go into what took its number: here libuv's signal pipe."""
    folder = str(tmp_path)
    command = [BIN, "serve", "--model", MODEL, "--socket", os.path.join(folder, "s.sock"), "--log-level", "debug", *SMALL]
    d = Daemon(*SMALL, folder=folder, command=["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *command])
    for fd in range(3):
        assert os.readlink(f"/proc/{d.process.pid}/fd/{fd}") == "/dev/null"
    assert d.http.get("/health").status_code == 200
    d.stop()


def limited(tmp_path, limits, *flags):
    """The command of a daemon under limits of the shell's `ulimit`."""
    command = [BIN, "serve", "--model", MODEL, "--socket", str(tmp_path / "s.sock"), *flags]
    return ["sh", "-c", f'ulimit {limits} && exec "$@"', "sh", *command]


@pytest.mark.parametrize("files", [*range(3, 14), 20, 26])
def test_too_few_open_files_are_refused(tmp_path, files):
    """With three the system's loader has none for the first library, and says so itself."""
    r = subprocess.run(limited(tmp_path, f"-n {files}", *SMALL), capture_output=True, text=True, timeout=60)
    if files == 3:
        assert r.returncode == 127 and "shared libraries" in r.stderr
    else:
        assert r.returncode == 1 and "ulimit -n" in r.stderr, f"{r.returncode}: {r.stderr}"
    assert not os.listdir(tmp_path)


def test_more_clients_than_files(tmp_path):
    """Everyone who waits is answered as soon as a file is free."""
    d = Daemon(folder=str(tmp_path), command=limited(tmp_path, "-n 32", *SMALL))
    d.http.close()
    clients = [d.connect() for _ in range(80)]
    for client in clients:
        client.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    for client in clients:
        assert client.recv(4096).startswith(b"HTTP/1.1 200")
        client.close()
    d.http = httpx.Client(transport=httpx.HTTPTransport(uds=d.path), base_url="http://quire", timeout=120)
    d.stop()


def test_while_no_file_can_be_opened_the_others_are_served(tmp_path):
    port = free_port()
    d = Daemon(*SMALL, "--listen", f"127.0.0.1:{port}", folder=str(tmp_path))
    soft, hard = resource.prlimit(d.process.pid, resource.RLIMIT_NOFILE)
    assert d.http.get("/health").status_code == 200
    resource.prlimit(d.process.pid, resource.RLIMIT_NOFILE, (4, hard))
    clients = [d.connect() for _ in range(8)] + [socket.create_connection(("127.0.0.1", port), 60) for _ in range(8)]
    for client in clients:
        client.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
    for _ in range(5):
        assert d.http.post("/v1/completions", json={"prompt": "a", "max_tokens": 4}).status_code == 200
    assert not select.select(clients, [], [], 0.3)[0]
    resource.prlimit(d.process.pid, resource.RLIMIT_NOFILE, (soft, hard))
    for client in clients:
        assert client.recv(4096).startswith(b"HTTP/1.1 200")
        client.close()
    for listener in ("unix", "tcp"):
        assert d.output().count(f"connections_wait listener={listener} ") == 1
    d.stop()


def test_the_default_pool_fits_into_the_address_space(tmp_path):
    limit = 1 << 30
    d = Daemon(folder=str(tmp_path), command=limited(tmp_path, f"-v {limit >> 10}", "--context", "512"))
    pool = d.kv()["pool"]
    assert 64 << 20 < pool["bytes"] < limit // 2
    assert d.http.post("/v1/completions", json={"prompt": "a", "max_tokens": 2}).status_code == 200
    d.stop()


def test_capacity_is_named(tmp_path):
    d = Daemon("--context", "4096", "--kv-blocks", "256", "--max-sequences", "4", folder=str(tmp_path))
    r = d.http.post("/v1/completions", json={"prompt": "word " * 5000, "max_tokens": 1})
    assert r.status_code == 400 and "4096" in r.text
    d.stop()


@pytest.mark.parametrize("n", [253, 254, 255, 256, 257, 10000])
def test_context_edge(edge, n):
    r = edge.http.post("/v1/completions", json={"prompt": [100] * n, "max_tokens": 50, "ignore_eos": True})
    if n < 256:
        assert r.status_code == 200
        assert r.json()["usage"]["completion_tokens"] == 256 - n and r.json()["choices"][0]["finish_reason"] == "length"
    else:
        assert r.status_code == 400
        assert r.json()["error"]["n_prompt_tokens"] == n and r.json()["error"]["n_ctx"] == 256


@pytest.fixture(scope="module")
def edge(tmp_path_factory):
    d = Daemon("--context", "256", "--kv-blocks", "64", folder=str(tmp_path_factory.mktemp("edge")))
    yield d
    d.stop()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def test_tcp_without_keys_answers_no_web_page(tmp_path):
    port = free_port()
    d = Daemon(*SMALL, "--listen", f"127.0.0.1:{port}", folder=str(tmp_path))
    url, own, evil = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{port}", "http://evil.example"
    for host in (f"127.0.0.1:{port}", "localhost", f"localhost:{port + 1}", "[::1]"):
        assert httpx.get(url + "/v1/models", headers={"Host": host}).status_code == 200
    refused = [{"Host": f"evil.example:{port}"}, {"Origin": evil}, {"Origin": own}, {"Origin": "null"}]
    for headers in refused:
        param = next(iter(headers))
        for method, path in (("GET", "/v1/models"), ("GET", "/health"), ("OPTIONS", "/v1/chat/completions"), ("GET", "/nothing")):
            r = httpx.request(method, url + path, headers=headers)
            assert r.status_code == 403 and r.json()["error"]["param"] == param and param in r.json()["error"]["message"]
        body = {"prompt": "a", "max_tokens": 1}
        assert httpx.post(url + "/v1/completions", json=body, headers=headers).status_code == 403
        assert d.http.post("/v1/completions", json=body, headers=headers).status_code == 200
    assert d.metric("quire_generated_tokens_total") == len(refused)
    d.stop()


def test_tcp_needs_its_key(tmp_path):
    key = tmp_path / "keys"
    key.write_text("# comment\nsecret-key\n")
    key.chmod(0o600)
    port = free_port()
    d = Daemon(*SMALL, "--listen", f"127.0.0.1:{port}", "--api-key-file", str(key), folder=str(tmp_path))
    url = f"http://127.0.0.1:{port}"
    assert httpx.get(url + "/health").status_code == 200
    assert httpx.get(url + "/v1/models").status_code == 401
    assert httpx.get(url + "/v1/models", headers={"Authorization": "Bearer secret-kez"}).status_code == 401
    with_key = {"Authorization": "Bearer secret-key"}
    assert httpx.get(url + "/v1/models", headers=with_key).status_code == 200
    from_a_page = {**with_key, "Host": "quire.example", "Origin": "https://quire.example"}
    assert httpx.get(url + "/v1/models", headers=from_a_page).status_code == 200
    assert httpx.request("DELETE", url + "/v1/kv?all=true", headers=with_key).status_code == 403
    assert "secret-key" not in d.output()
    d.stop()
