#!/usr/bin/env python3
"""docs/CUDA.md says what the sources say: shapes, error bounds, targets, the number of seeded faults.

    cuda_page.py ROOT
    cuda_page.py --self-test ROOT      each of these, once changed on the page, must be noticed
"""
import pathlib
import re
import sys


def one(pattern, text, what):
    found = re.findall(pattern, text)
    if len(found) != 1:
        sys.exit(f"{what} is there {len(found)} times, not once: {pattern}")
    return found[0]


def listed(macro, text):
    """First arguments of an X-macro's lines: the last definition is the whole list."""
    lines = re.findall(rf"#define {macro}\(X\) (.*)", text)
    return [item.split(",")[0] for item in re.findall(r"X\(([^)]*)\)", lines[-1])] if lines else []


def type_names(constants):
    return [name.removeprefix("QUIRE_KV_").lower() for name in constants]


def words(text):
    return re.findall(r"\w+", text.replace(" and ", " "))


def sources(root):
    """What the sources say, by subject."""
    shapes = (root / "attention/cuda/shapes.h").read_text()
    bound = one(r"world_error_bound\(quire_kv_type type\) \{ return type == (\w+) \? (\S+) : (\S+); \}",
                (root / "tests/cuda/attention_world.cc").read_text(), "the bound of the error")
    targets = one(r"TARGETS=\((.*)\)", (root / "scripts/gpu-check").read_text(), "the list of targets")
    shares = re.findall(r"^(?:F16|INT8|LONE_SHARE) = .*?(0\.\d+)\)?(?: |$)", (root / "scripts/cuda_cost_model").read_text(), re.M)
    sys.path.insert(0, str(root / "tests/cuda/faults"))
    from faults import FAULTS  # pylint: disable=import-outside-toplevel
    types = type_names(listed("QR_CUDA_KV_TYPES", shapes))
    return {
        "head dimensions": listed("QR_CUDA_HEAD_DIMS", shapes),
        "KV types": types,
        "block_tokens": listed("QR_CUDA_BLOCK_TOKENS", shapes),
        "error bounds": {t: float(bound[1] if [t] == type_names(bound[:1]) else bound[2]) for t in types},
        "targets": {name: float(share) for name, share in (t.split(":") for t in targets.split())},
        "shares of the cost model": [float(share) for share in shares],
        "seeded faults": len(FAULTS),
    }


def documented(page):
    """The same of the page."""
    bounds = one(r"at most\s+(\S+) for ([\w, ]+), and (\S+) for (\w+),", page, "the bounds of the error")
    rows = re.findall(r"^\| ([\w-]+) \|.*\| (\d+) % \| (?:not measured|met|not met) \|$", page, re.M)
    targets = {name: int(share) / 100 for name, share in rows}
    return {
        "head dimensions": words(one(r"\| head dimension \| ([\d, ]+) \|", page, "the head dimensions")),
        "KV types": words(one(r"\| KV types \| ([\w, ]+), the last two with", page, "the KV types")),
        "block_tokens": words(one(r"\| block_tokens \| ([\d, ]+) \|", page, "block_tokens")),
        "error bounds": {t: float(bounds[0]) for t in words(bounds[1])} | {bounds[3]: float(bounds[2])},
        "targets": targets,
        "shares of the cost model": [targets.get(name) for name in ("16-bit", "8-bit", "one-128k")],
        "seeded faults": int(one(r"(\d+) seeded faults", page, "the number of seeded faults")),
    }


def differences(said, page):
    shown = documented(page)
    return [f"{subject}: the sources say {value}, the page {shown[subject]}" for subject, value in said.items()
            if value != shown[subject]]


# A change of the page, and the subject that it makes wrong.
CHANGES = [("64, 80, 96", "64, 96", "head dimensions"), ("KV types | f16, bf16", "KV types | f16", "KV types"),
           ("16, 32, 64, 128 |", "16, 32, 64 |", "block_tokens"), ("8e-3 for bf16", "9e-3 for bf16", "error bounds"),
           ("| 85 % |", "| 80 % |", "targets"), ("| 60 % |", "| 50 % |", "shares of the cost model"),
           (" seeded faults", "0 seeded faults", "seeded faults")]


def self_test(said, page):
    for old, new, subject in CHANGES:
        if not any(line.startswith(subject + ":") for line in differences(said, page.replace(old, new, 1))):
            sys.exit(f"{new!r} in place of {old!r} is not noticed")


def main():
    root = pathlib.Path(sys.argv[-1])
    said, page = sources(root), (root / "docs/CUDA.md").read_text()
    if sys.argv[1] == "--self-test":
        return self_test(said, page)
    wrong = differences(said, page)
    print("\n".join(wrong) or "\n".join(f"{subject}: {value}" for subject, value in said.items()))
    return bool(wrong)


sys.exit(main())
