"""The processes that tests start in the background: each ends with whatever started it, a test or a fixture, also when that fails.

conftest.py puts every test, and every module with its fixtures, into `ended`.
"""

import contextlib
import subprocess

started = []


def start(command, **more):
    """A process that the test need not end itself."""
    process = subprocess.Popen(command, **more)
    started.append(process)
    return process


@contextlib.contextmanager
def ended():
    """What was started inside and still runs is killed at the end."""
    before = len(started)
    try:
        yield
    finally:
        while len(started) > before:
            process = started.pop()
            if process.poll() is None:
                process.kill()
                process.wait()
