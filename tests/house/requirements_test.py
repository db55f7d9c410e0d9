"""check_requirements must catch what it is for: small documents with one mistake each, beside three tests that exist."""
import sys

from trees import judge

TREE = {
    "tests/unit/kv/k.c": "Test(kv_k, R01_holds) {\n}\nTest(kv_k, other) {\n}\n",
    "tests/e2e/test_x.py": "def test_r02_y(daemon):\n    pass\n",
    "tests/base.cmake": "qr_plain_test(stress mailbox ROOMS qr_base)\n",
    "tests/tokenizer.cmake":
        "foreach(name IN ITEMS gpt-2 qwen2)\n  add_test(NAME golden.t_${name} COMMAND t)\nendforeach()\n",
    "tests/fuzz/f/fuzz.cmake": "qr_fuzz(gguf ROOMS qr_model)\n",
}
GOOD = {1: "`unit.kv: kv_k/R01_holds`,\n  `stress.mailbox`", 2: "`e2e/test_x.py::test_r02_y`", 3: "`fuzz.gguf`, `golden.t_qwen2`"}


def document(changes, count=40):
    """A document whose other checks are held by kv_k/other."""
    held = {**GOOD, **changes}
    lines = ["# Requirements\n"]
    for n in range(1, count + 1):
        text = held.get(n, "`unit.kv: kv_k/other`")
        lines.append(f"**R{n:02} Name.** What it asks.\n- A check of it.\n" + (f"  Held by: {text}.\n" if text else ""))
    return "\n".join(lines)


# name, document, a piece of the expected message (None: all is well)
CASES = [
    ("all is well", document({}), None),
    ("a part that does not exist yet", document({9: "nothing yet; it comes with the lower tiers"}), None),
    ("no line", document({5: ""}), 'R05, "A check of it.": nothing holds it'),
    ("an empty line", document({5: "nothing"}), 'R05, "A check of it.": nothing holds it'),
    ("no such suite", document({5: "`unit.kv: kv_j/other`"}), "unit.kv: kv_j/other does not exist"),
    ("no such folder", document({5: "`prop.kv: kv_k/other`"}), "prop.kv: kv_k/other does not exist"),
    ("no such pytest", document({5: "`e2e/test_x.py::test_z`"}), "test_z does not exist"),
    ("no such ctest", document({5: "`golden.t_gpt-4`"}), "golden.t_gpt-4 does not exist"),
    ("one of two", document({5: "`unit.kv: kv_k/other`, `unit.kv: kv_k/gone`"}), "kv_k/gone does not exist"),
    ("no name at all", document({5: "`the tests`"}), "the tests is no name of a test"),
    ("a numbered test elsewhere", document({1: "`stress.mailbox`", 2: "`unit.kv: kv_k/R01_holds`"}),
     "R01: unit.kv: kv_k/R01_holds is not named there"),
    ("a numbered pytest elsewhere", document({2: "`stress.mailbox`"}), "R02: e2e/test_x.py::test_r02_y is not named there"),
    ("a requirement is missing", document({}, 39), "R01 to R40 in order"),
    ("a requirement without checks", document({}).replace("- A check of it.\n  Held by: `fuzz.gguf`, `golden.t_qwen2`.\n", ""),
     "R03: it has no check"),
]

if __name__ == "__main__":
    trees = [(name, {**TREE, "docs/REQUIREMENTS.md": text}, expected) for name, text, expected in CASES]
    sys.exit(judge("check_requirements", trees))
