"""Random texts that are hard for tokenizers: what splitting rules, Unicode classes and merging stumble over."""
import unicodedata

WORDS = ("the of and to in a is that it was for on are with as his they be at one have this from or had by hot word but "
         "what some we can out other were all there when up use your how said an each she which do their time if will "
         "way about many then them write would like so these her long make thing see him two has look more day could go "
         "come did number sound no most people my over know water than call first who may down side been now find "
         "function return value const static void struct include print import class self").split()
CONTRACTIONS = ["I'm", "you're", "we'll", "they'd", "it's", "don't", "I've", "I'M", "YOU'RE", "WE'LL", "THEY'D", "IT'S",
                "DON'T", "I'VE", "'s", "'S", "''s", "'\u017f", "'sx", "'x", "'", "\u2019s", "'Re", "'vE", "'lL", "'l", "'r"]
ACCENTED = ["caf\u00e9", "na\u00efve", "\u00fcber", "Stra\u00dfe", "pi\u00f1ata", "\u00c5ngstr\u00f6m", "\u1ec7", "\u01d5"]
CJK = "\u4e00\u6f22\u5b57\u4f60\u597d\u4e16\u754c\u3042\u304b\u30a2\ud55c\uad6d\u3002\uff01\uff11\u2f8f\uf900"
EMOJI = ["\U0001f600", "\U0001f468\u200d\U0001f469\u200d\U0001f467", "\U0001f44d\U0001f3fd", "\u2764\ufe0f",
         "\U0001f1eb\U0001f1f7", "\U0001f3f3\ufe0f\u200d\U0001f308", "#\ufe0f\u20e3"]
SPACES = [" ", "  ", "   ", "    ", "     ", "\n", "\n\n", "\r\n", "\r\n\r\n", "\r", "\t", "\t\t", " \n", "\n ", " \t\n  ", "\u00a0",
          "\u3000", "\u2028", "\u0085", "\x0b", "\x0c", "\x1c", "\u200b", "\u202f", "\ufeff", "        \n", "\n    "]
PUNCTUATION = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~\u2026\u2014\u00ab\u00bb\u00bf\u00a1\u20ac\u00a3\u00b0\u00b1\u2260"
NUMBERS = ["\u0661\u0662\u0663", "\u00bd", "\u00b2\u00b3", "\u2163", "\u2460", "\u3007", "\U0001d7d8", "\U00011de0", "\u0be7"]
MARKS = ["\u0301", "\u0308", "\u0323", "\u0327", "\u0345", "\u093c", "\u05bc", "\u3099", "\U0001d165"]
TAGS = ["<|im_start|>", "<|im_end|>", "<|endoftext|>", "<think>", "<think>!", "<thin", "\x00", "\x04", "\x7f", "\ufffd"]


def random_code_point(rng):
    high = rng.choice([0x80, 0x300, 0x800, 0x3000, 0xD800, 0x10000, 0x1F000, 0x32000, 0x110000])
    while True:
        c = rng.randrange(high)
        if not 0xD800 <= c < 0xE000:
            return chr(c)


def decomposed(rng):
    text = unicodedata.normalize("NFD", rng.choice(ACCENTED))
    return text + "".join(rng.choice(MARKS) for _ in range(rng.randrange(4)))


def fragment(rng):
    kind = rng.randrange(13)
    if kind <= 1:
        return rng.choice(["", " "]) + rng.choice([str.lower, str.upper, str.title])(rng.choice(WORDS))
    return [
        lambda: rng.choice(CONTRACTIONS),
        lambda: "".join(rng.choice("0123456789") for _ in range(rng.randrange(1, 9))),
        lambda: rng.choice(["3.14", "1,000,000", "-2e10", "0x1F", "12:30", "50%"]),
        lambda: rng.choice(SPACES) * rng.choice([1, 1, 2, 7]),
        lambda: "".join(rng.choice(PUNCTUATION) for _ in range(rng.randrange(1, 6))),
        lambda: "".join(rng.choice(CJK) for _ in range(rng.randrange(1, 5))),
        lambda: rng.choice(EMOJI),
        lambda: rng.choice(ACCENTED),
        lambda: decomposed(rng),
        lambda: rng.choice(TAGS + NUMBERS),
        lambda: "".join(random_code_point(rng) for _ in range(rng.randrange(1, 4))),
    ][kind - 2]()


def random_text(rng):
    return "".join(fragment(rng) for _ in range(rng.randrange(1, 14)))
