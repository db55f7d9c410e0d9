#!/usr/bin/env python3
"""Small vocabularies for the pre-tokenizers that the default model does not use, and recorded ids.

    make_tokenizer_vocabularies.py OUT_DIR

Trains a byte-level BPE with the `tokenizers` package on generated text for each of gpt-2, smollm, llama-bpe and qwen2, and
writes bpe_<name>.gguf (header only) and tokenizer_<name>.jsonl: rows of {"text", "ids"}.
"""
import json
import pathlib
import random
import sys

import gguf
from tokenizer_texts import random_text
from tokenizers import AddedToken, Tokenizer, Regex, decoders, models, normalizers, pre_tokenizers, trainers

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
          r"\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace("{1,3}", "")
NAMES = ["gpt-2", "smollm", "llama-bpe", "qwen2"]
CONTROL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
ADDED = ["<think>", "<think>!", "    ", "\t\t"]
VOCABULARY_SIZE = 1500


def pre_tokenizer(name):
    bytes_only = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    gpt2 = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    return {
        "gpt-2": gpt2,
        "smollm": pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), gpt2]),
        "llama-bpe": pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(LLAMA3), "isolated"), bytes_only]),
        "qwen2": pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(QWEN2), "isolated"), bytes_only]),
    }[name]


def assemble(name, vocabulary, merges, added):
    """The reference tokenizer of this name over a vocabulary."""
    t = Tokenizer(models.BPE(vocab=vocabulary, merges=merges, ignore_merges=name == "llama-bpe"))
    t.pre_tokenizer = pre_tokenizer(name)
    if name == "qwen2":
        t.normalizer = normalizers.NFC()
    t.decoder = decoders.ByteLevel()
    t.add_tokens([AddedToken(text, special=False, normalized=False) for text in added])
    return t


def train(name):
    rng = random.Random(f"train {name}")
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizer(name)
    trainer = trainers.BpeTrainer(vocab_size=VOCABULARY_SIZE, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
                                  show_progress=False)
    t.train_from_iterator([random_text(rng) for _ in range(4000)], trainer)
    model = json.loads(t.to_str())["model"]
    merges = [tuple(m) if isinstance(m, list) else tuple(m.split(" ")) for m in model["merges"]]
    vocabulary = model["vocab"]
    if name == "llama-bpe":  # a word that no merge gives: only a tokenizer that takes whole pieces has it
        vocabulary["\u0120unmergeable"] = len(vocabulary)
    return vocabulary, merges


def write_gguf(path, name, vocabulary, merges):
    words = sorted(vocabulary, key=vocabulary.get)
    tokens = words + ADDED + CONTROL
    kinds = [gguf.TokenType.NORMAL] * len(words) + [gguf.TokenType.USER_DEFINED] * len(ADDED)
    kinds += [gguf.TokenType.CONTROL] * len(CONTROL)
    w = gguf.GGUFWriter(path, "llama")
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre(name)
    w.add_token_list([t.encode() for t in tokens])
    w.add_token_types(kinds)
    w.add_token_merges([f"{a} {b}" for a, b in merges])
    w.add_bos_token_id(tokens.index("<|im_start|>"))
    w.add_eos_token_id(tokens.index("<|im_end|>"))
    w.add_add_bos_token(name == "llama-bpe")
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.close()


def load(path):
    """The reference tokenizer for a file that write_gguf (or a model's converter) wrote."""
    r = gguf.GGUFReader(path)

    def values(key):
        field = r.fields[key]
        return [field.parts[i] for i in field.data]

    tokens = [bytes(v).decode() for v in values("tokenizer.ggml.tokens")]
    kinds = [int(v[0]) for v in values("tokenizer.ggml.token_type")]
    merges = [tuple(bytes(v).decode().split(" ", 1)) for v in values("tokenizer.ggml.merges")]
    name = bytes(values("tokenizer.ggml.pre")[0]).decode()
    vocabulary = {t: i for i, (t, k) in enumerate(zip(tokens, kinds)) if k == gguf.TokenType.NORMAL}
    added = [t for t, k in zip(tokens, kinds) if k == gguf.TokenType.USER_DEFINED]
    model = {t: i for i, t in enumerate(tokens) if t in vocabulary or t in added}
    return assemble(name, model, merges, added)


def main():
    out = pathlib.Path(sys.argv[1])
    for name in NAMES:
        path = out / f"bpe_{name}.gguf"
        write_gguf(path, name, *train(name))
        t = load(path)
        rng = random.Random(f"rows {name}")
        with open(out / f"tokenizer_{name}.jsonl", "w") as rows:
            for text in [random_text(rng) for _ in range(400)] + [" unmergeable x unmergeable", "<think>!<think>?"]:
                rows.write(json.dumps({"text": text, "ids": t.encode(text).ids}) + "\n")


if __name__ == "__main__":
    main()
