"""Many clients behind one system prompt: every answer equals its solo run (law 1), the prompt is computed once.

QUIRE_E2E_CLIENTS and QUIRE_E2E_TURNS set the size: 32 and 8 in `scripts/check`, which compares every client with its
solo run; 32 and 2 otherwise, which compares every eighth.
"""

import concurrent.futures
import os

from served import Daemon

CLIENTS = int(os.environ.get("QUIRE_E2E_CLIENTS", "32"))
TURNS = int(os.environ.get("QUIRE_E2E_TURNS", "2"))
SYSTEM = "You are a patient assistant who answers briefly and never repeats the question. " * 72


def conversation(client, number, turns):
    messages = [{"role": "system", "content": SYSTEM}]
    answers, digests, cached = [], [], []
    for turn in range(turns):
        messages.append({"role": "user", "content": f"Tell me fact {turn + 1} about the number {number}."})
        r = client.chat.completions.create(
            model="m", messages=messages, temperature=0, max_tokens=8, extra_body={"return_logits_digest": True}
        )
        messages.append({"role": "assistant", "content": r.choices[0].message.content})
        answers.append(r.choices[0].message.content)
        digests.append(r.choices[0].logits_digest)
        cached.append((r.usage.prompt_tokens, r.usage.prompt_tokens_details.cached_tokens))
    return answers, digests, cached


def test_crowd_equals_solo(tmp_path):
    d = Daemon("--context", "2048", "--kv-blocks", "1536", "--max-sequences", "32", folder=str(tmp_path))
    clients = [d.client() for _ in range(CLIENTS)]
    before = d.metric("quire_prompt_tokens_total") - d.metric("quire_cached_tokens_total")
    with concurrent.futures.ThreadPoolExecutor(CLIENTS) as pool:
        crowd = list(pool.map(lambda i: conversation(clients[i], i, TURNS), range(CLIENTS)))
    computed = d.metric("quire_prompt_tokens_total") - d.metric("quire_cached_tokens_total") - before
    system_tokens = d.http.post("/tokenize", json={"messages": [{"role": "system", "content": SYSTEM}]}).json()["count"]
    assert system_tokens > 1000
    assert computed < system_tokens + CLIENTS * TURNS * 64, "the shared prompt was computed more than once"
    d.forget()
    for i in range(0, CLIENTS, 1 if TURNS >= 8 else 8):
        answers, digests, _ = conversation(clients[i], i, TURNS)
        assert answers == crowd[i][0] and digests == crowd[i][1], f"client {i} differs from its solo run"
    d.wait_idle()
    d.stop()
