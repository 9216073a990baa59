# SPDX-License-Identifier: Apache-2.0
"""Cards and files of models: from workers, hubs and caches; several models, changed cards, adapters."""

import json
import os
import re
import shutil
import subprocess
import threading
import time

import pytest
import sentencepiece

import fake_worker
import file_store
from conftest import ROOT, free_port, program, reference_python
from fake_hub import COMMIT, FakeHub
from fake_worker import FakeWorker
from stack import CHAT, COMPLETIONS, MODEL, MODEL_PATH, Stack, decision_for, until
from tokens import pieces

REPOSITORY = "org/small-model"
NAMES = ("config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "generation_config.json")


@pytest.fixture
def stack(tmp_path):
    with Stack(tmp_path, events=False) as stack:
        yield stack


@pytest.fixture
def hub(request):
    hub = FakeHub(MODEL_PATH, REPOSITORY, **getattr(request, "param", {}))
    yield hub
    hub.close()


@pytest.fixture(params=["1.6.1"], scope="session")
def newer(request):
    return reference_python(request.param)


def copy_model(folder):
    folder.mkdir(parents=True)
    for name in NAMES:
        shutil.copyfile(MODEL_PATH / name, folder / name)
    return folder


def start_mocker(stack, folder, name, workers=1, **env):
    return stack.start(f"mocker-{name.replace('/', '-')}",
                       [program("dynamo-mocker"), "--model-path", folder, "--model-name", name, "--block-size", 16,
                        "--num-workers", workers, "--speedup-ratio", 50], DYN_EVENT_PLANE="none", **env)


def cards(stack):
    return file_store.records(stack.kv, "mdc")


def distant_worker(stack, name=REPOSITORY):
    """A worker whose files are on its disk alone."""
    folder = copy_model(stack.folder / "its-disk")
    mocker = start_mocker(stack, folder, name)
    until("its card is there", lambda: cards(stack))
    folder.rename(stack.folder / "not-here")
    return mocker


def say(stack, model, content="Hello", **more):
    # Words are drawn at random, and some are empty: so many cannot all be.
    return stack.request("POST", CHAT, {"model": model, "max_tokens": 24,
                                        "messages": [{"role": "user", "content": content}], **more})


def served(stack, model):
    until(f"{model} is served", lambda: model in stack.models())
    answer = until(f"{model} has a worker", lambda: (a := say(stack, model)).status == 200 and a)
    assert answer.text


@pytest.mark.parametrize("name", ["llama2", "t5"])
def test_folder_with_only_a_sentencepiece_model(stack, name):
    """No tokenizer.json: prompts are those of tokenizer.model, and the template's special tokens are found."""
    folder, template = copy_model(stack.folder / "pieces"), "{{ eos_token }}{% for m in messages %}[{{ m.content }}] {% endfor %}"
    for gone in ("tokenizer.json", "chat_template.jinja", "generation_config.json"):
        (folder / gone).unlink()
    (folder / "tokenizer.model").write_bytes(pieces.train(name))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "</s>", "chat_template": template}))
    start_mocker(stack, folder, "pieces")
    stack.frontend("--router-mode", "kv")
    served(stack, "pieces")
    theirs = sentencepiece.SentencePieceProcessor(model_proto=pieces.train(name))
    for content in ("Hello", "the  license of\n naïve 中文 😀 work" * 40):
        answer = say(stack, "pieces", content)
        assert answer.status == 200, answer.body
        assert answer.json["usage"]["prompt_tokens"] == 1 + len(theirs.encode(f"[{content}] "))
        assert answer.json["choices"][0]["message"]["content"]
        answer = stack.request("POST", COMPLETIONS, {"model": "pieces", "max_tokens": 3, "prompt": content})
        assert answer.json["usage"]["prompt_tokens"] == len(theirs.encode(content))


# --- files --------------------------------------------------------------------------------------------------------------


def test_files_that_their_workers_serve(stack, newer):
    (stack.folder / "there").mkdir()  # a path that means nothing to the frontend
    (stack.folder / "there" / MODEL).symlink_to(MODEL_PATH)
    stack.start("reference-mocker", ["env", "-C", stack.folder / "there", newer, "-m", "dynamo.mocker", "--model-path", MODEL, "--block-size", "16",
                                     "--speedup-ratio", "100", "--request-plane", "tcp"],
                HF_HUB_OFFLINE="1", DYN_DISCOVERY_BACKEND="file", DYN_EVENT_PLANE="zmq", DYN_SYSTEM_PORT=free_port())
    stack.frontend(HF_HOME=stack.folder / "hf")
    served(stack, MODEL)
    assert all(c["card_json"]["tokenizer"]["hf_tokenizer_json"]["path"].startswith("http://") for c in cards(stack))
    assert stack.metric("commutator_model_files", model=MODEL, kind="fetched") == 5
    assert stack.metric("commutator_model_files", model=MODEL, kind="differs") == 0
    kept = list((stack.folder / "hf/hub/.commutator").iterdir())
    assert len(kept) == 5 and (MODEL_PATH / "tokenizer.json").read_bytes() in [path.read_bytes() for path in kept]


def test_download_from_a_hub(stack, hub):
    """Two frontends of one node, a hub that breaks answers off and damages one: each file comes once."""
    distant_worker(stack)
    hub.breaks, hub.damages = 2, 1
    env = {"HF_HOME": stack.folder / "hf", "HF_ENDPOINT": hub.url, "DYN_KV_EVENTS": "false"}
    other = stack.start("other-frontend", [program("dynamo-frontend"), "--http-host", "127.0.0.1", "--http-port", 0], **env)
    stack.frontend(**env)
    served(stack, REPOSITORY)
    other.wait_log("model ready")
    repo = stack.folder / "hf/hub/models--org--small-model"
    assert (repo / "refs/main").read_text() == COMMIT
    for name in NAMES:
        path = repo / "snapshots" / COMMIT / name
        assert path.is_symlink() and path.read_bytes() == (MODEL_PATH / name).read_bytes()
    assert not list(repo.glob("blobs/*.incomplete"))
    assert len(hub.asked) == len(NAMES) + 3
    assert [begin for _, _, begin in hub.asked if begin > 0]  # the rest was asked for, not all again
    assert stack.metric("commutator_model_files", model=REPOSITORY, kind="differs") == 0


def test_the_cache_has_a_bound(stack):
    """What came from the hub and nobody uses goes for what comes; what another process uses stays."""
    disk = copy_model(stack.folder / "disk")
    with open(disk / "tokenizer.json", "a") as tokenizer:
        tokenizer.write(" " * 700_000)
    hub = FakeHub(disk, "org/(?:one|two|three)")
    env = {"HF_HOME": stack.folder / "hf", "HF_ENDPOINT": hub.url, "COMMUTATOR_MODEL_CACHE_MB": 1}
    kept = lambda: sorted(path.name.removeprefix("models--org--") for path in (stack.folder / "hf/hub").glob("models--*"))

    def distant(name):
        folder = stack.folder / f"its-{name}"
        shutil.copytree(disk, folder)
        before = len(cards(stack))
        worker = start_mocker(stack, folder, f"org/{name}")
        until("its card is there", lambda: len(cards(stack)) > before)
        shutil.rmtree(folder)
        served(stack, f"org/{name}")
        return worker

    def leave(worker, name):
        assert worker.stop() == 0
        until("its model is not served any more", lambda: f"org/{name}" not in stack.models())
    stack.frontend(**env)
    leave(distant("one"), "one")
    assert kept() == ["one"] and stack.metric("commutator_model_cache_evictions_total") == 0
    two = distant("two")
    assert kept() == ["two"] and stack.metric("commutator_model_cache_evictions_total") == 1
    assert 700_000 < stack.metric("commutator_model_cache_bytes") <= 1 << 20
    three = start_mocker(stack, "org/three", "org/three", **env)  # its own cache is the same folder
    served(stack, "org/three")
    assert kept() == ["three", "two"] and "above its bound" in three.log()
    leave(two, "two")
    one = start_mocker(stack, "org/one", "org/one", **env)
    served(stack, "org/one")
    assert kept() == ["one", "three"]
    for worker in (one, three):
        assert worker.stop() == 0
    hub.close()


@pytest.mark.parametrize("hub", [{"token": "hf_secret_word"}], indirect=True)
def test_a_hub_that_wants_a_token(stack, hub):
    distant_worker(stack)
    stack.frontend(HF_HOME=stack.folder / "hf", HF_ENDPOINT=hub.url)
    stack.front.wait_log("HF_TOKEN is not set")
    answer = say(stack, REPOSITORY)
    assert answer.status == 503 and "HF_TOKEN is not set" in answer.json["message"]
    assert stack.front.stop() == 0
    stack.frontend(HF_HOME=stack.folder / "hf", HF_ENDPOINT=hub.url, HF_TOKEN="hf_secret_word", DYN_LOG="debug")
    served(stack, REPOSITORY)
    assert hub.leaked == 0 and hub.gets("tokenizer.json")
    assert all("hf_secret_word" not in process.log() for process in stack.processes)


def test_without_a_hub_it_is_said_what_is_missing(stack):
    """And when the files come, by whatever way, they are found."""
    distant_worker(stack)
    begun = time.monotonic()
    stack.frontend("--model-root", stack.folder / "volume", HF_HOME=stack.folder / "hf")
    stack.front.wait_log("set HF_ENDPOINT")
    answer = say(stack, REPOSITORY)
    assert answer.status == 503 and "config.json" in answer.json["message"]
    assert stack.models() == []
    failed = stack.metric("commutator_model_loads_total", model=REPOSITORY, outcome="failed")
    assert 1 <= failed <= 1 + (time.monotonic() - begun) // 5  # seconds until it is tried again
    copy_model(stack.folder / "volume" / REPOSITORY)
    served(stack, REPOSITORY)


def test_stopping_in_the_middle_of_a_download(stack, hub):
    distant_worker(stack)
    hub.held = threading.Event()
    stack.frontend(HF_HOME=stack.folder / "hf", HF_ENDPOINT=hub.url)
    until("it downloads", lambda: hub.asked)
    assert stack.front.stop() == 0  # soon: the hub would hold it up for longer
    hub.held.set()
    hub.held = None
    stack.frontend(HF_HOME=stack.folder / "hf", HF_ENDPOINT=hub.url)
    served(stack, REPOSITORY)


def test_a_worker_by_its_models_name_at_the_hub(stack, hub):
    env = {"HF_HOME": stack.folder / "hf", "HF_ENDPOINT": hub.url}
    refused = start_mocker(stack, "no/such-model", "m", **env)
    until("it says why", lambda: "does not have it" in refused.log())
    assert refused.end() == 1
    worker = start_mocker(stack, REPOSITORY, REPOSITORY, **env)
    until("its card is there", lambda: cards(stack))
    assert cards(stack)[0]["card_json"]["tokenizer"]["hf_tokenizer_json"]["path"].endswith(f"{COMMIT}/tokenizer.json")
    assert len(hub.asked) == len(NAMES)
    stack.frontend()
    served(stack, REPOSITORY)
    assert worker.stop() == 0
    start_mocker(stack, REPOSITORY, REPOSITORY, HF_HOME=stack.folder / "hf", HF_HUB_OFFLINE="1")
    served(stack, REPOSITORY)


def test_files_that_our_workers_serve(stack, newer):
    """To our frontend and to theirs, which have no folder in common with the worker."""
    folder = copy_model(stack.folder / "its-disk")
    start_mocker(stack, folder, MODEL, DYN_SELF_HOST_METADATA="true", DYN_SYSTEM_PORT="0")
    until("its card is there", lambda: cards(stack))
    folder.rename(stack.folder / "not-here")
    stack.frontend(HF_HOME=stack.folder / "hf")
    served(stack, MODEL)
    assert stack.metric("commutator_model_files", model=MODEL, kind="fetched") == 5
    port = free_port()
    stack.start("reference-frontend", [newer, "-m", "dynamo.frontend", "--http-host", "127.0.0.1", "--http-port", port],
                DYN_DISCOVERY_BACKEND="file", DYN_EVENT_PLANE="zmq", HF_HUB_OFFLINE="1", HF_HOME=stack.folder / "hf2")
    mine, stack.port = stack.port, port

    def answered():
        try:
            return say(stack, MODEL).status == 200
        except OSError:
            return False
    until("their frontend serves it", answered)
    stack.port = mine


def their_client(python, hf, code, **env):
    """Runs code with hf_hub_download() of the published huggingface_hub."""
    made = subprocess.run([python, "-c", f"from huggingface_hub import hf_hub_download\n{code}"], text=True,
                          capture_output=True, env={**os.environ, "HF_HOME": str(hf), "HF_HUB_DISABLE_XET": "1",
                                                    "HF_HUB_DISABLE_TELEMETRY": "1", **env})
    assert made.returncode == 0, made.stderr
    return made.stdout.split()


def test_one_cache_with_hugging_faces_own_client(stack, hub, newer):
    hf = stack.folder / "hf"
    theirs = their_client(newer, hf, "\n".join(f"print(hf_hub_download({REPOSITORY!r}, {n!r}))" for n in NAMES),
                          HF_ENDPOINT=hub.url)
    assert len(theirs) == len(NAMES)
    distant_worker(stack)
    stack.frontend(HF_HOME=hf, HF_HUB_OFFLINE="1")
    served(stack, REPOSITORY)
    assert len(hub.asked) == len(NAMES)
    # The other way round.
    assert stack.front.stop() == 0
    shutil.rmtree(hf)
    stack.frontend(HF_HOME=hf, HF_ENDPOINT=hub.url)
    served(stack, REPOSITORY)
    again = their_client(newer, hf, "\n".join(
        f"print(hf_hub_download({REPOSITORY!r}, {n!r}, local_files_only=True))" for n in NAMES), HF_HUB_OFFLINE="1")
    assert again == theirs
    assert len(hub.asked) == 2 * len(NAMES)
    their_client(newer, hf, "\n".join(f"print(hf_hub_download({REPOSITORY!r}, {n!r}))" for n in NAMES),
                 HF_ENDPOINT=hub.url)
    assert len(hub.asked) == 2 * len(NAMES)  # it knows every file by our names for them


def test_the_revision_that_the_worker_has(stack):
    """Of two snapshots the one with the card's checksums; when there is none, what is there, with a warning."""
    distant_worker(stack)
    snapshots = stack.folder / "hf/hub/models--org--small-model/snapshots"
    copy_model(snapshots / "right")
    newest = copy_model(snapshots / "newest")
    (newest / "chat_template.jinja").write_text("{{ messages[0].content }} and more")
    (snapshots.parent / "refs").mkdir()
    (snapshots.parent / "refs/main").write_text("newest")
    stack.frontend(HF_HOME=stack.folder / "hf")
    served(stack, REPOSITORY)
    assert stack.metric("commutator_model_files", model=REPOSITORY, kind="differs") == 0
    assert stack.front.stop() == 0
    shutil.rmtree(snapshots / "right")
    stack.frontend(HF_HOME=stack.folder / "hf")
    served(stack, REPOSITORY)
    assert stack.metric("commutator_model_files", model=REPOSITORY, kind="differs") == 1
    assert "model file differs from the worker's" in stack.front.log()


# --- models -------------------------------------------------------------------------------------------------------------


def test_several_models(stack):
    mockers = {name: start_mocker(stack, MODEL_PATH, name, DYN_NAMESPACE=space)
               for name, space in (("one", "a"), ("two", "b"))}
    stack.frontend()
    for name in mockers:
        served(stack, name)
    assert sorted(stack.models()) == ["one", "two"]
    assert stack.metric("commutator_router_workers", model="one") == 1
    assert mockers["one"].stop() == 0
    until("its model is gone", lambda: stack.models() == ["two"])
    assert say(stack, "one").status == 404
    served(stack, "two")
    assert stack.metric("commutator_router_workers", model="one") is None


@pytest.mark.parametrize("tag", ["include 'parts'", "from 'parts' import turn"])
def test_chat_template_that_cannot_be_used(stack, tag):
    """Completions are served; who chats is told the line and the reason, and so is who looks at the health."""
    folder = copy_model(stack.folder / "several-files")
    (folder / "chat_template.jinja").write_text("{# turns #}\n{% " + tag + " %}\n")
    start_mocker(stack, folder, REPOSITORY)
    stack.frontend()
    until("it is served", lambda: REPOSITORY in stack.models())
    question = {"model": REPOSITORY, "prompt": "Hello", "max_tokens": 4}
    until("it completes", lambda: stack.request("POST", COMPLETIONS, question).status == 200)
    told = "chat template: line 2: unsupported tag " + tag.split()[0]
    refusal = say(stack, REPOSITORY)
    assert refusal.status == 400 and told in refusal.json["error"]["message"]
    assert any(told in note for note in stack.get("/health").json["notes"])


class CardWorker(FakeWorker):
    """One with records of its own: a base model and adapters."""

    def __init__(self, kv, card, worker_id, behaviour=fake_worker.STORY):
        self.kv, self.card = kv, card
        super().__init__(kv, behaviour, worker_id)

    def write(self, bucket, key, record):
        path = self.kv / "v1" / bucket / re.sub(rb"[^A-Za-z0-9]", lambda c: b"%%%02X" % c[0][0], key.encode()).decode()
        path.parent.mkdir(parents=True, exist_ok=True)
        whole = self.kv / f"whole-{self.worker_id:x}"
        whole.write_text(json.dumps(record))
        whole.rename(path)  # at no moment is there none: the worker would be taken for gone
        return path

    def put_card(self, card, suffix=""):
        key = f"dynamo/backend/generate/{self.worker_id:x}" + (f"/{suffix}" if suffix else "")
        path = self.write("mdc", key, {"type": "Model", "namespace": "dynamo", "component": "backend", "endpoint": "generate",
                                       "instance_id": self.worker_id, "card_json": card,
                                       **({"model_suffix": suffix} if suffix else {})})
        if path not in self.records.paths:
            self.records.paths.append(path)

    def _put(self, kv, bucket):
        key = f"dynamo/backend/generate/{self.worker_id:x}"
        if bucket == "mdc":
            return self.write(bucket, key, {"type": "Model", "namespace": "dynamo", "component": "backend",
                                            "endpoint": "generate", "instance_id": self.worker_id, "card_json": self.card})
        return self.write(bucket, key, {"type": "Endpoint", "namespace": "dynamo", "component": "backend",
                                        "endpoint": "generate", "instance_id": self.worker_id,
                                        "transport": {"tcp": f"127.0.0.1:{self.port}/{self.worker_id:x}/generate"}})


def card_of(stack, folder, name=MODEL):
    """The card that our mocker writes for a folder."""
    mocker = start_mocker(stack, folder, name)
    card = until("its card is there", lambda: cards(stack))[0]["card_json"]
    assert mocker.stop() == 0
    until("it is withdrawn", lambda: not cards(stack))
    return card


def test_changed_card(stack):
    """New requests use the new template, the one under way ends as it began, and a card whose files are missing changes
    nothing."""
    old = card_of(stack, copy_model(stack.folder / "old"))
    folder = copy_model(stack.folder / "new")
    (folder / "chat_template.jinja").write_text("{% for m in messages %}{{ m.content }}{% endfor %}")
    new = card_of(stack, folder)
    worker = CardWorker(stack.kv, old, 0x77)
    stack.frontend()
    served(stack, MODEL)
    long_prompt = worker.bodies[-1]["token_ids"]

    worker.wait_at = len(long_prompt) + 2
    under_way = stack.stream("Hello", max_tokens=4)
    next(under_way.events)
    worker.wait_at = None
    worker.put_card(new)
    stack.front.wait_log("the changed model card is in force")
    assert say(stack, MODEL).status == 200
    short_prompt = worker.bodies[-1]["token_ids"]
    assert len(short_prompt) < len(long_prompt)
    assert worker.bodies[-1]["mdc_sum"] != worker.bodies[-2]["mdc_sum"]
    under_way.close()

    broken = json.loads(json.dumps(new).replace(str(folder), str(stack.folder / "nowhere")))
    broken["context_length"] = 1234
    broken["chat_template_file"]["hf_chat_template"]["file"]["checksum"] = "blake3:" + 64 * "0"
    broken["display_name"] = MODEL
    worker.put_card(broken)
    stack.front.wait_log("model cannot be served, trying again")
    assert say(stack, MODEL).status == 200
    assert worker.bodies[-1]["token_ids"] == short_prompt
    assert stack.models() == [MODEL]
    worker.close()
    until("the model is gone", lambda: stack.models() == [])


def test_workers_with_different_cards(stack):
    """As in the reference the first card stands, the other is refused aloud, and its worker is routed to."""
    old = card_of(stack, copy_model(stack.folder / "old"))
    folder = copy_model(stack.folder / "new")
    (folder / "chat_template.jinja").write_text("{% for m in messages %}{{ m.content }}{% endfor %}")
    new = card_of(stack, folder)
    first = CardWorker(stack.kv, old, 0x77)
    stack.frontend()
    served(stack, MODEL)
    second = CardWorker(stack.kv, new, 0x78)
    stack.front.wait_log("model card differs from that of the served model, ignored")
    assert stack.metric("commutator_discovery_refused_cards") == 1
    until("both are asked", lambda: say(stack, MODEL).status == 200 and first.requests and second.requests)
    assert first.bodies[-1]["token_ids"] == second.bodies[-1]["token_ids"]
    first.close()  # the other card defines the model now
    stack.front.wait_log("the changed model card is in force")
    stack.front.wait_log("worker gone")  # its records are removed one after the other
    assert say(stack, MODEL).status == 200
    assert len(second.bodies[-1]["token_ids"]) < len(first.bodies[-1]["token_ids"])
    second.close()


# --- adapters -----------------------------------------------------------------------------------------------------------


def test_adapters_go_where_they_are_loaded(stack):
    base = card_of(stack, MODEL_PATH)
    workers = [CardWorker(stack.kv, base, 0x70 + n) for n in range(3)]
    adapter = {**base, "display_name": "Ad-A", "slug": "ad-a", "lora": {"name": "Ad-A", "max_gpu_lora_count": 4}}
    workers[1].put_card(adapter, "ad-a")
    stack.frontend("--router-mode", "kv", DYN_KV_EVENTS="false")
    served(stack, MODEL)
    served(stack, "Ad-A")
    assert sorted(stack.models()) == ["Ad-A", MODEL]
    for n in range(8):
        assert say(stack, "Ad-A", f"question {n}").status == 200
        assert say(stack, MODEL, f"question {n}").status == 200
    asked = [[body for body in worker.bodies if body["model"] == "Ad-A"] for worker in workers]
    assert [len(bodies) > 0 for bodies in asked] == [False, True, False]
    assert all(body["routing"]["lora_name"] == "Ad-A" for body in asked[1])
    assert all("lora_name" not in body.get("routing", {}) for w in workers for body in w.bodies if body["model"] == MODEL)
    for worker in workers:
        worker.close()


def asked_of(worker, model):
    return [entry for entry in worker.asked() if entry["model"] == model]


def their_worker(stack, python, *adapters, **env):
    """Runs reference_worker.py, to which .tell(line) speaks."""
    speak, listen = os.pipe()[::-1]
    worker = stack.start("reference-worker", ["bash", "-c", f'exec "$@" < /proc/{os.getpid()}/fd/{listen}', "-", python,
                                              ROOT / "e2e/reference_worker.py", MODEL_PATH, "base", *adapters],
                         DYN_DISCOVERY_BACKEND="file", DYN_EVENT_PLANE="zmq", HF_HUB_OFFLINE="1",
                         DYN_SYSTEM_PORT=free_port(), **env)
    worker.tell = lambda line: os.write(speak, f"{line}\n".encode())
    worker.wait_log("registered")
    return worker


def their_frontend(stack, python):
    """Its port; to be waited for."""
    port = free_port()
    stack.start("reference-frontend", [python, "-m", "dynamo.frontend", "--http-host", "127.0.0.1", "--http-port", port],
                DYN_DISCOVERY_BACKEND="file", DYN_EVENT_PLANE="zmq", HF_HUB_OFFLINE="1")
    return port


def until_it_answers(stack, name):
    """A frontend that is just starting at stack.port."""
    def answered():
        try:
            return say(stack, name).status == 200
        except OSError:
            return False
    until(f"the frontend serves {name}", answered)


def test_a_budget_of_tokens(stack, newer):
    """A worker, as vLLM's of 1.6.1, that wants a prompt and what is asked for it to fit into a number."""
    their_worker(stack, newer, TOKEN_BUDGET=json.dumps({"combined_limit": 100, "reject_prompt_overflow": True,
                                                        "reject_total_overflow": True}))
    stack.frontend(HF_HOME=stack.folder / "hf")
    served(stack, "base")
    mine, port = stack.port, their_frontend(stack, newer)

    def status(length, **more):
        return stack.request("POST", COMPLETIONS, {"model": "base", "prompt": list(range(300, 300 + length)), **more}).status

    def statuses():
        return [status(10), *(status(length, max_tokens=wanted) for length, wanted in [(80, 20), (80, 21), (99, 1), (99, 2), (10, 1 << 40)])]
    ours = statuses()
    stack.port = port
    until_it_answers(stack, "base")
    assert ours == statuses() == [200, 200, 400, 200, 400, 400]
    stack.port = mine


def test_adapters_of_their_runtime(stack, newer):
    """A worker of the reference's runtime with two adapters, through our frontend and through theirs."""
    worker = their_worker(stack, newer, "Ad-A", "ad.b")
    stack.frontend(HF_HOME=stack.folder / "hf")
    for name in ("base", "Ad-A", "ad.b"):
        served(stack, name)
    assert sorted(stack.models()) == ["Ad-A", "ad.b", "base"]
    ours = {name: asked_of(worker, name)[-1] for name in ("base", "Ad-A", "ad.b")}
    assert ours["Ad-A"]["routing"]["lora_name"] == "Ad-A"

    mine, stack.port = stack.port, their_frontend(stack, newer)
    for name, want in ours.items():
        until_it_answers(stack, name)
        got = asked_of(worker, name)[-1]
        assert (got["routing"] or {}).get("lora_name") == (want["routing"] or {}).get("lora_name")
    stack.port = mine
    worker.tell("Ad-A")
    until("the adapter is unloaded", lambda: sorted(stack.models()) == ["ad.b", "base"])
    assert say(stack, "Ad-A").status == 404


def test_blocks_of_adapters(stack, newer):
    """An adapter's blocks are found by its prompts alone: the hashes that the reference's publisher makes of them are
    those that we look for."""
    worker = their_worker(stack, newer, "Ad-A")
    stack.frontend("--router-mode", "kv", HF_HOME=stack.folder / "hf", DYN_EVENT_PLANE="zmq", DYN_KV_EVENTS="true")
    for name in ("base", "Ad-A"):
        served(stack, name)
    cached = lambda name, prompt: decision_for(stack, stack.request("POST", COMPLETIONS, {
        "model": name, "prompt": prompt, "max_tokens": 1})).selected["cached"]
    for number, (name, other) in enumerate((("Ad-A", "base"), ("base", "Ad-A"))):
        prompt = list(range(1000 * number + 300, 1000 * number + 620))
        assert cached(name, prompt) == 0
        until(f"the blocks of {name} are known", lambda: cached(name, prompt) == 20)
        assert cached(other, prompt) == 0
    assert worker.alive()


# Headers, members of the body, and the salt that they are.
SALTS = [({}, {}, None), ({}, {"cache_salt": "a"}, "a"), ({}, {"nvext": {"cache_salt": "b"}}, "b"), ({}, {"cache_salt": ""}, None),
         ({"x-tenant-id": "c"}, {"cache_salt": "b"}, "c"), ({"x-tenant-id": ""}, {"cache_salt": "d"}, "d")]


def test_blocks_of_salts(stack, newer):
    """A prompt's blocks are found by requests with the same salt and of the same adapter alone, here as behind the
    reference's frontend, and under the hashes that its publisher makes of them."""
    worker = their_worker(stack, newer, "Ad-A")
    stack.frontend("--router-mode", "kv", HF_HOME=stack.folder / "hf", DYN_EVENT_PLANE="zmq", DYN_KV_EVENTS="true")
    mine, port = stack.port, free_port()
    theirs = stack.start("reference-frontend", [newer, "-m", "dynamo.frontend", "--http-host", "127.0.0.1", "--http-port", port,
                                                "--router-mode", "kv"], DYN_DISCOVERY_BACKEND="file", DYN_EVENT_PLANE="zmq",
                         HF_HUB_OFFLINE="1", DYN_LOG="info,dynamo_llm=debug,dynamo_kv_router=debug")

    def ask(at, name, prompt, headers, more):
        stack.port = at
        try:
            answer = stack.request("POST", COMPLETIONS, {"model": name, "prompt": prompt, "max_tokens": 1, **more}, headers)
        finally:
            stack.port = mine
        return answer

    def up(name):
        try:
            return ask(port, name, "x", {}, {}).status == 200
        except OSError:
            return False

    def ours(*request):
        return decision_for(stack, ask(mine, *request)).selected["cached"]

    def of_theirs(*request):
        """Its log tells the overlap of each request."""
        before = len(theirs.log())
        assert ask(port, *request).status == 200
        told = until("it is told", lambda: re.findall(r"overlap_blocks=(\d+) .*total_blocks=21",
                                                      re.sub(r"\x1b\[[0-9;]*m", "", theirs.log()[before:])))
        return int(told[-1])

    for name in ("base", "Ad-A"):
        served(stack, name)
        until(f"their frontend serves {name}", lambda: up(name))
    owners = [(name, *salt) for name in ("base", "Ad-A") for salt in SALTS]
    for number, (name, headers, more, salt) in enumerate(owners):
        prompt = list(range(400 * number + 300, 400 * number + 300 + 20 * 16 + 5))
        assert ours(name, prompt, headers, more) == 0
        assert (asked_of(worker, name)[-1]["routing"] or {}).get("cache_salt") == salt
        until("its blocks are known", lambda: ours(name, prompt, headers, more) == 20)
        until("and behind their frontend", lambda: of_theirs(name, prompt, headers, more) == 20)
        assert (asked_of(worker, name)[-1]["routing"] or {}).get("cache_salt") == salt
        strangers = {(other, its_salt): request for other, *request, its_salt in owners if (other, its_salt) != (name, salt)}
        for found, (other, _), request in zip((ours, of_theirs), strangers, strangers.values()):
            assert found(other, prompt, *request) == 0
    assert worker.alive()


@pytest.mark.parametrize("whose", ["ours", "theirs"])
def test_mockers_know_no_salts(stack, newer, whose):
    """What is found by its salt is what engines tell of; the mockers share blocks all the same."""
    stack.start_nats("-js")
    if whose == "ours":
        stack.mocker()
    else:
        (stack.folder / MODEL).symlink_to(MODEL_PATH)
        stack.start("reference-mocker", [newer, "-m", "dynamo.mocker", "--discovery-backend", "file", "--event-plane", "nats", "--model-path",
                                         MODEL, "--block-size", 16, "--speedup-ratio", 100], HF_HUB_OFFLINE="1", DYN_EVENT_PLANE="nats")
    stack.frontend("--router-mode", "kv")
    stack.ready(1)
    prompt = list(range(300, 300 + 20 * 16 + 5))
    ask = lambda **more: stack.request("POST", COMPLETIONS, stack.body(prompt, COMPLETIONS, **more))
    until("its engine is there", lambda: stack.request("POST", COMPLETIONS, stack.body([5], COMPLETIONS)).status == 200)
    found = lambda answer: (decision_for(stack, answer).selected["cached"], answer.usage["prompt_tokens_details"]["cached_tokens"])
    assert found(ask()) == (0, 0)
    until("its blocks are known", lambda: found(ask())[0] == 20)
    assert found(ask()) == (20, 320)
    assert found(ask(cache_salt="a")) == (0, 320)
