"""What the end-to-end tests share: the command under test, its model, and a daemon to talk to."""
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
QUIRE = os.environ.get("QUIRE_BIN", str(ROOT / "build" / "release" / "quire"))
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")
MODEL = os.environ.get("QUIRE_MODEL", str(CACHE / "quire" / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf"))


def clean_environment(extra=None):
    """The environment without settings of the user's own daemon."""
    env = {key: value for key, value in os.environ.items() if not key.startswith("QUIRE_")}
    env.update(extra or {})
    return env


class Daemon:
    """A `quire serve` of its own socket and folder."""

    def __init__(self, *arguments, model=MODEL, env=None):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="quire-e2e-"))
        self.socket = str(self.folder / "s")
        self.log = open(self.folder / "log", "wb+")
        self.process = subprocess.Popen([QUIRE, "serve", "--model", model, "--socket", self.socket, *arguments],
                                        stdout=subprocess.PIPE, stderr=self.log, env=clean_environment(env))

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
        """Drains; returns the exit status and what was printed."""
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


@pytest.fixture(scope="module")
def daemon():
    """One daemon for the tests of a file; it must end cleanly."""
    running = Daemon("--context", "2048", "--kv-memory", "256M").wait_listening()
    yield running
    status, _ = running.stop()
    log = running.log_text()
    running.close()
    assert status == 0, log
