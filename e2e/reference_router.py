# SPDX-License-Identifier: Apache-2.0
"""A frontend of the reference beside ours, both with replica sync: what each places, the other books."""

import http.client
import json
import re

from conftest import free_port, reference_python
from stack import COMPLETIONS, MODEL, until

# What ours says of other routers.
BOOKINGS = "commutator_router_replica_bookings"
ROUTERS = "commutator_router_replica_routers"
HEARD = "commutator_router_replica_heard_total"

# Flags of discovery, by version.
VERSIONS = {"0.9.0": ["--store-kv", "file"],
            "1.6.1": ["--discovery-backend", "file"]}
# What 1.6.1 says of an event over ZeroMQ that it cannot read.
REFUSED = "rejected an envelope"


class Theirs:
    """A frontend of the reference with replica sync, in our stack."""

    def __init__(self, stack, version, plane="nats", *flags, **env):
        python = reference_python(version)
        self.port = free_port()
        self.folder = stack.kv
        self.others = set(self.channels())
        self.process = stack.start("reference-frontend", [
            python, "-m", "dynamo.frontend", *VERSIONS[version], "--request-plane", "tcp", "--http-host",
            "127.0.0.1", "--http-port", self.port, "--event-plane", plane, "--router-mode", "kv",
            "--router-replica-sync", *flags], HF_HUB_OFFLINE="1", DYN_EVENT_PLANE=plane, PYTHONUNBUFFERED="1", DYN_LOG="info",
            DYN_SDK_DISABLE_ANSI_LOGGING="1", **env)
        until("it serves", lambda: self.ask([5, 6, 7])[0] == 200)

    def ask(self, prompt, headers=None, **more):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            body = {"model": MODEL, "max_tokens": 2, "prompt": prompt, **more}
            connection.request("POST", COMPLETIONS, json.dumps(body),
                               {"content-type": "application/json", **(headers or {})})
            response = connection.getresponse()
            return response.status, response.read()
        except OSError as error:
            return 0, str(error)

    def channels(self):
        return (self.folder / "v1/event_channels").glob("*")

    def kill(self):
        """And its records are gone, as they are when its lease ends."""
        self.process.kill()
        for path in set(self.channels()) - self.others:
            path.unlink()

    def decode_blocks(self):
        """Of the last Formula line; 1.6 tells the sum only, to which a prompt of three tokens adds less than a block."""
        found = re.findall(r"(?:Formula for worker_id=.* = [\d.]+ \* [\d.]+ \+ |Selected worker .* logit=)([\d.]+)",
                           self.process.log())
        return float(found[-1]) if found else None
