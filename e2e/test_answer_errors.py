# SPDX-License-Identifier: Apache-2.0
"""Answers that fail: before, between and behind their tokens, beside the frontend of the workers' generation, 0.9.0 or
1.6.1. The words are ours in each: the worker's, where it has any."""

import json
import re

import pytest

import fake_worker
from stack import CHAT, COMPLETIONS, MODEL, RESPONSES, until
from test_answer_shapes import CALL, COUNTED, FUNCTION, RELEASES, ask, fronts, id_items, of_release, responded, text_items
from test_openai_interop import NEWEST, Rig

TOKENS = id_items([300], [301])[:-1]
WHOLE = id_items([300])
ERROR = {"event": "error", "comment": ["out of memory"]}
NAMED = {status: {"event": "error", "comment": [json.dumps({"message": "why", "code": status})]} for status in (400, 429, 503)}
ENDS_IN_ERROR = {"token_ids": [], "finish_reason": {"error": "out of memory"}}
STREAM, FOLDED = {"stream": True}, {"stream": False}


@pytest.fixture
def rig(tmp_path):
    with Rig(tmp_path) as rig:
        yield rig


class Case:
    def __init__(self, rig, release, *parsers):
        self.rig = rig.start(*parsers, change=of_release(release))
        self.fronts, self.answers = fronts(rig, release), rig.worker.behaviour

    def each(self, items=(), error=None, behaviour=None):
        """Theirs and ours, of whose worker that will be the answer. One that broke off is asked again first."""
        for front in self.fronts:
            self.says(WHOLE)
            until("the worker is asked again", front.serves)
            self.says(list(items), error, behaviour)
            yield front

    def ask(self, api, more, **said):
        """(status, events or body) of theirs and of ours."""
        told = [ask(front, api, more) for front in self.each(**said)]
        return [(status, text.split("\n\n")) for status, text in told]

    def says(self, items, error=None, behaviour=None):
        self.rig.say, self.rig.worker.error, self.rig.worker.behaviour = items, error, behaviour or self.answers


def without_words(events):
    """0.9.0 tells an error in a comment; ours also in data, for SDKs."""
    text = "\n\n".join(events)
    text = re.sub(r"event: error\n: [^\n]*(\ndata: [^\n]*)?", "event: error", text)
    return re.sub(r'"message":"[^"]*"', '"message":""', text).split("\n\n")


@pytest.mark.parametrize("release", RELEASES)
def test_behind_tokens(rig, release):
    """What was said is told, and then that it failed."""
    case = Case(rig, release)
    failures = [({"items": TOKENS, "error": ERROR}, 500), ({"items": WHOLE, "error": ERROR}, 500)]
    if release == NEWEST:  # 0.9.0 dies of the lines of a backtrace in its words and closes the connection
        failures.append(({"behaviour": fake_worker.BREAK_AFTER_TOKENS}, 503))
    for api in (CHAT, COMPLETIONS):
        for more, status in failures:
            (_, want), (_, got) = case.ask(api, STREAM, **more)
            assert without_words(got) == without_words(want), (api, more)
            assert len(got) == 4 and "error" in got[2] and got[3] == "data: [DONE]"
            assert [status for status, _ in case.ask(api, FOLDED, **more)] == [status] * 2, (api, more)


@pytest.mark.parametrize("release", RELEASES)
def test_instead_of_tokens(rig, release):
    """A status, and the worker's own where it names one: clients and gateways see it, and may try again. A stream of the
    reference has begun by then, and says 200 and an error. 0.9.0 folds completions with a status of its own."""
    case = Case(rig, release)
    for api in (CHAT, COMPLETIONS):
        for error, status in ((ERROR, 500), (NAMED[400], 400), (NAMED[503], 503)):
            (want_status, want), (got_status, got) = case.ask(api, STREAM, error=error)
            assert want_status == 200 and "error" in want[0] and want[1] == "data: [DONE]", want
            assert got_status == status and json.loads(got[0])["code"] == status
            theirs, ours = (status for status, _ in case.ask(api, FOLDED, error=error))
            assert (theirs, ours) == (500 if (release, api) == ("0.9.0", COMPLETIONS) else status, status), (api, error)


@pytest.mark.parametrize("release", RELEASES)
def test_generation_that_does_not_begin(rig, release):
    case = Case(rig, release)
    for api in (CHAT, COMPLETIONS):
        for more in (STREAM, FOLDED):
            (want, _), (got, _) = case.ask(api, more, behaviour=fake_worker.PROLOGUE_ERROR)
            assert want == got == (503 if release == NEWEST else 500)


@pytest.mark.parametrize("release", RELEASES)
def test_errors_that_look_like_ends(rig, release):
    """The reference calls these finished: 0.9.0 completions whose finish reason is an error, either release an answer
    without an item. Ours never does."""
    case = Case(rig, release)
    for api in (CHAT, COMPLETIONS):
        (want, said), (got, told) = case.ask(api, FOLDED, items=[*TOKENS, ENDS_IN_ERROR])
        assert (want, got) == (200 if (release, api) == ("0.9.0", COMPLETIONS) else 500, 500), (said, told)
        (_, want), (_, got) = case.ask(api, STREAM, items=[*TOKENS, ENDS_IN_ERROR])
        assert "error" in got[-2] and "finish_reason\":\"" not in "".join(got) and got[-1] == "data: [DONE]"
        assert ("error" in "".join(want)) == ((release, api) != ("0.9.0", COMPLETIONS))
        (want_status, want), (got, _) = case.ask(api, STREAM, behaviour=fake_worker.NO_ITEMS)
        assert (want_status, want, got) == (200, ["data: [DONE]"], 500)


def cut(*texts):
    """Of an answer that has not ended."""
    return text_items(*texts, "")[:-1]


TOOLS = {"tools": FUNCTION}
FAIL = [  # what the worker says, and what is asked
    *(({"items": cut(*texts), "error": ERROR}, {}) for texts in (["he", "llo"], ["<think>hm"], ["<think>hm</think>", "yes"])),
    *(({"items": cut(*texts), "error": ERROR}, TOOLS) for texts in ([CALL, ""], ["hi ", CALL, " so"], [CALL, " so", CALL, ""])),
    *(({"items": cut("he", "llo"), "error": error}, {}) for error in NAMED.values()),
    ({"items": cut("he", "llo"), "error": ERROR}, {"max_output_tokens": 7, "nvext": {"extra_fields": ["worker_id", "timing"]}}),
    *(({"items": text_items("he", "llo", finish=finish), "error": ERROR}, {}) for finish in ("stop", "length", "content_filter")),
    ({"items": text_items("he", "llo", completion_usage={**COUNTED, "prompt_tokens_details": {"cached_tokens": 3}}), "error": ERROR}, {}),
    ({"behaviour": fake_worker.BREAK_AFTER_TOKENS}, {}),
]
FAIL_USED = [  # usage differs: of what had ended, and of that alone, ours tells it
    *(({"items": text_items(*texts), "error": ERROR}, TOOLS) for texts in (["hi ", "x"], [CALL, ""], ["hi ", CALL, "", " x"], [CALL, " so", CALL, ""])),
    ({"items": [*cut("he", "llo"), ENDS_IN_ERROR]}, {}),
]


def test_responses_behind_tokens(rig):
    """Their last event says it, and all that was begun is closed before."""
    case = Case(rig, NEWEST, "hermes", "qwen3")
    differ = []
    for said, more in FAIL + FAIL_USED:
        asked = {"input": "x", **more, **STREAM}
        want, got = (responded(front, asked) for front in case.each(**said))
        (their_name, theirs), (name, ours) = (events[-1] for _, events, _ in (want, got))
        assert name == their_name == "response.failed", (said, more, want, got)
        words = ours["response"]["error"].pop("message"), theirs["response"]["error"].pop("message")
        assert words[0] in ("out of memory", "why", "Stream ended before generation completed"), words
        if (said, more) in FAIL_USED:
            ended = "error" in said
            assert [bool(last["response"].pop("usage")) for last in (ours, theirs)] == [ended, not ended]
        if got != want:
            differ.append((said, more, want, got))
    assert not differ, "\n".join("\n".join(map(str, case)) for case in differ)


def test_responses_instead_of_tokens(rig):
    """As of a chat: a status, where a stream of 1.6.1 has begun."""
    case = Case(rig, NEWEST)
    for error, status in ((ERROR, 500), (NAMED[400], 400), (NAMED[503], 503)):
        (want_status, events, _), (got_status, body) = (responded(front, {"input": "x", **STREAM}) for front in case.each(error=error))
        assert want_status == 200 and [name for name, _ in events][2:] == ["response.failed"]
        assert got_status == body["code"] == status
        told = [responded(front, {"input": "x", **FOLDED}) for front in case.each(error=error)]
        assert [status for status, _ in told] == [status] * 2, told


GOOD = {CHAT: {"messages": [{"role": "user", "content": "x"}]}, COMPLETIONS: {"prompt": "x"}, RESPONSES: {"input": "x"}}
WRONG = ({"model": "nope"}, {"model": ""}, {"temperature": 3}, {"temperature": 3, "stream": True}, {"temperature": "a"}, {"foo": 1}, {"n": 0},
         {"functions": []}, {"previous_response_id": "r"}, {"best_of": 2}, {"background": True})
NOT_READ = ("{", "{}", "[]", json.dumps({"model": MODEL}), json.dumps(GOOD[CHAT]))


def refused(front):
    """{labels: how many}."""
    lines = re.findall(r'^dynamo_frontend_requests_total{(.*status="error".*)} (\S+)$', front.ask("/metrics", None)[1], re.M)
    return {tuple(sorted(labels.split(","))): float(value) for labels, value in lines}


def test_refusals_are_counted(rig):
    """As 1.6.1 does, and not what is no request. 0.9.0 counts none."""
    case = Case(rig, NEWEST)
    case.says(WHOLE)
    before = [refused(front) for front in case.fronts]
    for api, good in GOOD.items():
        for text in (*(json.dumps({"model": MODEL, **good, **wrong}) for wrong in WRONG), *NOT_READ):
            theirs, ours = (front.ask_text(api, text) for front in case.fronts)
            assert theirs == ours, (api, text)
    counts = lambda: [{labels: n - was.get(labels, 0) for labels, n in refused(front).items() if n != was.get(labels)}
                      for front, was in zip(case.fronts, before)]
    until("all are counted", lambda: counts()[0] == counts()[1] != {})
    words = {label.split('"')[1] for labels in counts()[1] for label in labels if label.startswith("error_type")}
    assert words == {"not_found", "validation", "not_implemented"}
