"""R18 to R23 with a real model: bounds, layouts of scores, penalties, seeds, choices, usage."""

import math
import threading

import pytest
from ask import cached, chat, complete, content, deltas, events, finish, proof, user

COUNT = "Count from one to ten:"


def test_r18_bounds_are_named(daemon):
    vocabulary = 49152  # SmolLM2's
    bad = {
        "logit_bias": [{str(vocabulary): 1}, {"1.5": 1}, {"-1": 1}],
        "top_k": [-2, 1.5],
        "top_p": [1.01, -0.1],
        "min_p": [1.01, -0.1],
        "temperature": [-0.5],
    }
    for field, values in bad.items():
        for value in values:
            r = daemon.http.post("/v1/completions", json={"prompt": "a", "max_tokens": 1, field: value})
            assert r.status_code == 400 and field in r.json()["error"]["param"], (field, value, r.text)
    r = daemon.http.post("/v1/chat/completions", json={"messages": user("a"), "logprobs": True, "top_logprobs": 21})
    assert r.status_code == 400 and r.json()["error"]["param"] == "top_logprobs"
    assert daemon.http.post("/v1/completions", json={"prompt": "a", "logprobs": 21}).status_code == 400


def test_r18_extremes_have_one_meaning(daemon):
    best = proof(complete(daemon, COUNT))
    for extreme in ({"top_p": 0}, {"min_p": 1}, {"top_k": 1}, {"top_p": 0, "min_p": 1, "top_k": 1}):
        assert proof(complete(daemon, COUNT, temperature=2, seed=3, **extreme)) == best, extreme
    free = [complete(daemon, COUNT, temperature=2, seed=3, top_k=k)["choices"][0]["token_ids"] for k in (-1, 0, 49152, 1 << 20)]
    assert free[0] != best[0]["token_ids"] and all(ids == free[0] for ids in free)


def test_r19_layouts_of_scores(daemon):
    for n in (None, 0, 3, 20):
        more = {} if n is None else {"top_logprobs": n}
        entries = chat(daemon, user("Say hello."), logprobs=True, **more)["choices"][0]["logprobs"]["content"]
        assert entries and all(len(entry["top_logprobs"]) == (n or 0) for entry in entries)
        numbers = [e["logprob"] for entry in entries for e in (entry, *entry["top_logprobs"])]
        assert all(isinstance(x, float) and math.isfinite(x) and x <= 0 for x in numbers)
        for entry in entries:
            assert bytes(entry["bytes"]).decode("utf-8", "replace") == entry["token"]
            if n:
                assert entry["top_logprobs"][0]["logprob"] == entry["logprob"], "greedy: the chosen one is the best"
    scores = complete(daemon, "Water is wet", logprobs=4, echo=True, max_tokens=3)["choices"][0]["logprobs"]
    layout = ("tokens", "token_logprobs", "top_logprobs", "text_offset")
    assert len({len(scores[key]) for key in layout}) == 1
    assert scores["token_logprobs"][0] is None and scores["top_logprobs"][0] is None
    assert all(math.isfinite(x) for x in scores["token_logprobs"][1:])


def test_r19_a_banned_token_keeps_a_finite_score(daemon):
    """Scores are of the raw logits: a bias that rules a token out changes what is drawn, not what is reported."""
    first = complete(daemon, COUNT, max_tokens=1, logprobs=5)["choices"][0]
    (token,) = first["token_ids"]
    banned = complete(daemon, COUNT, max_tokens=1, logprobs=5, logit_bias={str(token): -100})["choices"][0]
    assert banned["token_ids"] != [token] and banned["logprobs"]["top_logprobs"] == first["logprobs"]["top_logprobs"]
    assert math.isfinite(banned["logprobs"]["token_logprobs"][0])


def test_r21_penalties_do_not_know_the_cache(daemon):
    prompt = "the cat sat on the mat and the dog sat on the cat and " * 4
    daemon.forget()
    cold = complete(daemon, prompt, repetition_penalty=1.3, max_tokens=24)
    warm = complete(daemon, prompt, repetition_penalty=1.3, max_tokens=24)
    assert cached(cold) == 0 and cached(warm) > 32 and proof(warm) == proof(cold)
    assert proof(complete(daemon, prompt, max_tokens=24)) != proof(cold), "the penalty does something"


def test_r21_the_prompt_has_no_presence(daemon):
    prompt = "hello " * 50
    plain = complete(daemon, prompt, max_tokens=6, logprobs=5, ignore_eos=True)["choices"][0]
    for penalty in ({"presence_penalty": 2.0}, {"frequency_penalty": 2.0}):
        other = complete(daemon, prompt, max_tokens=6, logprobs=5, ignore_eos=True, **penalty)["choices"][0]
        assert other["token_ids"][0] == plain["token_ids"][0], "the first token has nothing before it but the prompt"
        assert other["logprobs"]["top_logprobs"][0] == plain["logprobs"]["top_logprobs"][0]
        assert len(set(other["token_ids"])) > len(set(plain["token_ids"])), "what was generated counts"


def test_r21_nor_when_another_penalty_looks_at_it(daemon):
    """A token of the prompt is made to win by one: presence 2 would cost it the place if the prompt counted."""
    prompt = "the cat sat on the mat and the dog sat on the mat and " * 3 + "the cat sat on the"
    top = complete(daemon, prompt, max_tokens=1, logprobs=20)["choices"][0]["logprobs"]["top_token_ids"][0]
    sent = set(daemon.http.post("/tokenize", json={"content": prompt}).json()["tokens"])
    mine, score = next((token, logprob) for token, logprob in top if token in sent)
    rival = max(logprob for token, logprob in top if token not in sent)
    bias = {"logit_bias": {str(mine): rival - score + 1}}
    presence, frequency = {"presence_penalty": 2.0}, {"frequency_penalty": 2.0}
    for more in ({}, presence, frequency, {**presence, "repetition_penalty": 1.001}):
        assert complete(daemon, prompt, max_tokens=1, **bias, **more)["choices"][0]["token_ids"] == [mine], more
    assert complete(daemon, prompt, max_tokens=1, repetition_penalty=2.0, **bias)["choices"][0]["token_ids"] != [mine]


def test_r22_choices_with_a_seed(daemon):
    def ask():
        return chat(daemon, user("Write one word."), n=3, seed=11, temperature=1.5, max_tokens=30)

    first, second = ask(), ask()
    assert [c["index"] for c in first["choices"]] == [0, 1, 2]
    assert [content(first, i) for i in range(3)] == [content(second, i) for i in range(3)]
    assert len({content(first, i) for i in range(3)}) == 3
    prompt = chat(daemon, user("Write one word."), max_tokens=1)["usage"]["prompt_tokens"]
    assert first["usage"]["prompt_tokens"] == prompt
    assert first["usage"]["total_tokens"] == prompt + first["usage"]["completion_tokens"]


def test_r22_a_choice_that_ends_early(daemon):
    """The stop is a character that some of the choices come to and others do not."""
    base = {"prompt": "My favourite", "n": 3, "seed": 5, "temperature": 1.0, "max_tokens": 12, "ignore_eos": True}
    whole = complete(daemon, **base)["choices"]
    texts = [c["text"] for c in whole]
    stop = next(c for c in "".join(texts) if 0 < sum(c in text for text in texts) < 3)
    reply = complete(daemon, **base, stop=[stop])
    for text, choice in zip(texts, reply["choices"]):
        assert choice["text"] == text.split(stop)[0]
        assert choice["finish_reason"] == ("stop" if stop in text else "length")
    assert reply["usage"]["completion_tokens"] == sum(len(c["token_ids"]) for c in reply["choices"]) < 36
    chunks = events(daemon, "/v1/completions", {**base, "stop": [stop]})
    for i, choice in enumerate(reply["choices"]):
        assert deltas(chunks, i) == choice["text"] and finish(chunks, i) == [choice["finish_reason"]]


def together(*calls):
    replies = [None] * len(calls)

    def run(i):
        replies[i] = calls[i]()

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return replies


def test_r22_company_does_not_change_a_seeded_text(daemon):
    def ask(**more):
        return lambda: complete(daemon, "Once upon a time", temperature=1.2, max_tokens=40, ignore_eos=True, **more)

    alone = proof(ask(seed=3)())
    beside, same, unseeded, other = together(ask(seed=3), ask(seed=3), ask(), ask())
    assert proof(beside) == proof(same) == alone
    assert unseeded["choices"][0]["token_ids"] != other["choices"][0]["token_ids"]


@pytest.mark.parametrize("options", ["absent", None, {}, {"include_usage": False}])
def test_r23_no_usage_unless_asked_for(daemon, options):
    body = {"messages": user("hi"), "max_tokens": 4}
    chunks = events(daemon, "/v1/chat/completions", body if options == "absent" else {**body, "stream_options": options})
    assert all("usage" not in chunk and chunk["choices"] for chunk in chunks)


@pytest.mark.parametrize("tokens", [1, 5, 20])
def test_r23_usage_is_exact(daemon, tokens):
    body = {"messages": user("Tell me a story."), "max_tokens": tokens, "temperature": 0, "ignore_eos": True}
    whole = daemon.http.post("/v1/chat/completions", json=body).json()
    *chunks, last = events(daemon, "/v1/chat/completions", {**body, "stream_options": {"include_usage": True}})
    assert last["choices"] == [] and all(chunk["choices"] and chunk["usage"] is None for chunk in chunks)
    for usage in (whole["usage"], last["usage"]):
        assert usage["completion_tokens"] == tokens
        assert usage["total_tokens"] == usage["prompt_tokens"] + tokens
    assert last["usage"]["prompt_tokens"] == whole["usage"]["prompt_tokens"]
    assert finish(chunks) == ["length"] and deltas(chunks) == content(whole)
