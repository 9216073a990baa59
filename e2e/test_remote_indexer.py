# SPDX-License-Identifier: Apache-2.0
"""One router keeps the index for others: --serve-indexer and --use-remote-indexer, ours and the reference's."""

import copy
import itertools
import json
import threading

import pytest

import plane_caller
from conftest import program, reference_python, run
from stack import COMPLETIONS, MODEL, MODEL_PATH, PATIENCE, Stack, put, until
from test_replicas import Theirs, another

QUERY, RECORD = "kv_indexer_query", "kv_indexer_record_routing_decision"
ASKED = "commutator_router_index_requests_total"
LOST = "dynamo_component_router_remote_indexer_query_failures_total"
UNWRITTEN = "dynamo_component_router_remote_indexer_write_failures_total"
BLOCKS = 20


class Asking(Stack):
    """Whose programs wait long enough for an index on a busy machine; half a second by default."""

    def start(self, name, command, **env):
        return super().start(name, command, **{"DYN_REMOTE_INDEXER_TIMEOUT": "20s", **env})


@pytest.fixture
def stack(tmp_path):
    with Asking(tmp_path) as stack:
        yield stack


def prompt(seed):
    return [3000 + 400 * seed + i for i in range(16 * BLOCKS)]


def ask(at, ids, **more):
    answer = at.request("POST", COMPLETIONS, at.body(ids, COMPLETIONS, max_tokens=1, **more))
    assert answer.status == 200, answer.body
    return answer


def decided(at, ids):
    """The record of the decision on a prompt that is sent now."""
    answer = ask(at, ids)
    name = answer.headers["x-request-id"]
    return at.get(f"/explain/{name}").json["decisions"][-1]


def chosen(record):
    """(worker, cached blocks) of a decision."""
    candidate = record["candidates"][record["chosen"]["at"]]
    return candidate["worker_id"], candidate["overlap_blocks"]


def holders(record):
    """Workers that have all of the prompt; more than one, where it was asked again before events told."""
    return {one["worker_id"] for one in record["candidates"] if one["overlap_blocks"] == BLOCKS}


def keeper_and_user(stack, *flags, workers=4, **env):
    """A frontend that serves its index, and one that asks it."""
    stack.up("--router-mode", "kv", "--serve-indexer", *flags, workers=workers, **env)
    user = another(stack, "--use-remote-indexer", *flags, workers=workers, **env)
    user.front.wait_log("remote KV indexer found")
    return stack, user


def test_a_router_without_index_finds_what_the_other_knows(stack):
    keeper, user = keeper_and_user(stack)
    for seed in range(3):
        home, cached = chosen(decided(keeper, prompt(seed)))
        assert cached == 0
        until("its events have come", lambda seed=seed: home in holders(decided(keeper, prompt(seed))))
        record = decided(user, prompt(seed))
        assert home in holders(record) and chosen(record)[1] == BLOCKS and record["index"] == "remote"
    assert "index" not in decided(keeper, prompt(0))
    assert not user.metric("commutator_router_kv_events_total")
    assert user.metric(LOST) == 0
    assert keeper.metric(ASKED, kind="query", outcome="answered") == 3
    told = user.request("GET", "/explain/" + ask(user, prompt(0)).headers["x-request-id"],
                        headers={"accept": "text/plain"})
    assert b"caches as the remote indexer told them" in told.body


def test_placements_are_written_where_no_events_are(stack):
    keeper, user = keeper_and_user(stack, "--no-kv-events")
    for seed in range(3):
        home, cached = chosen(decided(user, prompt(seed)))
        assert cached == 0
        until("it is written", lambda seed=seed: keeper.metric(ASKED, kind="record", outcome="answered") == seed + 1)
        assert chosen(decided(keeper, prompt(seed))) == (home, BLOCKS)
    assert chosen(decided(user, prompt(0)))[1] == BLOCKS
    assert user.metric(UNWRITTEN) == user.metric(LOST) == 0


def test_a_keeper_that_dies_and_comes_back(stack):
    keeper, user = keeper_and_user(stack)
    home, _ = chosen(decided(user, prompt(1)))
    keeper.front.kill()
    # What this router placed is all that is known now; nobody waits and nothing fails.
    record = decided(user, prompt(1))
    assert record["index"] == "remote-lost" and chosen(record) == (home, BLOCKS)
    assert user.metric(LOST) >= 1
    assert user.front.log().count("does not answer: routing by what is placed here") == 1
    for record in keeper.kv.glob("v1/*/*kv%5Findexer*"):
        record.unlink(missing_ok=True)  # as its lease would
    user.front.wait_log("remote KV indexer gone")
    another(stack, "--serve-indexer", workers=4)
    user.front.wait_log("(?s)remote KV indexer gone.*remote KV indexer found")
    until("it is asked again", lambda: decided(user, prompt(1)).get("index") == "remote")
    until("it knows what the workers hold",
          lambda: home in holders(decided(user, prompt(1))), PATIENCE)
    user.front.wait_log("remote KV indexer answers again")


def test_a_keeper_that_hangs_delays_one_request(stack):
    keeper, user = keeper_and_user(stack, "--remote-indexer-timeout", "10s")
    ask(user, prompt(0))
    keeper.front.pause()
    try:
        answers = []
        threads = [threading.Thread(target=lambda i=i: answers.append(decided(user, prompt(i)))) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [record["index"] for record in answers] == ["remote-lost"] * 4
        failed = user.metric(LOST)
        # It is left alone, so this one does not wait.
        record = decided(user, prompt(5))
        assert record["index"] == "remote-lost" and record["outcome"]["duration_ms"] < 9500
        assert user.metric(LOST) == failed + 1
    finally:
        keeper.front.resume()
    until("it is asked again", lambda: decided(user, prompt(0)).get("index") == "remote")


def test_the_mode_flips_under_a_remote_index(stack, tmp_path):
    routing = tmp_path / "routing"
    put(routing, "DYN_ROUTER_MODE=kv\n")
    keeper = stack.up("--serve-indexer", "--routing-file", routing, workers=4)
    user = copy.copy(stack)
    user.frontend("--use-remote-indexer", "--routing-file", routing)
    user.ready(4)
    user.front.wait_log("remote KV indexer found")
    home, _ = chosen(decided(user, prompt(1)))
    until("its events have come", lambda: home in holders(decided(keeper, prompt(1))))
    for _ in range(3):
        put(routing, "DYN_ROUTER_MODE=round-robin\n")
        until("it is in force", lambda: decided(user, prompt(2))["mode"] == "round-robin")
        before = keeper.metric(ASKED, kind="query", outcome="answered")
        assert "index" not in decided(user, prompt(2))
        assert keeper.metric(ASKED, kind="query", outcome="answered") == before
        put(routing, "DYN_ROUTER_MODE=kv\n")
        until("it is in force", lambda: decided(user, prompt(2))["mode"] == "kv")
        record = decided(user, prompt(1))
        assert record["index"] == "remote" and home in holders(record) and chosen(record)[1] == BLOCKS


def test_what_a_router_goes_by_is_switched_while_running(stack, tmp_path):
    """With events the endpoint for placements goes, and nobody writes; and back."""
    routing = tmp_path / "routing"
    put(routing, "DYN_KV_EVENTS=false\n")
    keeper, user = keeper_and_user(stack, "--routing-file", routing)
    records = lambda: plane_caller.address_of(stack.kv, "dynamo", "backend", RECORD)
    until("it is written", lambda: ask(user, prompt(0)) and
          keeper.metric(ASKED, kind="record", outcome="answered") > 0)
    put(routing, "DYN_KV_EVENTS=true\n")
    for one in (keeper, user):
        one.front.wait_log("routing configuration in force generation=2")
    until("the endpoint is gone", lambda: not records())
    until("its events come", lambda: chosen(decided(keeper, prompt(1)))[1] == BLOCKS)

    def hears():
        record = decided(user, prompt(1))
        return record.get("index") == "remote" and chosen(record)[1] == BLOCKS
    until("the other one asks for that", hears)
    written = keeper.metric(ASKED, kind="record", outcome="answered")
    assert hears() and keeper.metric(ASKED, kind="record", outcome="answered") == written
    put(routing, "DYN_KV_EVENTS=false\n")
    until("the endpoint is back", records)
    until("it is written again", lambda: ask(user, prompt(2)) and
          keeper.metric(ASKED, kind="record", outcome="answered") > written)


def test_prefill_workers_have_an_index_too(stack):
    stack.start_nats()
    stack.mocker("--is-prefill-worker", workers=3)
    stack.mocker("--is-decode-worker", workers=1)
    stack.frontend("--router-mode", "kv", "--serve-indexer")
    until("prefill workers", lambda: stack.workers("prefill") == 3)
    stack.ready(1)
    user = another(stack, "--use-remote-indexer")
    until("prefill workers", lambda: user.workers("prefill") == 3)
    until("both indexes are found", lambda: user.front.log().count("remote KV indexer found") == 2)

    def prefill(at):
        name = ask(at, prompt(1)).headers["x-request-id"]
        records = at.get(f"/explain/{name}").json["decisions"]
        return [record for record in records if record["worker_type"] == "prefill"][-1]
    home, _ = chosen(prefill(stack))
    until("its events have come", lambda: home in holders(prefill(stack)))
    record = prefill(user)
    assert record["index"] == "remote" and home in holders(record) and chosen(record)[1] == BLOCKS


def test_dynamo_router_in_both_roles(stack):
    """The service keeps the index for a frontend, and uses one."""
    stack.start_nats()
    stack.mocker(workers=4)
    route = [program("dynamo-router"), "route", "--endpoint", "dynamo.backend.generate", "--block-size", 16]
    keeper = stack.start("router", [*route, "--serve-indexer"], DYN_SYSTEM_PORT=0)
    keeper.wait_log("serving the KV index")
    stack.frontend("--router-mode", "kv", "--use-remote-indexer")
    stack.ready(4)
    stack.front.wait_log("remote KV indexer found")
    home, _ = chosen(decided(stack, prompt(1)))
    until("the keeper has heard of it", lambda: home in holders(decided(stack, prompt(1))))
    record = decided(stack, prompt(1))
    assert record["index"] == "remote"
    stack.start("router", [*route, "--use-remote-indexer"], DYN_NAMESPACE="other").wait_log("remote KV indexer found")
    [(_, address)] = plane_caller.address_of(stack.kv, "other", "router", "best_worker_id")
    assert plane_caller.call(address, {"token_ids": prompt(1)})[0] in holders(record)
    assert keeper.stop() == 0
    until("it is withdrawn", lambda: not plane_caller.address_of(stack.kv, "dynamo", "backend", QUERY))


def test_one_cannot_be_both(stack):
    both = stack.start("both", [program("dynamo-frontend"), "--serve-indexer", "--use-remote-indexer"])
    assert both.popen.wait(PATIENCE) != 0
    assert "--serve-indexer and --use-remote-indexer are mutually exclusive" in both.log()


# --- beside the reference ---

def raw(address, body):
    """The items of one request, as they are: answers of an index have no annotation."""
    return list(plane_caller.items(plane_caller.start(address, body)))


def sorted_scores(answer):
    answer["TieredScores"]["device"]["scores"].sort(key=json.dumps)
    return answer


def local_hashes(ids):
    """What the reference calls the blocks of a prompt."""
    code = "import json,sys;from dynamo.llm import compute_block_hash_for_seq as f;print(json.dumps(f(json.load(sys.stdin),16)))"
    return json.loads(run(reference_python("1.6.1"), "-c", code, input=json.dumps(ids)).stdout.splitlines()[-1])


def their_workers(stack, n):
    """Whose events the reference's routers hear as well: they stand in discovery."""
    (stack.folder / MODEL).symlink_to(MODEL_PATH)
    stack.start_nats("-js")
    stack.start("reference-mocker", [
        reference_python("1.6.1"), "-m", "dynamo.mocker", "--model-path", MODEL, "--discovery-backend", "file",
        "--request-plane", "tcp", "--event-plane", "nats", "--speedup-ratio", "100", "--block-size", "16",
        "--num-workers", str(n)], HF_HUB_OFFLINE="1", DYN_EVENT_PLANE="nats", PYTHONUNBUFFERED="1")


def test_the_reference_answers_the_same(stack):
    """Two routers serve the index of the same workers, ours and theirs."""
    their_workers(stack, 2)
    stack.frontend("--router-mode", "kv", "--serve-indexer")
    stack.ready(2)
    Theirs(stack, "1.6.1", "nats", "--serve-indexer")
    indexes = until("both serve", lambda: (lambda found: len(found) == 2 and found)(
        plane_caller.address_of(stack.kv, "dynamo", "backend", QUERY)))
    hashes, others = local_hashes(prompt(0)), itertools.count()
    ask(stack, prompt(0))

    def answers(body):
        return [sorted_scores(answer) if "TieredScores" in answer else answer
                for _, address in indexes for answer in raw(address, body)]

    def agree(cut):
        one, two = answers({"model_name": MODEL, "block_hashes": hashes[:cut], "device_only": False})
        return one == two and [n for _, n in one["TieredScores"]["device"]["scores"]] == ([cut] if cut else [])

    def both_have_heard():
        # A router that was told to hear of the workers may not do so yet: it asks for what it missed at the next event.
        high, low = divmod(next(others), 400)
        ask(stack, [3400 + high, 3400 + low] + prompt(0)[2:])
        return agree(BLOCKS)
    until("both have heard of it", both_have_heard)
    for cut in (7, 1, 0):
        until(f"they agree on {cut} blocks", lambda cut=cut: agree(cut))
    for body in ({"model_name": "other", "block_hashes": [1]}, {"model_name": MODEL, "block_hashes": [1, 2]}):
        one, two = answers(body)
        assert one == two


@pytest.mark.parametrize("events", [True, False], ids=["events", "placements"])
def test_our_user_of_their_index(stack, events):
    their_workers(stack, 4)
    flags = [] if events else ["--no-kv-events"]
    theirs = Theirs(stack, "1.6.1", "nats", "--serve-indexer", *flags)
    stack.frontend("--router-mode", "kv", "--use-remote-indexer", *flags)
    stack.ready(4)
    stack.front.wait_log("remote KV indexer found")
    for seed in range(3):
        assert theirs.ask(prompt(seed))[0] == 200

        def is_told(seed=seed):
            record = decided(stack, prompt(seed))
            assert record["index"] == "remote"
            return chosen(record)[1] == BLOCKS
        until("theirs has heard of it", is_told)
    assert stack.metric(LOST) == stack.metric(UNWRITTEN) == 0


@pytest.mark.parametrize("events", [True, False], ids=["events", "placements"])
def test_their_user_of_our_index(stack, events):
    stack.start_nats("-js")
    flags = [] if events else ["--no-kv-events"]
    stack.mocker(workers=4)
    stack.frontend("--router-mode", "kv", "--serve-indexer", *flags)
    stack.ready(4)
    stack.front.wait_log("serving the KV index")
    theirs = Theirs(stack, "1.6.1", "nats", "--use-remote-indexer", *flags)
    cached = lambda body: (json.loads(body)["usage"].get("prompt_tokens_details") or {}).get("cached_tokens")
    for seed in range(4):
        home, _ = chosen(decided(stack, prompt(seed)))
        until("ours has heard of it", lambda seed=seed: chosen(decided(stack, prompt(seed)))[1] == BLOCKS)
        status, body = theirs.ask(prompt(seed))
        assert status == 200 and cached(body) == 16 * (BLOCKS - 1), (home, body)
    assert stack.metric(ASKED, kind="query", outcome="answered") >= 4
    written = lambda: stack.metric(ASKED, kind="record", outcome="answered")
    if events:
        assert written() == 0
    else:  # beside its answer
        until("what it placed is written", lambda: written() >= 4)
    assert not stack.metric(ASKED, kind="record", outcome="refused")
    if not events:  # what it placed, ours knows
        assert theirs.ask(prompt(5))[0] == 200
        until("it is written", lambda: chosen(decided(stack, prompt(5)))[1] == BLOCKS)
