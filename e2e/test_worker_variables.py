# SPDX-License-Identifier: Apache-2.0
"""What a worker reads of the environment: our mocker beside the newest reference's."""

import contextlib
import http.client
import json
import socket

import pytest

import plane_caller
from conftest import free_port, program, reference_python
from stack import MODEL, MODEL_PATH, PATIENCE, Stack, parse_metrics, until
from test_openai_interop import NEWEST

ENDLESS = {"model": MODEL, "token_ids": list(range(1000, 1020)), "stop_conditions": {"max_tokens": 4000, "ignore_eos": True},
           "sampling_options": {}, "output_options": {}, "eos_token_ids": [], "annotations": []}


@pytest.fixture
def stack(tmp_path):
    with Stack(tmp_path) as stack:
        yield stack


def get(port, path):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    with contextlib.closing(connection):
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()


class Worker:
    """A mocker, slow enough that no answer of it ends in a test."""

    def __init__(self, stack, whose, name=None, **env):
        self.stack, self.port = stack, free_port()
        command = [program("dynamo-mocker")] if whose == "ours" else [reference_python(NEWEST), "-m", "dynamo.mocker"]
        name = name or ("mocker" if whose == "ours" else "reference-mocker")
        self.process = stack.start(name, [*command, "--model-path", MODEL_PATH, "--model-name", MODEL, "--block-size", 16,
                                          "--speedup-ratio", "0.05"],
                                   **{"DYN_DISCOVERY_BACKEND": "file", "DYN_EVENT_PLANE": "zmq", "HF_HUB_OFFLINE": "1",
                                      "DYN_SYSTEM_PORT": self.port, "DYN_SYSTEM_HOST": "127.0.0.1", **env})

    def get(self, path):
        return get(self.port, path)

    def listens(self):
        with contextlib.suppress(OSError):
            return self.get("/metrics")[0] == 200

    def up(self):
        def found():
            assert self.process.alive(), self.process.log()[-2000:]
            return self.listens() and plane_caller.address_of(self.stack.kv, "dynamo", "backend", "generate")
        self.address = until("the worker is there", found)[0][1]
        return self

    def number(self, name):
        return sum(value for (series, _), value in parse_metrics(self.get("/metrics")[1]).items() if series == name)


@pytest.mark.parametrize("whose", ["ours", "theirs"])
def test_the_system_server_is_asked_where_it_is_told_to_be(stack, whose):
    worker = Worker(stack, whose, DYN_SYSTEM_HEALTH_PATH="/my/health", DYN_SYSTEM_LIVE_PATH="/my/live",
                    DYN_SYSTEM_STARTING_HEALTH_STATUS="ready").up()
    assert {path: worker.get(path)[0] for path in ("/my/health", "/my/live", "/health", "/live")} == {
        "/my/health": 200, "/my/live": 200, "/health": 404, "/live": 404}
    assert worker.get("/health")[1] == "Route not found"
    assert '"status":"ready"' in worker.get("/my/health")[1]


@pytest.mark.parametrize("whose", ["ours", "theirs"])
@pytest.mark.parametrize("env", [{"DYN_SYSTEM_STARTING_HEALTH_STATUS": "well"}, {"DYN_SYSTEM_HEALTH_PATH": "/live"},
                                 {"DYN_SYSTEM_LIVE_PATH": "/metrics"}], ids=lambda env: next(iter(env)))
def test_what_cannot_be_is_no_start(stack, whose, env):
    assert Worker(stack, whose, "misled", **env).process.end() != 0


LIMITS = [({"DYN_TCP_WORKER_POOL_SIZE": 2, "DYN_TCP_WORK_QUEUE_SIZE": 3}, 2, 4),
          ({"DYN_ENGINE_REQUEST_LIMIT": 3, "DYN_DYNAMO_REQUEST_QUEUE_LIMIT": 4, "DYN_TCP_WORKER_POOL_SIZE": 9}, 3, 4),
          ({"DYN_ENGINE_REQUEST_LIMIT": 1, "DYN_DYNAMO_REQUEST_QUEUE_LIMIT": 0}, 1, 2),
          ({"DYN_ENGINE_REQUEST_LIMIT": 1}, 1, 16)]


@pytest.mark.parametrize("whose", ["ours", "theirs"])
@pytest.mark.parametrize("env, running, waiting", LIMITS, ids=["pool", "limits", "least", "default"])
def test_requests_beyond_those_that_run_wait_and_the_rest_are_refused(stack, whose, env, running, waiting):
    worker = Worker(stack, whose, **env).up()
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listener, contextlib.ExitStack() as left:
        listener.settimeout(PATIENCE)

        def offer(n):
            return plane_caller.offer(worker.address, ENDLESS, f"r{n}", listener)
        for n in range(running + waiting):  # the reference takes its time to find a place
            until(f"request {n} is taken", lambda: offer(n) == "")
        refused = worker.number("dynamo_rejection_request_total")
        assert [offer("x") for _ in range(3)] == ["Server overloaded: worker at capacity"] * 3
        until("they are counted", lambda: worker.number("dynamo_rejection_request_total") == refused + 3)
        assert worker.number("dynamo_work_handler_pool_capacity") == running
        assert worker.number("dynamo_work_handler_queue_capacity") == waiting - 1
        until("all places are taken", lambda: (worker.number("dynamo_work_handler_pool_active_tasks"),
                                               worker.number("dynamo_work_handler_queue_depth")) == (running, waiting - 1))

        def home():
            connection, _ = listener.accept()
            connection.settimeout(PATIENCE)
            left.callback(connection.close)
            return connection, int(json.loads(plane_caller.read_frame(connection)[0])["subject"][1:])
        homes = [home() for _ in range(running)]
        assert sorted(n for _, n in homes) == list(range(running))
        for n in range(running, running + min(waiting, 3)):  # first come, first served
            homes.pop(0)[0].close()
            homes.append(home())
            assert homes[-1][1] == n


# A pair that NATS's documents show.
NKEY_SEED = "SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY"
NKEY = "UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4"


@pytest.mark.parametrize("first", [False, True], ids=["alone", "behind a user"])
def test_nats_knows_them_by_their_nkey(stack, first):
    """User and password go before it, if there are any."""
    conf, port = stack.folder / "nats.conf", free_port()
    conf.write_text(f"authorization {{ users: [{{nkey: {NKEY}}}, {{user: u, password: p}}] }}")
    stack.start_nats("-c", conf, "-m", port)
    env = {"DYN_EVENT_PLANE": "nats", "NATS_AUTH_NKEY": NKEY_SEED, **(
        {"NATS_AUTH_USERNAME": "u", "NATS_AUTH_PASSWORD": "p"} if first else {})}

    def known():
        connections = json.loads(get(port, "/connz?auth=1")[1])["connections"]
        return [connection.get("nkey") or connection.get("authorized_user") for connection in connections]
    processes = []
    for whose in ("ours", "theirs"):
        processes.append(Worker(stack, whose, **env).up().process)
        until("NATS has let it in", lambda: len(known()) >= len(processes))
    processes.append(stack.frontend(**env))
    until("the frontend, too", lambda: stack.metric("commutator_nats_up") == 1)
    assert set(known()) == {"u" if first else NKEY}
    assert not any(NKEY_SEED[4:] in process.log() for process in processes)
