"""The real daemon on a Unix socket, for tests with real clients.

QUIRE_BIN names the executable (default build/release/quire), QUIRE_MODEL the model file (default: the one in the cache).
"""

import contextlib
import json
import os
import pathlib
import signal
import socket
import tempfile
import time

import httpx
import openai
import processes
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = os.environ.get("QUIRE_BIN", str(ROOT / "build/release/quire"))
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache"))
MODEL = os.environ.get("QUIRE_MODEL", str(CACHE / "quire/models/SmolLM2-135M-Instruct.Q4_1.gguf"))


class Daemon:
    """Ends with the test that starts it, whatever comes of that (processes.py); a test that passes stops it itself."""

    def __init__(self, *flags, folder=None, model=MODEL, wait=True, command=None):
        self.folder = folder or tempfile.mkdtemp(prefix="quire-e2e-")
        self.path = os.path.join(self.folder, "s.sock")
        self.log = open(os.path.join(self.folder, "log"), "a+b")
        self.process = processes.start(
            command or [BIN, "serve", "--model", model, "--socket", self.path, *flags], stdout=self.log, stderr=self.log
        )
        self.http = httpx.Client(transport=httpx.HTTPTransport(uds=self.path), base_url="http://quire", timeout=120)
        if wait:
            self.wait_ready()

    def wait_ready(self):
        for _ in range(1200):
            assert self.process.poll() is None, self.output()
            with contextlib.suppress(httpx.TransportError):
                if self.http.get("/health").status_code == 200:
                    return
            time.sleep(0.05)
        raise AssertionError("never ready: " + self.output())

    def output(self):
        self.log.flush()
        self.log.seek(0)
        return self.log.read().decode(errors="replace")

    def client(self):
        transport = httpx.HTTPTransport(uds=self.path)
        return openai.OpenAI(
            base_url="http://quire/v1",
            api_key="none",
            http_client=httpx.Client(transport=transport, timeout=300),
            max_retries=0,
        )

    def connect(self):
        s = socket.socket(socket.AF_UNIX)
        s.connect(self.path)
        s.settimeout(60)
        return s

    def raw(self, data, pieces=None):
        """Sends bytes, closes the write side, returns all that comes back."""
        s = self.connect()
        with contextlib.suppress(BrokenPipeError):
            for i in range(0, len(data), pieces or max(len(data), 1)):
                s.sendall(data[i : i + (pieces or len(data))])
        with contextlib.suppress(OSError):
            s.shutdown(socket.SHUT_WR)
        answer = b""
        while chunk := s.recv(65536):
            answer += chunk
        s.close()
        return answer

    def metric(self, name):
        for line in self.http.get("/metrics").text.splitlines():
            if line.startswith(name + " "):
                return float(line.split()[1])
        raise KeyError(name)

    def kv(self):
        return self.http.get("/v1/kv").json()

    def wait_idle(self):
        for _ in range(400):
            ledger = self.kv()
            if ledger["sessions"]["running"] + ledger["sessions"]["waiting"] == 0 and ledger["pool"]["blocks_used"] == 0:
                return ledger
            time.sleep(0.05)
        raise AssertionError(f"not idle: {ledger}")

    def forget(self):
        assert self.http.request("DELETE", "/v1/kv", json={"all": True}).status_code == 200
        for _ in range(200):
            if self.kv()["pool"]["blocks_cached"] == 0:
                return
            time.sleep(0.01)
        raise AssertionError("cached blocks stay after DELETE /v1/kv")

    def stop(self, expected=0, timeout=60, signalled=False):
        if self.process.poll() is None and not signalled:
            self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(timeout)
        assert code == expected, f"exit {code}: {self.output()}"
        if expected == 0:
            assert not os.path.exists(self.path), "the socket file is still there"


def post(path, body):
    """An HTTP/1.1 request as bytes."""
    data = json.dumps(body).encode()
    return f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data


@pytest.fixture(scope="module", name="daemon")
def daemon_fixture():
    if not os.path.exists(MODEL):
        pytest.skip("no model")
    d = Daemon("--context", "4096", "--kv-blocks", "2048")
    yield d
    d.wait_idle()
    d.stop()


@pytest.fixture(name="client")
def client_fixture(daemon):
    return daemon.client()
