"""Requests as the tests of requirements need them: one answer, whole or streamed, with what proves it equal to another."""

import json


def complete(d, prompt, **more):
    """The body of a reply to a greedy completion that returns ids and digests of logits."""
    body = {"prompt": prompt, "temperature": 0, "max_tokens": 8, "return_token_ids": True, "return_logits_digest": True, **more}
    r = d.http.post("/v1/completions", json=body)
    assert r.status_code == 200, r.text
    return r.json()


def chat(d, messages, **more):
    body = {"messages": messages, "temperature": 0, "max_tokens": 16, **more}
    r = d.http.post("/v1/chat/completions", json=body)
    assert r.status_code == 200, r.text
    return r.json()


def user(text):
    return [{"role": "user", "content": text}]


def content(reply, index=0):
    return reply["choices"][index]["message"]["content"]


def proof(reply):
    """What must be equal between two runs of a request: text, ids, digests and scores of every choice."""
    keys = ("text", "token_ids", "logits_digest", "logprobs", "finish_reason")
    return [{key: choice.get(key) for key in keys} for choice in reply["choices"]]


def cached(reply):
    return reply["usage"]["prompt_tokens_details"]["cached_tokens"]


def events(d, path, body):
    """The data of a stream's events; checks that each is one line of valid UTF-8, and that exactly one [DONE] ends it."""
    with d.http.stream("POST", path, json={**body, "stream": True}) as r:
        assert r.status_code == 200 and r.headers["content-type"].startswith("text/event-stream")
        parts = b"".join(r.iter_bytes()).split(b"\n\n")
    assert parts[-1] == b"" and parts[-2] == b"data: [DONE]"
    lines = [part for part in parts[:-2] if not part.startswith(b":")]
    assert all(line.startswith(b"data: {") and b"\n" not in line for line in lines)
    return [json.loads(line[6:].decode("utf-8")) for line in lines]


def deltas(chunks, index=0):
    found = [c for chunk in chunks for c in chunk["choices"] if c["index"] == index]
    return "".join(c["delta"].get("content") or "" if "delta" in c else c["text"] for c in found)


def finish(chunks, index=0):
    reasons = [c["finish_reason"] for chunk in chunks for c in chunk["choices"] if c["index"] == index]
    return [reason for reason in reasons if reason]
