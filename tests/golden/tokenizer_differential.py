#!/usr/bin/env python3
"""Compares the tokenizer with the `tokenizers` package on random texts.

    tokenizer_differential.py DRIVER DATA_DIR [--model FILE.gguf] [--count N] [--seed S]

For each of the four pre-tokenizers, and for the model's own vocabulary when it is given: N texts, equal ids; decoding gives
the text back (for qwen2 its NFC, for the model less the bytes that its vocabulary does not have). Exit 77 where the
packages `tokenizers` and `gguf` are missing.
"""
import argparse
import os
import pathlib
import random
import struct
import subprocess
import sys
import tempfile

try:
    from make_tokenizer_vocabularies import NAMES, load
    from tokenizer_texts import random_text
except ImportError as missing:
    python = os.environ.get("QUIRE_PYTHON")  # the one that scripts/check has given the packages
    if python and python != sys.executable:
        os.execv(python, [python, *sys.argv])
    print(f"skipped: {missing}")
    sys.exit(77)


def run_driver(driver, path, texts):
    """[(ids, bytes)] of the driver for the texts."""
    with tempfile.TemporaryFile() as requests:
        for text in texts:
            data = text.encode()
            requests.write(struct.pack("=II", 0, len(data)) + data)
        requests.seek(0)
        answers = subprocess.run([driver, path], stdin=requests, stdout=subprocess.PIPE, check=True).stdout
    results, at = [], 0
    for _ in texts:
        (count,) = struct.unpack_from("=I", answers, at)
        ids = list(struct.unpack_from(f"={count}i", answers, at + 4))
        at += 4 + 4 * count
        (size,) = struct.unpack_from("=I", answers, at)
        results.append((ids, answers[at + 4:at + 4 + size]))
        at += 4 + size
    assert at == len(answers)
    return results


def differences(name, texts, expected, results, reference):
    for text, encoding, (ids, decoded) in zip(texts, expected, results):
        if ids != encoding.ids:
            yield f"{name}: {text!r}: expected {encoding.ids}, got {ids}"
            continue
        plain = reference.normalizer.normalize_str(text) if reference.normalizer else text
        lossless = reference.get_vocab_size() < 2000
        if decoded != (plain.encode() if lossless else reference_bytes(reference, ids)):
            yield f"{name}: {text!r}: decoded to {decoded!r}"


BYTES = {}
for byte in range(256):
    printable = 33 <= byte <= 126 or 161 <= byte <= 172 or byte >= 174
    BYTES[chr(byte if printable else 256 + sum(1 for _ in BYTES if ord(_) >= 256))] = byte


def reference_bytes(reference, ids):
    return bytes(BYTES[c] for i in ids for c in reference.id_to_token(i))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("driver")
    parser.add_argument("data", type=pathlib.Path)
    parser.add_argument("--model", default=os.environ.get("QUIRE_MODEL"))
    parser.add_argument("--count", type=int, default=50000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    files = {name: arguments.data / f"bpe_{name}.gguf" for name in NAMES}
    if arguments.model and pathlib.Path(arguments.model).exists():
        files["model"] = pathlib.Path(arguments.model)
    failed = 0
    for name, path in files.items():
        rng = random.Random(f"{arguments.seed} {name}")
        texts = [random_text(rng) for _ in range(arguments.count)]
        reference = load(path)
        found = list(differences(name, texts, reference.encode_batch(texts), run_driver(arguments.driver, path, texts), reference))
        print(f"{name}: {len(texts)} texts, {len(found)} differ")
        print("\n".join(found[:10]), end="\n" if found else "")
        failed += len(found)
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
