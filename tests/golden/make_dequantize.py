#!/usr/bin/env python3
"""Random GGUF weight blocks and the values that the gguf package gives them.

Needs: pip install gguf numpy. Writes tests/golden/data/dequantize.bin; per format, in this order and little-endian:
a name of 8 bytes, u32 bytes of blocks, u32 number of values, the blocks, the values as fp32.
Code bytes are arbitrary; f16 scales are arbitrary finite numbers, subnormal ones among them.
"""
import pathlib
import struct

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType as Type
from gguf.quants import dequantize

OUT = pathlib.Path(__file__).parent / "data" / "dequantize.bin"
SCALES = {"Q8_0": [0], "Q4_0": [0], "Q5_0": [0], "Q4_1": [0, 2], "Q5_1": [0, 2], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208]}


def random_blocks(rng, name, count):
    size = GGML_QUANT_SIZES[Type[name]][1]
    blocks = rng.integers(0, 256, (count, size), dtype=np.uint8)
    for at in SCALES.get(name, [0] if name == "F16" else []):
        bits = rng.integers(0, 1 << 16, count, dtype=np.uint16)
        bits = np.where((bits & 0x7C00) == 0x7C00, bits & 0x83FF, bits).astype("<u2")  # no infinity or NaN
        blocks[:, at : at + 2] = bits.view(np.uint8).reshape(count, 2)
    if name == "BF16":
        blocks[:, 1] &= 0xBF
    return blocks


def main():
    rng = np.random.default_rng(20240607)
    with OUT.open("wb") as f:
        for name in ["F16", "BF16", *SCALES]:
            elements = GGML_QUANT_SIZES[Type[name]][0]
            blocks = random_blocks(rng, name, {1: 256, 32: 24, 256: 6}[elements])
            values = dequantize(blocks, Type[name]).astype("<f4").reshape(-1)
            f.write(struct.pack("<8sII", name.encode(), blocks.size, values.size))
            f.write(blocks.tobytes() + values.tobytes())


if __name__ == "__main__":
    main()
