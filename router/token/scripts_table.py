#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes scripts_table.inc: run in this folder with `pip install tokenizers`, commit the result.

Asks the library which characters its pre-tokenizer UnicodeScripts keeps together. Class 0 is of those
that belong to any script.
"""
from tokenizers import pre_tokenizers

pieces = pre_tokenizers.UnicodeScripts().pre_tokenize_str
first_of, rows = [], []


def class_of(c):
    if not pieces(c):
        return 0
    for i, first in enumerate(first_of):
        if len(pieces(first + c)) == 1:
            return i + 1
    first_of.append(c)
    return len(first_of)


last = None
for cp in range(0x110000):
    if 0xD800 <= cp < 0xE000:
        continue
    c = chr(cp)
    if last and rows[-1][2] and pieces(c) and len(pieces(last + c)) == 1 or last and not rows[-1][2] and not pieces(c):
        rows[-1][1] = cp
    else:
        rows.append([cp, cp, class_of(c)])
    last = c
rows = [row for row in rows if row[2]]
assert len(first_of) < 256
with open("scripts_table.inc", "w", encoding="ascii") as f:
    f.write("/* SPDX-License-Identifier: Apache-2.0 */\n")
    f.write("/* Made by scripts_table.py: first, last, class. Do not edit. */\n")
    f.write("static const struct script_range SCRIPTS[] = {\n")
    for i in range(0, len(rows), 3):
        f.write("    " + " ".join(f"{{{a:#x}, {b:#x}, {s}}}," for a, b, s in rows[i:i + 3]) + "\n")
    f.write("};\n")
