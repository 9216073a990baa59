# SPDX-License-Identifier: Apache-2.0
"""Discovery through a real etcd: it is killed, emptied, paused and wiped while requests go on; and with
the unmodified programs of ai-dynamo, each in the other's place."""

import base64
import glob
import http.client
import json
import os
import pathlib
import shutil
import socket
import threading

import pytest

from conftest import free_port, program, reference_python, run, unavailable
from reference_router import BOOKINGS, ROUTERS, Theirs
from stack import CHAT, COMPLETIONS, MODEL, MODEL_PATH, PATIENCE, Stack, until, words


def etcd_program():
    """The etcd of the cluster harness, or of the system."""
    built = glob.glob(str(pathlib.Path.home() / ".cache/commutator/cluster/*/etcd"))
    program = os.environ.get("ETCD_BIN") or (built[0] if built else shutil.which("etcd"))
    return program or unavailable("no etcd here (ETCD_BIN)")


class EtcdStack(Stack):
    """A stack whose programs find each other through an etcd of its own."""

    def __init__(self, folder, events=False, tls=()):
        super().__init__(folder, events)
        self.tls = tls
        self.client_port, self.peer_port = free_port(), free_port()
        self.data = folder / "etcd"
        self.start_etcd()

    def start(self, name, command, **env):
        where = dict(DYN_STORE_KV="etcd", ETCD_ENDPOINTS=f"http://127.0.0.1:{self.client_port}")
        return super().start(name, command, **{**where, **env})

    def start_etcd(self):
        """Starts it on the ports and data that it had."""
        client = f"http{'s' if self.tls else ''}://127.0.0.1:{self.client_port}"
        peer = f"http://127.0.0.1:{self.peer_port}"
        self.etcd = super().start("etcd", [
            etcd_program(), "--name", "t", "--data-dir", self.data, "--listen-client-urls", client,
            "--advertise-client-urls", client, "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
            "--initial-cluster", f"t={peer}", "--log-level", "error", "--unsafe-no-fsync", *self.tls])
        until("etcd answers", lambda: self.listens() if self.tls else self.keys() is not None)

    def listens(self):
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.client_port)) == 0

    def ask(self, path, body):
        """The answer of etcd's JSON gateway; None while it does not."""
        connection = http.client.HTTPConnection("127.0.0.1", self.client_port, timeout=PATIENCE)
        try:
            connection.request("POST", path, json.dumps(body))
            response = connection.getresponse()
            return json.loads(response.read()) if response.status == 200 else None
        except (OSError, http.client.HTTPException):
            return None
        finally:
            connection.close()

    def keys(self, prefix="v1/"):
        """{key: record} of all below the prefix."""
        code = lambda text: base64.b64encode(text.encode()).decode()
        answer = self.ask("/v3/kv/range", {"key": code(prefix), "range_end": code(prefix[:-1] + chr(ord(prefix[-1]) + 1))})
        if answer is None:
            return None
        text = lambda coded: base64.b64decode(coded).decode()
        self.leases = {text(kv["key"]): int(kv.get("lease", 0)) for kv in answer.get("kvs", [])}
        return {text(kv["key"]): json.loads(text(kv["value"])) for kv in answer.get("kvs", [])}

    def instances_in_etcd(self):
        return {record["instance_id"] for record in (self.keys("v1/instances/") or {}).values()
                if record["endpoint"] == "generate"}

    def wipe(self):
        self.etcd.kill()
        shutil.rmtree(self.data)
        self.start_etcd()

    def notes(self):
        return " | ".join(self.get("/health").json["notes"])

    def kept(self):
        return self.metric("commutator_discovery_kept_workers")

    def is_up(self):
        return self.metric("commutator_discovery_up") == 1


@pytest.fixture
def stack(tmp_path):
    with EtcdStack(tmp_path) as stack:
        yield stack


def test_register_serve_and_leave(stack):
    worker = stack.mocker(workers=2)
    stack.frontend()
    stack.ready(2)
    instances, keys = stack.instances_in_etcd(), stack.keys()
    assert len(instances) == 2 and set(stack.instances()) == instances
    # A record is under the lease that names its instance, as the reference has it.
    for key, record in keys.items():
        if key.startswith(("v1/instances/", "v1/mdc/")):
            assert stack.leases[key] == record["instance_id"] and key.endswith(f"/{record['instance_id']:x}")
    stack.chat("Hello")
    assert worker.stop() == 0
    assert stack.keys() == {}  # at once, not when a lease ends
    until("the model is gone", lambda: stack.models() == [])
    stack.mocker(workers=1)
    stack.ready(1)


def test_killed_worker_leaves_with_its_lease(stack):
    stack.frontend()
    stack.mocker()
    stack.ready(1)
    dead = stack.mocker(ETCD_LEASE_TTL=2)
    stack.ready(2)
    dead.kill()
    until("only the other one is left", lambda: stack.workers() == 1)
    assert stack.kept() == 0
    stack.chat("Hello")


def test_etcd_away_and_back(stack):
    stack.mocker(workers=2)
    stack.frontend()
    stack.ready(2)
    before = stack.instances()
    stack.etcd.kill()
    until("it is noticed", lambda: not stack.is_up())
    until("the view gets older", lambda: (stack.metric("commutator_discovery_view_age_seconds") or 0) > 0)
    assert stack.kept() == 2 and "store is not reachable" in stack.notes()
    for _ in range(4):
        stack.chat("Hello")
    late = stack.mocker()  # waits for etcd
    stack.start_etcd()
    until("it is back", stack.is_up)
    until("the late one is there too", lambda: stack.workers() == 3)
    until("all are told again", lambda: stack.kept() == 0)
    assert set(before) < set(stack.instances()) and stack.notes() == ""
    assert stack.front.log().count("discovery is down") == stack.front.log().count("discovery is up") == 1
    assert late.alive()


def test_emptied_etcd_takes_no_healthy_worker(stack):
    """It loses its data: workers that are well stay, one that died meanwhile goes at the deadline."""
    stack.mocker(workers=2)
    dead = stack.mocker()
    stack.frontend("--discovery-keep", "30s")
    stack.ready(3)
    before = set(stack.instances())
    stack.etcd.kill()
    until("it is noticed", lambda: not stack.is_up())
    dead.kill()
    shutil.rmtree(stack.data)
    stack.start_etcd()
    until("it is back", stack.is_up)
    assert stack.workers() == 3 and stack.models() == [MODEL]
    until("the living ones have registered again", lambda: len(stack.instances_in_etcd()) == 2)
    until("one is kept", lambda: stack.kept() == 1)
    assert "lost 1 of 3 workers" in stack.notes()
    stack.chat("Hello")  # left by the request path, if it was chosen
    until("the dead one is given up", lambda: stack.workers() == 2 and stack.kept() == 0)
    assert set(stack.instances()) < before  # the same ids as before
    log = stack.front.log()
    assert log.count("lost workers that may be healthy") == log.count("no worker is kept any more") == 1


def test_stalled_etcd_lets_leases_end(stack):
    """It stands still for longer than leases live, and ends them all when it goes on."""
    stack.mocker(workers=2, ETCD_LEASE_TTL=2)
    stack.frontend()
    stack.ready(2)
    before = stack.instances()
    stack.etcd.pause()
    until("it is noticed", lambda: not stack.is_up())
    stack.etcd.resume()
    until("it is back", stack.is_up)
    until("both have registered again", lambda: stack.instances_in_etcd() == set(before))
    until("none is kept any more", lambda: stack.kept() == 0)
    assert stack.instances() == before and stack.workers() == 2
    assert "worker removed" not in stack.front.log()


def test_somebody_deletes_all_keys(stack):
    stack.mocker(workers=2)
    stack.frontend()
    stack.ready(2)
    before = set(stack.instances())
    assert stack.ask("/v3/kv/deleterange", {"key": "djEv", "range_end": "djEw"})
    until("the frontend has seen it", lambda: "lost workers that may be healthy" in stack.front.log())
    assert stack.workers() == 2
    stack.chat("Hello")
    until("they have registered again", lambda: stack.instances_in_etcd() == before)
    until("none is kept any more", lambda: stack.kept() == 0)


def test_users_and_passwords(stack):
    for path, body in (("user/add", {"name": "root", "password": "s3cret"}), ("role/add", {"name": "root"}),
                       ("user/grant", {"user": "root", "role": "root"}), ("enable", {})):
        assert stack.ask(f"/v3/auth/{path}", body) is not None
    login = dict(ETCD_AUTH_USERNAME="root", ETCD_AUTH_PASSWORD="s3cret")
    stack.mocker(**login)
    stack.frontend(**login)
    stack.ready(1)
    stack.chat("Hello")
    stack.front.stop()
    stack.frontend(ETCD_AUTH_USERNAME="root", ETCD_AUTH_PASSWORD="wrong")
    until("it is said", lambda: "log in as root" in stack.notes())
    assert "wrong" not in stack.front.log() and stack.models() == []


def test_event_channels_through_etcd(tmp_path):
    """Publishers on ZeroMQ are found by their records: the workers', and a frontend's own."""
    with EtcdStack(tmp_path) as stack:
        stack.mocker(workers=2, DYN_EVENT_PLANE="zmq")
        stack.frontend("--router-mode", "kv", "--event-plane", "zmq", DYN_KV_EVENTS="true")
        stack.ready(2)
        ids = [1000 + i for i in range(320)]

        def indexed():
            assert stack.request("POST", COMPLETIONS, stack.body(ids, COMPLETIONS)).status == 200
            return stack.metric("commutator_router_index_blocks", model=MODEL) >= 20
        until("KV events fill the index", indexed)
        workers = stack.instances_in_etcd()
        own = until("its own channels are there", lambda: [
            key for key in stack.keys("v1/event_channels/") if stack.leases[key] not in workers | {0}])
        assert stack.front.stop() == 0
        assert not set(own) & set(stack.keys())


@pytest.mark.parametrize("version, backend", [("0.9.0", "--store-kv"), ("1.6.1", "--discovery-backend")])
def test_routers_hear_each_other_without_a_broker(stack, version, backend):
    """Over ZeroMQ: what each places, the other books, until the lease of the one that told it ends."""
    stack.start_nats("-js")  # 0.9.0 does not start without
    stack.mocker(speedup=2, DYN_EVENT_PLANE="zmq")
    stack.frontend("--router-mode", "kv", "--router-replica-sync", DYN_EVENT_PLANE="zmq", DYN_KV_EVENTS="true")
    stack.ready(1)
    theirs = Theirs(stack, version, "zmq", backend, "etcd")
    until("it is heard", lambda: theirs.ask([5, 6, 7])[0] == 200 and stack.metric(ROUTERS) == 1)
    stream = stack.stream(words(400), max_tokens=100000, ignore_eos=True)
    next(stream.events)
    until("ours counts at theirs", lambda: theirs.ask([5, 6, 7])[0] == 200 and theirs.decode_blocks() > 15)
    stream.close()
    until("all of theirs is freed", lambda: not stack.metric(BOOKINGS))
    long = threading.Thread(target=lambda: theirs.ask([1000 + i for i in range(320)], max_tokens=3000, ignore_eos=True))
    long.start()
    until("theirs is booked", lambda: stack.metric(BOOKINGS) == 1)
    theirs.kill()
    long.join()
    until("it is gone", lambda: not stack.metric(BOOKINGS) and not stack.metric(ROUTERS))


def test_router_service_through_etcd(stack):
    stack.mocker(workers=2)
    router = stack.start("router", [program("dynamo-router"), "route", "--endpoint", "dynamo.backend.generate",
                                    "--block-size", 16], DYN_SYSTEM_PORT=0, DYN_SYSTEM_HOST="127.0.0.1",
                         DYN_KV_EVENTS="false")
    until("it has registered", lambda: {"generate", "best_worker_id"} <= {
        record["endpoint"] for record in stack.keys("v1/instances/dynamo/router/").values()})
    stack.port = int(router.wait_log(r"system_port=(\d+)").group(1))
    until("it knows the workers", lambda: stack.metric("commutator_router_workers") == 2)
    stack.port = None
    assert router.stop() == 0
    assert not stack.keys("v1/instances/dynamo/router/")


def test_certificates(tmp_path):
    """etcd that shows a certificate of a private authority, and asks for one of its."""
    if not shutil.which("openssl"):
        unavailable("no openssl to make certificates with")
    def make(name, *more):
        run("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days",
            "2", "-subj", f"/CN={name}", "-keyout", tmp_path / f"{name}.key", "-out", tmp_path / f"{name}.crt", *more)
    make("ca")
    for name in ("server", "client"):
        make(name, "-CA", tmp_path / "ca.crt", "-CAkey", tmp_path / "ca.key", "-addext", "subjectAltName=IP:127.0.0.1",
             "-addext", "basicConstraints=critical,CA:FALSE")
    pem = lambda name, kind: str(tmp_path / f"{name}.{kind}")
    with EtcdStack(tmp_path, tls=["--cert-file", pem("server", "crt"), "--key-file", pem("server", "key"),
                                  "--trusted-ca-file", pem("ca", "crt"), "--client-cert-auth"]) as stack:
        trust = dict(ETCD_ENDPOINTS=f"https://127.0.0.1:{stack.client_port}", ETCD_AUTH_CA=pem("ca", "crt"))
        shown = dict(ETCD_AUTH_CLIENT_CERT=pem("client", "crt"), ETCD_AUTH_CLIENT_KEY=pem("client", "key"))
        stack.mocker(**trust, **shown)
        stack.frontend(**trust, **shown)
        stack.ready(1)
        stack.chat("Hello")
        assert stack.front.stop() == 0
        stack.frontend(**trust)  # shows none
        until("it is refused, and says so", lambda: "not reachable" in stack.notes())
        assert stack.models() == []


# --- the reference, both ways ---

@pytest.fixture(params=["0.9.0", "1.6.1"], scope="session")
def reference(request):
    """Starts programs of a release with etcd as the generation names it."""
    python = reference_python(request.param)
    store = "--store-kv" if request.param.startswith("0.") else "--discovery-backend"

    def start(stack, module, *flags):
        link = stack.folder / MODEL  # the reference names a model by the path that it is given
        if not link.exists():
            link.symlink_to(MODEL_PATH)
        return stack.start(f"reference-{module}", [python, "-m", f"dynamo.{module}", store, "etcd", "--request-plane",
                                                   "tcp", *flags],
                           HF_HUB_OFFLINE="1", DYN_EVENT_PLANE="nats", PYTHONUNBUFFERED="1", ETCD_LEASE_TTL="10",
                           **({} if store == "--store-kv" else {"DYN_DISCOVERY_BACKEND": "etcd"}))
    start.old = store == "--store-kv"
    return start


@pytest.fixture
def nats_stack(tmp_path):
    with EtcdStack(tmp_path, events=True) as stack:
        stack.start_nats("-js")
        yield stack


def test_our_frontend_serves_their_workers(nats_stack, reference):
    stack = nats_stack
    flags = ("--model-path", MODEL, "--block-size", "16", "--speedup-ratio", "100")
    workers = [reference(stack, "mocker", *flags, *(("--enable-local-indexer",) if reference.old else ()))
               for _ in range(2)]
    stack.frontend("--router-mode", "kv")
    until("both are found", lambda: stack.workers() == 2)
    stack.ready(2)
    served = lambda: stack.request("POST", CHAT, stack.body("Hello", max_tokens=7, ignore_eos=True)).status == 200
    until("they answer", served)  # a mocker registers a moment before its engine is there
    answer = stack.chat("Say something.", max_tokens=7, ignore_eos=True)
    assert answer.text and answer.usage["completion_tokens"] == 7
    ids = stack.instances_in_etcd()
    assert set(stack.instances()) <= ids

    # etcd away and back with its data: none of them goes.
    stack.etcd.kill()
    until("it is noticed", lambda: not stack.is_up())
    stack.start_etcd()
    until("it is back", stack.is_up)
    assert stack.workers() == 2
    stack.chat("Hello")
    # What a worker has reported last stands as long as it does.
    until("it has reported that it is idle", lambda: not stack.loads())
    workers[0].kill()
    until("its lease ends, and the store is believed", lambda: len(stack.instances_in_etcd()) == 1)


def test_their_frontend_drives_our_workers(nats_stack, reference):
    stack = nats_stack
    stack.mocker(workers=2)
    stack.port = free_port()
    front = reference(stack, "frontend", "--http-host", "127.0.0.1", "--http-port", stack.port, "--event-plane", "nats")

    def served():
        try:
            return stack.request("POST", CHAT, stack.body("Hello", max_tokens=7, ignore_eos=True)).status == 200
        except OSError:
            assert front.alive(), front.log()[-2000:]
            return False
    until("their frontend serves our model", served)
    answer = stack.request("POST", CHAT, stack.body("Hello", max_tokens=7, ignore_eos=True))
    assert answer.usage["completion_tokens"] == 7
    # One that comes later, and one that leaves.
    late = stack.mocker()
    until("it is in etcd", lambda: len(stack.instances_in_etcd()) >= 3)
    assert late.stop() == 0
    until("their frontend does without it, of which it hears by and by", served)
    stack.port = None  # what our own frontend is asked at the end is not there
