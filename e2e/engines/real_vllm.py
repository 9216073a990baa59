# SPDX-License-Identifier: Apache-2.0
"""Real vLLM on CPUs, with the example's tokenizer and random weights: text is nonsense, all else is vLLM's."""

import contextlib
import json
import os
import shutil
import signal
import socket
import urllib.error
import urllib.request

from conftest import ROOT, free_port, run, unavailable
from stack import MODEL, MODEL_PATH, PATIENCE, ROUTED_LOG, Process, parse_metrics, until
from test_stock_engine import routed

START = 900  # seconds: four imports of all of torch, on a machine that has other work
BLOCK = 32   # tokens: the smallest that its attention on CPUs can do


def environment():
    """Python of an environment with vLLM."""
    made = run(ROOT / "e2e/tools/vllm-venv", check=False)
    if made.returncode != 0:
        unavailable(f"vLLM cannot be installed: {made.stderr[-300:]}")
    return made.stdout.strip()


def model_files(folder):
    """The example's, its attention heads made as wide as vLLM needs them on a CPU."""
    shutil.copytree(MODEL_PATH, folder)
    config = json.loads((MODEL_PATH / "config.json").read_text())
    config |= {"hidden_size": 256, "intermediate_size": 256, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64,
               "max_position_embeddings": 8192}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


# One of these processes is to leave the machine to others; nothing is asked of any hub.
ENV = {"VLLM_CPU_KVCACHE_SPACE": "1", "OMP_NUM_THREADS": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "HF_HUB_OFFLINE": "1",
       "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}


def flags(events, **more):
    """For a model that costs nothing, told as little of as its size."""
    config = {"enable_kv_cache_events": True, "publisher": "zmq", "endpoint": f"tcp://*:{events}", **more}
    return ["--served-model-name", MODEL, "--load-format", "dummy", "--seed", "7", "--dtype", "float32", "--enforce-eager",
            "--block-size", BLOCK, "--num-gpu-blocks-override", 256, "--max-model-len", 4096, "--max-num-seqs", 16,
            "--enable-prefix-caching", "--kv-events-config", json.dumps(config)]


class Program(Process):
    """With all of its processes: vLLM has three."""

    def kill(self):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        super().kill()


def free_ports(n):
    """The first of so many that follow each other."""
    while True:
        first = free_port()
        with contextlib.ExitStack() as held:
            try:
                for port in range(first, first + n):
                    held.enter_context(socket.socket()).bind(("127.0.0.1", port))
                return first
            except OSError:
                continue


class Engine:
    """`vllm serve`; may be killed and started again where it was."""

    def __init__(self, folder, model, python, name, *more, key=None, ranks=1, replays=True):
        self.folder, self.model, self.python, self.name, self.more, self.key = folder, model, python, name, more, key
        self.port, self.events = free_port(), free_ports(ranks)
        self.replay = free_ports(ranks) if replays else None
        self.url = f"http://127.0.0.1:{self.port}"
        self.start()

    def start(self):
        self.process = Program(self.name, [
            "nice", "-n", "10", self.python, "-m", "vllm.entrypoints.cli.main", "serve", self.model,
            "--host", "127.0.0.1", "--port", self.port, "--enable-prompt-tokens-details", *self.more,
            *flags(self.events, replay_endpoint=self.replay and f"tcp://*:{self.replay}")],
            {**os.environ, **ENV, **({"VLLM_API_KEY": self.key} if self.key else {})}, self.folder / f"{self.name}.log", self.folder)

    def wait(self, api="/v1/completions", body=None):
        self.process.wait_log("Application startup complete", START)
        self.ask(api, body or {"model": MODEL, "prompt": "a", "max_tokens": 1}, START)  # the first takes long

    def again(self):
        self.process.kill()
        self.process.log_path.unlink()
        self.start()

    def get(self, path):
        with urllib.request.urlopen(self.url + path, timeout=PATIENCE) as answer:
            return answer.read().decode()

    def ask(self, path, body, seconds=PATIENCE):
        return json.loads(self.raw(path, body, seconds)[1])

    def raw(self, path, body, seconds=PATIENCE):
        """Its status and text, whatever they are."""
        headers = {"content-type": "application/json", **({"authorization": f"Bearer {self.key}"} if self.key else {})}
        request = urllib.request.Request(self.url + path, json.dumps(body).encode(), headers)
        try:
            with urllib.request.urlopen(request, timeout=seconds) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as refusal:
            return refusal.code, refusal.read().decode()

    def metric(self, name, **labels):
        series = parse_metrics(self.get("/metrics"))
        return sum(value for (found, have), value in series.items() if found == name and set(labels.items()) <= set(have))


@contextlib.contextmanager
def running(engines, wait=Engine.wait):
    """They serve, and are killed in the end."""
    try:
        for engine in engines:
            wait(engine)
        yield engines
    finally:
        for engine in engines:
            engine.process.kill()


# --- frontends before them ---

def serve(stack, engines, *more, models=(), **env):
    """Told their URLs alone, or the name of the model of each as well."""
    named = [word for i, engine in enumerate(engines)
             for word in ("--engine-url", engine.url + (f",model={models[i]}" if models else ""))]
    stack.frontend("--store-kv", "mem", *named, "--router-mode", "kv", *more, DYN_KV_EVENTS="true", DYN_LOG=ROUTED_LOG, **env)
    if not models:
        stack.ready(len(engines))
    return stack


def outcome(stack, answer):
    """(what was predicted to be cached, what the engine says was)"""
    def ended():
        record = stack.get(f"/explain/{answer.headers['x-request-id']}").json["decisions"][-1]
        return record if record.get("outcome") else None
    record = until("the decision's outcome is known", ended)
    return record["predicted_cached_tokens"], record["outcome"]["cached_tokens"]


def blocks(stack):
    return int(stack.metric("commutator_router_index_blocks", model=MODEL) or 0)


def teach(stack, content, worker):
    """Has it computed by this worker, and waits until the router knows."""
    def known():
        stack.chat(content, {"x-worker-instance-id": str(worker)}, max_tokens=1)
        return routed(stack)[-1][2] >= 2
    until("its blocks are known", known)


# --- what is asked for and said ---

SCHEMA = {"type": "object", "required": ["a", "b"], "additionalProperties": False,
          "properties": {"a": {"type": "integer", "minimum": 0, "maximum": 9}, "b": {"enum": ["x", "yy"]}}}
FUNCTION = {"name": "f", "strict": True, "parameters": SCHEMA}
NAMED = {"type": "function", "function": {"name": "f"}}
DIFFERS = {"id", "item_id", "call_id", "created", "created_at", "completed_at", "sequence_number", "cached_tokens", "cache_write_tokens",
           "created_cache_tokens", "cache_creation_input_tokens", "cache_read_input_tokens"}


def plain(value):
    """Without what differs between two requests."""
    if isinstance(value, dict):
        return {key: None if key in DIFFERS else plain(one) for key, one in value.items()}
    return [plain(one) for one in value] if isinstance(value, list) else value


def said(chunks):
    """(the text, the arguments of calls, how it ended) of a streamed chat"""
    deltas = [choice["delta"] for chunk in chunks for choice in chunk["choices"]]
    calls = [call["function"] for delta in deltas for call in delta.get("tool_calls") or []]
    return ("".join(delta.get("content") or "" for delta in deltas), "".join(call.get("arguments") or "" for call in calls),
            [call["name"] for call in calls if call.get("name")],
            [choice["finish_reason"] for chunk in chunks for choice in chunk["choices"] if choice["finish_reason"]])
