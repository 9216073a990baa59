# SPDX-License-Identifier: Apache-2.0
"""Variables that change what the frontend serves, beside the reference's frontend with the same ones."""

import http.client
import json
import re

import pytest

import fake_worker
from conftest import program, run
from stack import CHAT, COMPLETIONS, MODEL, until
from test_answer_shapes import RELEASES, id_items, of_release
from test_openai_interop import NEWEST, Rig

HELLO = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 5}
PATHS = {"CHAT": "/a/chat", "CMP": "/a/complete", "EMB": "/a/embed", "RESPONSES": "/a/respond", "MODELS": "/a/models",
         "HEALTH": "/a/health", "LIVE": "/a/live", "METRICS": "/a/metrics", "ANTHROPIC": "/a/messages"}
# Families, by the variable of their bounds.
FAMILIES = {"TTFT": ["time_to_first_token_seconds"], "ITL": ["inter_token_latency_seconds"],
            "INPUT_SEQUENCE": ["input_sequence_tokens"], "OUTPUT_SEQUENCE": ["output_sequence_tokens"],
            "REQUEST_DURATION": ["request_duration_seconds"]}


@pytest.fixture
def rig(tmp_path):
    with Rig(tmp_path) as rig:
        yield rig


class Pair:
    """A frontend of that release and ours, with the same variables, in front of the same worker."""

    def __init__(self, rig, release, completions=COMPLETIONS, **env):
        rig.start(change=of_release(release))
        rig.say = id_items([300], [301])
        rig.ready = lambda front: front
        self.fronts = rig.reference(release, **env), rig.ours(**env)
        body = {"model": MODEL, "prompt": "x", "max_tokens": 1}
        for front in self.fronts:
            until("it serves the model", lambda: self.status(front, completions, body) == 200)

    @staticmethod
    def status(front, path, body=None):
        try:
            return front.ask(path, body)[0]
        except OSError:
            return None

    def ask(self, path, body=None, headers=()):
        """[(status, text)] of theirs and of ours."""
        return [front.ask(path, body and {"model": MODEL, **body}, headers) for front in self.fronts]


@pytest.mark.parametrize("release", RELEASES)
def test_paths(rig, release):
    pair = Pair(rig, release, PATHS["CMP"], **{f"DYN_HTTP_SVC_{name}_PATH": path for name, path in PATHS.items()},
                DYN_ENABLE_ANTHROPIC_API="1")
    said = {"GET": None, "CHAT": HELLO, "EMB": {"model": "none", "input": "x"}, "RESPONSES": {"model": "none", "input": "x"}}
    moved = [("MODELS", ""), ("HEALTH", ""), ("LIVE", ""), ("METRICS", ""), ("CHAT", ""), ("EMB", ""), ("RESPONSES", "")]
    before = [CHAT, COMPLETIONS, "/v1/embeddings", "/v1/responses", "/v1/models", "/health", "/live", "/metrics"]
    if release == NEWEST:
        said.update({"ANTHROPIC": HELLO})
        moved += [("ANTHROPIC", ""), ("ANTHROPIC", "/count_tokens"), ("MODELS", f"/{MODEL}"), ("MODELS", "/none")]
        before += ["/v1/messages", "/v1/messages/count_tokens", f"/v1/models/{MODEL}"]
    for name, below in moved:
        (want, _), (got, text) = pair.ask(PATHS[name] + below, said.get(name))
        assert got == want and got == (404 if name in ("EMB", "RESPONSES") or below == "/none" else 200), (name, below, text)
    for path in before:
        body = None if path.startswith(("/v1/models", "/health", "/live", "/metrics")) else HELLO
        assert [status for status, _ in pair.ask(path, body)] == [404, 404], path


def bounds(text, family):
    return re.findall(rf'^dynamo_frontend_{family}_bucket{{.*le="([^"]*)"', text, re.M)


@pytest.mark.parametrize("release", RELEASES)
def test_bounds_of_histograms(rig, release):
    """0.9.0 has a word more in the names."""
    head = "DYN_METRICS_" if release == NEWEST else "DYN_HISTOGRAM_DYN_METRICS_"
    said = {"TTFT": {"MIN": "0.01", "MAX": "10", "COUNT": "5"}, "ITL": {"MIN": "1e-2", "MAX": "80", "COUNT": "100"},
            "INPUT_SEQUENCE": {"COUNT": "1"}, "OUTPUT_SEQUENCE": {"MAX": "100000", "COUNT": "2"},
            "REQUEST_DURATION": {"MIN": "200", "MAX": "1000"}}
    pair = Pair(rig, release, **{f"{head}{name}_{end}": value for name, ends in said.items() for end, value in ends.items()})
    for status, _ in pair.ask(COMPLETIONS, {"prompt": "x", "max_tokens": 5, "stream": True}):
        assert status == 200
    (_, theirs), (_, ours) = pair.ask("/metrics")
    for families in FAMILIES.values():
        for family in families:
            assert bounds(theirs, family) and bounds(ours, family) == bounds(theirs, family), family


def test_no_admin_api(rig):
    pair = Pair(rig, NEWEST, DYN_DISABLE_FRONTEND_ADMIN_API="yes")
    for body in (None, {"active_decode_blocks_threshold": 0.5}):
        assert [status for status, _ in pair.ask("/busy_threshold", body)] == [404, 404]
    assert [status for status, _ in pair.ask("/v1/models")] == [200, 200]


@pytest.mark.parametrize("name,value", [
    ("DYN_HTTP_SVC_CHAT_PATH", "chat"), ("DYN_HTTP_SVC_CHAT_PATH", "/chat*"), ("DYN_METRICS_TTFT_MIN", "500"),
    ("DYN_METRICS_TTFT_MIN", "0"), ("DYN_METRICS_ITL_MAX", "inf"), ("DYN_METRICS_ITL_COUNT", "0"),
    ("DYN_METRICS_ITL_COUNT", "513")])
def test_refused_at_start(name, value):
    done = run(program("dynamo-frontend"), check=False, env={name: value})
    assert done.returncode not in (0, -6, -11) and re.search(r"DYN_(HTTP_SVC|METRICS)_", done.stderr + done.stdout)


def chunk_keys(text):
    """Which chunks of a stream have choices, and which tell the usage."""
    chunks = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]
    return [(bool(chunk["choices"]), bool(chunk.get("usage"))) for chunk in chunks]


@pytest.mark.parametrize("api", [CHAT, COMPLETIONS])
def test_forced_usage(rig, api):
    pair = Pair(rig, NEWEST, DYN_ENABLE_FORCE_INCLUDE_USAGE="1")
    body = HELLO if api == CHAT else {"prompt": "x", "max_tokens": 5}
    for more in ({}, {"stream_options": {"include_usage": False}}, {"stream_options": {"continuous_usage_stats": True}}):
        (_, want), (_, got) = pair.ask(api, {**body, **more, "stream": True})
        assert chunk_keys(got) == chunk_keys(want) and chunk_keys(got)[-1] == (False, True), more
    # Of several choices 1.6.1 makes one.
    assert chunk_keys(pair.fronts[1].ask(api, {"model": MODEL, **body, "stream": True, "n": 2})[1])[-1] == (False, True)
    for status, text in pair.ask(api, {**body, "stream_options": {"include_usage": True}}):
        assert status == 400, text


SPOKEN = [(CHAT, HELLO), (COMPLETIONS, {"prompt": "x", "max_tokens": 5}), ("/v1/responses", {"input": "x"}),
          ("/v1/messages", HELLO)]
COMMENT = ":\n"


def heard(front, path, body, enough):
    """(status, lines) of a stream, until those are enough; then the client leaves."""
    connection = http.client.HTTPConnection("127.0.0.1", front.port, timeout=60)
    try:
        connection.request("POST", path, json.dumps({"model": MODEL, "stream": True, **body}), {"content-type": "application/json"})
        answer, lines = connection.getresponse(), []
        while not enough(lines) and (line := answer.readline().decode()):
            lines.append(line)
        return answer.status, lines
    finally:
        connection.close()


@pytest.mark.parametrize("path,body", SPOKEN)
def test_signs_of_life(rig, path, body):
    pair = Pair(rig, NEWEST, DYN_HTTP_SSE_KEEP_ALIVE_INTERVAL_MS="50", DYN_ENABLE_ANTHROPIC_API="1")
    for behaviour in fake_worker.SILENT, fake_worker.HANG_AFTER_TOKENS:
        rig.worker.behaviour = behaviour
        for front in pair.fronts:
            status, lines = heard(front, path, body, lambda lines: lines[-6:] == [COMMENT, "\n"] * 3)
            assert status == 200
            if behaviour != fake_worker.SILENT:
                assert any(line.startswith("data: ") for line in lines)


@pytest.mark.parametrize("path,body", SPOKEN)
def test_a_failure_after_a_sign_of_life_is_an_event(rig, path, body):
    rig.start(change=of_release(NEWEST))
    front = rig.ours(DYN_HTTP_SSE_KEEP_ALIVE_INTERVAL_MS="50", DYN_ENABLE_ANTHROPIC_API="1", COMMUTATOR_FIRST_TOKEN_TIMEOUT="1")
    rig.worker.behaviour = fake_worker.SILENT
    for more in ({}, {"n": 2}) if path in (CHAT, COMPLETIONS) else ({},):
        status, lines = heard(front, path, {**body, **more}, lambda lines: False)
        assert status == 200 and lines[:2] == [COMMENT, "\n"]
        assert any("error" in line or "failed" in line for line in lines), lines


UNKNOWN = [{"foo": 1}, {"foo": {"bar": [None]}, "guided_jsonx": 5}, {"messages_": []}]
STILL_WRONG = [{"temperature": 17}, {"functions": []}, {"function_call": "auto"}, {"stop": [1.5]}]


def test_unknown_members_are_passed_over(rig):
    pair = Pair(rig, NEWEST, DYN_IGNORE_OPENAI_FE_UNSUPPORTED_FIELDS="1")
    for more, right in [(more, True) for more in UNKNOWN] + [(more, False) for more in STILL_WRONG]:
        statuses = [status for status, _ in pair.ask(CHAT, {**HELLO, **more})]
        assert len(set(statuses)) == 1 and (statuses[0] == 200) == right, (more, statuses)
    assert [status for status, _ in pair.ask(COMPLETIONS, {"prompt": "x", "foo": 1, "tools": 3})] == [200, 200]


@pytest.mark.parametrize("begins", [False, True])
def test_silent_workers(rig, begins):
    """A worker that goes on being connected and says nothing is given up."""
    pair = Pair(rig, NEWEST, DYN_HTTP_BACKEND_STREAM_TIMEOUT_SECS="1")
    for front in pair.fronts:
        rig.worker.behaviour = fake_worker.HANG_AFTER_TOKENS if begins else fake_worker.SILENT
        status, text = front.ask(COMPLETIONS, {"model": MODEL, "prompt": "x", "max_tokens": 50})
        assert status >= 500, text


def said(value):
    """Without members that say nothing."""
    if isinstance(value, dict):
        return {key: said(member) for key, member in value.items() if said(member)} or None
    return value or None


STEERING = [
    ({"nvext": {"backend_instance_id": 999}}, {}), ({"\\u006evext": {"backend_instance_id": 999}}, {}),
    ({}, {"x-dynamo-worker-instance-id": "999"}), ({}, {"x-worker-instance-id": "999"}),
    ({"nvext": {"greed_sampling": True, "token_data": [1, 2, 3], "agent_hints": {"priority": 3}, "cache_salt": "s"}}, {}),
    ({}, {"x-tenant-id": "tenant", "x-dynamo-request-priority": "5"}), ({}, {"x-dynamo-request-priority": "high"}),
    ({"nvext": {"annotations": ["query_instance_id:", "request_id"], "extra_fields": ["worker_id", "timing"]}}, {}),
    ({"nvext": {"annotations": ["request_id"], "extra_fields": ["worker_id"]}, "stream": True}, {})]


def test_clients_do_not_steer(rig):
    """Only the salt is still theirs: without it they would share caches. Workers are asked for the same."""
    pair = Pair(rig, NEWEST, DYN_DISABLE_FRONTEND_NVEXT="1")
    for more, headers in STEERING:
        for path, body in ((CHAT, HELLO), (COMPLETIONS, {"prompt": "x", "max_tokens": 5})):
            seen = []
            for front in pair.fronts:
                n = len(rig.worker.bodies)
                text = json.dumps({"model": MODEL, **body, **more}).replace("\\\\", "\\")
                status, answer = front.ask(path, text, headers)
                asked = rig.worker.bodies[n:]
                assert status == 200 and len(asked) == 1, (more, headers, answer)
                assert "nvext" not in answer and "event:" not in answer
                seen.append({key: said(asked[0].get(key)) for key in (
                    "token_ids", "sampling_options", "stop_conditions", "annotations", "extra_args", "routing")})
            assert seen[1] == seen[0], (more, headers)
    assert [status for status, _ in pair.ask(CHAT, {**HELLO, "nvext": 7})] == [400, 400]
