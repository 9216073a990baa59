#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes form_table.inc: run in this folder with `pip install tokenizers`, commit the result.

From Python's Unicode data, less what the `tokenizers` library does not know yet: its own tables are
older, and ids must agree with it. Three tables: canonical decompositions of one step (Hangul is computed), combining classes, and the
characters that may change under NFC.
"""
import unicodedata

from tokenizers import normalizers

NFC, NFD = normalizers.NFC().normalize_str, normalizers.NFD().normalize_str
LAST_MARK = "\u0345"  # has the highest combining class, so any other mark moves before it
LIMIT = 0x110000
HANGUL = range(0xAC00, 0xAC00 + 11172)
chars = [c for c in range(LIMIT) if not 0xD800 <= c < 0xE000]


def decomposition(c):
    text = unicodedata.decomposition(chr(c))
    if not text or text.startswith("<"):
        return None
    parts = [int(x, 16) for x in text.split()]
    return parts[0], parts[1] if len(parts) == 2 else 0


def combining(c):
    k = unicodedata.combining(chr(c))
    known = chr(c) == LAST_MARK or NFC(LAST_MARK + chr(c)) != LAST_MARK + chr(c)
    return k if k and known else 0


def ranges(items):
    """[(char, value)] in order -> [(first, last, value)]"""
    out = []
    for c, value in items:
        if out and out[-1][1] == c - 1 and out[-1][2] == value:
            out[-1] = (out[-1][0], c, value)
        else:
            out.append((c, c, value))
    return out


def write(f, name, kind, rows):
    f.write(f"static const struct {kind} {name}[] = {{\n")
    line = "   "
    for row in rows:
        item = " {" + ", ".join(f"{x:#x}" for x in row) + "},"
        if len(line) + len(item) > 100:
            f.write(line + "\n")
            line = "   "
        line += item
    f.write(line + "\n};\n")


pairs = [(c, *d) for c in chars
         if c not in HANGUL and (d := decomposition(c)) and NFD(chr(c)) != chr(c)]
# A pair composes unless it is excluded, which shows when its composite does not survive NFC.
composing = [(a, b, c) for c, a, b in pairs if b and NFC(chr(c)) == chr(c)]
classes = ranges((c, k) for c in chars if (k := combining(c)))
second = {b for _, b, _ in composing} | set(range(0x1161, 0x1176)) | set(range(0x11A8, 0x11C3))
unsure = ranges(
    (c, 0) for c in chars
    if c in second or combining(c) or NFC(chr(c)) != chr(c))

with open("form_table.inc", "w", encoding="ascii") as f:
    f.write("/* SPDX-License-Identifier: Apache-2.0 */\n")
    f.write(f"/* Made by form_table.py from Unicode {unicodedata.unidata_version}. Do not edit. */\n")
    write(f, "DECOMPOSITIONS", "form_pair", [(a, b, c) for c, a, b in pairs])
    write(f, "COMPOSITIONS", "form_pair", sorted(composing))
    write(f, "CLASSES", "form_range", classes)
    write(f, "UNSURE", "form_range", [(a, b, 0) for a, b, _ in unsure])
