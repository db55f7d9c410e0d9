"""The official openai client, unchanged, over the Unix socket."""

import openai
import pytest

M = "any"
HELLO = [{"role": "user", "content": "Say hello and count to five."}]


def chat(client, **more):
    arguments = {"model": M, "messages": HELLO, "temperature": 0, "max_tokens": 24, **more}
    return client.chat.completions.create(**arguments)


def test_models(client):
    models = list(client.models.list())
    assert len(models) == 1 and models[0].max_model_len == 4096
    assert client.models.retrieve(models[0].id).id == models[0].id
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("no such model")


def test_chat(client):
    r = chat(client)
    assert r.choices[0].message.role == "assistant" and r.choices[0].message.content
    assert r.choices[0].finish_reason in ("stop", "length")
    assert r.usage.total_tokens == r.usage.prompt_tokens + r.usage.completion_tokens
    assert r.usage.prompt_tokens_details.cached_tokens is not None
    assert r.system_fingerprint.startswith("quire-")
    assert r.timings["prompt_n"] + r.timings["cache_n"] == r.usage.prompt_tokens


def test_stream_equals_whole(client):
    whole = chat(client)
    chunks = list(chat(client, stream=True, stream_options={"include_usage": True}))
    assert chunks[0].choices[0].delta.role == "assistant"
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == whole.choices[0].message.content
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == whole.choices[0].finish_reason
    assert chunks[-1].choices == [] and chunks[-1].usage.completion_tokens == whole.usage.completion_tokens
    assert all(c.usage is None for c in chunks[:-1])
    assert len({c.id for c in chunks}) == 1


@pytest.mark.parametrize("n", [1, 5, 20])
def test_max_tokens_is_exact(client, n):
    r = client.completions.create(model=M, prompt="One two three", max_tokens=n, extra_body={"ignore_eos": True})
    assert r.usage.completion_tokens == n and r.choices[0].finish_reason == "length"


def test_completions_of_texts_and_ids(client, daemon):
    ids = daemon.http.post("/tokenize", json={"content": "The sky is"}).json()["tokens"]
    r = client.completions.create(model=M, prompt=["The sky is", "Water is"], max_tokens=6, temperature=0)
    other = client.completions.create(model=M, prompt=ids, max_tokens=6, temperature=0)
    assert [c.index for c in r.choices] == [0, 1]
    assert r.choices[0].text == other.choices[0].text
    assert daemon.http.post("/detokenize", json={"tokens": ids}).json()["content"] == "The sky is"


def test_logprobs(client):
    r = chat(client, logprobs=True, top_logprobs=5, max_tokens=6)
    entries = r.choices[0].logprobs.content
    assert all(len(e.top_logprobs) == 5 and e.logprob <= 0 for e in entries)
    assert b"".join(bytes(e.bytes) for e in entries).decode() == r.choices[0].message.content
    assert chat(client, logprobs=True, max_tokens=2).choices[0].logprobs.content[0].top_logprobs == []
    r = client.completions.create(model=M, prompt="Water is wet", max_tokens=2, logprobs=2, echo=True, temperature=0)
    p = r.choices[0].logprobs
    assert len(p.tokens) == len(p.token_logprobs) == len(p.top_logprobs) == len(p.text_offset)
    assert p.token_logprobs[0] is None and all(x is not None for x in p.token_logprobs[1:])
    assert r.choices[0].text.startswith("Water is wet")
    for token, offset in zip(p.tokens, p.text_offset):
        assert r.choices[0].text[offset : offset + len(token)] == token


def test_echo_without_generation(client):
    r = client.completions.create(model=M, prompt="Water is wet", max_tokens=0, logprobs=0, echo=True)
    assert r.choices[0].text == "Water is wet" and r.choices[0].finish_reason == "length"
    assert r.choices[0].logprobs.token_logprobs[0] is None and r.usage.completion_tokens == 0


def test_choices_and_seeds(client):
    def texts():
        r = chat(client, n=3, seed=7, temperature=1.0, max_tokens=16)
        assert [c.index for c in r.choices] == [0, 1, 2]
        assert r.usage.completion_tokens <= 48
        return [c.message.content for c in r.choices]

    first = texts()
    assert first == texts() and len(set(first)) == 3
    assert chat(client, seed=7, temperature=1.0, max_tokens=16).choices[0].message.content == first[0]


def test_stop(client):
    text = chat(client).choices[0].message.content
    middle = text[6:10]
    for stream in (False, True):
        r = chat(client, stop=[middle, "never"], stream=stream)
        if stream:
            chunks = list(r)
            got = "".join(c.choices[0].delta.content or "" for c in chunks)
            finish = chunks[-1].choices[0].finish_reason
        else:
            got, finish = r.choices[0].message.content, r.choices[0].finish_reason
        assert got == text[: text.index(middle)] and finish == "stop"
    first = chat(client, logprobs=True, max_tokens=1).choices[0].message.content
    r = chat(client, stop=first, logprobs=True)
    assert r.choices[0].message.content == "" and r.choices[0].logprobs.content == [] and r.choices[0].finish_reason == "stop"


def test_errors(client):
    with pytest.raises(openai.BadRequestError) as e:
        chat(client, temperature=-1)
    assert e.value.body["param"] == "temperature"
    with pytest.raises(openai.BadRequestError) as e:
        chat(client, stream=True, top_p=7)
    assert e.value.body["param"] == "top_p"
    with pytest.raises(openai.BadRequestError) as e:
        client.completions.create(model=M, prompt="word " * 6000)
    assert e.value.body["type"] == "exceed_context_size_error" and e.value.body["n_ctx"] == 4096


def test_cancel(client, daemon):
    stream = chat(client, stream=True, max_tokens=2000, extra_body={"ignore_eos": True})
    for i, _ in enumerate(stream):
        if i == 3:
            break
    stream.close()
    client.close()
    daemon.wait_idle()


def test_cached_tokens_over_turns(client, daemon):
    daemon.forget()
    messages = [{"role": "system", "content": "You are a careful assistant. " * 12}, {"role": "user", "content": "Name a fruit."}]
    first = chat(client, messages=messages)
    assert first.usage.prompt_tokens_details.cached_tokens == 0
    again = chat(client, messages=messages)
    assert again.choices[0].message.content == first.choices[0].message.content
    assert 0 < again.usage.prompt_tokens_details.cached_tokens < again.usage.prompt_tokens
    messages += [
        {"role": "assistant", "content": first.choices[0].message.content},
        {"role": "user", "content": "And another one?"},
    ]
    second = chat(client, messages=messages, extra_body={"explain_cache": True})
    known = first.usage.prompt_tokens + first.usage.completion_tokens
    assert second.usage.prompt_tokens_details.cached_tokens >= known - 17
    assert second.kv[0]["matched_tokens"] == second.usage.prompt_tokens_details.cached_tokens


def test_digests_do_not_depend_on_the_cache(client, daemon):
    def digests():
        r = chat(client, max_tokens=8, extra_body={"return_logits_digest": True, "return_token_ids": True})
        assert len(r.choices[0].logits_digest) == r.usage.completion_tokens == len(r.choices[0].token_ids)
        return r.choices[0].logits_digest

    daemon.forget()
    assert digests() == digests()


def test_salts_do_not_share(client, daemon):
    daemon.forget()
    for salt, shared in (("a", False), ("b", False), ("a", True)):
        r = chat(client, extra_body={"cache_salt": salt})
        assert (r.usage.prompt_tokens_details.cached_tokens > 0) == shared
