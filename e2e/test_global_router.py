# SPDX-License-Identifier: Apache-2.0
"""dynamo-router global before pools of real routers and mockers, beside `python -m dynamo.global_router` of 1.6.1."""

import json
import subprocess

import pytest

import plane_caller
from conftest import free_port, program, reference_python
from stack import CHAT, MODEL, MODEL_PATH, PATIENT, SOON, Stack, until
from test_openai_interop import NEWEST, Front

TTFT = {"ttft_min_ms": 10, "ttft_max_ms": 3000, "ttft_resolution": 2}
ITL = {"itl_min_ms": 10, "itl_max_ms": 500, "itl_resolution": 2}
FIRST_OF_ALL = {"priority_overrides": [{"min_priority": 5, "max_priority": 9, "target_pool": 1}]}


def agg(names, retry=False, mapping=((0, 1), (1, 0)), **more):
    return {"mode": "agg", "enable_priority_retry": retry, "num_agg_pools": len(names), "agg_pool_dynamo_namespaces": names,
            "agg_pool_selection_strategy": {**TTFT, **ITL, "agg_pool_mapping": mapping, **FIRST_OF_ALL, **more}}


def disagg(prefill, decode):
    return {"num_prefill_pools": len(prefill), "num_decode_pools": len(decode), "prefill_pool_dynamo_namespaces": prefill,
            "decode_pool_dynamo_namespaces": decode,
            "prefill_pool_selection_strategy": {**TTFT, "isl_min": 0, "isl_max": 100, "isl_resolution": 2,
                                                "prefill_pool_mapping": [[0, 1], [1, 1]], **FIRST_OF_ALL},
            "decode_pool_selection_strategy": {"itl_min": 10, "itl_max": 500, "itl_resolution": 2, "context_length_min": 0,
                                               "context_length_max": 100, "context_length_resolution": 2,
                                               "decode_pool_mapping": [[1, 0], [0, 0]]}}


class Pools(Stack):
    """Pools by namespace, each a mocker behind a router, and routers above them."""

    def __init__(self, folder):
        super().__init__(folder, events=False)
        self.routers = {}

    def pool(self, ns, *flags):
        self.mocker("--endpoint", f"dyn://{ns}.backend.generate", *flags)
        self.routers[ns] = self.start(f"router-{ns}", [program("dynamo-router"), "route", "--endpoint", f"{ns}.backend.generate",
                                                       "--block-size", 16, "--no-kv-events"],
                                      DYN_SYSTEM_PORT=0, DYN_SYSTEM_HOST="127.0.0.1")
        told = self.routers[ns].wait_log(r"serving\b.*?system_port=(\d+)")
        self.routers[ns].port = int(told.group(1))
        self.routers[ns].wait_log("worker found")

    def file(self, name, pools):
        path = self.folder / f"{name}.json"
        path.write_text(json.dumps(pools))
        return path

    def above(self, ns, pools, theirs=False, **env):
        """The router above all pools, registered in that namespace."""
        command = [reference_python(NEWEST), "-m", "dynamo.global_router"] if theirs else [program("dynamo-router"), "global"]
        if theirs:
            env.update(DYN_DISCOVERY_BACKEND="file", DYN_EVENT_PLANE="zmq", HF_HUB_OFFLINE="1", DYN_SELF_HOST_METADATA="0")
        process = self.start(f"global-{ns}", [*command, "--config", self.file(ns, pools), "--model-name", MODEL_PATH, "--namespace", ns,
                                              "--default-itl-target-ms", 20], **env)
        process.addresses = {}
        for endpoint in ("generate",) if pools.get("mode") == "agg" else ("prefill_generate", "decode_generate"):
            process.addresses[endpoint] = until(
                f"{endpoint} of {ns} is registered", lambda: plane_caller.address_of(self.kv, ns, "global_router", endpoint))[0][1]
        return process

    def finds(self, process, *names):
        """Ours says whom it found."""
        for ns in names:
            process.wait_log(f"router found namespace={ns} ")
        return process

    def taken(self):
        """Requests that each pool's router took so far."""
        counts = {}
        for ns, router in self.routers.items():
            lines = Front(router.port).ask("/metrics", None)[1].splitlines()
            counts[ns] = sum(float(line.split()[-1]) for line in lines if line.startswith("dynamo_component_requests_total{"))
        return counts

    def taker(self, asked):
        """The pools that took what @asked sends off."""
        before = self.taken()
        asked()
        return [ns for ns, count in self.taken().items() if count > before[ns]]


@pytest.fixture
def stack(tmp_path):
    with Pools(tmp_path) as stack:
        yield stack


def request(n_tokens, router=None, priority=None):
    return {"model": MODEL, "token_ids": list(range(1000, 1000 + n_tokens)), "stop_conditions": {"max_tokens": 2},
            "sampling_options": {}, "output_options": {}, "eos_token_ids": [], "annotations": [],
            **({"router": router} if router is not None else {}), **({"routing": {"priority": priority}} if priority is not None else {})}


ASKED = [(20, None, None), (20, {}, None), (20, {"ttft_target": None}, None), (20, {"ttft_target": 0}, None), (20, {"ttft_target": 9999}, None),
         (20, {"ttft_target": 1504.9}, None), (20, {"ttft_target": 1505}, None), (80, {"ttft_target": 0}, None), (50, {"ttft_target": 0}, None),
         (20, {"itl_target": 400}, None), (20, {"ttft_target": -5, "itl_target": 400.5}, None), (20, {"itl_target": 400}, 7), (20, {}, 4),
         (20, {}, 5), (20, {}, 9), (20, {}, 10), (20, {}, -1), (300, {"ttft_target": 2000, "itl_target": 0}, None)]


def reaches(process):
    """Whether it has an answer to whatever is asked: it does not say whom it found."""
    try:
        return all(plane_caller.call(address, request(*case)) for address in process.addresses.values() for case in ASKED)
    except (OSError, EOFError, plane_caller.PlaneError):
        return False


@pytest.mark.parametrize("pools", [agg(["p0", "p1"]), agg(["p0", "p1"], mapping=[[[0, 1], [1, 0]], [[1, 1], [0, 0]]], isl_min=0, isl_max=100,
                                                          isl_resolution=2), disagg(["p0", "p1"], ["p0", "p1"])])
def test_the_pools_of_1_6_1(stack, pools):
    """For each request that of the reference, and the same number of tokens."""
    stack.pool("p0")
    stack.pool("p1")
    ours, theirs = stack.finds(stack.above("ours", pools), "p0", "p1"), stack.above("theirs", pools, theirs=True)
    until("theirs finds the pools", lambda: reaches(theirs))
    for endpoint in ours.addresses:
        picks = set()
        for case in ASKED:
            took = []
            for process in (theirs, ours):
                tokens = []

                def ask():
                    for item in plane_caller.call(process.addresses[endpoint], request(*case)):
                        tokens.extend(item["token_ids"])
                took.append((stack.taker(ask), len(tokens)))
            assert took[0] == took[1] and len(took[0][0]) == 1, (endpoint, case)
            picks.add(took[0][0][0])
        assert picks == {"p0", "p1"}


@pytest.mark.parametrize("theirs", [False, True])
def test_chats(stack, theirs):
    """Through our frontend and that of 1.6.1, before our router or theirs: what is wanted in nvext decides."""
    stack.pool("p0")
    stack.pool("p1")
    above = stack.above("front", agg(["p0", "p1"]), theirs=theirs)
    if not theirs:
        stack.finds(above, "p0", "p1")
    stack.frontend("--namespace", "front", **PATIENT)
    fronts = [Front(stack.port)]
    if not theirs:
        port = free_port()
        stack.start("reference", [reference_python(NEWEST), "-m", "dynamo.frontend", "--discovery-backend", "file", "--namespace", "front",
                                  "--request-plane", "tcp", "--event-plane", "zmq", "--http-host", "127.0.0.1", "--http-port", port],
                    HF_HUB_OFFLINE="1", PYTHONUNBUFFERED="1")
        fronts.append(Front(port))
    body = {"model": str(MODEL_PATH), "messages": [{"role": "user", "content": "hello"}], "max_tokens": 4}
    for front in fronts:
        def served():
            try:
                return all(front.ask(CHAT, {**body, "nvext": {"router": {"ttft_target": target}}})[0] == 200 for target in (20, 2900))
            except OSError:
                return False
        until("it serves the model", served)
        for nvext, pool in (({"router": {"ttft_target": 20}}, "p0"), ({"router": {"ttft_target": 2900}}, "p1"),
                            ({"router": {"ttft_target": 20}, "agent_hints": {"priority": 6}}, "p1")):
            answers = []
            assert stack.taker(lambda: answers.append(front.ask(CHAT, {**body, "nvext": nvext}))) == [pool], nvext
            status, text = answers[0]
            assert status == 200 and json.loads(text)["usage"]["completion_tokens"] == 4, text


def test_prompts_apart(stack):
    """One pool computes prompts, another answers."""
    stack.pool("pre", "--is-prefill-worker")
    stack.pool("dec", "--is-decode-worker")
    stack.finds(stack.above("front", disagg(["pre", "pre"], ["dec", "dec"])), "pre", "dec")
    stack.frontend("--namespace", "front", **PATIENT)
    front = Front(stack.port)
    body = {"model": str(MODEL_PATH), "messages": [{"role": "user", "content": "hello " * 50}], "max_tokens": 4, "stream": False}
    until("both are known", lambda: front.ask(CHAT, body)[0] == 200 and stack.taken()["pre"] > 0)
    answers = []
    assert stack.taker(lambda: answers.append(front.ask(CHAT, body))) == ["pre", "dec"]
    assert json.loads(answers[0][1])["usage"]["completion_tokens"] == 4


@pytest.mark.parametrize("retry", [True, False])
def test_a_pool_that_is_away(stack, retry):
    """Faster ones are asked where the file says so, and it is asked again once it is back."""
    stack.pool("p0")
    above = stack.finds(stack.above("front", agg(["p0", "p1"], retry), DYN_SYSTEM_PORT=0, DYN_SYSTEM_HOST="127.0.0.1"), "p0")
    asked = request(20, {"ttft_target": 2900})  # p1's

    def ask():
        return plane_caller.call(above.addresses["generate"], asked)
    if retry:
        assert stack.taker(ask) == ["p0"]
        assert "pool failed, asking a faster one" in above.log()
    else:
        with pytest.raises(plane_caller.PlaneError, match="no instances"):
            ask()
    stack.pool("p1")
    stack.finds(above, "p1")
    assert stack.taker(ask) == ["p1"]
    stack.routers["p1"].stop()
    above.wait_log("router gone")
    del stack.routers["p1"]
    if retry:
        assert stack.taker(ask) == ["p0"]
    metrics = Front(int(above.wait_log(r"system_port=(\d+)").group(1))).ask("/metrics", None)[1]
    assert 'commutator_global_router_sent_total{kind="agg",namespace="p1"} 1' in metrics
    assert above.stop() == 0


def test_what_runs_may_finish(stack):
    """SIGTERM takes the records away at once, and ends when the last stream has."""
    stack.pool("p0", "--speedup-ratio", "1")
    above = stack.finds(stack.above("front", agg(["p0"], mapping=[[0, 0], [0, 0]], priority_overrides=[])), "p0")
    asked = request(20)
    asked["stop_conditions"]["max_tokens"] = 60
    home = plane_caller.start(above.addresses["generate"], asked)
    above.terminate()
    until("it is withdrawn", lambda: not plane_caller.address_of(stack.kv, "front", "global_router", "generate"))
    assert sum(len(item["data"]["token_ids"]) for item in plane_caller.items(home)) == 60
    until("it has ended", lambda: not above.alive())
    assert above.popen.returncode == 0


@pytest.mark.parametrize("change,why", [({"num_agg_pools": 3}, "agg_pool_dynamo_namespaces"), ({"mode": "both"}, "mode"),
                                        ({"agg_pool_selection_strategy": {}}, "ttft_min_ms")])
def test_a_bad_file_is_refused(tmp_path, change, why):
    path = tmp_path / "pools.json"
    path.write_text(json.dumps({**agg(["p0", "p1"]), **change}))
    ended = subprocess.run([program("dynamo-router"), "global", "--config", path, "--model-name", MODEL_PATH], capture_output=True, text=True,
                           timeout=SOON, check=False)
    assert ended.returncode == 1 and why in ended.stderr and str(path) in ended.stderr
