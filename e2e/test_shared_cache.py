# SPDX-License-Identifier: Apache-2.0
"""The cache that all workers share (--shared-cache-type hicache) beside 1.6.1: its frontend and ours before workers made of
its runtime, one publisher of events that both hear; the same prompts get the same scores. The publisher is one of ours, so
that it can say what no master should, and a real Mooncake master with a store (tools/mooncake-venv)."""

import hashlib
import itertools
import json
import re
import subprocess
import time
import urllib.request

import msgspec
import pytest
import zmq

import plane_caller
from conftest import ROOT, free_port, program, reference_python, run, unavailable
from stack import MODEL, MODEL_PATH, Stack, parse_metrics, put, until
from test_policy_interop import EFFECTIVE, PINNED, Front

BLOCK, PAGES, TAIL = 16, 20, 8
LAYOUT = {"backend": "mooncake", "page_size": BLOCK, "tp_size": 1, "pp_size": 1, "is_mla_model": False, "is_eagle": False,
          "tp_lcm_size": None, "should_split_heads": False, "extra_backend_tag": None, "key_prefix": None}
KINDS = ("k", "v")
number = itertools.count(1)


def prompt(pages=PAGES):
    """One that begins as no other."""
    first = next(number)
    return [first, *((7 * first + i) % 6000 for i in range(pages * BLOCK + TAIL - 1))]


def pages_of(tokens, pairs=False):
    """The hashes by which SGLang's workers call the pages of a prompt."""
    units = list(zip(tokens, tokens[1:])) if pairs else [(token,) for token in tokens]
    prior, hashes = b"", []
    for at in range(0, len(units) - BLOCK + 1, BLOCK):
        page = b"".join(token.to_bytes(4, "little") for unit in units[at:at + BLOCK] for token in unit)
        prior = hashlib.sha256(prior + page).digest()
        hashes.append(prior.hex())
    return hashes


def plain(hashes):
    """Names of their objects in the plainest layout."""
    return [f"{page}_0_{kind}" for page in hashes for kind in KINDS]


class Publisher:
    """A master's events, from us."""

    def __init__(self):
        self.socket = zmq.Context.instance().socket(zmq.PUB)
        self.socket.setsockopt(zmq.LINGER, 0)
        self.socket.bind("tcp://127.0.0.1:*")
        self.endpoint = self.socket.getsockopt_string(zmq.LAST_ENDPOINT)
        self.sequence = 1

    def frames(self, *frames):
        self.socket.send_multipart(frames)

    def payload(self, payload):
        self.frames(b"", self.sequence.to_bytes(8, "big"), payload)
        self.sequence += 1

    def batch(self, *parts):
        self.payload(msgspec.msgpack.encode(parts))

    def events(self, *events):
        self.batch(int(time.time() * 1000), events, 0)

    def change(self, kind, names, tenant="default", **more):
        self.events(*({"event_type": kind, "object_key": name, "tenant_id": tenant, **more} for name in names))

    def stored(self, names, **more):
        self.change("stored", names, **more)

    def removed(self, names, **more):
        self.change("removed", names, **more)


def theirs(stack, name, *command, **env):
    return stack.start(f"reference-{name}", [reference_python("1.6.1"), *command], HF_HUB_OFFLINE="1", PYTHONUNBUFFERED="1",
                       DYN_LOG="info,dynamo_kv_router=debug", DYN_SDK_DISABLE_ANSI_LOGGING="1",
                       DYN_DISCOVERY_BACKEND="file", DYN_REQUEST_PLANE="tcp", DYN_EVENT_PLANE="zmq", **env)


def workers(stack, publisher, facts):
    """One for each of the facts that their cards tell of the cache."""
    for fact in facts:
        said = {**LAYOUT, "kv_events_endpoint": publisher.endpoint, **fact} if fact is not None else None
        theirs(stack, "worker", ROOT / "e2e/reference_worker.py", MODEL_PATH, MODEL,
               HICACHE=json.dumps(said)).wait_log("registered")


class Both:
    """Our frontend and 1.6.1's before the same workers."""

    def __init__(self, stack, *facts, flags=(), publisher=None, ours=None, env=None):
        self.stack, self.publisher = stack, publisher or Publisher()
        workers(stack, self.publisher, facts)
        port = free_port()
        shared = ["--router-mode", "kv", "--shared-cache-type", "hicache", *flags]
        stack.frontend("--router-policy", "dynamo-1.x", *(ours or shared), DYN_EVENT_PLANE="zmq", DYN_KV_EVENTS="true",
                       DYN_DISCOVERY_BACKEND="file", DYN_ROUTER_EVENT_FALLBACK="false", **(env or {}))
        self.port = port
        reference = theirs(stack, "frontend", "-m", "dynamo.frontend", "--http-host", "127.0.0.1", "--http-port", port, *shared,
                           **(env or {}))
        stack.ready(len(facts))
        self.fronts = [Front(stack.front, stack.port), Front(reference, port)]
        until("both serve", lambda: all(front.serves() for front in self.fronts))
        self.workers = sorted(stack.instances())

    def scores(self, tokens, worker=None, **more):
        """What each scores for the prompt at that worker."""
        return [self.score(front, tokens, self.workers[0] if worker is None else worker, **more) for front in self.fronts]

    @staticmethod
    def score(front, tokens, worker, **more):
        log = len(front.process.log())
        front.ask(tokens, nvext={"backend_instance_id": worker}, **more)
        fresh = lambda: front.process.log()[log:]
        until("its score is told", lambda: PINNED.search(fresh()) or EFFECTIVE.search(fresh()))
        theirs = PINNED.search(fresh())
        return float(theirs.group(1) if theirs else EFFECTIVE.search(fresh()).group(2))

    def settle(self):
        """Returns when both have heard all that was published."""
        tokens = prompt(1)
        self.publisher.stored(plain(pages_of(tokens)))
        for front in self.fronts:
            until("it is heard", lambda: self.score(front, tokens, self.workers[0]) < cold(1))

    def subscribed(self):
        """Returns when both hear: what was published before they did is lost to them."""
        tokens = prompt(1)

        def heard():
            self.publisher.stored(plain(pages_of(tokens)))
            return all(score < cold(1) for score in self.scores(tokens))
        until("both hear", heard)
        return self


def cold(pages):
    """The score of a prompt that nobody holds any of, with nothing running: prompt and blocks."""
    return pages + TAIL / BLOCK + pages


@pytest.fixture
def stack(tmp_path):
    with Stack(tmp_path, events=False) as stack:
        (tmp_path / MODEL).symlink_to(MODEL_PATH)
        yield stack


def test_scores_are_those_of_the_reference(stack):
    both = Both(stack, {}, {}).subscribed()
    said = both.publisher

    def case(what, tell, saved):
        """@tell(page hashes) publishes; @saved: pages that both then count."""
        tokens = prompt()
        tell(pages_of(tokens))
        both.settle()
        assert both.scores(tokens) == [cold(PAGES) - 0.5 * saved] * 2, what

    event = lambda name, **more: {"event_type": "stored", "object_key": name, **more}
    case("nothing is there", lambda pages: None, 0)
    case("a beginning", lambda pages: said.stored(plain(pages[:10])), 10)
    case("a middle", lambda pages: said.stored(plain(pages[5:15])), 10)
    case("all, in groups", lambda pages: [said.stored(plain([page]), group_id=f"sglang-hicache:{page}") for page in pages], 20)
    case("keys without values", lambda pages: said.stored([f"{page}_0_k" for page in pages]), 0)
    case("one part removed", lambda pages: (said.stored(plain(pages)), said.removed([f"{pages[3]}_0_v"])), 19)
    case("another tenant's", lambda pages: said.stored(plain(pages), tenant="somebody"), 0)
    case("no tenant's", lambda pages: said.stored(plain(pages), tenant=""), 20)
    case("without tenant", lambda pages: said.events(*map(event, plain(pages))), 20)
    case("on disk", lambda pages: said.stored(plain(pages), medium="disk"), 20)
    case("arrays", lambda pages: said.events(*(["stored", name, "default", None] for name in plain(pages))), 20)
    case("unknown types", lambda pages: said.change("moved", plain(pages)), 0)

    # What cannot be read is left out as a whole, and the gap that it leaves forgets what was known.
    bad = [lambda pages: said.events(*map(event, plain(pages)), event("x", tenant_id=None)),
           lambda pages: said.events(*map(event, plain(pages)), {"object_key": "x"}),
           lambda pages: said.events(*(["stored", name, "", None, 1] for name in plain(pages))),
           lambda pages: said.batch(1, [*map(event, plain(pages))]),
           lambda pages: said.batch(1.5, [*map(event, plain(pages))], 0),
           lambda pages: said.batch(1, [*map(event, plain(pages))], -1),
           lambda pages: said.payload(b"\xc1"),
           lambda pages: said.frames(b"", b"1234", msgspec.msgpack.encode([1, [*map(event, plain(pages))], 0]))]
    for i, tell in enumerate(bad):
        case(f"bad batch {i}", tell, 0)
    known = prompt()
    said.stored(plain(pages_of(known)))
    said.sequence += 1
    case("after a gap", lambda pages: said.stored(plain(pages)), 20)
    assert both.scores(known) == [cold(PAGES)] * 2, "before it"

    # A salted prompt is not looked up.
    salted = prompt()
    said.stored(plain(pages_of(salted)))
    both.settle()
    assert both.scores(salted, cache_salt="own") == [cold(PAGES)] * 2
    assert both.scores(salted) == [cold(PAGES) - 10] * 2

    ours, theirs = (parse_metrics(urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics").read().decode())
                    for port in (stack.port, both.port))
    errors = "dynamo_router_shared_cache_errors_total"
    assert [sum(value for (name, _), value in found.items() if name == errors) for found in (ours, theirs)] == [len(bad)] * 2
    assert stack.metric("commutator_router_shared_cache_events", outcome="bad") == len(bad)
    assert stack.metric("commutator_router_shared_cache_objects", model=MODEL) > 40


def test_choices_are_those_of_the_reference(stack):
    """One worker holds six blocks itself; what the shared cache has behind them counts for it, and all of it for the other."""
    both = Both(stack, {}, {}, flags=["--shared-cache-multiplier", "0.25"]).subscribed()
    first, second = both.workers
    shared = prompt()[:PAGES * BLOCK]
    tails = itertools.count(1000)
    fresh = lambda: shared + [next(tails) % 6000 for _ in range(TAIL)]
    both.fronts[0].ask(shared[:6 * BLOCK], max_tokens=2, nvext={"backend_instance_id": first})
    until("both know what it holds", lambda: both.scores(fresh(), first) == [cold(PAGES) - 6] * 2)
    both.publisher.stored(plain(pages_of(shared)[4:16]))
    both.settle()
    assert both.scores(fresh(), first) == [cold(PAGES) - 6 - 0.25 * 10] * 2
    assert both.scores(fresh(), second) == [cold(PAGES) - 0.25 * 12] * 2

    chosen = []
    for front in both.fronts:
        log = len(front.process.log())
        front.ask(fresh())
        chosen += until("its choice is told", lambda: re.findall(r"Selected worker\b.*?worker_id=(\d+)", front.process.log()[log:]))
    assert chosen == [str(first)] * 2

    # /explain has the numbers, and they are computed again from the record.
    record = json.loads(stack.get("/decisions?since=0&limit=1000").body.splitlines()[-1])
    assert sorted(row["shared_blocks"] for row in record["candidates"]) == [10, 12], record
    assert record["inputs"]["shared_weight"] == 0.25
    beyond = "dynamo_component_router_shared_cache_beyond_blocks"
    assert stack.metric(f"{beyond}_count") >= 3 and stack.metric("dynamo_router_overhead_shared_cache_query_ms_count") >= 3


@pytest.mark.parametrize("facts, names, pairs", [
    pytest.param({"tp_size": 2, "pp_size": 2, "key_prefix": "tag_m"},
                 lambda page: [f"tag_m_{page}_{r}_{s}_{kind}" for r in range(2) for s in range(2) for kind in KINDS], False,
                 id="ranks-stages-prefix"),
    pytest.param({"tp_size": 2, "tp_lcm_size": 4, "should_split_heads": True, "extra_backend_tag": "t"},
                 lambda page: [f"t_{page}_{r}_{kind}" for r in range(4) for kind in KINDS], False, id="split-heads-tag"),
    pytest.param({"tp_size": 4, "is_mla_model": True, "key_prefix": ""}, lambda page: [f"_{page}__k"], False, id="mla"),
    pytest.param({"is_eagle": True}, lambda page: plain([page]), True, id="eagle"),
])
def test_layouts_are_those_of_the_reference(stack, facts, names, pairs):
    both = Both(stack, facts)
    tokens, other = prompt(), prompt()
    pages = [pages_of(t, pairs)[:10] for t in (tokens, other)]

    def heard():
        both.publisher.stored([name for page in pages[0] for name in names(page)])
        return both.scores(tokens) == [cold(PAGES) - 5] * 2
    until("both count the pages", heard)
    # Without its last object a page is not there.
    both.publisher.stored([name for page in pages[1] for name in names(page)[:-1]])
    both.publisher.stored([names(page)[-1] for page in pages[1][:3]])
    until("both count those that are whole", lambda: both.scores(other) == [cold(PAGES) - 1.5] * 2)


@pytest.mark.parametrize("facts, flags, env, saved", [
    pytest.param([{}, {"kv_events_endpoint": None}], [], {}, 5, id="one-names-no-endpoint"),
    pytest.param([{}, None], [], {}, 5, id="one-says-nothing"),
    pytest.param([{"kv_events_endpoint": "tcp://127.0.0.1:9"}], [], {"DYN_MOONCAKE_KV_EVENTS_ENDPOINT": True}, 5, id="endpoint-given"),
    pytest.param([{}, {"tp_size": 2}], [], {}, 0, id="layouts-differ"),
    pytest.param([{}, {"kv_events_endpoint": "tcp://127.0.0.1:9"}], [], {}, 0, id="endpoints-differ"),
    pytest.param([{"page_size": 32}], [], {}, 0, id="page-is-no-block"),
    pytest.param([{"backend": "nixl"}], [], {}, 0, id="another-store"),
    pytest.param([{}], ["--router-kv-overlap-score-credit", "0"], {}, 0, id="no-credit"),
    pytest.param([{}], ["--shared-cache-multiplier", "0"], {}, 0, id="worth-nothing"),
])
def test_when_it_counts(stack, facts, flags, env, saved):
    publisher = Publisher()
    both = Both(stack, *facts, flags=flags, publisher=publisher, env={name: publisher.endpoint for name in env})
    tokens, at = prompt(), []

    def heard():
        publisher.stored(plain(pages_of(tokens)[:10]))
        at[:] = both.scores(tokens)
        return at == [cold(PAGES) - saved] * 2
    until("both score it so", heard)
    if not saved:  # still so when there was time to hear
        for _ in range(20):
            heard()
        assert at == [cold(PAGES)] * 2


def test_switched_while_running(stack):
    """Ours alone: types and worth are part of the live configuration."""
    live = stack.folder / "routing"
    put(live, "DYN_SHARED_CACHE_TYPE=none\n")
    both = Both(stack, {}, ours=["--router-mode", "kv", "--routing-file", live])
    front, tokens, names = both.fronts[0], prompt(), []
    names += plain(pages_of(tokens)[:10])

    def scored(saved):
        def heard():
            both.publisher.stored(names)
            return Both.score(front, tokens, both.workers[0]) == cold(PAGES) - saved
        until(f"{saved} are saved", heard)

    def configure(text):
        beside = live.with_suffix(".new")
        beside.write_text(text)
        beside.rename(live)
    scored(0)
    assert stack.metric("commutator_router_shared_cache_objects") is None
    configure("DYN_SHARED_CACHE_TYPE=hicache\n")
    scored(5)
    configure("DYN_SHARED_CACHE_TYPE=hicache\nDYN_SHARED_CACHE_MULTIPLIER=1\n")
    scored(10)
    configure("")
    scored(0)
    assert stack.metric("commutator_router_shared_cache_objects") is None


def test_who_ignores_it_is_named(stack):
    routing = stack.folder / "routing"
    put(routing, "DYN_ROUTER_MODE=kv\n")
    stack.frontend("--shared-cache-type", "hicache", "--routing-file", routing, DYN_ROUTER_MODE="kv")
    stack.front.wait_log("configuration in force")
    warned = lambda: re.findall(r"counts for nothing.*ignored_by\W+([\w.-]+)", stack.front.log())
    assert warned() == ["dynamo"], "at the start"
    # Each flip that changes why is told of, one that does not is not.
    for mode, policy, want in (("kv", "dynamo-1.x", []), ("random", "dynamo-1.x", ["random"]), ("random", "dynamo", []),
                               ("kv", "marginal", ["marginal"]), ("kv", "dynamo-1.x", []), ("kv", "dynamo", ["dynamo"])):
        known, flips = warned(), stack.front.log().count("configuration in force")
        put(routing, f"DYN_ROUTER_MODE={mode}\nDYN_ROUTER_POLICY={policy}\n")
        until("it flips", lambda: stack.front.log().count("configuration in force") > flips)
        stack.get("/health")  # a turn of its loop later
        assert warned() == known + want, (mode, policy)


# --- the stand-alone router ---


class Routers:
    """Our stand-alone router and 1.6.1's before the same workers, asked what is held."""

    def __init__(self, stack, *facts, flags=()):
        self.stack, self.publisher = stack, Publisher()
        workers(stack, self.publisher, facts)
        options = ["--endpoint", "dynamo.backend.generate", "--router-block-size", BLOCK, "--shared-cache-type", "hicache", *flags]
        self.ours = stack.start("router", [program("dynamo-router"), "route", *options], DYN_ROUTER_POLICY="dynamo-1.x",
                                DYN_EVENT_PLANE="zmq", DYN_SYSTEM_PORT=0, DYN_SYSTEM_HOST="127.0.0.1")
        self.port = int(self.ours.wait_log(r"serving\b.*?system_port=(\d+)").group(1))
        until("workers", lambda: self.metric("commutator_router_workers") == len(facts))
        mine = dict(self.records("generate"))
        self.theirs = theirs(stack, "router", "-m", "dynamo.router", *options, DYN_NAMESPACE="dynamo")
        self.at = {}
        for endpoint in ("generate", "best_worker_id", "get_overlap_scores"):
            found = until(f"both serve {endpoint}", lambda: len(self.records(endpoint)) == 2 and dict(self.records(endpoint)))
            other, = set(found) - set(mine)
            self.at[endpoint] = [found[other], *(found[router] for router in mine)]
        until("both see the workers", lambda: all(len(told["workers"]) == len(facts) for told in self.told(prompt())))

    def metric(self, wanted):
        found = parse_metrics(urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics").read().decode())
        return sum(value for (name, _), value in found.items() if name == wanted)

    def records(self, endpoint):
        return plane_caller.address_of(self.stack.kv, "dynamo", "router", endpoint)

    def told(self, tokens, **more):
        """By 1.6.1, and by us."""
        told = [plane_caller.call(at, {"token_ids": tokens, **more})[0] for at in self.at["get_overlap_scores"]]
        for answer in told:
            answer["workers"].sort(key=lambda row: row["worker_id"])
        return told

    def hits(self, tokens, **more):
        return [told["shared_cache"]["total_hit_blocks"] for told in self.told(tokens, **more)]

    def settle(self):
        """Returns when both have heard all that was published."""
        tokens = prompt(1)

        def heard():
            self.publisher.stored(plain(pages_of(tokens)))
            return self.hits(tokens) == [1, 1]
        until("it is heard", heard)


def test_stand_alone_routers_tell_the_same(stack):
    both = Routers(stack, {}, {})
    both.settle()
    tokens = prompt()
    pages = pages_of(tokens)
    assert both.hits(tokens) == [0, 0]
    both.publisher.stored(plain([*pages[:1], *pages[3:7], *pages[9:10], *pages[18:]]))
    both.settle()
    theirs, ours = both.told(tokens)
    assert ours == theirs and theirs["shared_cache"]["ranges"] == [[0, 1], [3, 7], [9, 10], [18, 20]]
    for more in ({"include_shared": False}, {"lora_name": "a"}, {"cache_namespace": "a"}, {"include_shared": True},
                 {"router_config_override": {"overlap_score_weight": 0}}):
        theirs, ours = both.told(tokens, **more)
        assert ours == theirs, more
    assert both.told(prompt()[:5])[0] == both.told(prompt()[:5])[1]

    # What one worker holds itself is not counted twice, and decides.
    worker = ours["workers"][0]["worker_id"]
    for generate in both.at["generate"]:
        plane_caller.call(generate, {"token_ids": tokens[:6 * BLOCK], "stop_conditions": {"max_tokens": 2},
                                     "routing": {"backend_instance_id": worker}})
    until("both know what it holds", lambda: [told["workers"][0]["device_blocks"] for told in both.told(tokens)] == [6, 6])
    theirs, ours = both.told(tokens)
    assert ours == theirs and [row["shared_beyond_device_blocks"] for row in theirs["workers"]] == [4, 8]
    log = len(both.ours.log())
    assert [plane_caller.call(best, tokens) for best in both.at["best_worker_id"]] == [[worker]] * 2
    score = re.search(rf"worker_id={worker} .*" + EFFECTIVE.pattern, both.ours.log()[log:])
    assert float(score.group(2)) == cold(PAGES) - 6 - 0.5 * 4

    # A salted request goes without it.
    log = len(both.ours.log())
    plane_caller.call(both.at["generate"][1], {"token_ids": tokens, "stop_conditions": {"max_tokens": 1},
                                               "routing": {"cache_namespace": "own"}})
    assert {float(score) for _, score in EFFECTIVE.findall(both.ours.log()[log:])} == {cold(PAGES)}
    both.publisher.payload(b"\xc1")
    until("what cannot be read is counted", lambda: both.metric("dynamo_router_shared_cache_errors_total") == 1)
    assert both.metric("commutator_router_shared_cache_objects") == 2 * (8 + 2)  # pages of the prompt, and of what settled


@pytest.mark.parametrize("facts, flags, enabled", [
    pytest.param([{}, {"tp_size": 2}], [], True, id="layouts-differ"),
    pytest.param([None], [], True, id="nobody-says-anything"),
    pytest.param([{"page_size": 32}], [], True, id="page-is-no-block"),
    pytest.param([{}], ["--shared-cache-multiplier", "0"], True, id="worth-nothing"),
    pytest.param([{}], ["--router-kv-overlap-score-credit", "0"], False, id="no-credit"),
    pytest.param([{}], ["--load-aware"], False, id="load-aware"),
    pytest.param([{}], ["--no-router-kv-events"], True, id="no-events"),
    pytest.param([{}], ["--shared-cache-type", "none"], False, id="none"),
])
def test_what_stand_alone_routers_call_enabled(stack, facts, flags, enabled):
    both = Routers(stack, *facts, flags=flags)
    theirs, ours = both.told(prompt())
    assert ours == theirs and ours["shared_cache"]["enabled"] == enabled


# --- a real store ---


class Mooncake:
    """A Mooncake master, and a client with a part of its store."""

    def __init__(self, stack):
        made = run(ROOT / "e2e/tools/mooncake-venv", check=False)
        if made.returncode != 0:
            unavailable(f"no Mooncake here: {made.stderr[-300:]}")
        folder = made.stdout.strip()
        rpc, events = free_port(), free_port()
        self.endpoint = f"tcp://127.0.0.1:{events}"
        master = stack.start("mooncake", [f"{folder}/bin/mooncake_master", f"--rpc_port={rpc}", f"--metrics_port={free_port()}",
                                          "--enable_kv_events=true", f"--kv_events_bind_endpoint={self.endpoint}",
                                          "--kv_events_backend_id=store", "--enable_http_metadata_server=false"])
        master.wait_log("kv_events publisher enabled")
        self.client = subprocess.Popen([f"{folder}/bin/python", ROOT / "e2e/mooncake_client.py", f"127.0.0.1:{rpc}"],
                                       stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                                       env={"LD_LIBRARY_PATH": f"{folder}/debian"})
        self.answered()

    def answered(self):
        line = self.client.stdout.readline()
        assert line == "ok\n", f"not answered: {line!r}"

    def tell(self, *words):
        self.client.stdin.write(json.dumps(words) + "\n")
        self.client.stdin.flush()
        self.answered()

    def stop(self):
        self.client.kill()
        self.client.wait()


def test_a_real_store(stack):
    mooncake = Mooncake(stack)
    try:
        both = Both(stack, {"tp_size": 2}, publisher=mooncake)
        tokens, later = prompt(), prompt()
        names = lambda pages: [f"{page}_{rank}_{kind}" for page in pages for rank in range(2) for kind in KINDS]

        def heard():  # each time another page: what is there is not stored again
            known = prompt(1)
            mooncake.tell("put", *names(pages_of(known)))
            return both.scores(known) == [cold(1) - 0.5] * 2
        until("both hear", heard)
        pages = pages_of(tokens)
        mooncake.tell("put", *names(pages[:12]))
        until("twelve pages are there", lambda: both.scores(tokens) == [cold(PAGES) - 6] * 2)
        mooncake.tell("remove", *names(pages[3:4]), *names(pages[7:8])[:1])
        until("two are gone", lambda: both.scores(tokens) == [cold(PAGES) - 5] * 2)
        mooncake.tell("remove_all")
        mooncake.tell("put", *names(pages_of(later)[:2]))
        until("all are gone but new ones", lambda: both.scores(later) == [cold(PAGES) - 1] * 2)
        assert both.scores(tokens) == [cold(PAGES)] * 2
    finally:
        mooncake.stop()
