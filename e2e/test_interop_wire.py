# SPDX-License-Identifier: Apache-2.0
"""Our frontend with unmodified workers of the reference, and its unmodified frontend with ours.

Needs an environment with the published 0.9.0 packages, named by DYNAMO_PYTHON:

    python3 -m venv V; V/bin/pip install --no-deps ai-dynamo==0.9.0 ai-dynamo-runtime==0.9.0
    V/bin/pip install uvloop pydantic numpy kubernetes
    DYNAMO_PYTHON=V/bin/python ... pytest e2e/test_interop_wire.py
"""

import json
import os
import shutil

import pytest

from conftest import ROOT, run, unavailable
from stack import MODEL, MODEL_PATH, Stack, until

PEER = os.environ.get("DYNAMO_PYTHON")
pytestmark = pytest.mark.skipif(not PEER, reason="DYNAMO_PYTHON names no environment with ai-dynamo 0.9.0")


class Mixed(Stack):
    """A stack with programs of both kinds. The reference takes a model's path for its name."""

    def __init__(self, folder):
        super().__init__(folder)
        # The reference wants a chat template inside of tokenizer_config.json.
        self.model = folder / MODEL
        shutil.copytree(MODEL_PATH, self.model, copy_function=shutil.copyfile)
        config = json.loads((self.model / "tokenizer_config.json").read_text())
        config["chat_template"] = (self.model / "chat_template.jinja").read_text()
        (self.model / "tokenizer_config.json").write_text(json.dumps(config))

    def start_nats(self):
        found = run(ROOT / "e2e/demo/find-nats", check=False)
        if found.returncode != 0:
            unavailable("no nats-server here and no Go to build one")
        self.nats = self._start("nats", [found.stdout.strip(), "-a", "127.0.0.1", "-p", -1, "-js", "-sd",
                                         self.folder / "jetstream"])
        self.nats_port = int(self.nats.wait_log(r"Listening for client connections on 127\.0\.0\.1:(\d+)").group(1))
        self.nats.wait_log("Server is ready")
        return self.nats

    def peer(self, module, *flags):
        process = self._start(f"peer-{module}", ["env", "-C", self.folder, PEER, "-m", f"dynamo.{module}",
                                                 "--store-kv", "file", "--request-plane", "tcp", *flags],
                              HF_HUB_OFFLINE="1", DYN_EVENT_PLANE="nats")
        process.killed = True  # it ends as it likes
        return process

    def our_mocker(self, *flags, workers=1):
        """Ours under the name that the reference's frontend expects of a local model."""
        from conftest import program
        return self._start("mocker", [program("dynamo-mocker"), "--model-path", self.model, "--model-name", MODEL,
                                      "--block-size", 16, "--num-workers", workers, "--speedup-ratio", 50, *flags])


@pytest.fixture
def stack(tmp_path):
    with Mixed(tmp_path) as stack:
        stack.start_nats()
        yield stack


def free_port():
    import socket
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.mark.parametrize("mode", ["round-robin", "kv"])
def test_our_frontend_drives_their_mocker(stack, mode):
    stack.peer("mocker", "--model-path", MODEL, "--speedup-ratio", "100", "--block-size", "16",
               "--num-workers", "2", "--enable-local-indexer")
    stack.frontend("--router-mode", mode)
    until("two workers serve the model", lambda: stack.workers() == 2 and stack.models() == [MODEL], 60)
    prompt = "the same long prompt again " * 40
    for n in range(6):
        answer = stack.chat(prompt if n % 2 else f"another {n}", max_tokens=5, ignore_eos=True)
        assert answer.usage["completion_tokens"] == 5
    if mode == "kv":  # their events reached our index
        stack.front.wait_log(r"Selected worker: .*cached blocks: [1-9]")
    stream = stack.stream("and now a stream", max_tokens=4, ignore_eos=True)
    assert list(stream.events)[-1] == (None, "[DONE]")
    stream.close()
    gone = stack.stream("someone who leaves", max_tokens=3000, ignore_eos=True)
    next(gone.events)
    gone.close()
    until("the request is cancelled", lambda: not stack.loads())


@pytest.mark.parametrize("mode", ["round-robin", "kv"])
def test_their_frontend_drives_our_mocker(stack, mode):
    stack.port = free_port()
    # Frontend first: records that are not published whole would be overlooked.
    theirs = stack.peer("frontend", "--http-host", "127.0.0.1", "--http-port", stack.port, "--event-plane", "nats",
               "--router-mode", mode)

    def models():
        try:
            return stack.models()
        except OSError:
            return None
    until("the frontend is up", lambda: models() is not None, 60)
    mocker = stack.our_mocker(workers=2)
    until("the model is listed", lambda: models() == [MODEL], 60)
    prompt = "the same long prompt again " * 40
    for n in range(6):
        answer = stack.chat(prompt if n % 2 else f"another {n}", max_tokens=5, ignore_eos=True)
        assert answer.usage["completion_tokens"] == 5
    stream = stack.stream("and now a stream", max_tokens=4, ignore_eos=True)
    assert list(stream.events)[-1] == (None, "[DONE]")
    stream.close()
    gone = stack.stream("someone who leaves", max_tokens=3000, ignore_eos=True)
    next(gone.events)
    gone.close()
    if mode == "kv":  # our events reached their index
        theirs.wait_log(r"Selected worker: .*cached blocks: [1-9]")
    assert stack.chat("still there?", max_tokens=2, ignore_eos=True).usage["completion_tokens"] == 2
    assert mocker.stop() == 0
    until("the model is gone", lambda: models() == [], 30)
