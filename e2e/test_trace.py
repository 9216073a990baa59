# SPDX-License-Identifier: Apache-2.0
"""What workers and the log are told of a request's trace: as by the reference's frontends, which are asked the same."""

import http.client
import json

import pytest

from conftest import free_port, reference_python
from fake_worker import ANSWER, FakeWorker, HttpWorker, NatsWorker
from stack import CHAT, MODEL, Stack, until

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
PARENT = f"00-{TRACE}-{SPAN}-01"
UUID = "7b1a7d4e-4a57-4a5e-9d2a-111111111111"
# What both generations make alike of what a client sends.
ALIKE = {
    "nothing": {},
    "all": {"traceparent": PARENT, "tracestate": "a=1,b=2", "x-request-id": "mine", "x-dynamo-request-id": UUID},
    "request id": {"x-request-id": 'q"u\\o te'},
    "no uuid": {"x-dynamo-request-id": "hello"},
    "tracestate alone": {"tracestate": "a=1"},
    "newer version": {"traceparent": "cc" + PARENT[2:]},
    "too long": {"traceparent": PARENT + "-what"},
    "not hexadecimal": {"traceparent": PARENT.replace("0af7", "zzf7")},
}
# What 1.6.1, which follows W3C, makes of more; 0.9.0 takes some of it.
STRICT = {
    "unsampled": {"traceparent": PARENT[:-2] + "00"},
    "version ff": {"traceparent": "ff" + PARENT[2:]},
    "newer, longer": {"traceparent": "cc" + PARENT[2:] + "-what"},
    "no trace": {"traceparent": f"00-{'0' * 32}-{SPAN}-01"},
    "no span": {"traceparent": f"00-{TRACE}-{'0' * 16}-01"},
    "upper case": {"traceparent": PARENT.upper()},
    "short": {"traceparent": "00-0af7-b7ad-01"},
    "no flags": {"traceparent": PARENT[:-3]},
    "flags that are no number": {"traceparent": PARENT[:-2] + "zz"},
    "unknown flags": {"traceparent": PARENT[:-2] + "ff"},
    "flag of version 2": {"traceparent": PARENT[:-2] + "02"},
    "garbage": {"traceparent": "garbage"},
}
NAMES = ("traceparent", "tracestate", "x-request-id", "x-dynamo-request-id", "request-id")


class Traced(Stack):
    """Frontends before one worker that remembers what it is told."""

    def __init__(self, folder, plane):
        super().__init__(folder)
        self.start_nats("-js")
        mocker = self.mocker("--no-enable-local-indexer")
        until("records", lambda: all(list((self.kv / "v1" / bucket).glob("*")) for bucket in ("mdc", "instances")))
        made = {"tcp": FakeWorker, "http": HttpWorker, "nats": NatsWorker}[plane]
        self.fake = made(self.kv, ANSWER, **({"nats_port": self.nats_port} if plane == "nats" else {}))
        mocker.stop()

    def __exit__(self, *what):
        try:
            super().__exit__(*what)
        finally:
            self.fake.close()

    def ours(self, **env):
        front = self.frontend(DYN_LOG="debug", **env)
        until("our frontend answers", lambda: self.answers(self.port))
        return front, self.port

    def reference(self, version, plane, **env):
        port, old = free_port(), version.startswith("0.")
        front = self.start("reference-frontend", [
            reference_python(version), "-m", "dynamo.frontend", "--store-kv" if old else "--discovery-backend", "file",
            "--request-plane", plane, "--http-host", "127.0.0.1", "--http-port", port],
            HF_HUB_OFFLINE="1", PYTHONUNBUFFERED="1", DYN_EVENT_PLANE="nats", DYN_SDK_DISABLE_ANSI_LOGGING="1", **env)
        until("the reference's frontend answers", lambda: front.alive() and self.answers(port))
        return front, port

    def answers(self, port):
        try:
            return self.ask(port, {})
        except OSError:
            return None

    def ask(self, port, headers):
        """What the worker was told, and the id of the answer; None when there is none."""
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        try:
            body = {"model": MODEL, "messages": [{"role": "user", "content": "x"}], "max_tokens": 3}
            connection.request("POST", CHAT, json.dumps(body), {"content-type": "application/json", **headers})
            answer = connection.getresponse()
            text = answer.read()
        finally:
            connection.close()
        if answer.status != 200:
            return None
        told = {name: value for name, value in self.fake.headers[-1].items() if name in NAMES}
        return told, json.loads(text)["id"].split("-", 1)[1]


def plain(told, id):
    """Without what is drawn anew each time."""
    kept = dict(told)
    if "request-id" in kept:
        assert kept.pop("request-id") == id
    if "traceparent" in kept:
        version, trace, span, flags = kept["traceparent"].split("-")
        assert version == "00" and len(trace) == 32 and len(span) == 16 and span != SPAN, kept
        kept["traceparent"] = ("the client's" if trace == TRACE else "new", flags)
    return kept


@pytest.mark.parametrize("version, plane", [("0.9.0", "tcp"), ("0.9.0", "nats"), ("0.9.0", "http"), ("1.6.1", "tcp"),
                                            ("1.6.1", "nats")])
def test_workers_are_told_of_the_trace_as_by_the_reference(tmp_path, version, plane):
    with Traced(tmp_path, plane) as stack:
        _, theirs = stack.reference(version, plane, DYN_LOGGING_JSONL="true")
        _, ours = stack.ours(DYN_LOGGING_JSONL="true")
        for name, headers in {**ALIKE, **({} if version == "0.9.0" else STRICT)}.items():
            expected, told = plain(*stack.ask(theirs, headers)), plain(*stack.ask(ours, headers))
            # We also hand on what W3C wants to be handed on, and to each generation what the other one gets.
            if name == "all":
                assert told.pop("tracestate") == "a=1,b=2"
                assert told.pop("x-dynamo-request-id") == UUID == expected.pop("x-dynamo-request-id", UUID)
            assert told == expected, name


def test_the_log_names_the_trace(tmp_path):
    """Lines of a request have the reference's fields, and worker and log know the same ids."""
    headers = {"traceparent": PARENT, "x-request-id": "mine"}
    with Traced(tmp_path, "tcp") as stack:
        fields = {}
        for name, (front, port) in {"theirs": stack.reference("1.6.1", "tcp", DYN_LOGGING_JSONL="true"),
                                    "ours": stack.ours(DYN_LOGGING_JSONL="true")}.items():
            told, id = stack.ask(port, headers)
            span = told["traceparent"].split("-")[2]

            def told_of():
                """Its lines, when those of its end and of the worker's span are among them."""
                found = [json.loads(line) for line in front.log_lines() if id in line and line.startswith("{")]
                found = [line for line in found if line.get("request_id") == id]
                seen = {line.get(key) for line in found for key in ("span_id", "parent_id")}
                return {span, SPAN} <= seen and found
            lines = until(f"{name} logs the request", told_of)
            for line in lines:
                assert (line["trace_id"], line["x_request_id"]) == (TRACE, "mine"), line
                assert len(line["span_id"]) == 16 and line["span_id"] != SPAN
            fields[name] = {key for line in lines for key in line
                            if key in ("trace_id", "span_id", "parent_id", "x_request_id")}
        assert fields["ours"] == fields["theirs"]


def test_without_a_record_what_the_client_sent_is_handed_on(tmp_path):
    """The reference hands on nothing then; what it cannot read, nobody hands on."""
    with Traced(tmp_path, "tcp") as stack:
        front, port = stack.ours()
        told, id = stack.ask(port, ALIKE["all"])
        assert told.pop("request-id") == id == UUID
        assert told == ALIKE["all"]
        for name in ("nothing", "tracestate alone", "too long"):
            told, id = stack.ask(port, ALIKE[name])
            assert told == {"request-id": id}, name
        assert "trace_id" not in front.log()


def test_export_alone_records_as_well(tmp_path):
    with Traced(tmp_path, "tcp") as stack:
        _, theirs = stack.reference("1.6.1", "tcp", OTEL_EXPORT_ENABLED="true",
                                    OTEL_EXPORTER_OTLP_TRACES_ENDPOINT="http://127.0.0.1:9")
        _, ours = stack.ours(OTEL_EXPORT_ENABLED="true")
        for port in (theirs, ours):
            assert plain(*stack.ask(port, {})) == {"traceparent": ("new", "01")}
