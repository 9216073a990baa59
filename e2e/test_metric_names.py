# SPDX-License-Identifier: Apache-2.0
"""Dashboards made for the reference's frontend find its metrics at ours: names, types and labels, after the same traffic.

What is not here stands in the tables below with its reason; an entry that is not needed fails."""

import http.client
import re

import pytest

import file_store
from stack import CHAT, MODEL, MODEL_PATH, Stack, until
from test_combinations import HELLO, REQUESTS, Front, Reference, serve

TOKIO = "its runtime: we have no tasks and no pool of blocking threads"
LRU = "its way to predict caches without events; ours is told by commutator_router_*"
STAGES = "times of its preprocessor's and client's steps; /explain and dynamo_router_overhead_* tell ours"
MEDIA = "no images, videos or audio are counted"
QUEUES = "its internal queues; commutator_event_plane_* and commutator_router_* tell of ours"
ABSENT = {
    r"dynamo_tokio_.*": TOKIO,
    r"dynamo_frontend_event_loop_.*": TOKIO,
    r"dynamo_component_uptime_seconds": TOKIO,
    r"dynamo_component_router_approximate_.*": LRU,
    r"dynamo_frontend_(stage_.*|template_seconds|tokenize_seconds|tokenizer_latency_ms|detokenize_.*)": STAGES,
    r"dynamo_request_plane_.*_seconds": STAGES,
    r"dynamo_frontend_(images|videos|audio|image_tokens)_per_request": MEDIA,
    r"dynamo_component_(ckf_mutation_total|kv_cache_event.*)": QUEUES,
    r"dynamo_component_router_active_sequence_ingress_.*": QUEUES,
    r"dynamo_transport_tcp_.*": "counters of its client; commutator_plane_* tell of ours",
    r"dynamo_component_router_kv_transfer_estimated_latency_seconds": "an estimate of the transfer between engines",
    r"dynamo_frontend_failures_total": "its semantic classes; requests_total has error_type",
    r"dynamo_frontend_router_admission_(received|rejected)_total": "its admission by deadlines",
}
# Labels of which ours has no use.
NO_LABELS = {"dynamo_component_kv_cache_events_applied": {"worker_id"}}  # the router's own id, one per process
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
        (expected, types), (found, our_types) = families(metrics(theirs.port)), families(metrics(ours.port))
        used, wrong = set(), []
        for name in sorted(types):
            reason = next((pattern for pattern in ABSENT if re.fullmatch(pattern, name)), None)
            if reason and name not in our_types:
                used.add(reason)
            elif name in LATER and name not in found:
                if name in expected and expected[name][1] != LATER[name]:
                    wrong.append((name, expected[name], LATER[name]))
            elif our_types.get(name) != types[name]:
                wrong.append((name, types[name], our_types.get(name)))
            elif name in expected and name in found and not expected[name][1] - NO_LABELS.get(name, set()) <= found[name][1]:
                wrong.append((name, expected[name], found[name]))
        assert not wrong, "\n".join(map(str, wrong))
        assert version == "0.9.0" or used == set(ABSENT), f"not needed: {set(ABSENT) - used}"
