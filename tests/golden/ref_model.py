#!/usr/bin/env python3
"""A float64 llama forward pass over a GGUF file: the judge of our logits.

Nothing here is shared with the C code: weights are dequantised by the public `gguf` package and every product runs in
float64 over the whole prompt at once.  With --quantise the inputs of every product with quantised weights first go
through what docs/NUMERICS.md prescribes (groups of 32, int8, one scale) and K and V through f16; all other arithmetic stays
float64.  The difference between the two is the price of the format; the difference between the second and our C code is
our own rounding.

    ref_model.py MODEL.gguf --ids 1,2,3 [--top 10] [--quantise]        log-probabilities per position, as JSON lines
    ref_model.py MODEL.gguf --cases data/smollm2_logits.jsonl --quantise > data/smollm2_quantised_logits.jsonl

Needs numpy and gguf.
"""
import argparse
import json
import sys

import gguf
import numpy as np

GROUP = 32
FLOAT_TYPES = (gguf.GGMLQuantizationType.F32, gguf.GGMLQuantizationType.F16, gguf.GGMLQuantizationType.BF16)


def quantise_rows(x):
    """Each row in groups of 32: int8 codes times one scale, as the C code feeds them to a product."""
    groups = x.reshape(x.shape[0], -1, GROUP)
    largest = np.abs(groups).max(-1, keepdims=True)
    codes = np.rint(groups * np.divide(127.0, largest, out=np.zeros_like(largest), where=largest > 0))
    return (codes * (largest / 127.0)).reshape(x.shape)


class Matrix:
    def __init__(self, tensor, quantise):
        shape = tuple(int(n) for n in tensor.shape[::-1])
        self.values = np.asarray(gguf.dequantize(tensor.data, tensor.tensor_type), dtype=np.float64).reshape(shape)
        self.quantise = quantise and tensor.tensor_type not in FLOAT_TYPES

    def __call__(self, x):
        return (quantise_rows(x) if self.quantise else x) @ self.values.T


class Model:
    def __init__(self, path, quantise=False):
        reader = gguf.GGUFReader(path)
        self.quantise = quantise
        self.tensors = {t.name: Matrix(t, quantise) for t in reader.tensors}
        fields = {k: f.contents() for k, f in reader.fields.items()
                  if f.types and f.types[0] != gguf.GGUFValueType.ARRAY and k.startswith(("general.", "llama."))}
        if fields["general.architecture"] != "llama":
            raise SystemExit("only llama models")

        def value(key, default=None):
            return fields.get("llama." + key, default)

        self.layers = int(value("block_count"))
        self.heads = int(value("attention.head_count"))
        self.kv_heads = int(value("attention.head_count_kv", self.heads))
        self.key_dim = int(value("attention.key_length", int(value("embedding_length")) // self.heads))
        self.value_dim = int(value("attention.value_length", int(value("embedding_length")) // self.heads))
        self.eps = float(value("attention.layer_norm_rms_epsilon"))
        rotated = int(value("rope.dimension_count", self.key_dim))
        scale = float(value("rope.scaling.factor", 1.0)) if value("rope.scaling.type", "none") == "linear" else 1.0
        self.inv_freq = float(value("rope.freq_base", 10000.0)) ** (-np.arange(0, rotated, 2) / rotated) / scale
        if "rope_freqs.weight" in self.tensors:
            self.inv_freq = self.inv_freq / self.tensors["rope_freqs.weight"].values

    def vector(self, name):
        return self.tensors[name + ".weight"].values

    def product(self, name, x):
        return self.tensors[name + ".weight"](x)

    def norm(self, name, x):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + self.eps) * self.vector(name)

    def rope(self, x):
        """x [tokens, heads, dim]: pairs of neighbours turn by position times frequency."""
        angle = np.arange(x.shape[0])[:, None] * self.inv_freq[None, :]
        cos, sin = np.cos(angle)[:, None, :], np.sin(angle)[:, None, :]
        out, turned = x.copy(), 2 * len(self.inv_freq)
        even, odd = x[..., 0:turned:2], x[..., 1:turned:2]
        out[..., 0:turned:2], out[..., 1:turned:2] = even * cos - odd * sin, even * sin + odd * cos
        return out

    def stored(self, x):
        return x.astype(np.float16).astype(np.float64) if self.quantise else x

    def attention(self, layer, h):
        tokens = len(h)
        q = self.rope(self.product(layer + "attn_q", h).reshape(tokens, self.heads, self.key_dim))
        k = self.stored(self.rope(self.product(layer + "attn_k", h).reshape(tokens, self.kv_heads, self.key_dim)))
        v = self.stored(self.product(layer + "attn_v", h).reshape(tokens, self.kv_heads, self.value_dim))
        later = np.triu(np.ones((tokens, tokens), dtype=bool), 1)
        out = np.empty((tokens, self.heads, self.value_dim))
        for head in range(self.heads):
            kv = head // (self.heads // self.kv_heads)
            scores = q[:, head] @ k[:, kv].T / np.sqrt(self.key_dim)
            scores[later] = -np.inf
            weights = np.exp(scores - scores.max(-1, keepdims=True))
            out[:, head] = weights / weights.sum(-1, keepdims=True) @ v[:, kv]
        return self.product(layer + "attn_output", out.reshape(tokens, -1))

    def feed_forward(self, layer, h):
        gate, up = self.product(layer + "ffn_gate", h), self.product(layer + "ffn_up", h)
        return self.product(layer + "ffn_down", gate / (1 + np.exp(-gate)) * up)

    def logits(self, ids, positions):
        """[positions, vocabulary]"""
        x = self.vector("token_embd")[np.asarray(ids)].copy()
        for i in range(self.layers):
            layer = f"blk.{i}."
            x += self.attention(layer, self.norm(layer + "attn_norm", x))
            x += self.feed_forward(layer, self.norm(layer + "ffn_norm", x))
        head = "output" if "output.weight" in self.tensors else "token_embd"
        return self.product(head, self.norm("output_norm", x[np.asarray(positions)]))


def log_softmax(logits):
    top = logits.max(-1, keepdims=True)
    return logits - top - np.log(np.exp(logits - top).sum(-1, keepdims=True))


def describe(model, name, ids, wanted, top):
    positions = range(len(ids))
    logprobs = log_softmax(model.logits(ids, positions))
    nll = -logprobs[np.arange(len(ids) - 1), ids[1:]].mean() if len(ids) > 1 else None
    best = [[[int(t), round(float(logprobs[p, t]), 6)] for t in np.argsort(-logprobs[p], kind="stable")[:top]] for p in wanted]
    return {"name": name, "ids": ids, "mean_nll": nll, "positions": list(wanted), "top": best}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--ids", help="token ids, with commas")
    parser.add_argument("--cases", help="JSON lines with name, ids and positions")
    parser.add_argument("--top", type=int, default=20)
    parser.add_argument("--quantise", action="store_true", help="activations and KV as the server has them")
    args = parser.parse_args()
    model = Model(args.model, args.quantise)
    if args.cases:
        cases = [json.loads(line) for line in open(args.cases, encoding="utf-8")]
    else:
        ids = [int(t) for t in args.ids.split(",")]
        cases = [{"name": "ids", "ids": ids, "positions": list(range(len(ids)))}]
    for case in cases:
        json.dump(describe(model, case["name"], case["ids"], case["positions"], args.top), sys.stdout)
        print(flush=True)


if __name__ == "__main__":
    main()
