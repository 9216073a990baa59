# SPDX-License-Identifier: Apache-2.0
"""Sessions whose worker is busy or gone, beside 1.6.1's: --router-session-affinity-mode."""

import http.client
import json

import pytest

from conftest import free_port, reference_python
from stack import COMPLETIONS, MODEL, until
from test_devices import Fleet, Front, knows


class Asker(Front):
    def begin(self, prompt, answered=True, **headers):
        """The index of the worker that is asked, and the status; None: nobody was, or its answer has not begun."""
        before = self.fleet.requests()
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request("POST", COMPLETIONS, json.dumps({"model": MODEL, "stream": True, "max_tokens": 9, "prompt": prompt}),
                           {"content-type": "application/json", **headers})
        if answered:
            answer = connection.getresponse()
            status = answer.status if answer.readline() else None
        else:
            answer, status = connection, until("it is there", lambda: self.fleet.requests() != before) and None
        self.held.append(answer)  # what is let go ends
        asked = [after > n for n, after in zip(before, self.fleet.requests())]
        return asked.index(True) if any(asked) else None, status


@pytest.fixture
def fleet(tmp_path):
    with Fleet(tmp_path) as fleet:
        yield fleet.add(None, None).alone()


@pytest.mark.parametrize("mode", ["hard", "soft"])
@pytest.mark.parametrize("whose", ["theirs", "ours"])
def test_a_session_of_a_busy_worker(fleet, whose, mode):
    flags = ["--router-mode", "kv", "--no-router-kv-events", "--active-prefill-tokens-threshold", "300",
             "--router-session-affinity-ttl-secs", "100", "--router-session-affinity-mode", mode]
    if whose == "ours":
        fleet.stack.frontend(*flags, DYN_HTTP_OVERLOAD_STATUS_CODE="529")
        port = fleet.stack.port
    else:
        port = free_port()
        fleet.stack.start("reference", [reference_python("1.6.1"), "-m", "dynamo.frontend", "--discovery-backend", "file",
                                        "--request-plane", "tcp", "--event-plane", "zmq", "--http-host", "127.0.0.1",
                                        "--http-port", port, *flags], HF_HUB_OFFLINE="1", PYTHONUNBUFFERED="1")
    front = Asker(fleet, port)
    until("both workers are known", lambda: knows(front, 2))
    prompt, session = list(range(100, 180)), {"x-dynamo-session-id": "s"}
    bound, _ = front.begin(prompt, **session)
    assert front.begin(prompt, **session) == (bound, 200)
    ids, workers = list(fleet.workers), list(fleet.workers.values())
    workers[bound].silent_from = 400  # no first token: such a prompt stays to be computed
    pin = {"x-worker-instance-id": str(ids[bound])}
    held, _ = front.begin(list(range(1000, 1400)), answered=False, **pin)
    assert held == bound
    if whose == "theirs":  # learns of it by and by
        until("it is known to be busy", lambda: front.begin(prompt, **pin)[1] == 529)
    assert front.begin(prompt) == (1 - bound, 200), "it is busy"
    for _ in range(2):
        assert front.begin(prompt, **session) == ((None, 529) if mode == "hard" else (1 - bound, 200))
    gone = fleet.workers.pop(ids[bound])
    gone.close()
    until("it is gone", lambda: knows(front, 1))
    moves = lambda: front.begin(prompt, **session) == (0, 200)
    if whose == "theirs":  # what it lists of a model and what it routes by change one after the other
        until("whose worker is gone moves in either mode", moves)
    else:
        assert moves(), "whose worker is gone moves in either mode"
