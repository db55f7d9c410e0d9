"""For every test of this folder: the shared fixtures, and no process that outlives the test, or the module, that started it."""

import processes
import pytest
from models import models_fixture  # noqa: F401
from served import client_fixture, daemon_fixture  # noqa: F401
from serving import serve_fixture  # noqa: F401
from tiers import cache_fixture, twin_fixture, twins_fixture  # noqa: F401


@pytest.fixture(autouse=True, scope="module", name="module_processes")
def module_processes_fixture():
    with processes.ended():
        yield


@pytest.fixture(autouse=True, name="test_processes")
def test_processes_fixture(module_processes):
    with processes.ended():
        yield
