"""For every test of this folder: no process outlives the test, or the module, that started it."""

import processes
import pytest


@pytest.fixture(autouse=True, scope="module", name="module_processes")
def module_processes_fixture():
    with processes.ended():
        yield


@pytest.fixture(autouse=True, name="test_processes")
def test_processes_fixture(module_processes):
    with processes.ended():
        yield
