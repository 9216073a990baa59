# SPDX-License-Identifier: Apache-2.0
"""Workers that are lost in the middle of an answer: another one goes on, and the client sees one answer."""

import json
import threading

import pytest

import fake_worker
from fake_worker import FakeWorker
from stack import MODEL, PATIENCE, SOON, Stack, decisions_of, until, words

N = 24  # tokens of an answer


@pytest.fixture
def stack(tmp_path):
    with Stack(tmp_path, events=False) as stack:
        yield stack


def migrations(stack, kind="ongoing_request"):
    return stack.metric("dynamo_frontend_model_migration_total", model=MODEL, migration_type=kind) or 0


def ask(stack, stream=True, **more):
    more = {"stream_options": {"include_usage": True}, **more} if stream else more
    return stack.chat(max_tokens=N, ignore_eos=True, stream=stream, **more)


def check_whole(answer, n=N):
    """One answer without a trace of what happened."""
    assert answer.usage["completion_tokens"] == n
    if "event-stream" in answer.headers["content-type"]:
        assert not any(event for event, _ in answer.events) and answer.events[-1] == (None, "[DONE]")
        finishes = [c["finish_reason"] for chunk in answer.chunks for c in chunk["choices"] if c.get("finish_reason")]
        assert finishes == ["length"]
    else:
        assert answer.json["choices"][0]["finish_reason"] == "length"


# --- real mockers, killed ---

SLOW = 0.02  # the speed of a worker that takes a minute for an answer


@pytest.mark.parametrize("plane", ["tcp", "nats", "http"])
@pytest.mark.parametrize("limit_of", ["flag", "card"])
def test_a_killed_worker(stack, limit_of, plane):
    """kill -9 in the middle of streams: each is whole, whoever ran it; bookings follow."""
    if plane == "nats":
        stack.start_nats()
    flags = ("--migration-limit", 1) if limit_of == "card" else ()
    worker = lambda speed: stack.mocker(*flags, speedup=speed, DYN_REQUEST_PLANE=plane, DYN_HTTP_RPC_PORT=0)
    slow = worker(SLOW)
    stack.frontend("--router-mode", "kv", **({"DYN_MIGRATION_LIMIT": 1} if limit_of == "flag" else {}))
    stack.ready(1)
    (lost,) = stack.instances()
    streams = []

    def begin(n):
        for _ in range(n):
            streams.append(stack.stream(words(100, len(streams)), max_tokens=200, ignore_eos=True,
                                        stream_options={"include_usage": True}))
    begin(2)
    worker(50)
    stack.ready(2)
    begin(4)
    heads = [next(stream.events) for stream in streams]
    with_it = [decision.selected["worker"] for decision in decisions_of(stack.front.log()).values()].count(lost)
    slow.kill()
    for head, stream in zip(heads, streams):
        events = [head, *stream.events]
        assert not any(event for event, _ in events), events
        chunks = [json.loads(data) for _, data in events[:-1]]
        assert chunks[-1]["usage"]["completion_tokens"] == 200 and events[-1][1] == "[DONE]"
        assert sum(bool(c["delta"].get("content")) for chunk in chunks for c in chunk["choices"]) <= 201
    assert migrations(stack) == with_it >= 2
    assert stack.metric("dynamo_frontend_requests_total", status="success") == 6


def test_a_unary_answer(stack):
    slow, _ = stack.mocker(speedup=SLOW), stack.mocker()
    stack.frontend("--router-mode", "round-robin", "--migration-limit", 3)
    stack.ready(2)
    answers = []
    threads = [threading.Thread(target=lambda: answers.append(stack.chat(max_tokens=200, ignore_eos=True)))
               for _ in range(4)]
    for thread in threads:
        thread.start()
    until("each has a worker", lambda: sum(stack.decisions().values()) == 4)
    until("half is whole, and tokens of the rest flow",
          lambda: (stack.metric("dynamo_frontend_output_tokens_total", model=MODEL) or 0) > 2 * 200)
    slow.kill()
    for thread in threads:
        thread.join()
    assert len(answers) == 4 and all(a.usage["completion_tokens"] == 200 for a in answers)
    assert migrations(stack) >= 1


# --- a worker whose words depend on their place: the text can be compared ---

@pytest.fixture
def tellers(stack):
    """tellers(*flags): two of them, and no other worker; the mocker has lent its card and left."""
    made = []

    def start(*flags, **env):
        mocker = stack.mocker()
        stack.frontend("--router-mode", "round-robin", *flags, **env)
        stack.ready(1)
        made.extend(FakeWorker(stack.kv, fake_worker.STORY, worker_id) for worker_id in (0xaaa1, 0xaaa2))
        until("they are known", lambda: stack.workers() == 3)
        mocker.stop()
        until("they are alone", lambda: stack.workers() == 2)
        return made
    yield start
    for fake in made:
        fake.close()


def bodies(fakes):
    return [body for fake in fakes for body in fake.bodies]


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("breaks", [1, 2])
def test_text_and_usage_are_those_of_an_unbroken_answer(stack, tellers, stream, breaks):
    fakes = tellers("--migration-limit", 2)
    whole = ask(stack, stream)
    check_whole(whole)
    prompt = len(bodies(fakes)[0]["token_ids"])
    assert whole.usage["prompt_tokens"] == prompt
    before = len(bodies(fakes))
    places = [prompt + 5, prompt + 11][:breaks]
    for fake in fakes:
        fake.bodies.clear()
        fake.break_at = places  # of both: who gets there first breaks
    answer = ask(stack, stream)
    check_whole(answer)
    assert before == 1 and answer.text == whole.text and answer.usage == whole.usage
    assert migrations(stack) == breaks
    asked = sorted(bodies(fakes), key=lambda body: len(body["token_ids"]))
    assert [len(body["token_ids"]) - prompt for body in asked] == [0, 5, 11][:breaks + 1]
    for body in asked:  # what was said is part of the prompt, and the limit is lower by it
        said = body["token_ids"][prompt:]
        assert said == [400 + (prompt + i) % 97 for i in range(len(said))]
        assert body["stop_conditions"]["max_tokens"] == N - len(said)


def test_how_long_it_took_is_told(stack, tellers):
    """By the reference's name, once per loss, however many workers failed on the way; what came of it too."""
    name = "dynamo_frontend_model_migration_duration_seconds_count"
    fakes = tellers("--migration-limit", "1")
    prompt = ask(stack).usage["prompt_tokens"]
    for fake in fakes:
        fake.break_at = [prompt + 5]
    fakes[1].break_at = fakes[0].break_at
    check_whole(ask(stack))
    told = lambda outcome: stack.metric(name, model=MODEL, migration_type="ongoing_request", outcome=outcome)
    assert told("success") == 1 and told("failure") is None
    fakes[0].break_at, fakes[0].after_break = [prompt + 5], fake_worker.ACK_ERROR
    fakes[1].break_at, fakes[1].after_break = [prompt + 5], fake_worker.ACK_ERROR
    assert [event for event, _ in ask(stack).events if event] == ["error"]
    assert told("success") == 1 and told("failure") == 1
    assert stack.metric("dynamo_frontend_requests_total", error_type="unavailable") == 1
    assert stack.metric("dynamo_frontend_requests_started_total", model=MODEL, request_type="stream") == 3
    assert stack.metric("dynamo_frontend_active_requests") == 0


def test_the_last_word_only_was_missing(stack, tellers):
    """Lost between its last token and its farewell: nothing is left to ask for."""
    fakes = tellers("--migration-limit", 1)
    whole = ask(stack)
    prompt = whole.usage["prompt_tokens"]
    for fake in fakes:
        fake.bodies.clear()
        fake.break_at = [prompt + N]
    answer = ask(stack)
    check_whole(answer)
    assert answer.text == whole.text and len(bodies(fakes)) == 1
    assert migrations(stack) == 0


@pytest.mark.parametrize("flags,breaks", [((), 1), (("--migration-limit", "1"), 2)], ids=["no limit", "limit reached"])
def test_the_limit(stack, tellers, flags, breaks):
    """The client is told in the words of the reference, and no finish reason or usage is made up."""
    fakes = tellers(*flags)
    prompt = ask(stack).usage["prompt_tokens"]
    places = [prompt + 5, prompt + 11][:breaks]
    for fake in fakes:
        fake.break_at = places
    answer = ask(stack)
    errors = [data for event, data in answer.events if event == "error"]
    assert len(errors) == 1 and "Stream ended before generation completed" in errors[0]
    assert answer.events[-1] == (None, "[DONE]") and migrations(stack) == breaks - 1
    assert not any(chunk.get("usage") for chunk in answer.chunks)


def test_too_long_to_move(stack, tellers):
    fakes = tellers("--migration-limit", "1", "--migration-max-seq-len", "20")
    prompt = ask(stack).usage["prompt_tokens"]
    for fake in fakes:
        fake.break_at = [prompt + 22]
    answer = ask(stack)
    assert [event for event, _ in answer.events if event] == ["error"]
    assert stack.metric("dynamo_frontend_model_migration_max_seq_len_exceeded_total", model=MODEL) >= 1
    assert migrations(stack) == 0


def test_nobody_is_left(stack, tellers):
    """When no other worker takes it, the client gets the first error, not one about the attempts."""
    fakes = tellers("--migration-limit", "1")
    prompt = ask(stack).usage["prompt_tokens"]
    fakes[0].break_at, fakes[0].after_break = [prompt + 5], fake_worker.ACK_ERROR
    fakes[1].behaviour = fake_worker.ACK_ERROR
    kinds = [(event, data) for event, data in ask(stack).events if event]
    assert len(kinds) == 1 and "Stream ended before generation completed" in kinds[0][1]
    assert migrations(stack) == 1


def test_a_client_that_leaves_after_a_migration(stack, tellers):
    """The worker that went on is told."""
    fakes = tellers("--migration-limit", "1")
    prompt = ask(stack).usage["prompt_tokens"]
    places = [prompt + 5]
    for fake in fakes:
        fake.told.clear()
        fake.break_at, fake.wait_at = places, prompt + 8
    stream = stack.stream(max_tokens=N, ignore_eos=True)
    for _ in range(8):
        next(stream.events)
    stream.close()
    until("it is told", lambda: [w for fake in fakes for w in fake.told] == ["kill"], SOON)
    until("nothing is booked", lambda: not stack.loads(), SOON)
    assert migrations(stack) == 1


# --- deadlines of our own ---

def test_output_that_stops_coming(stack, tellers):
    """A worker that falls silent in the middle counts as lost."""
    fakes = tellers("--migration-limit", "1", "--output-gap-timeout", "5s")
    prompt = ask(stack).usage["prompt_tokens"]
    for fake in fakes:
        fake.told.clear()
    fakes[0].wait_at = prompt + 5
    answers = [ask(stack) for _ in range(2)]  # round robin: one of them meets it
    for answer in answers:
        check_whole(answer)
    assert answers[0].text == answers[1].text and migrations(stack) == 1
    until("the silent one is told", lambda: fakes[0].told == ["kill"], SOON)


def test_first_token_that_does_not_come(stack, tellers):
    """Another worker is asked; the one that was silent is told, counted, and left alone for a while."""
    fakes = tellers("--first-token-timeout", "5s", DYN_RUNTIME_INHIBITED_DURATION_SECS=f"{PATIENCE:.0f}")
    fakes[0].behaviour = fake_worker.SILENT
    for _ in range(2):
        check_whole(ask(stack))
    assert stack.metric("commutator_router_retries_total", model=MODEL, reason="no_first_item") == 1
    until("it is told", lambda: fakes[0].told == ["kill"], SOON)
    asked = fakes[0].requests
    for _ in range(4):
        check_whole(ask(stack))
    assert fakes[0].requests == asked == 1
