# SPDX-License-Identifier: Apache-2.0
"""Dashboards made for the reference's programs find their metrics at ours: names, types, labels and bounds, after the same traffic.

What is not here stands in the tables below with its reason; an entry that is not needed fails."""

import http.client
import re

import pytest

import file_store
import plane_caller
from conftest import free_port
from engine_publisher import Engine
from stack import CHAT, MODEL, MODEL_PATH, Stack, until
from test_combinations import HELLO, REQUESTS, Front, Reference, serve
from test_global_router import Pools, agg, request as asked
from test_index_service import serve as service, tokens
from test_router_service import RouterStack, prompt, request, told_by_theirs
from test_select_service import start_reference

TOKIO = "its runtime: we have no tasks and no pool of blocking threads"
LRU = "its way to predict caches without events; ours is told by commutator_router_*"
STAGES = "times of its preprocessor's and client's steps; /explain and dynamo_router_overhead_* tell ours"
MEDIA = "no images, videos or audio are counted"
QUEUES = "its internal queues; commutator_event_plane_* and commutator_router_* tell of ours"
ROUTING_ABSENT = {
    r"dynamo_component_router_approximate_.*": LRU,
    r"dynamo_component_ckf_mutation_total": QUEUES,
    r"dynamo_component_router_active_sequence_ingress_.*": QUEUES,
    r"dynamo_component_router_kv_transfer_estimated_latency_seconds": "an estimate of the transfer between engines",
}
ABSENT = ROUTING_ABSENT | {
    r"dynamo_tokio_.*": TOKIO,
    r"dynamo_frontend_event_loop_.*": TOKIO,
    r"dynamo_component_uptime_seconds": TOKIO,
    r"dynamo_frontend_(stage_.*|template_seconds|tokenize_seconds|tokenizer_latency_ms|detokenize_.*)": STAGES,
    r"dynamo_request_plane_.*_seconds": STAGES,
    r"dynamo_frontend_(images|videos|audio|image_tokens)_per_request": MEDIA,
    r"dynamo_transport_tcp_.*": "counters of its client; commutator_plane_* tell of ours",
    r"dynamo_frontend_failures_total": "its semantic classes; requests_total has error_type",
    r"dynamo_frontend_router_admission_(received|rejected)_total": "its admission by deadlines",
}
# Labels of which ours has no use.
OWN_ID = {"worker_id"}  # the router's own, one per process
NO_LABELS = {"dynamo_component_kv_cache_events_applied": OWN_ID, "dynamo_component_kv_cache_event_warnings": OWN_ID,
             "dynamo_component_uptime_seconds": OWN_ID}
# Ours are those of 0.9.0 unless DYN_METRICS_{REQUEST_DURATION,ITL}_{MIN,MAX,COUNT} say otherwise.
OLD_BOUNDS = {"dynamo_frontend_request_duration_seconds", "dynamo_frontend_inter_token_latency_seconds"}
# Written with the first event of their kind, of which this traffic has none.
LATER = {
    "dynamo_frontend_router_queue_backpressure_total": {"model", "policy_class", "reason", "worker_type"},
    "dynamo_component_router_kv_event_source_mismatch_workers": {
        "dynamo_component", "dynamo_namespace", "model", "target_component", "target_endpoint", "target_namespace", "worker_id",
        "worker_type"},
}


def families(text):
    """{name: (type, labels)} of those with series, {name: type} of all."""
    types = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.M))
    found = {}
    for line in text.splitlines():
        series = re.match(r"([a-zA-Z_:][\w:]*)(?:\{(.*)\})? ", line)
        if not series:
            continue
        name = series.group(1)
        base = re.sub(r"_(bucket|sum|count)$", "", name)
        name = base if types.get(base) == "histogram" else name
        labels = {label for label in re.findall(r'(\w+)="', series.group(2) or "") if label != "le"}
        found[name] = (types[name], found.get(name, (None, set()))[1] | labels)
    return found, types


def metrics(port):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", "/metrics")
    return connection.getresponse().read().decode()


def bounds(text, name):
    return set(re.findall(rf'^{name}_bucket{{.*le="([^"]*)"', text, re.M))


def compare(theirs, ours, absent):
    """What stands in @absent, of the newest release, may be missing; None = whatever stands in any of the tables."""
    (expected, types), (found, our_types) = families(theirs), families(ours)
    used, wrong = set(), []
    for name in sorted(types):
        reason = next((pattern for pattern in absent or ANY_ABSENT if re.fullmatch(pattern, name)), None)
        if reason and name not in our_types:
            used.add(reason)
        elif name in LATER and name not in found:
            if name in expected and expected[name][1] != LATER[name]:
                wrong.append((name, expected[name], LATER[name]))
        elif our_types.get(name) != types[name]:
            wrong.append((name, types[name], our_types.get(name)))
        elif name in expected and name in found and not expected[name][1] - NO_LABELS.get(name, set()) <= found[name][1]:
            wrong.append((name, expected[name], found[name]))
        elif name in found and (not absent or name not in OLD_BOUNDS) and not bounds(theirs, name) <= bounds(ours, name):
            wrong.append((name, bounds(theirs, name), bounds(ours, name)))
    assert not wrong, "\n".join(map(str, wrong))
    assert not absent or used == set(absent), f"not needed: {set(absent) - used}"


@pytest.mark.parametrize("version", ["0.9.0", "1.6.1"])
def test_the_reference_s_metrics_are_ours(tmp_path, version):
    with Stack(tmp_path) as stack:
        (tmp_path / MODEL).symlink_to(MODEL_PATH)
        stack.start_nats("-js")
        reference = Reference(stack, version, "file", "tcp", "nats")
        reference.mocker()
        # A frontend of 0.9.0 that sees the card's file while it is written never looks again.
        until("the worker's card", lambda: file_store.records(stack.kv, "mdc", "*%2F*"))
        theirs = reference.frontend()
        stack.frontend("--router-mode", "kv")
        ours = Front(stack.front, stack.port)
        for front in (theirs, ours):
            serve(front, MODEL)
            for path, body in REQUESTS:
                assert front.ask(path, {"model": MODEL, **body})[0] == 200
            assert front.ask(CHAT, {"model": "none", "messages": HELLO})[0] == 404
        compare(metrics(theirs.port), metrics(ours.port), ABSENT if version != "0.9.0" else None)


# --- services that have no frontend ---

RUNTIME = "its runtime: we have no pool of tasks"
ROUTER_ABSENT = ROUTING_ABSENT | {
    r"dynamo_work_handler_.*": RUNTIME,
    r"dynamo_(engine_request|rejection_request_total|request_queue)": RUNTIME,
}
INDEX_ABSENT = {r"dynamo_kvrouter_ckf_mutation_total": QUEUES}
ANY_ABSENT = ABSENT | ROUTER_ABSENT
# Of them a router that routed three prompts that nobody had cached tells the same numbers as another.
COUNTED = [
    *(f"dynamo_component_router_{name}" for name in (
        "requests_started_total", "requests_total", "time_to_first_token_seconds_count", "input_sequence_tokens_count",
        "input_sequence_tokens_sum", "output_sequence_tokens_count", "output_sequence_tokens_sum", "kv_hit_rate_count", "kv_hit_rate_sum",
        "kv_selected_cached_prefix_tokens_total", "kv_best_eligible_cached_prefix_tokens_total", "worker_registered",
        "kv_event_source_mismatch_workers")),
    *(f"dynamo_component_{name}" for name in (
        "requests_total", "inflight_requests", "request_duration_seconds_count", "cancellation_total")),
]


def total(text, name):
    found = [float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if re.match(name + r"[{ ]", line)]
    return sum(found) if found else None


def settled(port):
    """Its metrics once what began has ended: that is counted when the caller has the last item already."""
    over = [("requests_total", "request_duration_seconds_count"), ("router_requests_started_total", "router_requests_total")]
    return until("all have ended", lambda: all(
        total(text, f"dynamo_component_{begun}") == total(text, f"dynamo_component_{ended}") for begun, ended in over) and text
        if (text := metrics(port)) else None)


@pytest.mark.parametrize("version", ["0.9.0", "1.6.1"])
def test_the_router_s_metrics_are_ours(tmp_path, version):
    with RouterStack(tmp_path) as stack:
        stack.start_nats("-js")
        stack.mocker(*(["--publish-as", "endpoint"] if version != "0.9.0" else []), workers=2)
        stack.route()
        stack.ready(2)
        port = free_port()
        theirs = told_by_theirs(stack, "generate", version, DYN_SYSTEM_PORT=port)
        until("it knows the workers", lambda: plane_caller.call(theirs, request(prompt(0))))
        before = [settled(at) for at in (port, stack.port)]
        for seed in range(3):
            for router, address in enumerate((theirs, stack.generate)):
                assert plane_caller.call(address, request(prompt(10 * router + seed + 1)))[-1]["finish_reason"] == "length"
        after = [settled(at) for at in (port, stack.port)]
        compare(*after, ROUTER_ABSENT if version != "0.9.0" else None)
        grown = [{name: total(new, name) - (total(old, name) or 0) for name in COUNTED if total(new, name) is not None}
                 for old, new in zip(before, after)]
        assert grown[0].items() <= grown[1].items() and (version == "0.9.0" or list(grown[0]) == COUNTED)
        registered = "dynamo_component_router_worker_registered"
        assert [total(text, registered) for text in after] == [2 if version != "0.9.0" else None, 2]


def test_the_global_router_s_metrics_are_ours(tmp_path):
    absent = {pattern: why for pattern, why in ROUTER_ABSENT.items() if why == RUNTIME}
    with Pools(tmp_path) as stack:
        stack.pool("p0")
        ports = free_port(), free_port()
        both = [stack.above(ns, agg(["p0"], mapping=((0, 0), (0, 0)), priority_overrides=[]), theirs=ns == "theirs", DYN_SYSTEM_PORT=port,
                            DYN_SYSTEM_HOST="127.0.0.1") for ns, port in zip(("theirs", "ours"), ports)]
        for process in both:
            until("it knows the pool", lambda: answered(process.addresses["generate"]))
        told = [settled(port) for port in ports]
        compare(*told, absent)
        for text in told:
            assert total(text, "dynamo_component_requests_total") >= 1
            assert total(text, "dynamo_component_response_bytes_total") > 100


def answered(address):
    """Whether somebody has an answer: a router above pools does not say whom it found."""
    try:
        return plane_caller.call(address, asked(20))
    except (OSError, EOFError, plane_caller.PlaneError):
        return None


def test_the_indexer_s_metrics_are_ours(tmp_path):
    with Stack(tmp_path, events=False) as stack, Engine() as engine:
        both = start_reference(stack, "1.6.1", module="indexer"), service(stack, "index")
        for who in both:
            who.register(1, engine)
        for blocks, more in (([1, 2], {}), ([1, 2], {}), ([1], {"medium": "CPU"}), ([7], {"parent": 99})):
            engine.stored(blocks, tokens(len(blocks)), **more)
        engine.cleared()
        engine.stored([3], tokens(1, 400))
        told = []
        for who in both:
            until("all is applied", lambda: who.scores(tokens(1, 400)))
            who.post("/query", {"model_name": "none", "token_ids": [1]}, 404)
            text = who.get("/metrics")
            told.append(text)
            assert [who.metric("dynamo_kvrouter_kv_cache_event_warnings", warning_kind="duplicate_store"),
                    *(who.metric("dynamo_kvrouter_kv_cache_events_applied", event_type=kind, status=status)
                      for kind, status in (("stored", "ok"), ("stored", "parent_block_not_found"), ("cleared", "ok")))] == [1, 3, 1, 1]
        compare(*told, INDEX_ABSENT)
        stack.port = None


# --- workers ---

HANDLER = "steps of its work handler's queue; dynamo_component_* tell of requests"
WORKER_ABSENT = {
    r"dynamo_(work_handler_.*|engine_request|request_queue|rejection_request_total)": HANDLER,
    r"dynamo_component_kv_publisher_engines_dropped_events_total": QUEUES,
    r"vllm:.*": "as the engine that it mocks; an engine of ours is one with --openai-port",
}
ANY_ABSENT |= WORKER_ABSENT


@pytest.mark.parametrize("release", ["0.9.0", "1.x"])
def test_the_metrics_of_workers_are_ours(tmp_path, shared, release):
    """As the system servers of its mockers gave them: */http/mocker*-system-GET-metrics.txt, worker-metrics.txt."""
    captures = [path for path in (shared / "data/wire" / release).rglob("*-metrics.txt") if not path.name.startswith("frontend")]
    assert len(captures) > 4
    with Stack(tmp_path) as stack:
        stack.start_nats()
        port = free_port()
        stack.worker = stack.mocker(DYN_SYSTEM_PORT=port)
        stack.frontend()
        stack.ready(1)
        stack.chat(max_tokens=4)
        ours = metrics(port)
    theirs = "".join(re.search(r"^# (?:.|\n)*?(?=^status |\Z)", path.read_text(), re.M).group() for path in captures)
    compare(re.sub(r',?worker_id="[^"]*"', "", theirs), ours, WORKER_ABSENT if release != "0.9.0" else None)
