"""`quire chat` against a daemon that misbehaves on purpose."""
import os
import pty
import signal
import socket
import subprocess
import time

import processes
import pytest
from command import QUIRE, clean_environment
from fake_daemon import FakeDaemon


def chat(daemon, *arguments, text=None, env=None):
    return subprocess.run(
        [QUIRE, "chat", "--socket", daemon.path, *arguments], input=text, capture_output=True, text=True, timeout=30,
        env=clean_environment(env), check=False)


@pytest.fixture(name="daemon")
def fake_daemon(tmp_path):
    with FakeDaemon(tmp_path / "s") as daemon:
        yield daemon


def test_ask_and_follow_up_share_the_conversation(daemon):
    done = chat(daemon, "--ask", "one", "--ask", "two", "--system", "Be brief.", "--temperature", "0", "--max-tokens", "9",
                "--seed", "7", "--salt", "s")
    assert done.returncode == 0, done.stderr
    assert "Echo: one é🎉" in done.stdout and "Echo: two é🎉" in done.stdout
    assert "100 prompt tokens of which 80 cached" in done.stdout and "42.5 tokens/s" in done.stdout
    assert "context 6 % of 2048" in done.stdout
    first, second = daemon.chats()
    assert [m["role"] for m in second["messages"]] == ["system", "user", "assistant", "user"]
    assert first["temperature"] == 0 and first["max_tokens"] == 9 and first["seed"] == 7 and first["cache_salt"] == "s"
    assert first["stream"] is True and first["stream_options"] == {"include_usage": True}


def test_escape_sequences_of_model_and_daemon_are_disarmed(daemon):
    done = chat(daemon, text="x\n")
    assert "\x1b" not in done.stdout and "fake ?[31mmodel" in done.stdout


@pytest.mark.parametrize(
    ("question", "message"),
    [("refuse", "the prompt is too long"), ("fail", "the step failed"), ("cut", "the answer broke off")])
def test_a_failure_is_told_and_ends_an_ask(daemon, question, message):
    done = chat(daemon, "--ask", question, "--ask", "never sent")
    assert done.returncode == 1 and message in done.stderr
    assert len(daemon.chats()) == 1


def test_a_failed_question_leaves_the_conversation(daemon):
    done = chat(daemon, text="one\nrefuse\ntwo\n")
    assert done.returncode == 0 and "the prompt is too long" in done.stderr
    assert [m["content"] for m in daemon.chats()[-1]["messages"] if m["role"] == "user"] == ["one", "two"]


def test_commands(daemon, tmp_path):
    saved = tmp_path / "talk.json"
    done = chat(daemon, text=f"/system Be kind.\none\n/save {saved}\n/reset\ntwo\n/load {saved}\nthree\n/stats\n/help\n/nonsense\n/quit\nfour\n")
    assert done.returncode == 0, done.stderr
    users = [[m["content"] for m in body["messages"] if m["role"] == "user"] for body in daemon.chats()]
    assert users == [["one"], ["two"], ["one", "three"]]
    assert all(body["messages"][0] == {"role": "system", "content": "Be kind."} for body in daemon.chats())
    assert "3 answers, 300 prompt tokens of which 240 cached" in done.stdout and "pool.blocks" in done.stdout
    assert "no such command" in done.stdout
    assert saved.stat().st_mode & 0o777 == 0o600


def test_a_backslash_joins_lines(daemon):
    chat(daemon, text="a\\\nb\n")
    assert daemon.chats()[0]["messages"][0]["content"] == "a\nb"


def test_a_loading_daemon_is_waited_for(tmp_path):
    with FakeDaemon(tmp_path / "s", loading=3) as daemon:
        done = chat(daemon, "--ask", "one")
        assert done.returncode == 0 and "loading" in done.stderr
    with FakeDaemon(tmp_path / "s", loading=1000) as daemon:
        assert chat(daemon, "--ask", "one", "--wait", "0").returncode == 1


def test_a_base_model_is_announced(tmp_path):
    with FakeDaemon(tmp_path / "s", base_model=True) as daemon:
        done = chat(daemon, "--ask", "one")
        assert done.returncode == 1 and "this model has no chat template" in done.stderr
        assert daemon.chats() == []


def test_no_daemon_is_told_with_its_path(tmp_path):
    done = subprocess.run([QUIRE, "chat", "--socket", tmp_path / "none", "--ask", "x"], capture_output=True, text=True, timeout=30,
                          env=clean_environment(), check=False)
    assert done.returncode == 1 and str(tmp_path / "none") in done.stderr and "quire serve" in done.stderr


def test_the_key_comes_from_a_file(daemon, tmp_path):
    key = tmp_path / "key"
    key.write_text("s3cret\n")
    assert chat(daemon, "--api-key-file", str(key), "--ask", "x").returncode == 0
    assert all(headers["Authorization"] == "Bearer s3cret" for _, _, headers in daemon.posts)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can set up another user's server")
def test_another_users_server_gets_nothing(tmp_path):
    path = str(tmp_path / "s")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    ready, told = os.pipe()
    pid = os.fork()
    if pid == 0:  # the server's user is the one who called listen
        os.setuid(65534)
        listener.listen()
        os.write(told, b".")
        connection, _ = listener.accept()
        os._exit(0 if connection.recv(1) == b"" else 1)
    os.read(ready, 1)
    listener.close()
    done = subprocess.run([QUIRE, "chat", "--socket", path, "--ask", "x"], capture_output=True, text=True, timeout=30,
                          env=clean_environment(), check=False)
    assert done.returncode == 1 and "belongs to user 65534" in done.stderr
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0, "a byte was sent"


class Terminal:
    """A chat at a terminal of its own."""

    def __init__(self, path):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execve(QUIRE, [QUIRE, "chat", "--socket", path], clean_environment({"TERM": "xterm", "LC_ALL": "C.UTF-8"}))
        self.seen = ""

    def send(self, text):
        os.write(self.fd, text.encode())

    def wait_for(self, text, seconds=10):
        end = time.monotonic() + seconds
        while text not in self.seen:
            assert time.monotonic() < end, self.seen
            try:
                self.seen += os.read(self.fd, 4096).decode("utf-8", "replace")
            except OSError:
                break
        assert text in self.seen, self.seen
        self.seen = self.seen.split(text, 1)[1]

    def end(self):
        _, status = os.waitpid(self.pid, 0)
        os.close(self.fd)
        return os.waitstatus_to_exitcode(status)


def test_ctrl_c_stops_the_answer_and_keeps_the_session(daemon):
    terminal = Terminal(daemon.path)
    terminal.wait_for("> ")
    terminal.send("slow\r")
    terminal.wait_for("slow slow slow")
    terminal.send("\x03")
    terminal.wait_for("stopped")
    terminal.wait_for("> ")
    terminal.send("half a line\x03")
    terminal.wait_for("> ")
    terminal.send("caf\u00e9 \u65e5\u672c\x7f\r")  # the last character is taken back
    terminal.wait_for("Echo: caf\u00e9 \u65e5 ")
    terminal.wait_for("> ")
    terminal.send("\x04")
    assert terminal.end() == 0
    messages = daemon.chats()[-1]["messages"]
    assert messages[1]["role"] == "assistant" and messages[1]["content"].startswith("slow slow")
    assert messages[2]["content"] == "caf\u00e9 \u65e5"
    deadline = time.monotonic() + 5
    while daemon.gone == 0 and time.monotonic() < deadline:
        time.sleep(0.02)
    assert daemon.gone == 1


def test_ctrl_c_ends_an_ask(daemon):
    process = processes.start([QUIRE, "chat", "--socket", daemon.path, "--ask", "slow"], stdout=subprocess.PIPE,
                              env=clean_environment())
    out = b""
    while b"slow slow" not in out:
        out += os.read(process.stdout.fileno(), 4096)
    process.send_signal(signal.SIGINT)
    out += process.communicate(timeout=10)[0]
    assert process.returncode == 0 and b"stopped" in out
