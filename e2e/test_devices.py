# SPDX-License-Identifier: Apache-2.0
"""Mode device-aware-weighted beside 1.6.1's: requests that stay, one after another, and of which kind each one's worker is."""

import http.client
import json

import pytest

import fake_worker
from conftest import free_port, program, reference_python, run
from fake_worker import FakeWorker
from stack import CHAT, MODEL, MODEL_PATH, Stack, put, until

MODE = "device-aware-weighted"
RATIO = "DYN_ENCODER_CUDA_TO_CPU_RATIO"


class Fleet:
    """Workers that never end an answer, on devices that their records tell."""

    def __init__(self, folder):
        self.stack, self.workers = Stack(folder, events=False), {}
        (folder / MODEL).symlink_to(MODEL_PATH)

    def __enter__(self):
        self.mocker = self.stack.mocker()
        self.mocker.wait_log("worker registered")
        return self

    def __exit__(self, *why):
        for worker in self.workers.values():
            worker.close()
        for process in self.stack.processes:
            process.kill()

    def add(self, *devices):
        """Workers on these devices; None: their records tell none."""
        for device in devices:
            worker_id = 0x1000 + len(self.workers)
            self.workers[worker_id] = FakeWorker(self.stack.kv, fake_worker.HANG_AFTER_TOKENS, worker_id, device=device)
        return self

    def alone(self):
        self.mocker.stop()
        return self

    def requests(self):
        return [worker.requests for worker in self.workers.values()]

    def front(self, port):
        return Front(self, port)

    def ours(self, *flags, **env):
        self.stack.frontend(*flags, **env)
        return self.front(self.stack.port)

    def theirs(self, **env):
        port = free_port()
        self.stack.start("reference", [reference_python("1.6.1"), "-m", "dynamo.frontend", "--discovery-backend", "file",
                                       "--request-plane", "tcp", "--event-plane", "zmq", "--http-host", "127.0.0.1",
                                       "--http-port", port, "--router-mode", MODE], HF_HUB_OFFLINE="1", PYTHONUNBUFFERED="1", **env)
        return self.front(port)


class Front:
    def __init__(self, fleet, port):
        self.fleet, self.port, self.held = fleet, port, []
        until("it serves the model", self.serves)

    def ask(self, method, path, body=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request(method, path, json.dumps(body) if body else None, {"content-type": "application/json"})
        return connection.getresponse()

    def serves(self):
        """The reference lists a model a moment before it opens the route, which then finds fault with this body."""
        try:
            return MODEL in self.ask("GET", "/v1/models").read().decode() and self.ask("POST", CHAT, {"model": MODEL}).status != 404
        except OSError:
            return False

    def begin(self):
        """A request that stays; the index of its worker."""
        before = self.fleet.requests()
        self.held.append(self.ask("POST", CHAT, {"model": MODEL, "stream": True, "max_tokens": 9,
                                                 "messages": [{"role": "user", "content": "hi"}]}))
        assert self.held[-1].status == 200 and self.held[-1].readline()
        return [after > n for n, after in zip(before, self.fleet.requests())].index(True)

    def end(self):
        """Ends all that were begun."""
        told = sum(worker.ended for worker in self.fleet.workers.values())
        for answer in self.held:
            answer.close()
        until("the workers know", lambda: sum(worker.ended for worker in self.fleet.workers.values()) == told + len(self.held))
        self.held = []


@pytest.fixture
def fleet(tmp_path):
    with Fleet(tmp_path) as fleet:
        yield fleet


def kinds(devices, chosen):
    return "".join("c" if devices[at] == "cpu" else "a" for at in chosen)


def knows(front, n):
    return len({entry["instance_id"] for entry in json.loads(front.ask("GET", "/health").read())["instances"]}) == n


@pytest.mark.parametrize("devices, ratio", [
    (["cpu", "cuda"], "2"), (["cpu", "cpu", "cuda"], "1"), (["cpu", "cuda", "cuda"], "1"), (["cpu", "cpu", "cuda", None], "3"),
    (["cpu", "cuda"], None), (["cpu", None], "0"), (["cpu", "cuda"], "1000000"), (["cpu", "cpu"], "2"), (["cuda", None], "2")])
def test_chooses_as_the_reference(fleet, devices, ratio):
    env = {RATIO: ratio} if ratio else {}
    fleet.add(*devices).alone()
    told = []
    for front in (fleet.theirs(**env), fleet.ours("--router-mode", MODE, **env)):
        until("all workers are known", lambda: knows(front, len(devices)))
        chosen = [front.begin() for _ in range(20)]
        told.append(kinds(devices, chosen))
        for kind in "ca":  # within a kind the least loaded, always
            counts = [chosen.count(at) for at, device in enumerate(devices) if kinds([device], [0]) == kind]
            assert not counts or max(counts) - min(counts) <= 1, (front, chosen)
        front.end()
    assert told[0] == told[1]


def test_flips_live_and_decisions_replay(fleet):
    """The kind is in the candidates of a decision, so that it can be computed again and explained."""
    routing, recorded = fleet.stack.folder / "routing", fleet.stack.folder / "decisions"

    def set_routing(**variables):
        text = "".join(f"{name}={value}\n" for name, value in variables.items())
        put(routing, text)
    set_routing(DYN_ROUTER_MODE="round-robin", DYN_ROUTER_SHADOW_POLICIES=MODE)
    fleet.add("cpu", "cuda").alone()
    front = fleet.ours("--routing-file", routing, "--record-decisions", recorded)
    until("all workers are known", lambda: knows(front, 2))
    loaded = lambda: fleet.stack.front.log().count("routing configuration in force")
    until("it is in force", loaded)
    assert sorted(front.begin() for _ in range(4)) == [0, 0, 1, 1], "no kinds in this mode"
    front.end()
    was = loaded()
    set_routing(DYN_ROUTER_MODE=MODE, **{RATIO: "2"})
    until("it is in force", lambda: loaded() > was)
    chosen = [front.begin() for _ in range(9)]
    assert kinds(["cpu", "cuda"], chosen) == "aacaacaac"
    was = loaded()
    set_routing(DYN_ROUTER_MODE=MODE, **{RATIO: "1"})
    until("it is in force", lambda: loaded() > was)
    assert kinds(["cpu", "cuda"], [front.begin() for _ in range(4)]) == "ccca"
    told = fleet.stack.request("GET", "/explain/" + front.held[-1].headers["x-request-id"], headers={"accept": "text/plain"}).body.decode()
    assert "it does not run on a CPU" in told.splitlines()[0], told
    front.end()
    fleet.stack.front.stop()
    lines = [json.loads(line) for line in recorded.read_text().splitlines()]
    last = lines[-1]
    assert (last["mode"], last["policy"], last["inputs"]["accelerator_ratio"]) == (MODE, MODE, 1)
    assert (last["inputs"]["cpu_requests"], last["inputs"]["accelerator_requests"]) == (6, 6)
    assert {c["worker_id"]: c["on_cpu"] for c in last["candidates"]} == {0x1000: True, 0x1001: False}
    assert run(program("dynamo-bench"), "decisions", "--replay", recorded).returncode == 0
    assert {shadow["policy"] for shadow in lines[0]["shadows"]} == {MODE}
