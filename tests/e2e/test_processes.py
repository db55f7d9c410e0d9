"""The tests' own processes: a test that fails leaves none behind."""

import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent

INNER = '''
import os
import processes
import pytest
from served import Daemon

def note(name, process):
    with open(os.path.join(FOLDER, name), "w") as file:
        file.write(str(process.pid))
    return process

def running(name):
    with open(os.path.join(FOLDER, name)) as file:
        pid = int(file.read())
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True

@pytest.fixture(scope="module", name="shared")
def shared_fixture():
    yield note("shared", processes.start(["sleep", "600"]))
    raise AssertionError("its end fails")

@pytest.fixture(name="own")
def own_fixture():
    note("own", processes.start(["sleep", "600"]))

def test_fails(shared, own):
    note("plain", processes.start(["sleep", "600"]))
    note("daemon", Daemon(folder=FOLDER, command=["sleep", "600"], wait=False).process)
    assert all(running(name) for name in ("plain", "daemon", "own", "shared"))
    raise AssertionError("on purpose")

def test_sees_what_is_left(shared):
    assert [running(name) for name in ("plain", "daemon", "own", "shared")] == [False, False, False, True]
'''


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_test_that_fails_leaves_no_process_behind(tmp_path):
    inner = tmp_path / "test_inner.py"
    inner.write_text(f"FOLDER = {str(tmp_path)!r}\n{INNER}")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "conftest", "--rootdir", tmp_path, inner]
    r = subprocess.run(command, capture_output=True, text=True, timeout=120, env={**os.environ, "PYTHONPATH": str(HERE)})
    assert "1 failed, 1 passed, 1 error" in r.stdout, r.stdout
    for name in ("plain", "daemon", "own", "shared"):
        assert not alive(int((tmp_path / name).read_text())), name
