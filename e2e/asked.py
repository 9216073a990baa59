# SPDX-License-Identifier: Apache-2.0
"""What a worker program was asked, a line of JSON each, in the file that the environment's ASKED names: standard output
belongs to the log of the runtime that it is made of, too, whose lines may come in the middle of ours.

Imported by programs that run in the reference's environments: it needs nothing but Python."""

import json
import os


def tell(request, path=os.environ.get("ASKED")):
    """One write() a line, which nothing comes between."""
    line = json.dumps(request).encode() + b"\n"
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        assert os.write(file, line) == len(line)
    finally:
        os.close(file)


def read(path):
    """The lines that are whole: the last one may be being written."""
    if not os.path.exists(path):
        return []
    with open(path, "rb") as file:
        return [json.loads(line) for line in file if line.endswith(b"\n")]
