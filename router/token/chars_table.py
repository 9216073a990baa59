#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes chars_table.inc and punctuation.inc: run in this folder with `pip install tokenizers`, commit the results.

Everything is asked of the `tokenizers` library, one character at a time: ids must agree with it, and
its own tables are older than today's Unicode.
"""
from tokenizers import normalizers, pre_tokenizers

CHARS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]


def bert(**on):
    switches = {"clean_text": False, "handle_chinese_chars": False, "strip_accents": False, "lowercase": False}
    return normalizers.BertNormalizer(**{**switches, **on}).normalize_str


def ranges(wanted):
    """Ranges of the characters for which @wanted holds."""
    out = []
    for c in filter(wanted, CHARS):
        if out and out[-1][1] == c - 1:
            out[-1][1] = c
        else:
            out.append([c, c])
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


def differences():
    """{character: what NFKD makes of it} where NFD makes something else."""
    nfd, nfkd = normalizers.NFD().normalize_str, normalizers.NFKD().normalize_str
    return {c: [ord(x) for x in nfkd(chr(c))] for c in CHARS if nfkd(chr(c)) != nfd(chr(c))}


lower = {c: normalizers.Lowercase().normalize_str(chr(c)) for c in CHARS}
strip_marks, strip_nonspacing = normalizers.StripAccents().normalize_str, bert(strip_accents=True)
clean, space_cjk = bert(clean_text=True), bert(handle_chinese_chars=True)
compat = differences()
parts = [x for whole in compat.values() for x in whole]

with open("chars_table.inc", "w", encoding="ascii") as f:
    f.write("/* SPDX-License-Identifier: Apache-2.0 */\n/* Made by chars_table.py. Do not edit. */\n")
    write(f, "LOWER", "chars_pair", [(c, ord(to)) for c, to in lower.items() if to != chr(c) and len(to) == 1])
    write(f, "MARKS", "chars_range", ranges(lambda c: strip_marks(chr(c)) == ""))
    write(f, "NONSPACING", "chars_range", ranges(lambda c: strip_nonspacing(chr(c)) == ""))
    write(f, "CONTROLS", "chars_range", ranges(lambda c: clean(chr(c)) == ""))
    write(f, "IDEOGRAPHS", "chars_range", ranges(lambda c: space_cjk(chr(c)) == f" {chr(c)} "))
    rows, start = [], 0
    for c, whole in compat.items():
        rows.append((c, start, len(whole)))
        start += len(whole)
    write(f, "COMPAT", "chars_compat", rows)
    f.write("static const uint32_t COMPAT_PARTS[] = {\n")
    for i in range(0, len(parts), 10):
        f.write("    " + ", ".join(f"{x:#x}" for x in parts[i:i + 10]) + ",\n")
    f.write("};\n")

odd = {c: to for c, to in lower.items() if len(to) != 1}
assert odd == {0x130: "i\u0307"}, odd
assert all(clean(chr(c)) in ("", " ", chr(c)) for c in CHARS)

cut = pre_tokenizers.Punctuation("removed").pre_tokenize_str
with open("punctuation.inc", "w", encoding="ascii") as f:
    f.write("/* SPDX-License-Identifier: Apache-2.0 */\n/* Made by chars_table.py. Do not edit. */\n")
    f.write("/* What the library takes for punctuation; its Unicode is older here than its patterns'. */\n")
    f.write('static const char PUNCTUATION[] = "["')
    line = "   "
    for first, last in ranges(lambda c: not cut(chr(c))):
        item = f' "\\\\x{{{first:x}}}-\\\\x{{{last:x}}}"'
        if len(line) + len(item) > 99:
            f.write("\n" + line)
            line = "   "
        line += item
    f.write("\n" + line + '\n    "]";\n')
