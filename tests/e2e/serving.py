"""Daemons with flags of their own, which end with the test that started them, also when it fails."""

import contextlib

import pytest
from served import Daemon


@contextlib.contextmanager
def serving(*flags, **more):
    """A daemon that must be idle and end cleanly afterwards."""
    d = Daemon(*flags, **more)
    try:
        yield d
        d.wait_idle()
        d.stop()
    finally:
        if d.process.poll() is None:
            d.process.kill()
            d.process.wait()


@pytest.fixture(name="serve")
def serve_fixture():
    """Starts daemons for one test."""
    with contextlib.ExitStack() as stack:
        yield lambda *flags, **more: stack.enter_context(serving(*flags, **more))
