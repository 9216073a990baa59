#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes jinja_table.inc: what Python's strings know of characters, from the Python that runs this.

    python3 jinja_table.py > jinja_table.inc
"""

import sys
import unicodedata

ALL = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]


def emit(name, kind, rows, per_line):
    print(f"static const struct {kind} {name}[] = {{")
    for at in range(0, len(rows), per_line):
        print("    " + " ".join("{" + ", ".join(row) + "}," for row in rows[at:at + per_line]))
    print("};")


def ranges(name, holds):
    found = []
    for c in ALL:
        if not holds(c):
            continue
        if found and found[-1][1] == c - 1:
            found[-1][1] = c
        else:
            found.append([c, c])
    emit(name, "jinja_range", [(f"{a:#x}", f"{b:#x}") for a, b in found], 6)


def mapping(name, to):
    """Runs of characters one or two apart that move by the same distance."""
    runs = []
    for c in ALL:
        new = to(chr(c))
        if len(new) != 1 or new == chr(c):
            continue
        delta = ord(new) - c
        if runs and runs[-1][3] == delta and c - runs[-1][1] in (1, 2) and (
                runs[-1][2] == 0 or runs[-1][2] == c - runs[-1][1]):
            runs[-1][2] = c - runs[-1][1]
            runs[-1][1] = c
        else:
            runs.append([c, c, 0, delta])
    emit(name, "jinja_run_of", [(f"{a:#x}", f"{b:#x}", str(step or 1), str(delta)) for a, b, step, delta in runs], 4)


def special(name, to):
    rows = []
    for c in ALL:
        new = to(chr(c))
        if len(new) > 1:
            rows.append((f"{c:#x}", '"' + "".join(f"\\x{b:02x}" for b in new.encode()) + '"'))
    emit(name, "jinja_special", rows, 3)


def is_cased(c):
    """The derived property: Lowercase, Uppercase or a title case letter."""
    return chr(c).islower() or chr(c).isupper() or chr(c).istitle() or unicodedata.category(chr(c)) == "Lt"


def is_ignored(c):
    """Case_Ignorable, seen through the final sigma: such characters do not end a word."""
    return ("a" + chr(c) + "\u03a3").lower()[-1] == "\u03c2" and (chr(c) + "\u03a3").lower()[-1] == "\u03c3"


print("/* SPDX-License-Identifier: Apache-2.0 */")
print(f"/* Made by jinja_table.py: Python {sys.version_info[0]}.{sys.version_info[1]}, Unicode "
      f"{unicodedata.unidata_version}. */")
print("/* clang-format off */")
ranges("UNPRINTABLE", lambda c: not chr(c).isprintable())
ranges("CASED", is_cased)
ranges("CASE_IGNORED", is_ignored)
ranges("LOWER_CASE", lambda c: chr(c).islower())
ranges("UPPER_CASE", lambda c: chr(c).isupper())
ranges("LETTERS", lambda c: chr(c).isalpha())
ranges("DIGITS", lambda c: chr(c).isdigit())
mapping("TO_UPPER", str.upper)
mapping("TO_LOWER", str.lower)
mapping("TO_TITLE", str.title)
special("SPECIAL_UPPER", str.upper)
special("SPECIAL_LOWER", str.lower)
special("SPECIAL_TITLE", str.title)
