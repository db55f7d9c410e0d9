"""The two servers as processes, with what they cost: memory, processor time, page cache of their files."""
import contextlib
import ctypes
import ctypes.util
import json
import mmap
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time

import client

TICKS = os.sysconf("SC_CLK_TCK")
live = set()  # servers that run now
_libc = ctypes.CDLL(ctypes.util.find_library("c"), use_errno=True)
_libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p]
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]


def cpu_name():
    with open("/proc/cpuinfo", encoding="ascii") as file:
        return next((line.split(":", 1)[1].strip() for line in file if line.startswith("model name")), "unknown")


def cached_bytes(path):
    """How much of a file lies in the page cache (mincore)."""
    size = os.path.getsize(path)
    if not size:
        return 0
    pages = (size + mmap.PAGESIZE - 1) // mmap.PAGESIZE
    fd = os.open(path, os.O_RDONLY)
    try:
        address = _libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, fd, 0)
        if address in (None, ctypes.c_void_p(-1).value):
            raise OSError(ctypes.get_errno(), f"cannot map {path}")
        vector = ctypes.create_string_buffer(pages)
        _libc.mincore(address, size, vector)
        _libc.munmap(address, size)
    finally:
        os.close(fd)
    return sum(byte & 1 for byte in vector.raw[:pages]) * mmap.PAGESIZE


def files_of(folder):
    return [path for path in pathlib.Path(folder).rglob("*") if path.is_file()]


def drop_page_cache(folder):
    """Writes back and drops every file of a folder; returns the bytes that stayed (0, or the measurement is not one)."""
    for path in files_of(folder):
        fd = os.open(path, os.O_RDONLY)
        try:
            os.fsync(fd)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(fd)
    return sum(cached_bytes(path) for path in files_of(folder))


class Server:
    """A process with a log. Subclasses: command(), address, dialect, healthy()."""

    silence_s = 300  # that a client bears

    def __init__(self, name, folder):
        self.name, self.folder = name, pathlib.Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.process = None

    def start(self):
        with open(self.folder / "log", "ab") as log:
            self.process = subprocess.Popen(self.command(), stdout=log, stderr=log, env=self.environment())
        live.add(self)
        end = time.monotonic() + self.silence_s
        while not self.healthy():
            if self.process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"{self.name} did not start: {(self.folder / 'log').read_text(errors='replace')[-2000:]}")
            time.sleep(0.02)
        return self

    def environment(self):
        return {key: value for key, value in os.environ.items() if not key.startswith("QUIRE_")}

    def healthy(self):
        with contextlib.suppress(OSError):
            return client.request(self.address, "GET", "/health", timeout=5)[0] == 200
        return False

    def stop(self):
        """SIGTERM, and waits: what a service manager does."""
        live.discard(self)
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(timeout=self.silence_s)
        self.process = None

    def complete(self, prompt, max_tokens):
        return client.complete(self.address, self.dialect, prompt, max_tokens, silence_s=self.silence_s)

    def background(self, prompts, max_tokens):
        return client.BackgroundDecode(self.address, self.dialect, prompts, max_tokens)

    def memory(self):
        """Resident bytes by kind; Anon is what only this process has."""
        text = pathlib.Path(f"/proc/{self.process.pid}/status").read_text(encoding="ascii")
        return {key.lower(): int(value) << 10 for key, value in re.findall(r"^Rss(Anon|File|Shmem):\s+(\d+) kB$", text, re.M)}

    def cpu_seconds(self):
        """User and system time of all threads, from /proc in nanoseconds where the kernel counts them (schedstat)."""
        total = 0
        for task in pathlib.Path(f"/proc/{self.process.pid}/task").iterdir():
            with contextlib.suppress(OSError):
                total += int((task / "schedstat").read_text(encoding="ascii").split()[0])
        if total:
            return total * 1e-9
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / TICKS


class Quire(Server):
    dialect = client.QUIRE

    def __init__(self, name, options, folder, *flags, disk=None, faults=None, pool_blocks=None):
        super().__init__(name, folder)
        self.options, self.flags, self.faults = options, list(flags), faults
        self.disk = pathlib.Path(disk) if disk else None
        self.address = str(self.folder / "s")
        self.pool_blocks = pool_blocks

    def environment(self):
        env = super().environment()
        if self.faults:
            env["QUIRE_FAULTS"] = self.faults
        return env

    def command(self):
        flags = [*self.flags]
        if self.pool_blocks:
            flags += ["--kv-blocks", str(self.pool_blocks)]
        if self.disk:
            flags += ["--disk-cache", str(self.disk)]
        program = self.options.quire_faulty if self.faults else self.options.quire
        return [program, "serve", "--model", self.options.model, "--socket", self.address, "--threads", str(self.options.threads),
                "--log-level", "info", *flags]

    def metrics(self):
        """{name{labels}: value} of /metrics."""
        text = client.request(self.address, "GET", "/metrics")[1].decode()
        return {name: float(value) for name, value in re.findall(r"^(quire_\S+) (\S+)$", text, re.M)}

    def ledger(self):
        return json.loads(client.request(self.address, "GET", "/v1/kv")[1])

    def flush(self):
        """Writes what is cached and not on disk yet; returns when it is there."""
        status, body = client.request(self.address, "POST", "/v1/kv/flush")
        if status != 200:
            raise RuntimeError(f"flush: HTTP {status} {body[:300]!r}")

    def wait_written(self, seconds=60):
        """Until nothing is on its way to disk, by itself, and stays so; returns the tokens that are there and since when (monotonic)."""
        since, end = time.monotonic(), time.monotonic() + seconds
        while time.monotonic() < since + 0.15:
            disk = self.ledger()["disk"]
            if disk["stores_queued"]:
                since = time.monotonic()
            if time.monotonic() > end:
                raise RuntimeError(f"blocks still wait to be written after {seconds} s")
            time.sleep(0.02)
        return disk["tokens"], since

    def tier_memory(self):
        """Bytes that hold KV or exist because of it: pool, bookkeeping, index and buffers of the disk tier, and the page cache of
        the tier's files."""
        ledger = self.ledger()
        page_cache = sum(cached_bytes(path) for path in files_of(self.disk)) if self.disk else 0
        return {"pool": ledger["pool"]["bytes"], "bookkeeping": ledger["tree"]["bytes"],
                "tier": ledger["disk"].get("memory_bytes", 0), "page_cache": page_cache}


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Llama(Server):
    dialect = client.LLAMA

    def __init__(self, name, options, folder, *flags):
        super().__init__(name, folder)
        self.options, self.flags = options, list(flags)
        self.address = ("127.0.0.1", free_port())

    def command(self):
        return [self.options.llama_server, "-m", self.options.model, "--host", self.address[0], "--port", str(self.address[1]),
                "-t", str(self.options.threads), "-fa", "on", "--no-webui", *self.flags]


@contextlib.contextmanager
def scratch(options):
    """A folder of this run, gone afterwards."""
    folder = tempfile.mkdtemp(prefix="quire-tiers-", dir=options.folder)
    try:
        yield pathlib.Path(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def running(*servers):
    try:
        for server in servers:
            server.start()
        yield servers
    finally:
        for server in servers:
            server.stop()
