# SPDX-License-Identifier: Apache-2.0
"""Spans that reach a collector: those of the reference's frontends, which are asked the same."""

import collections
import concurrent.futures
import contextlib
import http.client
import json

import grpc
import pytest

import plane_caller
from conftest import free_port, program, reference_python
from fake_worker import ANSWER, BREAK_AFTER_TOKENS, BREAK_BEFORE_TOKEN, ERROR_ITEM, REFUSE_CONNECTION, FakeWorker
from otlp_collector import Collector
from stack import CHAT, COMPLETIONS, MODEL, PATIENT, RESPONSES, Stack, until

EMBEDDINGS = "/v1/embeddings"
CLIENT_SPAN = "b7ad6b7169203331"
EXPORT = {"OTEL_EXPORT_ENABLED": "true", "OTEL_BSP_SCHEDULE_DELAY": "50"}
# Of the reference's code (tracing's own, and functions), and of media, which we do not serve.
CODE = ("code.", "thread.", "busy_ns", "idle_ns", "target", "image_count", "video_count", "audio_count")
FUNCTIONS = ("completions", "completions_single", "completions_batch", "embeddings")
CHANGING = ("request_id", "worker_id", "prefill_worker_id", "decode_worker_id", "ttft_ms", "avg_itl_ms", "trace_id",
            "migration.from_worker_id")
ANSWERS = {
    "chat": (CHAT, {"messages": [{"role": "user", "content": "a prompt of some blocks " * 20}], "max_tokens": 5}),
    "streamed": (CHAT, {"messages": [{"role": "user", "content": "another " * 40}], "max_tokens": 5, "stream": True}),
    "response": (RESPONSES, {"input": "hello", "max_output_tokens": 4}),
}


class Traced(Stack):
    """Frontends that export to one collector; each request is a trace of its own."""

    def __init__(self, folder):
        super().__init__(folder)
        self.collector, self.traces, self.fakes = Collector(), 0, []
        self.endpoint = f"http://127.0.0.1:{self.collector.grpc_port}"

    def __exit__(self, *what):
        try:
            super().__exit__(*what)
        finally:
            for fake in self.fakes:
                fake.close()
            self.collector.close()

    def workers_up(self, *flags, **more):
        self.start_nats("-js")
        mocker = self.mocker("--enable-local-indexer", *flags, DYN_EVENT_PLANE="nats", **more)
        until("records", lambda: all(list((self.kv / "v1" / bucket).glob("*")) for bucket in ("mdc", "instances")))
        return mocker

    def fakes_up(self, *behaviours):
        mocker = self.workers_up("--no-enable-local-indexer")
        self.fakes = [FakeWorker(self.kv, how, worker_id=0x1234567 + i) for i, how in enumerate(behaviours)]
        mocker.stop()

    def ours(self, *flags, **env):
        env = {**EXPORT, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": self.endpoint, **env}
        self.frontend(*flags, **{name: value for name, value in env.items() if value is not None})
        return self.port

    def reference(self, *flags, version="1.6.1", **env):
        port, old = free_port(), version.startswith("0.")
        env = {**EXPORT, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": self.endpoint, **env}
        self.start("reference-frontend", [
            reference_python(version), "-m", "dynamo.frontend", "--store-kv" if old else "--discovery-backend", "file",
            "--http-host", "127.0.0.1", "--http-port", port, *flags],
            HF_HUB_OFFLINE="1", PYTHONUNBUFFERED="1", DYN_EVENT_PLANE="nats", DYN_SDK_DISABLE_ANSI_LOGGING="1",
            **{name: value for name, value in env.items() if value is not None})
        return port

    def ask(self, port, path, body, flags="01", trace=None, **headers):
        """Returns the trace that the request was made in, and the status of its answer."""
        self.traces += 1
        trace = trace or f"{self.traces:032x}"
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        try:
            connection.request("POST", path, json.dumps({"model": MODEL, **body}), {
                "content-type": "application/json", "traceparent": f"00-{trace}-{CLIENT_SPAN}-{flags}", **headers})
            answer = connection.getresponse()
            answer.read()
        finally:
            connection.close()
        return trace, answer.status

    def ready_at(self, port):
        """Waits until it calls a worker, whatever comes of that."""
        asked = []
        def calls():
            try:
                trace, status = self.ask(port, *ANSWERS["chat"])
            except OSError:
                return False
            asked.append(trace)
            if status != 503:  # which may come of either
                return status in (200, 500)
            return any(span.name.endswith("route_request") for trace in asked for span in self.spans(trace))
        until("the frontend calls a worker", calls)

    def spans(self, trace):
        return [span for span in self.collector.spans if span.trace == trace and span.name not in FUNCTIONS]

    def whole(self, trace, n=1):
        """Its spans, when all that are to come are there: the request's, and as many attempts."""
        def there():
            names = collections.Counter(span.name.split(".")[-1] for span in self.spans(trace))
            return names["http-request"] == 1 and names["route_request"] == n
        until("the spans of a request", there)
        return self.spans(trace)


def shape(spans):
    """What must be alike: names, parents' names, kinds, flags, outcomes, attributes and those values that do not change."""
    names = {span.id: span.name for span in spans}
    def parent(span):
        return "the client's" if span.parent == CLIENT_SPAN else names.get(span.parent, "http-request")
    def values(span):
        return tuple(sorted((key, "" if key in CHANGING else value) for key, value in span.attributes.items()
                            if not key.startswith(CODE)))
    return sorted((span.name, parent(span), span.kind, span.raw.flags, span.status, span.raw.trace_state, values(span))
                  for span in spans)


def check_times(spans):
    """Every span lies within its parent; what a decision consists of follows one after the other."""
    by_id = {span.id: span for span in spans}
    for span in spans:
        assert span.start <= span.end
        if outer := by_id.get(span.parent):
            assert outer.start <= span.start and span.end <= outer.end, (outer, span)


@pytest.mark.parametrize("mode", ["kv", "round-robin", "random"])
def test_requests_leave_the_reference_s_spans(tmp_path, mode):
    with Traced(tmp_path) as stack:
        stack.workers_up(workers=2)
        theirs, ours = stack.reference("--router-mode", mode), stack.ours("--router-mode", mode)
        stack.ready_at(theirs), stack.ready_at(ours)
        for name, (path, body) in ANSWERS.items():
            for headers in ({}, {"x-request-id": "mine", "tracestate": "a=1"}):
                (expected, _), (made, status) = [stack.ask(port, path, body, **headers) for port in (theirs, ours)]
                assert status == 200
                expected, made = shape(stack.whole(expected)), stack.whole(made)
                check_times(made)
                if mode == "kv":  # what is cached where, each frontend has its own view of
                    expected, got = [[(*head, tuple(pair for pair in values if pair[0] != "overlap_blocks"))
                                      for *head, values in spans] for spans in (expected, shape(made))]
                else:
                    got = shape(made)
                assert got == expected, name
        assert stack.collector.spans[-1].resource == {"service.name": "dynamo"}


def test_one_trace_for_several_choices(tmp_path):
    """Each choice and prompt is routed alone, below the one request."""
    with Traced(tmp_path) as stack:
        stack.workers_up(workers=2)
        theirs, ours = stack.reference("--router-mode", "kv"), stack.ours("--router-mode", "kv")
        stack.ready_at(theirs), stack.ready_at(ours)
        body = {"prompt": ["one", "two"], "max_tokens": 2}
        expected, made = [stack.whole(stack.ask(port, COMPLETIONS, body)[0], n=2) for port in (theirs, ours)]
        def names(spans):
            return sorted(span.name for span in spans)
        assert names(made) == names(expected)
        check_times(made)
        ids = {span.attributes["request_id"] for span in made if span.name == "kv_router.route_request"}
        assert len(ids) == 2


@pytest.mark.parametrize("first", [BREAK_BEFORE_TOKEN, REFUSE_CONNECTION])
def test_a_worker_that_fails_has_its_own_span(tmp_path, first):
    """The failed attempt says why, the next one where it comes from; the worker that answered knows its span."""
    with Traced(tmp_path) as stack:
        stack.fakes_up(first, ANSWER)
        flags = ("--router-mode", "round-robin", "--migration-limit", "3")
        seen = {}
        for name, port in (("theirs", stack.reference(*flags)), ("ours", stack.ours(*flags, DYN_RUNTIME_INHIBITED_DURATION_SECS=0))):
            stack.ready_at(port)
            def two_attempts():
                trace, status = stack.ask(port, *ANSWERS["chat"])
                until("its spans", lambda: any(span.name == "http-request" for span in stack.spans(trace)))
                routes = [span for span in stack.spans(trace) if span.name == "router.route_request"]
                return routes if status == 200 and len(routes) == 2 else None
            routes = sorted(until("a request that meets both", two_attempts), key=lambda span: span.start)
            told = stack.fakes[1].headers[-1]["traceparent"].split("-")
            assert (told[1], told[2]) == (routes[1].trace, routes[1].id)
            assert routes[1].attributes["migration.from_worker_id"] == routes[0].attributes["worker_id"]
            seen[name] = [line for line in shape(routes)]
        assert seen["ours"] == seen["theirs"]


@pytest.mark.parametrize("how", [ERROR_ITEM, BREAK_AFTER_TOKENS])
def test_a_request_that_fails_says_so(tmp_path, how):
    with Traced(tmp_path) as stack:
        stack.fakes_up(how)
        theirs, ours = [make(DYN_RUNTIME_INHIBITED_DURATION_SECS=0) for make in (stack.reference, stack.ours)]
        stack.ready_at(theirs), stack.ready_at(ours)
        expected, made = [stack.whole(stack.ask(port, *ANSWERS["chat"])[0]) for port in (theirs, ours)]
        check_times(made)
        def outcome(spans):
            return [(span.name, span.status, span.attributes["request.outcome"], span.attributes.get("error.type"))
                    for span in sorted(spans, key=lambda span: span.name)]
        assert outcome(made) == outcome(expected)


def test_what_is_refused_has_a_span_as_well(tmp_path):
    with Traced(tmp_path) as stack:
        stack.workers_up()
        theirs, ours = stack.reference(), stack.ours()
        stack.ready_at(theirs), stack.ready_at(ours)
        for path, body in [(CHAT, {**ANSWERS["chat"][1], "model": "nobody"}), (COMPLETIONS, {"prompt": "x", "n": "many"}),
                           (EMBEDDINGS, {"input": "x"})]:
            asked = [stack.ask(port, path, body) for port in (theirs, ours)]
            assert asked[0][1] == asked[1][1] >= 400
            spans = [stack.whole(trace, n=0) for trace, _ in asked]
            for (theirs_span,), (ours_span,) in [spans]:
                for key in ("method", "uri", "version", "trace_id", "parent_id", "trace_flags"):
                    assert key == "trace_id" or ours_span.attributes[key] == theirs_span.attributes[key]
                assert ours_span.status[0] == theirs_span.status[0] == 2
                assert ours_span.attributes["request.outcome"] == "error"


def test_a_client_that_leaves(tmp_path):
    with Traced(tmp_path) as stack:
        stack.workers_up(speedup=1)
        theirs, ours = stack.reference("--router-mode", "kv"), stack.ours("--router-mode", "kv")
        stack.ready_at(theirs), stack.ready_at(ours)
        found = []
        for i, port in enumerate((theirs, ours)):
            trace = f"{0xfeed + i:032x}"
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            connection.request("POST", CHAT, json.dumps({**ANSWERS["streamed"][1], "model": MODEL, "max_tokens": 5000}),
                               {"content-type": "application/json", "traceparent": f"00-{trace}-{CLIENT_SPAN}-01"})
            answer = connection.getresponse()
            answer.readline()
            answer.close()
            connection.close()
            found.append({span.name: (span.status, span.attributes.get("request.outcome"),
                                      span.attributes.get("cancellation.signal")) for span in stack.whole(trace)})
        assert found[0] == found[1]


def test_prefills_are_attempts_too(tmp_path):
    with Traced(tmp_path) as stack:
        stack.workers_up("--is-decode-worker")
        stack.mocker("--is-prefill-worker", "--endpoint", "dyn://dynamo.prefill.generate", DYN_EVENT_PLANE="nats")
        theirs, ours = stack.reference("--router-mode", "kv"), stack.ours("--router-mode", "kv")
        shapes = []
        for port in (theirs, ours):
            stack.ready_at(port)
            def both():
                trace, _ = stack.ask(port, *ANSWERS["chat"])
                until("its spans", lambda: any(span.name == "http-request" for span in stack.spans(trace)))
                routes = [span for span in stack.spans(trace) if span.name == "kv_router.route_request"]
                return sorted(routes, key=lambda span: span.start) if len(routes) == 2 else None
            routes = until("a request of two workers", both)
            assert [span.attributes["phase"] for span in routes] == ["Prefill", "Decode"]
            shapes.append([(name, parent, kind, status, [key for key, _ in values])
                           for name, parent, kind, _, status, _, values in shape(routes)])
        assert shapes[0] == shapes[1]


# --- the stand-alone router ---

PARTS = ["kv_router.compute_block_hashes", "kv_router.compute_seq_hashes", "kv_router.find_matches", "kv_router.schedule"]
CARRIED = {"tracestate": "a=1", "x-request-id": "mine", "x-dynamo-request-id": "7b1a7d4e-4a57-4a5e-9d2a-111111111111"}
TOKENS = {"token_ids": list(range(1000, 1100)), "stop_conditions": {"max_tokens": 3}}


class Routers(Traced):
    """1.6.1's and ours before the same workers; one of them is asked at a time."""

    def routers_up(self, **env):
        flags = ["--endpoint", "dynamo.backend.generate", "--router-block-size", "16"]
        env = {**EXPORT, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": self.endpoint, **env}
        known, self.at = set(), {}
        for name, command in (("theirs", [reference_python("1.6.1"), "-m", "dynamo.router"]),
                              ("ours", [program("dynamo-router"), "route"])):
            self.start(f"router-{name}", [*command, *flags], DYN_NAMESPACE="dynamo", DYN_DISCOVERY_BACKEND="file",
                       DYN_REQUEST_PLANE="tcp", DYN_EVENT_PLANE="nats", HF_HUB_OFFLINE="1", PYTHONUNBUFFERED="1", **env)
            found = lambda endpoint: dict(plane_caller.address_of(self.kv, "dynamo", "router", endpoint))
            own, = until("it is registered", lambda: set(found("get_overlap_scores")) & set(found("best_worker_id")) &
                         set(found("generate")) - known)
            known.add(own)
            self.at[name] = {endpoint: found(endpoint)[own] for endpoint in ("generate", "best_worker_id", "get_overlap_scores")}
            until("it knows workers", lambda: plane_caller.call(self.at[name]["get_overlap_scores"], TOKENS)[0]["workers"])
        self.process = self.processes[-1]

    def call(self, who, endpoint, body, names, flags="01"):
        """The spans of that call, when they have all of the names."""
        self.traces += 1
        self.trace = f"{self.traces:032x}"
        seen = len(self.collector.spans)
        headers = {**CARRIED, "traceparent": f"00-{self.trace}-{CLIENT_SPAN}-{flags}"}
        with contextlib.suppress(plane_caller.PlaneError):
            plane_caller.call(self.at[who][endpoint], body, headers)
        # Without those of earlier questions that come late.
        fresh = lambda: [span for span in self.collector.spans[seen:] if span.name != "handle_payload" or span.trace == self.trace]
        until("its spans", lambda: collections.Counter(names) <= collections.Counter(span.name for span in fresh()))
        return fresh()


def alone(spans):
    """What is alike of spans, whatever traces they are in."""
    changing = (*CHANGING, "instance_id")
    return sorted((span.name, span.kind, span.raw.flags, span.status, span.raw.trace_state if span.name == "handle_payload" else "",
                   tuple(sorted((key, "" if key in changing else value) for key, value in span.attributes.items()
                                if not key.startswith(CODE) and key != "overlap_blocks"))) for span in spans)


def within(spans):
    """Names with those of their parents."""
    names = {span.id: span.name for span in spans}
    return sorted((span.name, "the client's" if span.parent == CLIENT_SPAN else names[span.parent]) for span in spans)


def test_the_stand_alone_router_leaves_the_reference_s_spans(tmp_path):
    """There what is chosen and sent is in traces of its own; here all is in the caller's."""
    with Routers(tmp_path) as stack:
        stack.workers_up(workers=2)
        stack.routers_up()
        whole = ["handle_payload", "kv_router.select_worker", "kv_router.route_request", *PARTS]
        for _ in range(2):
            expected, made = [stack.call(who, "generate", TOKENS, whole) for who in ("theirs", "ours")]
            assert alone(made) == alone(expected)
            check_times(made)
            assert {span.trace for span in made} == {stack.trace}
            assert within(made) == sorted([("handle_payload", "the client's"), ("kv_router.select_worker", "handle_payload"),
                                           ("kv_router.route_request", "handle_payload"),
                                           *((part, "kv_router.select_worker") for part in PARTS)])
        for endpoint, body in (("best_worker_id", TOKENS["token_ids"]), ("get_overlap_scores", TOKENS), ("generate", {"token_ids": "bad"})):
            expected, made = [stack.call(who, endpoint, body, ["handle_payload", *(PARTS if endpoint == "best_worker_id" else [])])
                              for who in ("theirs", "ours")]
            assert alone(made) == alone(expected), endpoint
            assert within(made) == sorted([("handle_payload", "the client's"), *((span.name, "handle_payload") for span in made
                                                                                 if span.name in PARTS)])
        # What the caller does not sample is not sent, and what is sent later arrives before the end.
        unsampled = stack.call("ours", "generate", TOKENS, [], flags="00")
        sampled = stack.call("ours", "generate", TOKENS, whole)
        assert {span.trace for span in [*unsampled, *sampled]} == {stack.trace}


def test_the_time_in_the_queue_is_a_span(tmp_path):
    """Of the second request, which waits until the first one's prompt is computed."""
    with Routers(tmp_path) as stack:
        worker = stack.workers_up()
        stack.routers_up(DYN_ROUTER_QUEUE_THRESHOLD="0", DYN_SYSTEM_PORT="0", DYN_SYSTEM_HOST="127.0.0.1", **PATIENT)
        stack.port = int(stack.process.wait_log(r"serving\b.*?system_port=(\d+)").group(1))
        traces = [f"{n:032x}" for n in (0xa1, 0xa2)]
        ask = lambda trace: plane_caller.start(stack.at["ours"]["generate"], TOKENS, headers={"traceparent": f"00-{trace}-{CLIENT_SPAN}-01"})
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            with stack.paused(worker):
                first = pool.submit(ask, traces[0])
                until("it is routed", lambda: stack.process.log().count("Selected worker") == 1)
                second = pool.submit(ask, traces[1])
                until("the other waits", lambda: stack.metric("dynamo_component_router_queue_pending_requests") == 1)
            for home in (first, second):
                assert list(plane_caller.items(home.result(60)))
        of = lambda trace: {span.name: span for span in stack.collector.spans if span.trace == trace}
        until("all is told", lambda: all("kv_router.route_request" in of(trace) for trace in traces))
        assert "kv_router.queue" not in of(traces[0])
        spans = of(traces[1])
        queue, select = spans["kv_router.queue"], spans["kv_router.select_worker"]
        assert queue.parent == select.id
        assert select.start <= queue.start < queue.end <= spans["kv_router.find_matches"].start <= select.end
        stack.port = None


def test_a_stand_alone_router_s_attempts(tmp_path):
    """Each has its span, the second says why; the worker is told of its own."""
    with Routers(tmp_path) as stack:
        stack.fakes_up(REFUSE_CONNECTION, ANSWER)
        stack.routers_up()

        def both():
            spans = stack.call("ours", "generate", TOKENS, ["handle_payload"])
            routes = [span for span in spans if span.name == "kv_router.route_request"]
            return len(routes) == 2 and routes
        first, second = sorted(until("a request that meets both", both), key=lambda span: span.start)
        assert first.attributes["request.outcome"] == "connection_failed" and second.attributes["request.outcome"] == "success"
        assert second.attributes["migration.from_worker_id"] == first.attributes["worker_id"]
        assert second.attributes["migration.reason"] == first.attributes["error.type"] == "cannot_connect"
        told = stack.fakes[1].headers[-1]
        assert told["traceparent"].split("-")[1:3] == [stack.trace, second.id]
        assert told["x-request-id"] == "mine" and told["tracestate"] == "a=1"
        assert stack.process.stop() == 0


def test_the_old_frontend_s_span(tmp_path):
    """What 0.9.0 has of a request is there."""
    with Traced(tmp_path) as stack:
        stack.fakes_up(ANSWER)
        theirs, ours = stack.reference(version="0.9.0", DYN_LOGGING_JSONL="true"), stack.ours(DYN_LOGGING_JSONL="true")
        stack.ready_at(theirs), stack.ready_at(ours)
        headers = {"x-request-id": "mine", "x-dynamo-request-id": "7b1a7d4e-4a57-4a5e-9d2a-111111111111"}
        expected, made = [stack.whole(stack.ask(port, *ANSWERS["chat"], **headers)[0], n=n)
                          for port, n in ((theirs, 0), (ours, 1))]
        expected, = [span for span in expected if span.name == "http-request"]
        made, = [span for span in made if span.name == "http-request"]
        assert (made.kind, made.parent, made.status) == (expected.kind, expected.parent, expected.status)
        for key, value in expected.attributes.items():
            assert key.startswith(CODE) or key == "trace_id" or made.attributes[key] == value


@pytest.mark.parametrize("env", [
    {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "GRPC/ignored", "OTEL_EXPORTER_OTLP_TRACES_HEADERS": "authorization=Basic%20x,b=c"},
    {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": None, "OTEL_EXPORTER_OTLP_ENDPOINT": "GRPC", "OTEL_SERVICE_NAME": "mine",
     "OTEL_EXPORTER_OTLP_HEADERS": "b=d"},
    {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "HTTP/as/it/is", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf",
     "OTEL_EXPORTER_OTLP_HEADERS": "b=d", "OTEL_EXPORTER_OTLP_TRACES_HEADERS": "e=f"},
    {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": None, "OTEL_EXPORTER_OTLP_ENDPOINT": "HTTP/base/",
     "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf", "OTEL_EXPORTER_OTLP_HEADERS": "b=d"},
], ids=["grpc", "grpc, all signals", "http", "http, all signals"])
def test_where_they_go(tmp_path, env):
    """By either protocol, with the headers and below the name that the environment says."""
    with Traced(tmp_path) as stack:
        stack.fakes_up(ANSWER)
        to = {"GRPC": stack.endpoint, "HTTP": f"http://127.0.0.1:{stack.collector.http_port}"}
        env = {name: value and value.replace(value[:4], to.get(value[:4], value[:4]), 1) for name, value in env.items()}
        seen = []
        for make in (stack.reference, stack.ours):
            port = make(**env)
            stack.ready_at(port)
            stack.collector.clear()
            trace, _ = stack.ask(port, *ANSWERS["chat"])
            spans = stack.whole(trace)
            how, metadata, _ = stack.collector.calls[-1]
            seen.append((how, {name: metadata.get(name) for name in ("authorization", "b", "e", "content-type")},
                         spans[0].resource, spans[0].scope))
            stack.processes[-1].stop(60)
        assert seen[0] == seen[1]


# Trace ids on both sides of a half, and parents of both minds.
SAMPLED = [(f"{'1' * 16}{low}{'0' * 14}", flags) for low in ("01", "7f", "80", "ff") for flags in ("00", "01")]


@pytest.mark.parametrize("env", [
    {}, {"OTEL_TRACES_SAMPLER": "always_on"}, {"OTEL_TRACES_SAMPLER": "always_off"},
    {"OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0.5"},
    {"OTEL_TRACES_SAMPLER": "parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0.0"},
    {"OTEL_TRACES_SAMPLE_RATIO": "0.5", "OTEL_TRACES_SAMPLER": "always_off"},
    {"OTEL_TRACES_SAMPLER": "nonsense"},
], ids=str)
def test_samplers(tmp_path, env):
    """Workers are told whether a trace is sampled, and what is not does not arrive."""
    with Traced(tmp_path) as stack:
        stack.fakes_up(ANSWER)
        decided = []
        for make in (stack.reference, stack.ours):
            port = make(**env)
            stack.ready_at(port)
            told = {}
            for trace, flags in SAMPLED:
                stack.ask(port, *ANSWERS["chat"], flags=flags, trace=trace)
                told[trace, flags] = stack.fakes[0].headers[-1]["traceparent"][-2:]
            decided.append(told)
        assert decided[0] == decided[1]
        sampled = [trace for (trace, _), flag in decided[1].items() if flag == "01"]
        until("what is sampled", lambda: all(len(stack.spans(trace)) >= 2 for trace in sampled))
        assert not [span for span in stack.collector.spans if span.trace in {t for t, _ in SAMPLED} - set(sampled)]


def test_spans_are_sent_before_the_end(tmp_path):
    with Traced(tmp_path) as stack:
        stack.workers_up()
        port = stack.ours(OTEL_BSP_SCHEDULE_DELAY=3600000)
        stack.ready(1)
        trace, _ = stack.ask(port, *ANSWERS["chat"])
        assert not stack.collector.spans
        assert stack.front.stop() == 0
        assert {span.name for span in stack.spans(trace)} == {"http-request", "router.route_request"}
        stack.port = None


def test_a_collector_that_is_away_or_slow(tmp_path):
    """Requests are answered all the same; what is lost is counted, and later spans arrive."""
    with Traced(tmp_path) as stack:
        stack.workers_up()
        stack.collector.fails = grpc.StatusCode.UNAVAILABLE
        port = stack.ours(OTEL_BSP_MAX_QUEUE_SIZE=8, OTEL_BSP_MAX_EXPORT_BATCH_SIZE=4)
        stack.ready(1)
        for _ in range(8):
            assert stack.ask(port, *ANSWERS["chat"])[1] == 200
        until("some are dropped", lambda: stack.metric("commutator_spans_total", outcome="dropped"))
        until("some are given up", lambda: stack.metric("commutator_spans_total", outcome="failed"))
        assert stack.front.log().count("commutator::spans") == 2  # that it is enabled, and what is wrong
        stack.collector.fails = None
        def one_arrives():
            trace, _ = stack.ask(port, *ANSWERS["chat"])
            return stack.metric("commutator_spans_total", outcome="sent")
        until("spans are sent again", one_arrives)


def test_nothing_is_exported_unasked(tmp_path):
    with Traced(tmp_path) as stack:
        stack.workers_up()
        port = stack.ours(OTEL_EXPORT_ENABLED=None, DYN_LOGGING_JSONL="true")
        stack.ready(1)
        assert stack.ask(port, *ANSWERS["chat"])[1] == 200
        assert stack.metric("commutator_spans_total") is None
        assert stack.front.stop() == 0
        assert not stack.collector.calls
        stack.port = None
