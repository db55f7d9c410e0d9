#!/usr/bin/env python3
"""Whose served logits are nearer to the float64 model: ours or llama.cpp's?

    compare_peer.py MODEL.gguf LLAMA_SERVER TEST_GOLDEN_LOGITS

Both run the same Q4_1 file with quantised activations and f16 KV.  For every position of the goldens the mean
|difference of log-probability| over the golden's top 20 is taken on both sides (llama-server: one request per prefix, as
token ids, n_probs).  The difference of the means gets a bootstrap interval over positions: we are "not worse" where the
interval does not lie above zero.  One JSON line per case and one for all.  Needs numpy; nothing else listens on the port.
"""
import json
import pathlib
import subprocess
import sys
import time
import urllib.request

import numpy as np

DATA = pathlib.Path(__file__).parent / "data"
PORT = 18097
CANDIDATES = 1000  # asked of the peer, so that nearly all of the golden's top 20 are among them
CASES = ("one_token", "chat", "multi_turn", "code", "random_ids", "repeat", "long_text")


def post(path, body):
    request = urllib.request.Request(f"http://127.0.0.1:{PORT}{path}", json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=300) as reply:
        return json.load(reply)


def wait_ready(server):
    for _ in range(600):
        if server.poll() is not None:
            raise SystemExit("llama-server ended")
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{PORT}/health", timeout=1)
            return
        except OSError:
            time.sleep(0.1)
    raise SystemExit("llama-server did not start")


def peer_position(ids, top):
    reply = post("/completion", {"prompt": ids, "n_predict": 1, "n_probs": CANDIDATES, "temperature": 0.0,
                                 "cache_prompt": True})
    found = {t["id"]: t["logprob"] for t in reply["completion_probabilities"][0]["top_logprobs"]}
    errors = [abs(found[t] - logprob) for t, logprob in top if t in found]
    return float(np.mean(errors)), len(errors)


def peer_positions(cases):
    out, found = {}, 0
    for case in cases:
        for position, top in zip(case["positions"], case["top"]):
            out[case["name"], position], n = peer_position(case["ids"][: position + 1], top)
            found += n
    print(json.dumps({"peer_tokens_found": found, "of": 20 * len(out)}))
    return out


def our_positions(program):
    lines = subprocess.run([program, str(DATA), "positions"], check=True, capture_output=True, text=True).stdout
    return {(row["case"], row["position"]): row["mean"] for row in map(json.loads, lines.splitlines())}


def compare(name, ours, theirs):
    rng = np.random.default_rng(1)
    difference = np.array(ours) - np.array(theirs)
    means = difference[rng.integers(0, len(difference), (10000, len(difference)))].mean(-1)
    low, high = np.quantile(means, [0.025, 0.975])
    print(json.dumps({"case": name, "positions": len(ours), "ours": round(float(np.mean(ours)), 4),
                      "peer": round(float(np.mean(theirs)), 4), "difference": round(float(difference.mean()), 4),
                      "interval": [round(float(low), 4), round(float(high), 4)], "not_worse": bool(low <= 0)}))


def main():
    model, server_path, program = sys.argv[1:]
    cases = [json.loads(line) for line in open(DATA / "smollm2_logits.jsonl", encoding="utf-8")]
    cases = [case for case in cases if case["name"] in CASES]
    server = subprocess.Popen([server_path, "-m", model, "--port", str(PORT), "-c", "4096", "-t", "2", "-np", "1"],
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_ready(server)
        theirs = peer_positions(cases)
    finally:
        server.terminate()
        server.wait()
    ours = our_positions(program)
    for case in cases:
        keys = [(case["name"], p) for p in case["positions"]]
        compare(case["name"], [ours[k] for k in keys], [theirs[k] for k in keys])
    keys = sorted(theirs)
    compare("all", [ours[k] for k in keys], [theirs[k] for k in keys])


if __name__ == "__main__":
    main()
