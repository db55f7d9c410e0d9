"""The quire command: help, plan, tokenize, run, and how serve starts and ends."""
import json
import os
import re
import signal
import subprocess
import time

import processes
import pytest

from command import MODEL, QUIRE, ServeProcess, clean_environment, quire

COMMANDS = ["serve", "chat", "run", "plan", "tokenize", "bench"]


def test_help_lists_every_command_and_each_has_its_own():
    done = quire("--help")
    assert done.returncode == 0 and all(re.search(rf"^  {name} ", done.stdout, re.MULTILINE) for name in COMMANDS)
    for name in COMMANDS:
        own = quire(name, "--help")
        assert own.returncode == 0 and own.stdout.startswith(f"Usage: quire {name} ")
        assert re.search(r"^  -h  +The same as --help$", own.stdout, re.MULTILINE)
        short = quire(name, "-h")
        assert (short.returncode, short.stdout, short.stderr) == (0, own.stdout, "")
    assert quire("-h").stdout == done.stdout
    assert quire("chat", "--socket", "-h", "--wait", "x").returncode == 64, "the value of a flag is not a flag"
    assert re.fullmatch(r"quire \d+\.\d+\.\d+\n", quire("--version").stdout)


def test_a_wrong_command_line_is_a_usage_error():
    assert quire().returncode == 64
    assert "no command 'srve'" in quire("srve").stderr
    for arguments in (["serve", "--nonsense"], ["run", "a", "b"], ["plan", "a", "b"], ["chat", "x"]):
        assert quire(*arguments).returncode == 64
    for word in ("--host", "--port"):
        done = quire("serve", "-m", MODEL, word, "8080")
        assert done.returncode == 64 and "--listen HOST:PORT" in done.stderr


def test_plan_counts_kv_from_the_header():
    done = quire("plan", MODEL, "--memory", "1G", "--context", "2048", "--json")
    assert done.returncode == 0, done.stderr
    plan = json.loads(done.stdout)
    assert plan["kv_bytes_per_token"] == 30 * 3 * (64 + 64) * 2  # layers, KV heads, key and value, f16
    assert plan["blocks_per_session"] == 128 and plan["sessions"] == plan["blocks"] // 128
    assert plan["total_bytes"] <= 1 << 30
    assert plan["pool_tokens"] == plan["blocks"] * plan["block_tokens"]
    wide = json.loads(quire("plan", MODEL, "--memory", "1G", "--context", "2048", "--kv-type", "f32", "--json").stdout)
    assert wide["kv_bytes_per_token"] == 2 * plan["kv_bytes_per_token"] and wide["sessions"] < plan["sessions"]


def test_a_plan_that_cannot_fit_says_the_numbers():
    done = quire("plan", MODEL, "--memory", "100M", "--context", "8192")
    assert done.returncode == 1 and re.search(r"\d", done.stderr)


@pytest.mark.parametrize("command", [["plan"], ["tokenize", "x", "--model"], ["run", "x", "--model"], ["serve", "--model"]])
def test_a_bad_model_file_is_refused_with_its_path(command, tmp_path):
    bad = tmp_path / "bad.gguf"
    bad.write_bytes(b"GGUF" + b"\xff" * 100)
    for path in (bad, tmp_path / "missing.gguf"):
        extra = ["--socket", str(tmp_path / "s")] if command[0] == "serve" else []
        done = quire(*command, str(path), *extra)
        assert done.returncode == 1 and path.name in done.stderr, (done.returncode, done.stderr)
        if command[0] == "serve":
            assert " error load_failed " in done.stderr
            assert re.search(r" info stopped result=(?!OK)\w+$", done.stderr, re.MULTILINE), done.stderr


def test_tokenize():
    done = quire("tokenize", "--model", MODEL, "--json", "Hello <|im_start|>")
    plain = json.loads(done.stdout)
    special = json.loads(quire("tokenize", "--model", MODEL, "--json", "--special", "Hello <|im_start|>").stdout)
    assert "".join(p if isinstance(p, str) else bytes(p).decode() for p in plain["pieces"]) == "Hello <|im_start|>"
    assert special["pieces"][-1] == "<|im_start|>" and special["count"] < plain["count"]
    piped = quire("tokenize", "--ids", env={"QUIRE_MODEL": MODEL}, text="Hello <|im_start|>")
    assert [int(t) for t in piped.stdout.split()] == plain["tokens"]
    assert quire("tokenize", "--ids", "-", env={"QUIRE_MODEL": MODEL}, text="Hello <|im_start|>").stdout == piped.stdout
    assert quire("tokenize", "--model", MODEL, "--ids", "").stdout == "\n"


@pytest.mark.parametrize("by_flag", [True, False])
def test_a_bench_of_nobody_says_so(by_flag, tmp_path):
    path = str(tmp_path / "none")
    done = quire("bench", "--socket", path) if by_flag else quire("bench", env={"QUIRE_SOCKET": path})
    assert path in done.stderr
    assert done.returncode == 1 and "none of 8 requests was answered" in done.stderr and done.stdout == "", done


def test_run_answers_and_repeats_itself():
    arguments = ["run", "--model", MODEL, "--temperature", "0", "--max-tokens", "24", "Name three fruits."]
    first, second = quire(*arguments), quire(*arguments, "--threads", "1")
    assert first.returncode == 0, first.stderr
    assert first.stdout == second.stdout and len(first.stdout) > 10  # the same bits on any number of threads
    assert "prompt tokens of which 0 cached" in first.stderr


def test_run_raw_continues_a_text():
    done = quire("run", "--model", MODEL, "--raw", "--temperature", "0", "--max-tokens", "8", text="1, 2, 3, 4, 5,")
    assert done.returncode == 0 and "6, 7" in done.stdout
    dash = quire("run", "-m", MODEL, "--raw", "--temperature", "0", "--max-tokens", "8", "-", text="1, 2, 3, 4, 5,")
    assert dash.stdout == done.stdout
    nothing = quire("run", "--model", MODEL, text="")
    assert nothing.returncode == 1 and "prompt: is empty" in nothing.stderr


def test_run_stops_at_ctrl_c():
    process = processes.start([QUIRE, "run", "--model", MODEL, "--ignore-eos", "--max-tokens", "4000", "Count."],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=clean_environment())
    assert process.stdout.read(1)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=20)
    assert process.returncode == 0 and b"stopped" in err


def test_run_stops_at_ctrl_c_while_the_cache_on_disk_is_read(tmp_path):
    cache = tmp_path / "cache"
    command = [QUIRE, "run", "--model", MODEL, "--disk-cache", str(cache), "--max-tokens", "1", "word " * 100]
    first = subprocess.run(command, capture_output=True, timeout=60, env=clean_environment(), check=False)
    assert first.returncode == 0 and b"of which 0 cached" in first.stderr, first.stderr

    def interrupt():  # waits for the process from its first moment
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
        os.kill(os.getpid(), signal.SIGINT)

    process = processes.start(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=clean_environment(),
                              preexec_fn=interrupt)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 1 and out == b"" and b"stopped while its index was read" in err, (process.returncode, err)
    third = subprocess.run(command, capture_output=True, timeout=60, env=clean_environment(), check=False)
    assert third.returncode == 0 and b"of which 0 cached" not in third.stderr, third.stderr


def test_serve_prints_its_screen_and_ends_cleanly():
    daemon = ServeProcess("--context", "1024", "--kv-memory", "64M").wait_listening()
    try:
        done = quire("chat", "--socket", daemon.socket, "--temperature", "0", "--max-tokens", "16", "--ask", "Name three fruits.",
                     "--ask", "Name more.")
        assert done.returncode == 0, done.stderr
        counts = re.findall(r"(\d+) prompt tokens of which (\d+) cached", done.stdout)
        assert counts[0][1] == "0" and int(counts[1][1]) >= int(counts[0][0]) // 16 * 16
        assert os.stat(daemon.socket).st_mode & 0o777 == 0o600
        status, screen = daemon.stop()
        assert status == 0, daemon.log_text()
        for label in ("model", "weights", "KV", "pool", "room for", "CPU path", "socket"):
            assert re.search(rf"^  {label} ", screen, re.MULTILINE), screen
        assert "22.50 KiB per token" in screen and not os.path.exists(daemon.socket)
    finally:
        daemon.close()


def start_screen(*flags):
    """Blocks, tokens and sum of a daemon's start screen."""
    daemon = ServeProcess(*flags).wait_listening()
    try:
        end = time.monotonic() + 30
        while quire("chat", "--socket", daemon.socket, "--max-tokens", "1", "--ask", "x").returncode and time.monotonic() < end:
            time.sleep(0.1)
        _, screen = daemon.stop()
    finally:
        daemon.close()
    blocks, tokens = re.search(r"pool +(\d+) blocks, (\d+) tokens", screen).groups()
    return int(blocks), int(tokens), re.search(r"^  sum +(.*)$", screen, re.MULTILINE).group(1)


def test_a_plan_is_what_the_daemon_takes():
    """Law 5: the same numbers from the same code, with a host cache and without."""
    found = {}
    for pool in (["--kv-memory", "64M"], ["--kv-blocks", "64"], ["--kv-memory", "1M"]):
        for extra in ([], ["--host-cache", "64M"]):
            flags = ["--context", "1024", *pool, *extra]
            if pool[1] == "1M" and not extra:
                continue  # alone it holds no context
            plan = json.loads(quire("plan", MODEL, *flags, "--json").stdout)
            screen = start_screen(*flags)
            assert screen[:2] == (plan["blocks"], plan["pool_tokens"])
            table = quire("plan", MODEL, *flags).stdout
            assert re.search(r"^  sum +(.*)$", table, re.MULTILINE).group(1) == screen[2]
            found[pool[1], bool(extra)] = plan["blocks"]
    for pool in ("64M", "64"):
        assert found[pool, True] - found[pool, False] in range(160, 184)  # 182 blocks of 360 KiB, bookkeeping among them
    assert found["1M", True] > 160


def test_a_plan_counts_the_host_cache_in_what_it_was_given():
    """On the CPU pool and host cache are one: as for the daemon, both come out of the machine's memory."""
    given = ["plan", MODEL, "--memory", "1G", "--context", "1024"]
    plans = [json.loads(quire(*given, *extra, "--json").stdout) for extra in ([], ["--host-cache", "64M"])]
    assert plans[0] == plans[1] and plans[0]["total_bytes"] <= plans[0]["memory_bytes"] == 1 << 30
    parts = json.loads(quire(*given, "--kv-memory", "64M", "--host-cache", "64M", "--json").stdout)
    alone = json.loads(quire("plan", MODEL, "--kv-memory", "128M", "--context", "1024", "--json").stdout)
    assert parts.pop("memory_bytes") == 1 << 30 and parts == alone
    for extra, names in (
            (["--host-cache", "1G"], "--host-cache: 1024.0 MiB, and "),
            (["--kv-memory", "512M", "--host-cache", "512M"], "--kv-memory and --host-cache: "),
            (["--kv-blocks", "64", "--host-cache", "1G"], "--kv-blocks and --host-cache: "),
            (["--kv-blocks", "9000"], "--kv-blocks: "),
    ):
        done = quire(*given, *extra)
        assert done.returncode == 1 and names in done.stderr and "1024.0 MiB" in done.stderr, done.stderr


def test_run_sizes_its_pool_as_the_daemon_does():
    """Its pool too is --host-cache larger."""
    run = ["run", "--model", MODEL, "--max-tokens", "4", "--temperature", "0", "--context", "1024"]
    alone = quire(*run, "--kv-memory", "1M", "x")
    assert alone.returncode == 1 and "a context of 1024 tokens takes" in alone.stderr
    assert quire(*run, "--kv-memory", "1M", "--host-cache", "64M", "x").returncode == 0
    for extra, names in ((["--host-cache", "100000G"], "run: --host-cache: "),
                         (["--kv-blocks", "64", "--host-cache", "100000G"], "run: --kv-blocks and --host-cache: ")):
        refused = quire(*run, *extra, "x")
        assert refused.returncode == 1 and names in refused.stderr and "are available here" in refused.stderr, refused.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--backend", "cuda"], "no CUDA backend"),
        (["--disk-cache-max", "1G"], "needs --disk-cache"),
        (["--disk-cache", "/proc/x"], "/proc/x: cannot be made"),
        (["--disk-cache", "/tmp/x", "--disk-cache-floor", "900000T"], "nothing is ever written"),
        (["--disk-write-budget", "50G/day"], "--disk-write-budget: needs --disk-cache"),
        (["--hibernate-seconds", "5"], "--hibernate-seconds: needs --disk-cache"),
        (["--host-cache", "1G", "--no-cache"], "give --host-cache or --no-cache, not both"),
        (["--kv-memory", "1G", "--kv-blocks", "9"], "not both"),
        (["--kv-memory", "1M"], "a context of 8192 tokens takes"),
        (["--kv-memory", "100000G"], "are available here"),
        (["--kv-blocks", "100000000"], "are available here"),
        (["--context", "1024", "--host-cache", "100000G"], "--host-cache: "),
        (["--context", "1024", "--host-cache", "100000G"], "are available here"),
        (["--context", "1024", "--kv-memory", "64M", "--host-cache", "100000G"], "--kv-memory and --host-cache: "),
        (["--context", "1024", "--kv-memory", "64M", "--host-cache", str((1 << 64) - 1)], "--host-cache: is too large"),
        (["--listen", "0.0.0.0:0"], "API key"),
        (["--kv-type", "f17"], "--kv-type"),
    ])
def test_serve_refuses_what_it_cannot_do(arguments, message, tmp_path):
    done = quire("serve", "--model", MODEL, "--socket", str(tmp_path / "s"), *arguments)
    assert done.returncode == 1 and message in done.stderr, done.stderr
    assert not os.path.exists(tmp_path / "s")


def test_settings_come_from_environment_and_file(tmp_path):
    config = tmp_path / "quire.conf"
    config.write_text(f"# test\nmodel = {MODEL}\ncontext = 1024\nkv-memory = 64M\n")
    plan = json.loads(quire("plan", "--config", str(config), "--json").stdout)
    assert plan["context_tokens"] == 1024
    plan = json.loads(quire("plan", "--config", str(config), "--json", env={"QUIRE_CONTEXT": "512"}).stdout)
    assert plan["context_tokens"] == 512
    plan = json.loads(quire("plan", "--config", str(config), "--json", "--context", "256", env={"QUIRE_CONTEXT": "512"}).stdout)
    assert plan["context_tokens"] == 256
