#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes newer_table.inc: run in this folder with `pip install tokenizers`, commit the result.

PCRE2 10.42 knows Unicode 14, the regular expressions of the `tokenizers` library know a newer one.
Asks the library for the category of every character that Unicode 14 leaves unassigned, and picks an
old character of the same category and length in UTF-8 to stand in for it.
"""
import unicodedata

from tokenizers import Regex, pre_tokenizers

assert unicodedata.unidata_version == "14.0.0", "needs a Python with the Unicode of PCRE2 (3.11)"
CATEGORIES = "Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Cf".split()
chars = [chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000]
unassigned = [c for c in chars if unicodedata.category(c) == "Cn"]
stand_in = {}
for c in chars:
    stand_in.setdefault((unicodedata.category(c), len(c.encode())), c)

newer = {}
for category in CATEGORIES:
    cut = pre_tokenizers.Split(Regex(rf"\p{{{category}}}"), "removed")
    for c in unassigned:
        if not cut.pre_tokenize_str(c):
            newer[c] = stand_in[category, len(c.encode())]

rows = []
for c in sorted(newer):
    if rows and ord(c) == rows[-1][1] + 1 and rows[-1][2] == ord(newer[c]):
        rows[-1][1] += 1
    else:
        rows.append([ord(c), ord(c), ord(newer[c])])
with open("newer_table.inc", "w", encoding="ascii") as f:
    f.write("/* SPDX-License-Identifier: Apache-2.0 */\n")
    f.write("/* Made by newer_table.py: first, last, stand-in. Do not edit. */\n")
    f.write("static const struct newer_range NEWER[] = {\n")
    for i in range(0, len(rows), 3):
        f.write("    " + " ".join(f"{{{a:#x}, {b:#x}, {s:#x}}}," for a, b, s in rows[i:i + 3]) + "\n")
    f.write("};\n")
