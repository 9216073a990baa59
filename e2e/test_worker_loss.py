# SPDX-License-Identifier: Apache-2.0
"""Workers that die, hang, lie or leave, and clients that go away."""

import json
import re
import socket
import threading

import pytest

import fake_worker
from fake_worker import FakeWorker
from stack import CHAT, COMPLETIONS, MODEL, PATIENCE, PATIENT, ROUTED, ROUTED_LOG, SOON, Stack, request_id, until, words


@pytest.fixture
def stack(tmp_path):
    with Stack(tmp_path, events=False) as stack:
        yield stack


def loads_by_worker(stack, name="dynamo_frontend_worker_active_decode_blocks"):
    return {int(dict(labels)["worker_id"]): value for (series, labels), value in stack.metrics().items()
            if series == name}


def two_mockers(stack, *flags, speedup=50, **env):
    """Two mockers, one process each: ({worker id: process}, both ids in the order of their start)."""
    workers = {}
    stack.frontend(*flags, **env)
    for n in (1, 2):
        process = stack.mocker(speedup=speedup)
        stack.ready(n)
        workers.update({worker: process for worker in stack.instances() if worker not in workers})
    return workers


def in_background(function):
    """Runs it in a thread; calling what is returned waits for its result."""
    result = []
    thread = threading.Thread(target=lambda: result.append(function()))
    thread.start()

    def wait():
        thread.join(PATIENCE)
        assert result, "no result: it failed or hangs"
        return result[0]
    return wait


# --- death ---

@pytest.mark.parametrize("stream", [False, True])
def test_killed_before_the_first_token(stack, stream):
    """Another worker, which comes while the first computes for minutes, answers, once; the client does not notice."""
    stack.frontend("--router-mode", "kv", DYN_LOG=ROUTED_LOG)
    slow = stack.mocker(speedup=0.0002)
    stack.ready(1)
    answer = in_background(lambda: stack.chat(words(200), max_tokens=1, stream=stream))
    busy = until("it computes the prompt", lambda: [w for w, n in loads_by_worker(stack).items() if n > 0])
    stack.mocker()
    stack.ready(2)
    slow.kill()
    answer = answer()
    assert answer.status == 200 and answer.text
    tried = [int(worker) for _, request, _, worker, *_ in ROUTED.findall(stack.front.log())
             if request == request_id(answer)]
    assert len(tried) == 2 and tried[0] == busy[0] and tried[1] != busy[0]
    assert stack.metric("dynamo_frontend_requests_total", status="success") == 1
    assert stack.metric("commutator_router_retries_total", model=MODEL) == 1
    assert stack.metric("dynamo_frontend_model_migration_total", model=MODEL, migration_type="new_request") == 1
    if stream:
        assert answer.events[-1] == (None, "[DONE]") and answer.events.count((None, "[DONE]")) == 1


def test_killed_during_a_stream(stack):
    """The client is told: an error event, no finish reason, no made-up usage, then [DONE]."""
    stack.up(speedup=1)
    stream = stack.stream(max_tokens=10000, ignore_eos=True, stream_options={"include_usage": True})
    for _ in range(3):
        next(stream.events)
    stack.worker.kill()
    rest = list(stream.events)
    kinds = [event for event, _ in rest]
    assert rest[-1] == (None, "[DONE]") and rest[-2][0] == "error" and kinds.count("error") == 1
    chunks = [json.loads(data) for event, data in rest[:-1] if event is None]
    assert not any(chunk.get("usage") for chunk in chunks)
    assert not any(choice["finish_reason"] for chunk in chunks for choice in chunk["choices"])
    assert stack.metric("dynamo_frontend_requests_total", status="error") == 1


def test_killed_during_a_unary_answer(stack):
    stack.up(speedup=1)
    answer = in_background(lambda: stack.request("POST", CHAT, stack.body("x", max_tokens=10000, ignore_eos=True)))
    until("tokens flow", lambda: stack.metric("dynamo_frontend_output_tokens_total", model=MODEL))
    stack.worker.kill()
    answer = answer()
    assert answer.status == 503 and answer.json["error"]["type"] == "overloaded_error"


def test_no_worker_is_left(stack):
    stack.up(speedup=50)
    stack.worker.kill()
    refused = stack.request("POST", CHAT, stack.body("x"))
    assert refused.status in (404, 503) and refused.json["error"]["message"]
    stack.mocker()
    until("the new worker serves", lambda: stack.request("POST", CHAT, stack.body("x")).status == 200)


def test_sigterm_drains(stack):
    """A worker that is told to stop ends what it runs; new requests go elsewhere; nobody notices."""
    workers = two_mockers(stack, "--router-mode", "round-robin", speedup=2)
    streams = [stack.stream(max_tokens=100, ignore_eos=True, stream_options={"include_usage": True})
               for _ in range(8)]
    for stream in streams:
        next(stream.events)
    leaving = next(iter(workers.values()))
    leaving.terminate()
    until("its record is gone", lambda: stack.workers() == 1)
    later = [stack.chat() for _ in range(8)]
    for stream in streams:
        events = list(stream.events)
        assert events[-1] == (None, "[DONE]") and not any(event for event, _ in events)
        assert json.loads(events[-2][1])["usage"]["completion_tokens"] == 100
    assert len(later) == 8
    assert leaving.end(SOON) == 0


def test_rolling_restart_under_load(stack):
    """Workers come and go one after another while requests run: none fails."""
    workers = list(two_mockers(stack, "--router-mode", "kv", speedup=20).values())
    failures, stop = [], threading.Event()

    def client(seed):
        while not stop.is_set():
            answer = stack.request("POST", CHAT, stack.body(words(100, seed), max_tokens=20, ignore_eos=True))
            if answer.status != 200:
                failures.append(answer.body)

    threads = [threading.Thread(target=client, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for _ in range(4):
        known = set(stack.instances())
        workers.append(stack.mocker(speedup=20))
        until("the new one is known", lambda: set(stack.instances()) - known)
        old = workers.pop(0)
        old.terminate()
        assert old.end(SOON) == 0
    stop.set()
    for thread in threads:
        thread.join()
    assert not failures, failures[:3]


# --- one item, one chunk ---

def test_the_last_word_and_the_end_are_one_chunk(stack):
    """vLLM says both in one item, of which the reference makes one chunk; mockers say them one after the other."""
    stack.up("--router-mode", "direct")
    fake = FakeWorker(stack.kv, fake_worker.ANSWER)
    until("both are known", lambda: stack.workers() == 2)
    answer = stack.chat(headers={"x-worker-instance-id": str(fake.worker_id)}, stream=True)
    choices = [choice for chunk in answer.chunks for choice in chunk["choices"]]
    assert [choice.get("finish_reason") for choice in choices] == [None, None, "length"]
    assert all(choice["delta"]["content"] for choice in choices)
    fake.close()


# --- misbehaviour ---

RETRIED = [fake_worker.REFUSE_CONNECTION, fake_worker.NO_ACK, fake_worker.ACK_ERROR, fake_worker.NO_CALL_HOME,
           fake_worker.CLOSE_AT_HOME, fake_worker.BREAK_BEFORE_TOKEN]


# A limit that ends what such a worker never does, and leaves the other one time on a busy machine.
LIMIT_OF = {fake_worker.NO_ACK: {"DYN_TCP_REQUEST_TIMEOUT": "5"}, fake_worker.NO_CALL_HOME: {"COMMUTATOR_CALL_HOME_TIMEOUT": "5"}}


def with_fake(stack, behaviour):
    stack.up("--router-mode", "round-robin", DYN_LOG=ROUTED_LOG, **{**PATIENT, **LIMIT_OF.get(behaviour, {})})
    fake = FakeWorker(stack.kv, behaviour)
    until("both are known", lambda: stack.workers() == 2)
    return fake


@pytest.mark.parametrize("behaviour", RETRIED)
def test_another_worker_is_tried(stack, behaviour):
    fake = with_fake(stack, behaviour)
    for _ in range(4):  # round robin: some of them meet it
        stack.chat()
    assert fake.requests or behaviour == fake_worker.REFUSE_CONNECTION
    assert stack.metric("commutator_router_retries_total", model=MODEL) >= 1
    assert stack.metric("dynamo_frontend_requests_total", status="success") == 4
    fake.close()


@pytest.mark.parametrize("behaviour,says", [
    (fake_worker.BREAK_AFTER_TOKENS, "."), (fake_worker.ERROR_ITEM, "out of memory"),
    (fake_worker.PROLOGUE_ERROR, "not well"), (fake_worker.GARBAGE, "."), (fake_worker.NO_ITEMS, ".")])
@pytest.mark.parametrize("stream", [False, True])
def test_failures_are_told(stack, behaviour, says, stream):
    """What cannot be done again elsewhere is an error, in the stream or instead of the answer."""
    fake = with_fake(stack, behaviour)
    for _ in range(2):
        answer = stack.request("POST", CHAT, stack.body("x", stream=stream, max_tokens=9))
        if not fake.requests:
            continue
        if answer.headers["content-type"] == "text/event-stream":
            assert answer.events[-1] == (None, "[DONE]") and answer.events[-2][0] == "error"
            assert re.search(says, answer.events[-2][1])
            assert not any(c.get("finish_reason") for chunk in answer.chunks for c in chunk["choices"])
        else:
            lost = behaviour in (fake_worker.BREAK_AFTER_TOKENS, fake_worker.PROLOGUE_ERROR)
            assert answer.status == (503 if lost else 500) and re.search(says, answer.json["error"]["message"]), answer.body
        break
    assert fake.requests == 1
    fake.close()


def test_every_worker_fails(stack):
    stack.up()
    fakes = [FakeWorker(stack.kv, fake_worker.ACK_ERROR, worker_id=n) for n in range(100, 106)]
    until("all are known", lambda: stack.workers() == 7)
    assert stack.worker.stop() == 0
    until("the good one has left", lambda: stack.workers() == 6)
    refused = stack.request("POST", CHAT, stack.body("x"))
    assert refused.status == 503 and "failed" in refused.json["error"]["message"]
    assert sum(fake.requests for fake in fakes) <= 4, "a request is not tried everywhere"
    for fake in fakes:
        fake.close()


def test_what_a_worker_is_sent(stack):
    """The request of wire.md §5.1, as it arrives."""
    stack.up("--router-mode", "kv")
    fake = FakeWorker(stack.kv, fake_worker.ANSWER)
    until("both are known", lambda: stack.workers() == 2)
    ids = list(range(300, 340))
    answer = stack.request("POST", COMPLETIONS, stack.body(
        ids, COMPLETIONS, max_tokens=3, temperature=0.5, seed=7, stop=["x"],
        nvext={"backend_instance_id": fake.worker_id}))
    assert answer.status == 200 and answer.usage["completion_tokens"] == 3
    sent = fake.bodies[0]
    assert sent["token_ids"] == ids and sent["model"] == MODEL
    assert sent["stop_conditions"]["max_tokens"] == 3 and sent["stop_conditions"]["stop"] == ["x"]
    assert sent["sampling_options"]["temperature"] == 0.5 and sent["sampling_options"]["seed"] == 7
    assert sent["routing"]["backend_instance_id"] == fake.worker_id and sent["routing"]["dp_rank"] == 0
    fake.close()


# --- clients that leave ---

def test_client_that_leaves_kills_its_request(stack):
    stack.up("--router-mode", "kv")
    fake = FakeWorker(stack.kv, fake_worker.HANG_AFTER_TOKENS)
    until("both are known", lambda: stack.workers() == 2)
    pin = {"x-worker-instance-id": str(fake.worker_id)}
    stream = stack.stream(words(200), headers=pin)
    next(stream.events)
    assert stack.loads()
    stream.close()
    until("the worker is told", lambda: fake.told == ["kill"], SOON)
    until("its booking is released", lambda: not stack.loads(), SOON)
    assert stack.metric("dynamo_frontend_disconnected_clients") == 1
    # A client that waits for a whole answer leaves no other way.
    connection = socket.create_connection(("127.0.0.1", stack.port))
    body = json.dumps(stack.body(words(200)))
    connection.sendall((f"POST {CHAT} HTTP/1.1\r\nhost: x\r\nx-worker-instance-id: {fake.worker_id}\r\n"
                        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n{body}").encode())
    until("it is there", lambda: fake.requests == 2)
    connection.close()
    until("the worker is told", lambda: fake.told == ["kill", "kill"], SOON)
    fake.close()


def test_a_killed_stream_ends_without_a_reset(stack):
    """Closing with tokens unread would reset the connection, at which the reference's worker panics."""
    stack.up("--router-mode", "kv")
    fake = FakeWorker(stack.kv, fake_worker.FLOOD)
    until("both are known", lambda: stack.workers() == 2)
    for n in range(1, 9):
        stream = stack.stream(headers={"x-worker-instance-id": str(fake.worker_id)})
        next(stream.events)
        stream.close()
        until("the connection has ended", lambda: fake.ended == n, SOON)
    assert fake.told == ["kill"] * 8 and fake.resets == 0
    fake.close()


def test_client_that_leaves_frees_the_engine(stack):
    """The mocker works for nobody: its slots are free at once, not after 5,000 tokens."""
    stack.up("--router-mode", "kv", speedup=1)
    streams = [stack.stream(words(100, seed), max_tokens=5000, ignore_eos=True) for seed in range(10)]
    for stream in streams:
        next(stream.events)
    for stream in streams:
        stream.close()
    until("nothing is booked", lambda: not stack.loads(), SOON)
    assert stack.worker.stop(SOON) == 0  # it would drain running requests for 30 s


def test_stop_string_ends_the_engine_too(stack):
    stack.up("--router-mode", "kv")
    fake = FakeWorker(stack.kv, fake_worker.HANG_AFTER_TOKENS)
    until("both are known", lambda: stack.workers() == 2)
    first = stack.stream(headers={"x-worker-instance-id": str(fake.worker_id)})
    text = json.loads(next(first.events)[1])["choices"][0]["delta"]["content"]
    first.close()
    answer = stack.chat(headers={"x-worker-instance-id": str(fake.worker_id)}, stop=[text[-1]])
    assert answer.json["choices"][0]["finish_reason"] == "stop"
    until("the worker is told", lambda: fake.told == ["kill", "kill"], SOON)
    fake.close()


# --- many ---

def test_descriptors_are_no_limit(tmp_path):
    """A soft limit of 128 descriptors, of which 100 streams take 200 in either program, is raised."""
    class Few(Stack):
        def start(self, name, command, **env):
            return super().start(name, ["sh", "-c", 'ulimit -Sn 128 && exec "$@"', "sh", *command], **env)
    with Few(tmp_path, events=False) as stack:
        stack.up("--router-mode", "kv", speedup=1)
        streams = [stack.stream(str(i), max_tokens=100, ignore_eos=True) for i in range(100)]
        assert all(stream.status == 200 and json.loads(next(stream.events)[1]) for stream in streams)
        for stream in streams:
            stream.close()


def test_a_thousand_streams(stack, capsys):
    """A thousand at once end as they should; what they cost is printed, not judged."""
    import asyncio

    import aiohttp
    stack.up("--router-mode", "kv", workers=8, blocks=16384, speedup=20,
             DYN_LOG="info,dynamo_llm::kv_router::scheduler=warn")
    before, cpu, peak = stack.front.rss_mb(), stack.front.cpu_seconds(), [0.0]

    async def one(session, seed):
        body = stack.body(words(100, seed), max_tokens=40, ignore_eos=True, stream=True,
                          stream_options={"include_usage": True})
        async with session.post(stack.url + CHAT, json=body) as response:
            text = await response.text()
            assert response.status == 200 and text.endswith("data: [DONE]\n\n")
            assert text.count('"content":"') == 40 and '"completion_tokens":40' in text

    async def everyone():
        timeout, limits = aiohttp.ClientTimeout(total=2 * PATIENCE), aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(timeout=timeout, connector=limits) as session:
            tasks = [asyncio.create_task(one(session, seed)) for seed in range(1000)]
            while not all(task.done() for task in tasks):
                peak[0] = max(peak[0], stack.front.rss_mb())
                await asyncio.wait(tasks, timeout=0.1)
            await asyncio.gather(*tasks)

    asyncio.run(everyone())
    cpu = stack.front.cpu_seconds() - cpu
    with capsys.disabled():
        print(f"\n  1,000 streams of 40 tokens: RSS {before:.1f} MB before, {peak[0]:.1f} MB at most; "
              f"{cpu:.2f} CPU seconds, {cpu / 40000 * 1e6:.1f} us a token")
    assert stack.metric("dynamo_frontend_requests_total", status="success") == 1000
