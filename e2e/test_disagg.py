# SPDX-License-Identifier: Apache-2.0
"""Prefill and decode workers behind the frontend: both ways of handing the prompt over, and what
happens when a side fails, is busy, or the client leaves."""

import concurrent.futures
import json

import pytest

from conftest import program
from stack import CHAT, COMPLETIONS, MODEL, SOON, Stack, decisions_of, request_id, until, words

PREFILLS = "commutator_router_prefills_total"


@pytest.fixture
def stack(tmp_path):
    with Stack(tmp_path) as stack:
        yield stack


def up(stack, *flags, prefill=(), bootstrap=True, speedup=50, prefill_speedup=None, events=True, decode=2, plane="tcp", prefills=2, **env):
    """Prefill workers, each a process of its own, and decode workers in one."""
    planes = {"DYN_REQUEST_PLANE": plane, "DYN_HTTP_RPC_PORT": 0}
    if events:
        stack.start_nats()
    ports = ("--bootstrap-ports", "0") if bootstrap else ()
    stack.prefills = []
    stack.more_prefill = lambda speed: stack.prefills.append(
        stack.mocker("--is-prefill-worker", *ports, *prefill, speedup=speed, **planes))
    for _ in range(prefills):
        stack.more_prefill(prefill_speedup or speedup)
    stack.decode = stack.mocker("--is-decode-worker", workers=decode, speedup=speedup, **planes)
    stack.frontend(*flags, **env)
    stack.ready(decode)
    until("the prefill workers", lambda: stack.workers("prefill") == prefills)
    # A worker is in discovery before it logs that it is.
    until("each worker's own word of its id", lambda: len(ids_of(stack.decode)) == decode
          and all(map(ids_of, stack.prefills)))
    return stack


def paths(stack):
    """How prompts were computed: {path or (path, reason): requests}."""
    found = {}
    for (name, labels), value in stack.metrics().items():
        if name == PREFILLS:
            labels = dict(labels)
            found[(labels["path"], labels["reason"]) if labels["reason"] else labels["path"]] = value
    return found


def tracked(stack, content="Hello", **more):
    """Who prefilled and who decoded."""
    answer = stack.chat(content, stream=True, nvext={"annotations": ["query_instance_id"]}, **more)
    ids = answer.chunks[0]["nvext"]["worker_id"]
    return answer, ids["prefill_worker_id"], ids["decode_worker_id"]


def ids_of(process):
    return {int(line.split("worker_id=")[1].split()[0]) for line in process.log().splitlines()
            if "worker registered" in line}


@pytest.mark.parametrize("mode", ["kv", "round-robin", "random"])
@pytest.mark.parametrize("bootstrap", [True, False], ids=["bootstrap", "synchronous"])
def test_prompts_are_prefilled_elsewhere(stack, mode, bootstrap):
    up(stack, "--router-mode", mode, bootstrap=bootstrap)
    prefill_ids = set().union(*map(ids_of, stack.prefills))
    decode_ids = ids_of(stack.decode)
    seen = set()
    for i in range(6):
        answer, prefill, decode = tracked(stack, words(200, i), max_tokens=5, ignore_eos=True)
        assert answer.text and prefill in prefill_ids and decode in decode_ids
        seen.add((prefill, decode))
        timing = answer.chunks[-1]["nvext"]["timing"]
        assert timing["prefill_wait_time_ms"] + timing["prefill_time_ms"] == pytest.approx(timing["ttft_ms"], abs=.01)
    assert paths(stack) == {"bootstrap" if bootstrap else "synchronous": 6}
    if mode == "round-robin":  # each side has a turn of its own, and one request is one step of it
        assert len(seen) == 2 and len({p for p, _ in seen}) == 2 and len({d for _, d in seen}) == 2
    assert "Prefill router activated successfully" in stack.front.log()
    assert ("Built bootstrap_info upfront before prefill" in stack.front.log()) == bootstrap
    until("the prefills have ended", lambda: stack.metric("commutator_router_prefill_seconds_count") == 6)


def test_each_side_has_its_own_trace_and_index(stack):
    up(stack, "--router-mode", "kv")
    ids = [1000 + i for i in range(325)]

    def ask():
        answer = stack.request("POST", COMPLETIONS, stack.body(ids, COMPLETIONS))
        assert answer.status == 200, answer.body
        lines = [line for line in stack.front.log().splitlines() if request_id(answer) in line]
        return {side: decisions_of("\n".join(line for line in lines if f"worker_type={side}" in line))[request_id(answer)]
                for side in ("prefill", "decode")}
    first = ask()
    assert first["prefill"].selected["worker"] in set().union(*map(ids_of, stack.prefills))
    assert first["decode"].selected["worker"] in ids_of(stack.decode)
    # Overlap says nothing about who decodes: weight 0, and only running blocks count.
    assert {row["weight"] for row in first["decode"].rows} == {0.0}
    assert {row["weight"] for row in first["prefill"].rows} == {1.0}
    # Prefill workers' KV events go to their own index; decode workers publish none.
    blocks = lambda side: stack.metric("commutator_router_index_blocks", model=MODEL, worker_type=side)
    until("the prefill worker's events", lambda: blocks("prefill") >= 20)
    assert blocks("decode") == 0
    again = ask()
    assert again["prefill"].selected["worker"] == first["prefill"].selected["worker"]
    assert again["prefill"].selected["cached"] == 20 and again["decode"].selected["cached"] == 0
    # And the decision records tell both.
    records = stack.get(f"/explain/{request_id_of_last(stack)}").json
    assert [record["worker_type"] for record in records["decisions"]] == ["prefill", "decode"]


def test_usage_tells_what_the_prefill_worker_had_cached(stack):
    up(stack, "--router-mode", "kv", bootstrap=False)
    ids = [1000 + i for i in range(325)]
    usage = lambda: stack.request("POST", COMPLETIONS, stack.body(ids, COMPLETIONS)).usage
    assert usage()["prompt_tokens_details"]["cached_tokens"] == 0
    until("its events", lambda: (stack.metric("commutator_router_index_blocks", model=MODEL, worker_type="prefill") or 0) >= 20)
    assert usage()["prompt_tokens_details"]["cached_tokens"] == 320


def test_a_question_who_would_do_it_names_both_sides(stack):
    up(stack, "--router-mode", "kv")
    answer = stack.chat("Hello", stream=True, nvext={"annotations": ["query_instance_id:"]})
    ids = answer.chunks[0]["nvext"]["worker_id"]
    assert ids["prefill_worker_id"] in set().union(*map(ids_of, stack.prefills))
    assert ids["decode_worker_id"] in ids_of(stack.decode)
    assert paths(stack) == {}


FOREVER = 0.0002  # the speed of a worker that takes a hundred seconds for a prompt


def request_id_of_last(stack):
    return json.loads(stack.get("/decisions?since=0").body.decode().splitlines()[-1])["request_id"]


def prefilling(stack):
    """Ids of prefill workers that have prompt tokens to compute."""
    return [int(dict(labels)["worker_id"]) for (name, labels), value in stack.metrics().items()
            if name == "dynamo_frontend_worker_active_prefill_tokens" and value
            and dict(labels)["worker_type"] == "prefill"]


@pytest.mark.parametrize("plane", ["tcp", "nats", "http"])
@pytest.mark.parametrize("bootstrap", [True, False], ids=["bootstrap", "synchronous"])
def test_a_prefill_worker_killed_under_a_prompt(stack, bootstrap, plane):
    up(stack, "--router-mode", "kv", bootstrap=bootstrap, prefill_speedup=FOREVER, prefills=1, plane=plane, decode=1)
    with concurrent.futures.ThreadPoolExecutor() as pool:
        answer = pool.submit(stack.chat, words(100), max_tokens=5, ignore_eos=True)
        until("the prompt is with the prefill worker", lambda: prefilling(stack))
        stack.more_prefill(50)
        until("another prefill worker", lambda: stack.workers("prefill") == 2)
        stack.prefills[0].kill()
        assert answer.result().usage["completion_tokens"] == 5
    way = "bootstrap" if bootstrap else "synchronous"
    counted = paths(stack)
    assert counted.pop(way) == 2 and len(counted) == 1 and next(iter(counted))[0] == "failed", counted


@pytest.mark.parametrize("plane", ["tcp", "nats", "http"])
@pytest.mark.parametrize("bootstrap", [True, False], ids=["bootstrap", "synchronous"])
def test_a_decode_worker_killed_in_the_middle(stack, bootstrap, plane):
    """kill -9 of the one that answers: what it said is prefilled with the prompt, another decode worker goes on, and
    the client sees one whole answer. The caches of the dead one are no help, so a prefill worker is asked again."""
    up(stack, "--router-mode", "kv", "--migration-limit", "1", bootstrap=bootstrap, speedup=0.02, prefill_speedup=50, decode=1,
       plane=plane)  # a minute an answer
    prompt = stack.chat(words(100, 0), max_tokens=1).usage["prompt_tokens"]
    streams, heads = [], []

    def begin(n):
        for _ in range(n):
            streams.append(stack.stream(words(100, len(streams)), max_tokens=200, ignore_eos=True, stream_options={
                "include_usage": True}, nvext={"annotations": ["query_instance_id"]}))
            heads.append(next(streams[-1].events))
    begin(2)
    other = stack.mocker("--is-decode-worker", DYN_REQUEST_PLANE=plane, DYN_HTTP_RPC_PORT=0)
    until("the other decode worker", lambda: stack.workers("decode") == 2)
    begin(2)
    killed = json.loads(heads[0][1])["nvext"]["worker_id"]["decode_worker_id"]
    stack.decode.kill()
    moved, prompts = 0, []
    for head, stream in zip(heads, streams):
        events = [head, *stream.events]
        assert not any(event for event, _ in events) and events[-1][1] == "[DONE]", events
        chunks = [json.loads(data) for _, data in events[:-1]]
        assert chunks[-1]["usage"]["completion_tokens"] == 200
        prompts.append(chunks[-1]["usage"]["prompt_tokens"])
        assert [c["finish_reason"] for chunk in chunks for c in chunk["choices"] if c.get("finish_reason")] == ["length"]
        decoders = {chunk["nvext"]["worker_id"]["decode_worker_id"] for chunk in chunks
                    if (chunk.get("nvext") or {}).get("worker_id")}
        moved += len(decoders - {killed}) and killed in decoders
    assert moved >= 2 and prompts[0] == prompt and other.alive()
    assert stack.metric("dynamo_frontend_model_migration_total", model=MODEL, migration_type="ongoing_request") == moved
    assert paths(stack) == {"bootstrap" if bootstrap else "synchronous": 1 + len(streams) + moved}


@pytest.mark.parametrize("bootstrap", [True, False], ids=["bootstrap", "synchronous"])
def test_a_client_that_leaves_during_the_prefill(stack, bootstrap):
    up(stack, "--router-mode", "kv", bootstrap=bootstrap, prefill_speedup=FOREVER)
    connection = stack.connect()
    connection.request("POST", CHAT, json.dumps(stack.body(words(100))), {"content-type": "application/json"})
    until("the prompt is with a prefill worker", lambda: prefilling(stack))
    decoding = 1 if bootstrap else 0
    until("both sides are at it", lambda: stack.metric("commutator_plane_streams") == 1 + decoding)
    connection.close()
    until("both sides are let go", lambda: not stack.loads(), SOON)
    assert sum(stack.decisions().values()) == decoding  # without a prompt no decode worker is chosen
    assert stack.metric("dynamo_frontend_disconnected_clients") == 1
    # The workers dropped it too: they stop at once, although the prompt would take long.
    for process in (*stack.prefills, stack.decode):
        assert process.stop(SOON) == 0


def test_without_prefill_workers_the_decode_workers_do_it_all(stack):
    up(stack, "--router-mode", "kv")
    for process in stack.prefills:
        assert process.stop() == 0
    until("they are gone", lambda: stack.workers("prefill") == 0)
    _, prefill, decode = tracked(stack)
    assert prefill == decode and prefill in ids_of(stack.decode)
    assert paths(stack) == {}
    until("that is said", lambda: "Prefill router deactivated" in stack.front.log())
    stack.prefills = [stack.mocker("--is-prefill-worker")]
    until("another one comes", lambda: stack.workers("prefill") == 1)
    assert tracked(stack)[1] in ids_of(stack.prefills[0])


def test_enforced_prefill(stack):
    stack.start_nats()
    stack.decode = stack.mocker("--disaggregation-mode", "decode")
    stack.frontend("--router-mode", "kv", DYN_ENFORCE_DISAGG="true")
    stack.ready(1)
    answer = stack.request("POST", CHAT, stack.body("Hello"))
    assert answer.status == 503 and "Prefill router not yet activated" in answer.json["message"], answer.body
    quick = stack.mocker("--disaggregation-mode", "prefill")
    until("a prefill worker", lambda: stack.workers("prefill") == 1)
    assert stack.chat("Hello").text
    prefill = stack.mocker("--disaggregation-mode", "prefill", speedup=FOREVER)
    until("another", lambda: stack.workers("prefill") == 2)
    assert quick.stop() == 0
    until("it alone", lambda: stack.workers("prefill") == 1)
    with concurrent.futures.ThreadPoolExecutor() as pool:
        answer = pool.submit(stack.request, "POST", CHAT, stack.body("Hello"))
        until("the prompt is with it", lambda: prefilling(stack))
        prefill.kill()
        answer = answer.result()
    assert answer.status == 503 and "--enforce-disagg" in answer.json["message"], answer.body
    assert ("fallback", "not_activated") in paths(stack)


def test_failed_prefills_fall_back_to_the_decode_worker(stack):
    up(stack, "--router-mode", "kv", bootstrap=False, prefill_speedup=FOREVER)
    with concurrent.futures.ThreadPoolExecutor() as pool:
        answer = pool.submit(stack.chat, words(100), max_tokens=5, ignore_eos=True)
        for _ in stack.prefills:
            worker = until("the prompt is with a prefill worker", lambda: [
                w for w in prefilling(stack) if any(p.alive() and w in ids_of(p) for p in stack.prefills)])[0]
            next(process for process in stack.prefills if worker in ids_of(process)).kill()
        answer = answer.result()
    assert answer.usage["completion_tokens"] == 5
    assert [key[0] for key in paths(stack) if "fallback" in key] == ["fallback"]
    row = decisions_of(stack.front.log())[request_id(answer)].selected
    assert row["worker"] in ids_of(stack.decode)
    last = [line for line in stack.front.log().splitlines() if request_id(answer) in line and "Formula" in line][-1]
    assert "= 1.0 * prefill_blocks" in last and "worker_type=decode" in last  # its own cache counts again


def test_requests_name_their_workers(stack):
    up(stack, "--router-mode", "kv")
    prefill_ids, decode_ids = set().union(*map(ids_of, stack.prefills)), ids_of(stack.decode)
    for p in prefill_ids:
        for d in decode_ids:
            named = {"prefill_worker_id": p, "prefill_dp_rank": 0, "decode_worker_id": d, "decode_dp_rank": 0}
            nvext = {"annotations": ["query_instance_id"], "prefill_worker_id": p, "decode_worker_id": d}
            answer = stack.chat("Hello", stream=True, nvext=nvext)
            assert answer.chunks[0]["nvext"]["worker_id"] == named
            answer = stack.chat("Hello", {"x-prefill-instance-id": str(p), "x-worker-instance-id": str(d)},
                                stream=True, nvext={"annotations": ["query_instance_id"]})
            assert answer.chunks[0]["nvext"]["worker_id"] == named
    # A prefill worker that is not there: the decode worker does it.
    answer = stack.chat("Hello", {"x-prefill-instance-id": "12345"})
    assert paths(stack)["fallback", "no_such_pin"] == 1


def test_prompts_that_are_not_worth_it_bypass_prefill_workers(stack):
    # Decode workers that publish KV events, as the bypass needs them: aggregated ones.
    stack.start_nats()
    stack.prefills = [stack.mocker("--is-prefill-worker", "--bootstrap-ports", "0")]
    stack.mocker(workers=2)
    stack.frontend("--router-mode", "kv", "--router-conditional-disagg",
                   "--router-conditional-disagg-config", '{"eff_isl_threshold": 40, "policy": "isl_bounding"}')
    stack.ready(2)
    until("the prefill worker", lambda: stack.workers("prefill") == 1)
    ids = [1000 + i for i in range(330)]
    ask = lambda prompt: stack.request("POST", COMPLETIONS, stack.body(prompt, COMPLETIONS)).status
    assert ask(ids) == 200 and paths(stack) == {"bootstrap": 1}
    blocks = lambda: stack.metric("commutator_router_index_blocks", model=MODEL, worker_type="decode") or 0
    until("a decode worker tells of the prompt", lambda: blocks() >= 20)
    assert ask(ids) == 200  # 320 of 330 are cached
    assert paths(stack) == {"bootstrap": 1, ("bypass", "isl"): 1}
    assert ask(ids + [2000 + i for i in range(100)]) == 200  # 110 are not
    assert paths(stack) == {"bootstrap": 2, ("bypass", "isl"): 1}
    assert "Conditional disagg routing to decode worker" in stack.front.log()


def test_a_config_of_conditional_disagg_that_makes_no_sense(stack):
    for config, says in (('{"policy": "never"}', "never"), ('{"isl": 4}', "'isl'"), ('[]', "conditional-disagg-config"),
                         ('{"policy": "prefill_load"}', "prefill_busy_threshold")):
        front = stack.start("refused", [program("dynamo-frontend"), "--router-conditional-disagg",
                                        "--router-conditional-disagg-config", config, "--http-port", "0"])
        assert front.end() != 0 and says in front.log(), front.log()


def test_losses_under_load(stack):
    up(stack, "--router-mode", "kv", speedup=20)
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        answers = [pool.submit(stack.chat, words(120, i % 30), max_tokens=8, ignore_eos=True) for i in range(300)]
        until("it is under way", lambda: (paths(stack).get("bootstrap") or 0) > 60)
        stack.prefills[0].kill()
        until("it goes on", lambda: (paths(stack).get("bootstrap") or 0) > 160)
        stack.prefills.append(stack.mocker("--is-prefill-worker", speedup=20))  # it hands over the other way
        done = [answer.result() for answer in answers]
    assert all(answer.usage["completion_tokens"] == 8 for answer in done)
    counted = paths(stack)
    print(f"\n  {len(done)} requests, a prefill worker killed and another one started: {counted}")
    assert counted["bootstrap"] + counted.get("synchronous", 0) >= 290
