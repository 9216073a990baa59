# SPDX-License-Identifier: Apache-2.0
"""What need not be made again while all that it follows from is the same: compiled code, trained tokenizers, and what
libraries of pinned versions answered. It lies in the cache, below a key of what it follows from; what is damaged or lost
is made anew."""

import contextlib
import hashlib
import os
import pathlib
import sys
import tempfile

DIGEST = 8  # bytes
UNUSED_S = 14 * 24 * 3600


def folder():
    cache = os.environ.get("COMMUTATOR_CACHE") or pathlib.Path(
        os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "commutator"
    made = pathlib.Path(cache) / "tokens"
    made.mkdir(parents=True, exist_ok=True)
    return made


def key(*parts):
    """A name for what follows from these texts, bytes and files."""
    whole = hashlib.sha256()
    for part in parts:
        data = part.read_bytes() if isinstance(part, pathlib.Path) else part if isinstance(part, bytes) else str(part).encode()
        whole.update(b"%d " % len(data) + data)
    return whole.hexdigest()[:32]


def put(name, data):
    """Keeps a file as a whole or not at all, and takes away what nobody asked for in two weeks."""
    at = folder() / name
    with tempfile.NamedTemporaryFile(dir=at.parent, delete=False) as made:
        made.write(data)
    os.rename(made.name, at)
    for other in at.parent.iterdir():
        with contextlib.suppress(OSError):  # another run was first
            if at.stat().st_mtime - other.stat().st_mtime > UNUSED_S:
                other.unlink()
    return at


def get(name):
    """The path of a file that is kept, or None."""
    at = folder() / name
    with contextlib.suppress(OSError):
        os.utime(at)
        return at


def made(what, make, *follows_from):
    """The path of a file with the bytes that make() gives."""
    name = f"{what}-{key(*follows_from)}"
    return get(name) or put(name, make())


class Answers:
    """The answers of a library to one series of questions, in their order, each as a digest.

    The first time each question is asked and its answer compared and kept. From then on ours must have the same
    digest; where it has not, the library is asked, so that what differs can be told."""

    def __init__(self, *follows_from):
        self._name = "answers-" + key(sys.version, *follows_from)
        path = get(self._name)
        self._kept, self._new = path.read_bytes() if path else b"", bytearray()

    def compare(self, ours, ask, question):
        """@ask: gives the library's answer, of the same form as ours."""
        digest = hashlib.blake2b(repr(ours).encode(), digest_size=DIGEST).digest()
        if self._kept[len(self._new):len(self._new) + DIGEST] != digest:
            assert ours == ask(), question
        self._new += digest

    def keep(self):
        """Once all were compared."""
        if self._new != self._kept:
            put(self._name, self._new)
