# SPDX-License-Identifier: Apache-2.0
"""A client of a Mooncake store, with memory of its own for objects. Run by the Python of tools/mooncake-venv:

    mooncake_client.py MASTER

Each line on standard input is a list in JSON, ["put", NAME, …], ["remove", NAME, …] or ["remove_all"], and is answered by
"ok" when it is done.
"""

import json
import os
import sys

from mooncake.store import MooncakeDistributedStore

# The library prints as well, in between: what it prints goes where its errors do.
answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
store = MooncakeDistributedStore()
assert store.setup("127.0.0.1", "P2PHANDSHAKE", 64 << 20, 16 << 20, "tcp", "", sys.argv[1]) == 0
print("ok", file=answers, flush=True)
for line in sys.stdin:
    what, *names = json.loads(line)
    if what == "put":
        assert all(store.put(name, b"page") == 0 for name in names)
    elif what == "remove":
        assert all(store.remove(name, True) == 0 for name in names)
    else:
        assert store.remove_all() >= 0
    print("ok", file=answers, flush=True)
