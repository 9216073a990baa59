# SPDX-License-Identifier: Apache-2.0
"""Texts that tokenizers disagree about: Unicode of all kinds, blanks, code, added tokens."""

import pathlib

LICENSE = pathlib.Path(__file__).resolve().parent.parent.parent / "LICENSE"
WORDS = LICENSE.read_text().split()
BLANKS = ["\n", "\t", "\r\n", "\n\n", "  \n", "\u00a0", "\u3000", "\u2003", "\u180e", "\x85", "\u2028"]
TOKENS = ["<s>", "</s>", "<unk>", "<0x0A>", "▁", "<s", "</s></s>", " <s> ", "<|im_end|>",
          "<|im_start|>user\n", "[PAD]", "\n\n<sp>  ", "x<sw>", "<sw>", " <sw> ", "<ls>", "  <ls>",
          "<rs>  x", "naïve<norm>", "<norm>", "<|endoftext|>", "<<|im_end|>>"]
CLUSTERS = ["👨‍👩‍👧‍👦", "🏳️‍🌈", "🇩🇪", "e\u0301", "n\u0303", "a\u0323\u0301", "ﷺ", "שלום", "مرحبا", "中文字",
            "日本語", "한국어", "ᄒ\u1161\u11ab", "ß", "ﬁ", "½", "²", "Ⅷ", "١٢٣", "Å", "क़", "Ǆ", "İ"]
CODE = ["def f(x):\n    return x**2\n", '{"a": [1, 2]}', "#include <stdio.h>", "for(;;)", "a_b->c",
        "/* x */", "https://x.y/z?q=1&r=%20", "if (a && b) {\n\t\tfoo();\n\t}\n", "SELECT * FROM t;"]
SHORT = ["don't", "I'M", "we'LL", "it'S", "'s", "'ſ", "x'd", "'RE", "they've"]
BLOCKS = [(0x20, 0x7E), (0xA0, 0x24F), (0x300, 0x36F), (0x370, 0x3FF), (0x400, 0x4FF), (0x5D0, 0x5EA),
          (0x600, 0x6FF), (0x900, 0x97F), (0x4E00, 0x9FFF), (0x3040, 0x30FF), (0xAC00, 0xD7A3),
          (0x1F300, 0x1FAFF)]
ODD = [(0, 0x1F), (0x7F, 0x9F), (0x2000, 0x206F), (0xFE00, 0xFE0F), (0x1D400, 0x1D7FF)]
ANY = [(0, 0xD7FF), (0xE000, 0x10FFFF)]


def below(rng, end):
    """Some number from 0 on, for a third of what randrange() takes: tens of millions are drawn."""
    return int(rng.random() * end)


def pick(rng, some):
    return some[below(rng, len(some))]


def character(rng, blocks):
    first, last = pick(rng, blocks)
    return chr(first + below(rng, last - first + 1))


def part(rng):
    kind = below(rng, 11)
    if kind == 0:
        return " " * (1 + below(rng, 9))
    if kind < 6:
        return pick(rng, (BLANKS, TOKENS, CLUSTERS, CODE, SHORT)[kind - 1])
    if kind == 6:
        return str(below(rng, 10 ** (1 + below(rng, 12))))
    if kind == 7:
        return "".join([character(rng, BLOCKS) for _ in range(1 + below(rng, 6))])
    if kind == 8:
        return character(rng, pick(rng, (ODD, ANY)))
    return " ".join(rng.choices(WORDS, k=1 + below(rng, 10)))


def text(rng):
    return pick(rng, ("", " ", "")).join([part(rng) for _ in range(1 + below(rng, 12))])


def ids(rng, size):
    """Of a vocabulary; half of them are of its first 400, where bytes and special tokens are."""
    return [below(rng, size if rng.random() < 0.5 else min(size, 400)) for _ in range(1 + below(rng, 20))]
