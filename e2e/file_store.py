# SPDX-License-Identifier: Apache-2.0
"""The records of a file store, as programs leave them there."""

import contextlib
import json
import os
import threading

OLD_S = 10  # files that have not been touched for so long count as dead


def records(kv, bucket, pattern="*"):
    """Those that can be read now: the reference writes in place, so a file may be there before its text."""
    found = []
    for path in sorted((kv / "v1" / bucket).glob(pattern)):
        try:
            found.append(json.loads(path.read_text()))
        except (FileNotFoundError, json.JSONDecodeError):
            continue  # withdrawn this moment, or being written
    return found


class Living:
    """Files that are kept alive until leave(), or close(), which takes them away."""

    def __init__(self, *paths):
        self.paths, self._ended = [*paths], threading.Event()
        threading.Thread(target=self._live, daemon=True).start()

    def _live(self):
        while not self._ended.wait(OLD_S / 10):
            for path in [*self.paths]:
                with contextlib.suppress(FileNotFoundError):
                    os.utime(path)

    def leave(self):
        """To whom keeps them alive else."""
        self._ended.set()

    def close(self):
        self.leave()
        for path in self.paths:
            path.unlink(missing_ok=True)
