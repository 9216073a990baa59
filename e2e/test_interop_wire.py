# SPDX-License-Identifier: Apache-2.0
"""Our frontend with unmodified workers of the reference, and its unmodified frontend with ours.

Each in its own words on the wire: neither is told that the other is of another make.
"""

import json
import re
import shutil

import pytest

from conftest import free_port, program, reference_python
from stack import CHAT, MODEL, MODEL_PATH, Stack, until

# Version: flags of both its programs, flags of its mocker.
PEERS = {
    "0.9.0": (["--store-kv", "file"], ["--enable-local-indexer"]),
    "1.6.1": (["--discovery-backend", "file"], ["--event-plane", "nats"]),
}


class Mixed(Stack):
    """A stack with programs of both kinds. The reference takes a model's path for its name."""

    def __init__(self, folder, python, flags, mocker_flags):
        super().__init__(folder)
        self.python, self.flags, self.mocker_flags = python, flags, mocker_flags
        # The reference wants a chat template inside of tokenizer_config.json.
        self.model = folder / MODEL
        shutil.copytree(MODEL_PATH, self.model, copy_function=shutil.copyfile)
        config = json.loads((self.model / "tokenizer_config.json").read_text())
        config["chat_template"] = (self.model / "chat_template.jinja").read_text()
        (self.model / "tokenizer_config.json").write_text(json.dumps(config))

    def peer(self, module, *flags):
        process = self.start(f"peer-{module}", [self.python, "-m", f"dynamo.{module}", *self.flags,
                                                "--request-plane", "tcp", *flags],
                             HF_HUB_OFFLINE="1", DYN_EVENT_PLANE="nats")
        process.killed = True  # it ends as it likes
        return process

    def our_mocker(self, *flags, workers=1):
        """Ours under the name that the reference's frontend expects of a local model."""
        return self.start("mocker", [program("dynamo-mocker"), "--model-path", self.model, "--model-name", MODEL,
                                     "--block-size", 16, "--num-workers", workers, "--speedup-ratio", 50, *flags])


@pytest.fixture(params=PEERS)
def stack(tmp_path, request):
    with Mixed(tmp_path, reference_python(request.param), *PEERS[request.param]) as stack:
        stack.start_nats("-js")  # the release's clients want JetStream
        yield stack


def found_cached(frontend):
    return re.search(r"Selected worker: .*cached blocks: [1-9]", frontend.log())


@pytest.mark.parametrize("mode", ["round-robin", "kv"])
def test_our_frontend_drives_their_mocker(stack, mode):
    stack.peer("mocker", "--model-path", MODEL, "--speedup-ratio", "100", "--block-size", "16",
               "--num-workers", "2", *stack.mocker_flags)
    stack.frontend("--router-mode", mode)
    until("two workers serve the model", lambda: stack.workers() == 2 and stack.models() == [MODEL])
    # A worker registers a moment before its engine is there.
    until("they answer", lambda: stack.request("POST", CHAT, stack.body("Hello", max_tokens=1)).status == 200)
    prompt = "the same long prompt again " * 40
    for n in range(6):
        answer = stack.chat(prompt if n % 2 else f"another {n}", max_tokens=5, ignore_eos=True)
        assert answer.usage["completion_tokens"] == 5
    if mode == "kv":
        until("their events reached our index", lambda: stack.chat(prompt, max_tokens=2) and found_cached(stack.front))
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
    theirs = stack.front = stack.peer("frontend", "--http-host", "127.0.0.1", "--http-port", stack.port, "--event-plane", "nats",
                                     "--router-mode", mode)

    def models():
        try:
            return stack.models()
        except OSError:
            return None
    until("the frontend is up", lambda: models() is not None)
    mocker = stack.our_mocker(workers=2)
    until("the model is listed", lambda: models() == [MODEL])
    # It lists the model before it has looked for who serves it.
    until("its workers are found", lambda: stack.request("POST", CHAT, stack.body("Hello", max_tokens=1)).status == 200)
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
    if mode == "kv" and "--store-kv" in stack.flags:  # 1.x wants EventSource records besides
        until("our events reached their index", lambda: stack.chat(prompt, max_tokens=2) and found_cached(theirs))
    assert stack.chat("still there?", max_tokens=2, ignore_eos=True).usage["completion_tokens"] == 2
    assert mocker.stop() == 0
    until("the model is gone", lambda: models() == [])
