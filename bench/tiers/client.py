"""A streaming completion as a client sees it, over a Unix socket or TCP. Standard library only.

Prompts are lists of token ids, so lengths are exact and a later turn repeats the earlier one's tokens exactly, answer included.
"""
import dataclasses
import http.client
import json
import socket
import threading
import time


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path, timeout):
        super().__init__("localhost", timeout=timeout)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


def connect(address, timeout=300):
    """address: the path of a Unix socket, or (host, port)."""
    return UnixConnection(address, timeout) if isinstance(address, str) else http.client.HTTPConnection(*address, timeout=timeout)


def request(address, method, path, body=None, timeout=300):
    """Status and body of one request."""
    connection = connect(address, timeout)
    try:
        connection.request(method, path, None if body is None else json.dumps(body), {"Content-Type": "application/json"})
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


@dataclasses.dataclass
class Answer:
    prompt_tokens: int
    begun: float = 0.0
    ttft_s: float = 0.0
    total_s: float = 0.0
    tokens: list = dataclasses.field(default_factory=list)
    token_times: list = dataclasses.field(default_factory=list)
    cached_tokens: int = 0
    disk_tokens: int = 0  # of cached_tokens, where the server says so
    cause: str | None = None


class Dialect:
    """What differs between the servers' requests and events."""

    def __init__(self, path, body, read):
        self.path, self.body, self.read = path, body, read


def _quire_body(prompt, max_tokens):
    return {"prompt": prompt, "max_tokens": max_tokens, "stream": True, "ignore_eos": True, "temperature": 0,
            "return_token_ids": True, "explain_cache": True, "stream_options": {"include_usage": True}}


def _quire_read(event, answer):
    for choice in event["choices"]:
        answer.tokens += choice.get("token_ids") or []
    if event.get("usage"):
        answer.cached_tokens = event["usage"]["prompt_tokens_details"]["cached_tokens"]
    for entry in event.get("kv") or []:
        answer.cause = entry["cause"]
        answer.disk_tokens = entry["tiers"]["disk"]


def _llama_body(prompt, max_tokens):
    return {"prompt": prompt, "n_predict": max_tokens, "stream": True, "ignore_eos": True, "temperature": 0,
            "cache_prompt": True, "return_tokens": True}


def _llama_read(event, answer):
    answer.tokens += event.get("tokens") or []
    if "timings" in event:
        answer.cached_tokens = event["timings"]["cache_n"]


QUIRE = Dialect("/v1/completions", _quire_body, _quire_read)
LLAMA = Dialect("/completion", _llama_body, _llama_read)


def _take_event(line, dialect, answer):
    event = json.loads(line[6:])
    if "error" in event:
        raise RuntimeError(f"the server failed a request: {event['error']}")
    before = len(answer.tokens)
    dialect.read(event, answer)
    if len(answer.tokens) > before:
        now = time.monotonic()
        answer.token_times += [now] * (len(answer.tokens) - before)
        answer.ttft_s = answer.ttft_s or now - answer.begun


def complete(address, dialect, prompt, max_tokens, stop=None, silence_s=300):
    """Streams one completion to its end, or until the event `stop` is set."""
    answer = Answer(len(prompt))
    connection = connect(address, silence_s)
    body = json.dumps(dialect.body(prompt, max_tokens))
    try:
        answer.begun = time.monotonic()
        connection.request("POST", dialect.path, body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        if response.status != 200:
            raise RuntimeError(f"HTTP {response.status}: {response.read()[:500]!r}")
        while line := response.readline():
            if line.startswith(b"data: {"):
                _take_event(line, dialect, answer)
            if stop is not None and stop.is_set():
                break
        answer.total_s = time.monotonic() - answer.begun
        return answer
    finally:
        connection.close()


class BackgroundDecode:
    """Streams that decode without end on a server, so that what is measured beside them is measured under load."""

    def __init__(self, address, dialect, prompts, max_tokens):
        self.address, self.dialect, self.max_tokens = address, dialect, max_tokens
        self.stop = threading.Event()
        self.failure = None
        self.begun = [threading.Event() for _ in prompts]
        self.threads = [threading.Thread(target=self._run, args=pair) for pair in zip(prompts, self.begun)]

    def _run(self, prompt, begun):
        try:
            while not self.stop.is_set():
                complete(self.address, self._notify(begun), prompt, self.max_tokens, self.stop)
        except Exception as failure:  # handed to the thread that waits in __exit__
            self.failure = failure
        finally:
            begun.set()

    def _notify(self, begun):
        def read(event, answer):
            self.dialect.read(event, answer)
            if answer.tokens:
                begun.set()

        return Dialect(self.dialect.path, self.dialect.body, read)

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        for begun in self.begun:
            begun.wait()
        return self

    def __exit__(self, *_):
        self.stop.set()
        for thread in self.threads:
            thread.join()
        if self.failure:
            raise RuntimeError("a background stream failed") from self.failure
