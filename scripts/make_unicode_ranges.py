#!/usr/bin/env python3
"""Writes runtime/model/unicode_ranges.h: which code points the reference tokenizer takes for letters and numbers.

    make_unicode_ranges.py > runtime/model/unicode_ranges.h

The answers come from the `tokenizers` package itself (its regular expressions for \\p{L} and \\p{N}, its Digits
pre-tokenizer for "numeric", its NFC for what joins), so ids agree on every input, whatever Unicode version the system's libraries have.
"""
import tokenizers
from tokenizers import Regex, normalizers, pre_tokenizers

CODE_POINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]


def matching(pattern):
    """Code points that the pattern matches: the splitter removes them and leaves the others."""
    splitter = pre_tokenizers.Split(Regex(pattern), "removed")
    found = set(CODE_POINTS)
    for base in range(0, 0x110000, 256):
        block = [chr(c) for c in range(base, base + 256) if not 0xD800 <= c < 0xE000]
        for piece, _ in splitter.pre_tokenize_str("".join(block)) if block else []:
            found.difference_update(map(ord, piece))
    return found


def numeric():
    """Code points that Digits isolates (Rust's char::is_numeric, of a later Unicode than the regular expressions)."""
    splitter = pre_tokenizers.Digits(individual_digits=True)
    return {c for c in CODE_POINTS if len(splitter.pre_tokenize_str("a" + chr(c))) == 2}


def joining():
    """Code points that its NFC moves, takes apart or puts together; the others are as nothing to it."""
    decompose = normalizers.NFD().normalize_str
    found = {0x345}
    for code_point in CODE_POINTS:
        text = chr(code_point)
        if decompose(text) != text:
            found.add(code_point)
            found.update(map(ord, decompose(text)))
        elif decompose("q\u0345" + text) != "q\u0345" + text:  # U+0345 has the highest combining class
            found.add(code_point)
    return found


def ranges(classes):
    rows = []
    for code_point in CODE_POINTS:
        name = classes.get(code_point)
        if name is None:
            continue
        if rows and rows[-1][1] == code_point - 1 and rows[-1][2] == name:
            rows[-1][1] = code_point
        else:
            rows.append([code_point, code_point, name])
    return rows


def main():
    letters, numbers, digits = matching(r"\p{L}"), matching(r"\p{N}"), numeric()
    assert numbers <= digits and not letters & digits
    classes = {c: "QR_UNICODE_LETTER" for c in letters}
    classes.update({c: "QR_UNICODE_NUMERIC" for c in digits - numbers})
    classes.update({c: "QR_UNICODE_NUMBER" for c in numbers})
    print("/* unicode_ranges.h - letters and numbers, rising and disjoint; written by scripts/make_unicode_ranges.py from")
    print(f" * tokenizers {tokenizers.__version__}. Its \\p{{L}} and \\p{{N}} are Unicode 16; its Digits know 13 numbers more. */")
    print("#ifndef QR_MODEL_UNICODE_RANGES_H\n#define QR_MODEL_UNICODE_RANGES_H\n")
    print('#include "runtime/model/unicode_class.h"\n')
    print("typedef struct unicode_range {\n    uint32_t first, last;\n    qr_unicode_class class;\n} unicode_range;\n")
    print("/* clang-format off */\nstatic const unicode_range unicode_ranges[] = {")
    for first, last, name in ranges(classes):
        print(f"    {{0x{first:04x}, 0x{last:04x}, {name}}},")
    print("};\n\n/* What takes part in the reference's NFC, which knows Unicode 9. */")
    print("static const unicode_range unicode_joining_ranges[] = {")
    for first, last, _ in ranges(dict.fromkeys(joining(), "QR_UNICODE_OTHER")):
        print(f"    {{0x{first:04x}, 0x{last:04x}, QR_UNICODE_OTHER}},")
    print("};\n/* clang-format on */\n#endif")


if __name__ == "__main__":
    main()
