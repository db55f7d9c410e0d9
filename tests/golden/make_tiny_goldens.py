#!/usr/bin/env python3
"""Goldens of the tiny models, from the float64 model in ref_model.py:

    ninja make_tiny_models && make_tiny_models /tmp/tiny && ./make_tiny_goldens.py /tmp/tiny > data/tiny_logits.jsonl

Two lines per model: <name>/exact, and <name>/served with quantised activations and K and V in f16.  These models are shallow
and their weights are random, so no rounding of an activation sits on a tie and none is amplified by depth: our code must
agree with its definition closely.  (On a deep real model it cannot: docs/TESTING.md.)
"""
import json
import pathlib
import random
import sys

import ref_model

TOKENS, VOCABULARY, TOP = 24, 512, 20


def main():
    rng = random.Random(1)
    ids = [rng.randrange(VOCABULARY) for _ in range(TOKENS)]
    for path in sorted(pathlib.Path(sys.argv[1]).glob("*.gguf")):
        for kind in ("exact", "served"):
            model = ref_model.Model(str(path), quantise=kind == "served")
            case = ref_model.describe(model, f"{path.stem}/{kind}", ids, range(0, TOKENS, 2), TOP)
            print(json.dumps(case), flush=True)


if __name__ == "__main__":
    main()
