# SPDX-License-Identifier: Apache-2.0
"""router/token, built as a shared library and called from Python."""

import array
import ctypes as c
import json
import os
import pathlib
import shlex
import subprocess
import tempfile

from tokens import kept

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BASE = ["arena", "blake3", "buf", "digest", "err", "json_pull", "json_put", "json_tree", "mem", "str"]


class Str(c.Structure):
    _fields_ = [("ptr", c.c_char_p), ("len", c.c_size_t)]


class Ids(c.Structure):
    _fields_ = [("ptr", c.POINTER(c.c_uint32)), ("len", c.c_size_t), ("cap", c.c_size_t)]


class Buf(c.Structure):
    _fields_ = [("base", c.c_void_p), ("start", c.c_size_t), ("len", c.c_size_t), ("cap", c.c_size_t)]


class Err(c.Structure):
    _fields_ = [("text", c.c_char * 512)]


class Tm(c.Structure):
    _fields_ = [(n, c.c_int) for n in "sec min hour mday mon year wday yday isdst".split()] + [
        ("gmtoff", c.c_long), ("zone", c.c_char_p)]


class Context(c.Structure):
    _fields_ = [("vars", c.c_void_p), ("over", c.c_void_p), ("now", c.POINTER(Tm)), ("steps", c.c_uint64)]


class Files(c.Structure):
    _fields_ = [("tokenizer", Str), ("config", Str), ("tokenizer_config", Str)]


class Detok(c.Structure):
    _fields_ = [("opaque", c.c_uint64 * 64)]  # larger than struct detok


def build():
    """Compiles the sources, if no run before did, and opens the result."""
    sources = [ROOT / "lib/base" / f"{name}.c" for name in BASE]
    sources += sorted(p for p in (ROOT / "router/token").glob("*.c")
                      if not p.stem.endswith(("_test", "_fuzz", "_bench")))
    libraries = subprocess.run(["pkg-config", "--cflags", "--libs", "libcjson", "libpcre2-8", "libcrypto"], check=True,
                               capture_output=True, text=True).stdout
    compiler = shlex.split(os.environ.get("CC", "gcc"))
    version = subprocess.run([*compiler, "--version"], check=True, capture_output=True).stdout
    command = [*compiler, "-std=gnu11", "-O2", "-fPIC", "-shared", f"-I{ROOT}", "-D_GNU_SOURCE", *map(str, sources),
               *shlex.split(libraries), "-lm"]
    headers = sorted(p for folder in ("lib/base", "router/token") for p in (ROOT / folder).glob("*.h"))
    path = kept.made("compiled", lambda: compiled(command), shlex.join(command), version, *sources, *headers)
    return Library(c.CDLL(str(path)))


def compiled(command):
    with tempfile.NamedTemporaryFile() as out:
        subprocess.run([*command, "-o", out.name], check=True)
        return pathlib.Path(out.name).read_bytes()


class Library:
    def __init__(self, dll):
        self.dll = dll
        ptr = c.c_void_p
        for name, result, args in [
            ("tokenizer_load", c.c_int, [c.POINTER(ptr), Str, c.POINTER(Err)]),
            ("tokenizer_load_files", c.c_int, [c.POINTER(ptr), c.POINTER(Files), c.POINTER(Err)]),
            ("prompt_cache_new", ptr, [ptr, c.c_size_t, c.c_uint64]),
            ("prompt_cache_encode", c.c_int, [ptr, ptr, Str, c.POINTER(Ids), c.POINTER(c.c_size_t * 2), c.POINTER(Err)]),
            ("tokenizer_scratch_new", ptr, [ptr]),
            ("tokenizer_encode", c.c_int, [ptr, ptr, Str, c.POINTER(Ids), c.POINTER(Err)]),
            ("tokenizer_decode", None, [ptr, ptr, c.c_size_t, c.c_bool, c.POINTER(Buf)]),
            ("token_ids_done", None, [c.POINTER(Ids)]),
            ("buf_done", None, [c.POINTER(Buf)]),
            ("detok_init", None, [c.POINTER(Detok), ptr, c.POINTER(c.c_uint32), c.c_size_t, c.c_bool]),
            ("detok_push", Str, [c.POINTER(Detok), c.c_uint32]),
            ("detok_done", None, [c.POINTER(Detok)]),
            ("json_parse", c.c_int, [c.POINTER(ptr), Str, c.POINTER(Err)]),
            ("json_free", ptr, [ptr]),
            ("template_parse", c.c_int, [c.POINTER(ptr), Str, c.c_int, c.POINTER(Err)]),
            ("template_free", ptr, [ptr]),
            ("template_render", c.c_int, [ptr, c.POINTER(Context), c.POINTER(Buf), c.POINTER(Err)]),
        ]:
            function = getattr(dll, name)
            function.restype, function.argtypes = result, args

    def take(self, buf):
        data = c.string_at(buf.base + buf.start, buf.len) if buf.len else b""
        self.dll.buf_done(c.byref(buf))
        return data.decode()


def check(r, e):
    if r < 0:
        raise ValueError(e.text.decode(errors="replace"))


class Tokenizer:
    def __init__(self, lib, text, config=None, tokenizer_config=None):
        self.lib, self.dll, self.t, e = lib, lib.dll, c.c_void_p(), Err()
        parts = [text if isinstance(text, bytes) else text.encode(), *(json.dumps(part or {}).encode() for part in (config, tokenizer_config))]
        files = Files(*(Str(part, len(part)) for part in parts))
        check(self.dll.tokenizer_load_files(c.byref(self.t), c.byref(files), c.byref(e)), e)
        self.scratch = self.dll.tokenizer_scratch_new(self.t)

    def encode(self, text):
        ids, e, data = Ids(), Err(), text if isinstance(text, bytes) else text.encode()
        check(self.dll.tokenizer_encode(self.t, self.scratch, Str(data, len(data)), c.byref(ids),
                                        c.byref(e)), e)
        out = ids.ptr[:ids.len]
        self.dll.token_ids_done(c.byref(ids))
        return out

    def encode_cached(self, text, max_bytes=1 << 16):
        """Through a cache of recent prompts: ids, and how many of them came from it."""
        self.cache = getattr(self, "cache", None) or self.dll.prompt_cache_new(self.t, max_bytes, 1)
        ids, e, data, reuse = Ids(), Err(), text.encode(), (c.c_size_t * 2)()
        check(self.dll.prompt_cache_encode(self.cache, self.scratch, Str(data, len(data)), c.byref(ids),
                                           c.byref(reuse), c.byref(e)), e)
        out = ids.ptr[:ids.len]
        self.dll.token_ids_done(c.byref(ids))
        return out, reuse[1]

    def decode(self, ids, skip_special):
        out, ids = Buf(), array.array("I", ids)
        self.dll.tokenizer_decode(self.t, *ids.buffer_info(), skip_special, c.byref(out))
        return self.lib.take(out)

    def stream(self, prompt, ids):
        """Text of each id, one after the other."""
        d = Detok()
        self.dll.detok_init(c.byref(d), self.t, (c.c_uint32 * len(prompt))(*prompt), len(prompt), False)
        out = []
        for i in ids:
            s = self.dll.detok_push(c.byref(d), i)
            out.append(c.string_at(s.ptr, s.len).decode() if s.len else "")
        self.dll.detok_done(c.byref(d))
        return out


class Template:
    def __init__(self, lib, source, old=False):
        """As `transformers` renders it, or (old) as the reference's frontend 0.9.0 does."""
        self.lib, self.dll, self.t, e = lib, lib.dll, c.c_void_p(), Err()
        data = source.encode()
        check(self.dll.template_parse(c.byref(self.t), Str(data, len(data)), int(old), c.byref(e)), e)

    def __del__(self):
        self.dll.template_free(self.t)

    def render(self, variables, now):
        data, v, out, e = json.dumps(variables).encode(), c.c_void_p(), Buf(), Err()
        check(self.dll.json_parse(c.byref(v), Str(data, len(data)), c.byref(e)), e)
        tm = Tm(now.second, now.minute, now.hour, now.day, now.month - 1, now.year - 1900,
                now.isoweekday() % 7, now.timetuple().tm_yday - 1, 0)
        r = self.dll.template_render(self.t, c.byref(Context(v, None, c.pointer(tm), 0)), c.byref(out), c.byref(e))
        self.dll.json_free(v)
        check(r, e)
        return self.lib.take(out)
