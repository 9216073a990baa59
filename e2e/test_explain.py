# SPDX-License-Identifier: Apache-2.0
"""Why this worker: /explain, /decisions, recorded files, shadow policies, and what is measured of them."""

import concurrent.futures
import json
import re
import socket
import subprocess
import threading
import time

import pytest

from conftest import program
from stack import CHAT, MODEL, PATIENT, Stack, decision_for, put, request_id, until, words

WORKERS = 4


@pytest.fixture
def stack(tmp_path):
    with Stack(tmp_path) as stack:
        yield stack


@pytest.fixture
def eventless(tmp_path):
    with Stack(tmp_path, events=False) as stack:
        yield stack


def explain(stack, answer):
    """The decisions of an answer's request."""
    found = stack.get(f"/explain/{answer.headers['x-request-id']}")
    assert found.status == 200, found.body
    return found.json["decisions"]


def decisions(stack, query=""):
    return [json.loads(line) for line in stack.get(f"/decisions{query}").body.splitlines()]


def check_arithmetic(record):
    """The numbers of a record of policy dynamo give its scores, its choice and its margin."""
    inputs, block = record["inputs"], record["inputs"]["block_size"]
    for row in record["candidates"]:
        fresh = max(0, inputs["isl"] - row["overlap_blocks"] * block)
        prefill = (row["prefill_tokens"] + fresh) / block
        decode = row["active_blocks"] + row["new_blocks"]
        assert row["terms"] == {"prefill_blocks": prefill, "decode_blocks": decode}
        assert row["logit"] == inputs["overlap_weight"] * prefill + decode
    chosen = record["candidates"][record["chosen"]["at"]]
    others = [row["logit"] for row in record["candidates"] if row is not chosen]
    assert (chosen["worker_id"], chosen["dp_rank"]) == (record["chosen"]["worker_id"], record["chosen"]["dp_rank"])
    assert chosen["logit"] == min(row["logit"] for row in record["candidates"])
    assert record["margin"] == min(others) - chosen["logit"]
    served = min(chosen["overlap_blocks"], (inputs["isl"] - 1) // block)  # the last token is computed in any case
    assert record["predicted_cached_tokens"] == served * block


def talk(stack, n=24):
    """Some concurrent conversations with shared beginnings; their answers."""
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        return list(pool.map(lambda i: stack.chat(words(400, i % 4) + f" and {i}?", max_tokens=6), range(n)))


# --- one request ---

def test_a_decision_can_be_recomputed_and_is_what_the_log_says(stack):
    stack.up("--router-mode", "kv", workers=WORKERS)
    answers = talk(stack)
    for answer in answers:
        record, = explain(stack, answer)
        check_arithmetic(record)
        assert record["request_id"] == request_id(answer) == answer.headers["x-request-id"]
        assert (record["mode"], record["policy"], record["model"]) == ("kv", "dynamo", MODEL)
        assert len(record["candidates"]) == WORKERS and record["more_candidates"] == 0
        outcome = record["outcome"]
        assert outcome["ended"] == "finished" and outcome["output_tokens"] == 6
        assert outcome["cached_tokens"] == answer.usage["prompt_tokens_details"]["cached_tokens"]
        assert 0 < outcome["ttft_ms"] <= outcome["duration_ms"]
        logged = decision_for(stack, answer)
        for line, row in zip(logged.rows, record["candidates"], strict=True):
            assert line["worker"] == row["worker_id"] and line["cached"] == row["overlap_blocks"]
            assert f"{line['logit']:.3f}" == f"{row['logit']:.3f}"
        assert logged.selected["worker"] == record["chosen"]["worker_id"]


def test_it_is_said_in_words(stack):
    stack.up("--router-mode", "kv", workers=2)
    prompt, begun = words(600), time.monotonic()
    stack.chat(prompt)
    until("its blocks are known", lambda: (stack.metric("commutator_router_index_blocks", model=MODEL) or 0) >= 28)
    answer = stack.chat(prompt + " and then?")
    told = stack.request("GET", f"/explain/{answer.json['id']}", headers={"accept": "text/plain"})
    assert told.status == 200 and told.headers["content-type"].startswith("text/plain")
    sentence = told.body.decode().splitlines()[0]
    record, = explain(stack, answer)
    assert f"worker {record['chosen']['worker_id']} rank 0 was chosen" in sentence
    assert f"{record['margin']:.3f} below the runner-up" in sentence
    assert "cached blocks against 0" in sentence and "made the difference" in sentence
    assert 0 <= record["index_age_ms"] <= (time.monotonic() - begun) * 1000 + 1 and b"last KV event" in told.body


def test_what_was_said_is_not_remembered(stack):
    stack.up("--router-mode", "kv", "--record-decisions", stack.folder / "recorded", workers=1)
    answer = stack.chat("the word is xylophone")
    texts = [stack.get(f"/explain/{request_id(answer)}").body, stack.get("/decisions").body]
    stack.front.stop()
    texts.append((stack.folder / "recorded").read_bytes())
    assert all(b"xylophone" not in text and b"token_ids" not in text and len(text) > 200 for text in texts)
    stack.processes.remove(stack.front)


def test_a_request_may_bring_its_id(eventless):
    stack = eventless.up(workers=1)
    mine, proxys = "11111111-2222-4333-8444-555555555555", "22222222-2222-4333-8444-555555555555"
    # Not x-request-id: proxies give the same to a request that they send again. It goes back, and finds the newest.
    answer = stack.chat(headers={"x-dynamo-request-id": mine, "x-request-id": proxys})
    assert request_id(answer) == mine and answer.headers["x-request-id"] == proxys
    for name in (mine, proxys):
        assert [record["request_id"] for record in stack.get(f"/explain/{name}").json["decisions"]] == [mine]
    assert stack.chat(headers={"x-dynamo-request-id": "mine"}).headers["x-request-id"] != "mine"


def test_an_unknown_request_is_not_found(eventless):
    stack = eventless.up(workers=1)
    answer = stack.get("/explain/00000000-0000-4000-8000-000000000000")
    assert answer.status == 404 and "remembered" in answer.json["error"]["message"]
    for query in ("?since=x", "?limit=-1", "?limit=65537"):
        assert stack.get("/decisions" + query).status == 400


def test_a_request_that_nobody_can_serve_is_explained(eventless):
    stack = eventless.up("--router-mode", "kv", workers=2)
    answer = stack.request("POST", CHAT, stack.body("Hello"), {"x-worker-instance-id": "999"})
    assert answer.status == 500
    record, = explain(stack, answer)
    assert record["result"] == "no-such-pin" and record["chosen"] is None
    assert [row["why"] for row in record["rejected"]] == ["not_pinned"] * 2
    assert record["outcome"]["ended"] == "not-sent"


@pytest.mark.parametrize("streamed", [True, False])
def test_who_would_be_chosen_can_be_asked(stack, streamed):
    """As wire.md 8.11 describes the reference: nothing is sent, nothing is booked."""
    stack.up("--router-mode", "kv", workers=2)
    asked = stack.chat("Hello", stream=streamed, nvext={"annotations": ["query_instance_id:"]})
    told = asked.chunks[0] if streamed else asked.json
    assert len(asked.chunks) == 1 if streamed else "usage" not in told
    choice = told["choices"][0]
    assert not choice["finish_reason"] and not (choice["delta"] if streamed else choice["message"]).get("content")
    worker = told["nvext"]["worker_id"]["decode_worker_id"]
    assert told["nvext"]["worker_id"]["prefill_worker_id"] == worker and worker in stack.instances()
    assert stack.metric("dynamo_frontend_worker_active_decode_blocks") == 0
    record, = explain(stack, asked)
    assert record["query_only"] and record["chosen"]["worker_id"] == worker
    assert record["outcome"]["ended"] == "not-sent" and record["inputs"]["isl"] == len(told["nvext"]["token_ids"])
    # What it said can be used, without books being kept here.
    answer = stack.chat("Good bye", {"x-worker-instance-id": str(worker), "x-enable-local-updates": "false"},
                        nvext={"extra_fields": ["worker_id", "timing"], "token_data": told["nvext"]["token_ids"]})
    assert answer.usage["prompt_tokens"] == len(told["nvext"]["token_ids"]), "these, not those of Good bye"
    assert answer.json["nvext"]["worker_id"]["decode_worker_id"] == worker
    assert 0 <= answer.json["nvext"]["timing"]["kv_hit_rate"] <= 1
    record, = explain(stack, answer)
    assert record["pinned"] and [row["why"] for row in record["rejected"]] == ["not_pinned"]


# --- many ---

def test_decisions_are_numbered_and_resumed(eventless):
    stack = eventless.up("--decision-records", "8", workers=2)
    for _ in range(5):
        stack.chat(max_tokens=1)
    first = decisions(stack)
    assert [record["seq"] for record in first] == [1, 2, 3, 4, 5]
    assert [record["seq"] for record in decisions(stack, "?since=2&limit=2")] == [3, 4]
    for _ in range(15):
        stack.chat(max_tokens=1)
    later = decisions(stack, "?since=5")
    assert later[0] == {"overwritten": 7}
    assert [record["seq"] for record in later[1:]] == list(range(13, 21))
    assert decisions(stack, "?since=20") == []
    assert decisions(stack, "?since=500")[0] == {"restarted": True}


def test_shadow_policies_are_recorded_and_measured(stack):
    stack.up("--router-mode", "kv", "--router-shadow-policies", "dynamo,round_robin,least-loaded", workers=WORKERS)
    talk(stack)
    records = decisions(stack)
    assert len(records) == 24
    want = {name: [0, 0, 0.0] for name in ("dynamo", "round-robin", "least-loaded")}
    for record in records:
        assert {shadow["policy"] for shadow in record["shadows"]} == set(want)
        for shadow in record["shadows"]:
            agrees = shadow["worker_id"] == record["chosen"]["worker_id"]
            assert shadow["agrees"] == agrees
            assert shadow["regret"] == shadow["chosen_logit"] - shadow["pick_logit"]
            count = want[shadow["policy"]]
            count[0] += 1
            count[1] += agrees
            count[2] += max(0, shadow["regret"])
    assert want["dynamo"][1:] == [24, 0], "the policy in force agrees with itself"
    assert want["round-robin"][1] < 24, "caches are in no order"
    for name, (scored, agreed, regret) in want.items():
        metric = lambda what: stack.metric(f"commutator_router_shadow_{what}_total", policy=name)
        assert (metric("decisions"), metric("agreements")) == (scored, agreed)
        assert metric("regret") == pytest.approx(regret)
    assert stack.metric("commutator_router_policy_decisions_total", policy="dynamo", worker_type="decode") == 24
    assert stack.metric("commutator_router_load_variation_count", model=MODEL) == 24


def test_shadow_policies_change_live(eventless):
    conf = eventless.folder / "routing"
    put(conf, "DYN_ROUTER_MODE=kv\n")
    stack = eventless.up("--routing-file", conf, workers=2)
    shadows_of = lambda: [shadow["policy"] for shadow in explain(stack, stack.chat(max_tokens=1))[0]["shadows"]]
    assert shadows_of() == []
    for text, want in (("marginal, random", ["random", "marginal"]), ("", [])):
        put(conf, f"DYN_ROUTER_MODE=kv\nDYN_ROUTER_SHADOW_POLICIES={text}\n")
        until(f"shadows are {want}", lambda: shadows_of() == want)
    put(conf, "DYN_ROUTER_MODE=kv\nDYN_ROUTER_SHADOW_POLICIES=fairest\n")
    stack.front.wait_log("refused.*'fairest' is none of round-robin, random")


def test_herds_are_measured(eventless):
    stack = eventless.up("--router-mode", "round-robin", workers=2, speedup=1000)
    index = lambda what: stack.metric(f"commutator_router_herd_index_{what}", model=MODEL) or 0
    until("windows with enough decisions", lambda: talk(stack, 16) and index("count") >= 3)
    assert 1 <= index("sum") / index("count") <= 1.5, "turns are even"


# --- recorded files ---

def replay(path, *flags):
    done = subprocess.run([program("dynamo-bench"), "decisions", "--replay", path, "--json", f"{path}.json", *flags],
                          capture_output=True, text=True, timeout=60)
    return done, json.loads(open(f"{path}.json").read()) if done.returncode == 0 else None


@pytest.mark.parametrize("flags", [("--router-mode", "kv"), ("--router-mode", "kv", "--router-temperature", "0.7"),
                                   ("--router-mode", "kv", "--router-policy", "dynamo-1.x"),
                                   ("--router-mode", "kv", "--router-policy", "marginal"),
                                   ("--router-mode", "power-of-two"), ("--router-mode", "round-robin")])
def test_what_was_recorded_replays_bit_for_bit(stack, flags):
    fetched, recorded = stack.folder / "fetched", stack.folder / "recorded"
    stack.up(*flags, "--record-decisions", recorded, workers=WORKERS)
    talk(stack)
    fetched.write_bytes(stack.get("/decisions").body)
    stack.front.stop()
    stack.processes.remove(stack.front)
    by_seq = lambda path: {record["seq"]: record for record in map(json.loads, path.read_text().splitlines())}
    assert by_seq(recorded) == by_seq(fetched) and len(by_seq(recorded)) == 24
    done, result = replay(recorded)
    assert done.returncode == 0, done.stderr
    assert result["decisions"] == result["same"] == 24 and result["agreement"] == 1
    for other in (["--policy", "least-loaded"], ["--policy", "dynamo", "--overlap-score-weight", "5"]):
        done, result = replay(recorded, *other)
        assert done.returncode == 0, done.stderr
        assert result["same"] == 24 and 0 < result["agreement"] <= 1
        assert sum(worker["replayed"] for worker in result["workers"]) == 24
    forged = json.loads(recorded.read_text().splitlines()[0])
    forged["candidates"][0]["logit"] += 1e-9
    recorded.write_text(json.dumps(forged) + "\n")
    done, _ = replay(recorded)
    assert done.returncode == 1 and "1 of 1 decisions came out otherwise" in done.stderr


def test_the_file_is_bounded(eventless):
    path = eventless.folder / "recorded"
    stack = eventless.up("--record-decisions", path, "--record-decisions-mb", "1", "--decision-records", "16",
                         "--router-mode", "kv", "--router-shadow-policies", "dynamo,least-loaded", workers=8, speedup=1000)
    connection = stack.connect()
    body = json.dumps(stack.body("Hello", max_tokens=1))
    for _ in range(700):  # some 3.5 kB each
        connection.request("POST", CHAT, body, {"content-type": "application/json"})
        assert connection.getresponse().read()
    connection.close()
    stack.front.stop()
    stack.processes.remove(stack.front)
    assert path.stat().st_size < 1 << 20 and (path.parent / "recorded.1").stat().st_size < 1 << 20
    seqs = [json.loads(line)["seq"] for name in ("recorded.1", "recorded")
            for line in (path.parent / name).read_text().splitlines()]
    assert seqs == list(range(seqs[0], 701)), "the newest, without a hole"


# --- metrics ---

# Names of the reference that are not served, by prefix, and why.
NOT_SERVED = {
    "dynamo_tokio_": "its language's runtime; there is none here",
    "dynamo_frontend_event_loop_": "canaries of that runtime",
    "dynamo_component_router_approximate_": "its approximate cache; ours is commutator_router_index_*",
    "dynamo_component_router_active_sequence_ingress_": "queues between its threads; bookings are one step here",
    "dynamo_component_router_kv_transfer_estimated_latency_seconds": "the engines move KV blocks without telling when",
    "dynamo_component_ckf_mutation_total": "a filter between data centres",
    "dynamo_component_uptime_seconds": "process_start_time_seconds is what monitoring systems ask for",
    "dynamo_frontend_audio_per_request": "text only",
    "dynamo_frontend_image": "text only",
    "dynamo_frontend_videos_per_request": "text only",
    "dynamo_frontend_detokenize_": "not measured: some 100 ns a token",
    "dynamo_frontend_tokenize_": "not measured apart: part of time_to_first_token_seconds",
    "dynamo_frontend_tokenizer_latency_ms": "not measured apart: part of time_to_first_token_seconds",
    "dynamo_frontend_template_seconds": "not measured apart: part of time_to_first_token_seconds",
    "dynamo_frontend_stage_": "not measured apart",
    "dynamo_frontend_failures_total": "requests_total has the status",
    "dynamo_frontend_model_cancellation_total": "disconnected_clients",
    "dynamo_frontend_router_admission_": "admission by deadline is newer than 1.x",
    "dynamo_frontend_router_queue_backpressure_total": "appears with the first refusal",
    "dynamo_request_plane_queue_seconds": "commutator_plane_*",
    "dynamo_request_plane_roundtrip_ttft_seconds": "commutator_plane_*",
    "dynamo_request_plane_send_seconds": "commutator_plane_*",
    "dynamo_transport_tcp_": "commutator_plane_*",
}
# Bucket bounds of 0.9.0, which 1.x has changed: dashboards of either take them.
BOUNDS = {"dynamo_frontend_inter_token_latency_seconds", "dynamo_frontend_request_duration_seconds"}
# Labels that differ for a reason.
LABELS = {
    "dynamo_frontend_requests_total": "as in 0.9.0, without error_type",
    "dynamo_component_kv_cache_events_applied": "as in 0.9.0, without the frontend's worker_id",
    "dynamo_component_kv_cache_event_warnings": "like that one",
}


def families(text):
    """{name: (type, label names, bucket bounds)} of a /metrics answer."""
    kinds = dict(re.findall(r"^# TYPE (\S+) (\S+)", text, re.MULTILINE))
    found = {}
    for name, labels in re.findall(r"^([a-z]\w*)(?:\{(.*)\})? \S+$", text, re.MULTILINE):
        base = name if name in kinds else re.sub(r"_(bucket|sum|count)$", "", name)
        if base not in kinds:
            continue
        pairs = dict(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', labels))
        bound = pairs.pop("le", None)
        kind, names, bounds = found.setdefault(base, (kinds[base], set(), set()))
        names |= set(pairs)
        bounds |= {bound} - {None}
    return found


@pytest.mark.parametrize("capture", ["0.9.0/kubernetes-live/frontend-metrics.txt",
                                     "0.9.0/file-nats-kv/http/frontend-GET-metrics.txt",
                                     "1.x/file-nats-kv/http/frontend-GET-metrics.txt"])
def test_metrics_are_those_of_the_reference(stack, shared, capture):
    stack.up("--router-mode", "kv", workers=2)
    talk(stack, 4)
    stack.stream(max_tokens=100000).close()
    ours = families(stack.get("/metrics").body.decode())
    wrong = []
    for name, (kind, labels, bounds) in families((shared / "data/wire" / capture).read_text()).items():
        if any(name.startswith(prefix) for prefix in NOT_SERVED):
            assert name not in ours, f"{name} is served: take it off the list"
        elif name not in ours:
            wrong.append(f"{name} is missing")
        elif ours[name][0] != kind or (ours[name][2] != bounds and not (name in BOUNDS and "1.x" in capture)):
            wrong.append(f"{name} is {ours[name]}, not {kind} {bounds}")
        elif ours[name][1] != labels and name not in LABELS:
            wrong.append(f"{name} has labels {ours[name][1]}, not {labels}")
    assert not wrong, "\n".join(wrong)


# What the specification's list of names (router.md 7) has beyond those captures, and what we promise of our own.
LISTED = {
    "counter": """dynamo_component_kv_cache_events_applied dynamo_component_router_requests_total
        dynamo_component_router_requests_started_total dynamo_component_router_non_max_overlap_selections_total
        dynamo_frontend_requests_total dynamo_frontend_output_tokens_total commutator_router_regret_total""",
    "histogram": """dynamo_component_router_time_to_first_token_seconds dynamo_component_router_inter_token_latency_seconds
        dynamo_component_router_input_sequence_tokens dynamo_component_router_output_sequence_tokens
        dynamo_component_router_kv_hit_rate dynamo_component_router_overlap_blocks_lost
        dynamo_router_overhead_block_hashing_ms dynamo_router_overhead_indexer_find_matches_ms
        dynamo_router_overhead_seq_hashing_ms dynamo_router_overhead_scheduling_ms dynamo_router_overhead_total_ms
        dynamo_frontend_request_duration_seconds dynamo_frontend_input_sequence_tokens
        dynamo_frontend_output_sequence_tokens dynamo_frontend_cached_tokens
        dynamo_frontend_time_to_first_token_seconds dynamo_frontend_inter_token_latency_seconds
        commutator_router_herd_index commutator_router_load_variation""",
    "gauge": """dynamo_component_router_kv_event_source_mismatch_workers dynamo_component_router_worker_registered
        dynamo_frontend_inflight_requests dynamo_frontend_queued_requests dynamo_frontend_disconnected_clients
        dynamo_frontend_model_total_kv_blocks dynamo_frontend_model_max_num_seqs
        dynamo_frontend_model_max_num_batched_tokens dynamo_frontend_model_context_length
        dynamo_frontend_model_kv_cache_block_size dynamo_frontend_model_migration_limit
        dynamo_frontend_worker_active_decode_blocks dynamo_frontend_worker_active_prefill_tokens
        dynamo_frontend_worker_last_time_to_first_token_seconds
        dynamo_frontend_worker_last_input_sequence_tokens dynamo_frontend_worker_last_inter_token_latency_seconds
        dynamo_frontend_router_queue_pending_requests dynamo_frontend_router_queue_pending_isl_tokens
        dynamo_frontend_router_queue_pending_cached_tokens commutator_router_event_confidence
        commutator_router_event_fallback""",
}


def test_metrics_have_every_listed_name(stack):
    stack.up("--router-mode", "kv", workers=2)
    talk(stack, 4)
    kinds = dict(re.findall(r"^# TYPE (\S+) (\S+)", stack.get("/metrics").body.decode(), re.MULTILINE))
    listed = {name: kind for kind, names in LISTED.items() for name in names.split()}
    assert {name: kinds.get(name) for name in listed} == listed


# --- what observers are told ---

def unpacked(data):
    """The MessagePack value at the beginning of @data, and what follows it."""
    kind, rest = data[0], data[1:]
    if kind < 0x80:
        return kind, rest
    if 0x80 <= kind < 0x90:
        found = {}
        for _ in range(kind & 15):
            key, rest = unpacked(rest)
            found[key], rest = unpacked(rest)
        return found, rest
    if 0xA0 <= kind < 0xC0:
        return rest[:kind & 31].decode(), rest[kind & 31:]
    if kind == 0xC0:
        return None, rest
    if kind == 0xC4:
        return rest[1:1 + rest[0]], rest[1 + rest[0]:]
    size = {0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8}[kind]
    return int.from_bytes(rest[:size]), rest[size:]


def opened(message):
    """(envelope, payload) of an event-plane message."""
    envelope, rest = unpacked(message)
    assert rest == b""
    payload, rest = unpacked(envelope["payload"])
    assert rest == b""
    return envelope, payload


class Hearer:
    """Collects what is published on some subjects."""

    def __init__(self, port, *subjects):
        self.heard = []
        self.connection = socket.create_connection(("127.0.0.1", port))
        self.file = self.connection.makefile("rb")
        subscriptions = "".join(f"SUB {subject} {i}\r\n" for i, subject in enumerate(subjects))
        self.connection.sendall(f'CONNECT {{"verbose":false,"user":"user","pass":"user"}}\r\n{subscriptions}PING\r\n'.encode())
        while not self.file.readline().startswith(b"PONG"):
            pass
        threading.Thread(target=self.hear, daemon=True).start()

    def hear(self):
        while line := self.file.readline():
            if line.startswith(b"MSG "):
                words = line.split()
                message = self.file.read(int(words[-1]))
                self.file.readline()
                self.heard.append((words[1].decode(), *opened(message)))

    def on(self, subject):
        return [(envelope, payload) for where, envelope, payload in list(self.heard) if where == subject]


def test_decisions_and_loads_are_published(stack, shared):
    hits, loads = "namespace.dynamo.kv-hit-rate", "namespace.dynamo.kv_metrics"
    stack.up("--router-mode", "kv", workers=2, **PATIENT)
    hearer = Hearer(stack.nats_port, hits, loads)
    of_router = lambda: [(e, p) for e, p in hearer.on(loads) if e["publisher_id"] != p["worker_id"]]
    # Loads are told some milliseconds later, as they are then: one is to be still computing.
    with concurrent.futures.ThreadPoolExecutor() as pool:
        with stack.paused(stack.worker):
            slow = pool.submit(stack.chat, words(400))
            until("what it is to compute is told", lambda: any(
                p["active_decode_blocks"] > 0 and p["active_prefill_tokens"] > 0 for _, p in of_router()))
        answers = [slow.result(), *talk(stack, 8)]
    until("every decision is told", lambda: len(hearer.on(hits)) == len(answers))

    def idle():
        last = {p["worker_id"]: p["active_decode_blocks"] + p["active_prefill_tokens"] for _, p in of_router()}
        return set(last) == {p["worker_id"] for _, p in hearer.on(hits)} and not any(last.values())

    until("and that the workers are idle again", idle)
    told = sorted((p["worker_id"], p["isl_blocks"], p["overlap_blocks"]) for _, p in hearer.on(hits))
    assert told == sorted((r["chosen"]["worker_id"], r["isl_blocks"], r["candidates"][r["chosen"]["at"]]["overlap_blocks"])
                          for r in decisions(stack))
    for messages in (hearer.on(hits), of_router()):
        assert [e["sequence"] for e, _ in messages] == list(range(len(messages)))
        assert len({e["publisher_id"] for e, _ in messages}) == 1
    captures = shared / "data/wire/0.9.0/etcd-nats-kv-localindexer/events-nats"
    for name, (ours, _) in (("kv-hit-rate-1", hearer.on(hits)[0]), ("kv_metrics-1", of_router()[0])):
        theirs = opened((captures / f"{name}.bin").read_bytes())
        ours = next(m for m in hearer.on(hits if "hit" in name else loads) if m[0] is ours)
        for mine, captured in zip(ours, theirs):
            assert list(mine) == list(captured)
            assert [type(value) for value in mine.values()] == [type(value) for value in captured.values()]


def test_output_that_grows_is_published(stack):
    stack.up("--router-mode", "kv", "--track-output-blocks", workers=1, speedup=0.5)  # some 200 ms a block
    prompt = stack.chat("Hello", max_tokens=1).usage["prompt_tokens"] // 16
    hearer = Hearer(stack.nats_port, "namespace.dynamo.kv_metrics")
    blocks = lambda: [p["active_decode_blocks"] for e, p in hearer.on("namespace.dynamo.kv_metrics")
                      if e["publisher_id"] != p["worker_id"]]
    # Minutes of it: a frontend that is late tells several blocks at once.
    stream = stack.stream("Hello", max_tokens=10000, ignore_eos=True)
    until("it grows", lambda: len(set(blocks())) >= 8 and max(blocks()) >= prompt + 8)
    stream.close()
    until("its end is told", lambda: blocks()[-1] == 0)
