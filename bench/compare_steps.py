#!/usr/bin/env python3
"""Whole steps of ours beside llama.cpp's, interleaved: for each round bench_step, then llama-bench, the same cases.

    bench/compare_steps.py --llama-bench build-of-the-peer/bin/llama-bench [--rounds 3] [--threads 2] [--case "decode at 4096"]

Prints one JSON line per case with both sides' tokens per second by round and the ratio of their medians. llama.cpp runs
with and without flash attention; its better median counts. Build the peer with bench/peers/build-llama.sh.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent
# case of bench_step -> (prompt tokens, generated tokens, depth) of llama-bench
CASES = {
    "decode at 1": (0, 64, 0),
    "decode at 2048": (0, 32, 2048),
    "decode at 4096": (0, 32, 4096),
    "prefill 512 at 0": (512, 0, 0),
    "prefill 512 at 4096": (512, 0, 4096),
}


def default_model():
    cache = os.environ.get("XDG_CACHE_HOME", os.path.expanduser("~/.cache"))
    return os.environ.get("QUIRE_MODEL", f"{cache}/quire/models/SmolLM2-135M-Instruct.Q4_1.gguf")


def ours(args, case):
    out = subprocess.run([args.bench_step, str(args.threads), str(args.repetitions), case], check=True, capture_output=True,
                         text=True, env={**os.environ, "QUIRE_MODEL": args.model}).stdout
    rows = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    return next(row["tokens_per_s"] for row in rows if row["case"] == case)


def peer(args, case, flash):
    prompt, generated, depth = CASES[case]
    out = subprocess.run([args.llama_bench, "-m", args.model, "-t", str(args.threads), "-p", str(prompt), "-n", str(generated),
                          "-d", str(depth), "-fa", str(flash), "-r", "1", "-o", "json"], check=True, capture_output=True,
                         text=True).stdout
    return json.loads(out)[0]["avg_ts"]


def cpu_name():
    with open("/proc/cpuinfo") as file:
        return next((line.split(":", 1)[1].strip() for line in file if line.startswith("model name")), "unknown")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--llama-bench", required=True)
    parser.add_argument("--bench-step", default=str(ROOT / "build/release/bin/bench_step"))
    parser.add_argument("--model", default=default_model())
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repetitions", type=int, default=15)
    parser.add_argument("--case", action="append", choices=list(CASES), help="only this one; may be given several times")
    args = parser.parse_args()
    cases = args.case or list(CASES)
    seen = {case: {"quire": [], "llama.cpp": [], "llama.cpp flash": []} for case in cases}
    for _ in range(args.rounds):
        for case, sides in seen.items():
            sides["quire"].append(ours(args, case))
            sides["llama.cpp"].append(peer(args, case, 0))
            sides["llama.cpp flash"].append(peer(args, case, 1))
    for case, sides in seen.items():
        best = max(statistics.median(sides["llama.cpp"]), statistics.median(sides["llama.cpp flash"]))
        print(json.dumps({"case": case, "cpu": cpu_name(), "threads": args.threads, **{k: [round(x, 1) for x in v] for k, v in sides.items()},
                          "ratio": round(statistics.median(sides["quire"]) / best, 2)}), flush=True)


if __name__ == "__main__":
    main()
