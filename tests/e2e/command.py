"""The quire command as a process, for tests of the command itself; served.py has the daemon for clients of the API."""
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time

import processes

ROOT = pathlib.Path(__file__).resolve().parents[2]
QUIRE = os.environ.get("QUIRE_BIN", str(ROOT / "build/release/quire"))
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")
MODEL = os.environ.get("QUIRE_MODEL", str(CACHE / "quire/models/SmolLM2-135M-Instruct.Q4_1.gguf"))


def clean_environment(extra=None):
    """The environment without settings of the user's own daemon."""
    env = {key: value for key, value in os.environ.items() if not key.startswith("QUIRE_")}
    env.update(extra or {})
    return env


def quire(*arguments, text=None, env=None, seconds=60):
    return subprocess.run([QUIRE, *arguments], input=text, capture_output=True, text=True, timeout=seconds,
                          env=clean_environment(env), check=False)


class ServeProcess:
    """A `quire serve` of its own socket and folder, with its start screen apart from its log."""

    def __init__(self, *arguments):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="quire-e2e-"))
        self.socket = str(self.folder / "s")
        self.log = open(self.folder / "log", "wb+")
        self.process = processes.start([QUIRE, "serve", "--model", MODEL, "--socket", self.socket, *arguments],
                                       stdout=subprocess.PIPE, stderr=self.log, env=clean_environment())

    def wait_listening(self, seconds=30):
        end = time.monotonic() + seconds
        while not os.path.exists(self.socket):
            assert self.process.poll() is None and time.monotonic() < end, self.log_text()
            time.sleep(0.01)
        return self

    def log_text(self):
        self.log.seek(0)
        return self.log.read().decode("utf-8", "replace")

    def stop(self, seconds=60):
        """Drains; returns the exit status and the start screen."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        out, _ = self.process.communicate(timeout=seconds)
        return self.process.returncode, out.decode()

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.log.close()
        shutil.rmtree(self.folder, ignore_errors=True)
