# SPDX-License-Identifier: Apache-2.0
"""Real vLLM on CPUs, with the example's tokenizer and random weights: text is nonsense, all else is vLLM's."""

import contextlib
import json
import os
import shutil
import signal
import urllib.request

from conftest import ROOT, free_port, run, unavailable
from stack import MODEL, MODEL_PATH, PATIENCE, Process, parse_metrics, until
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


class Engine:
    """`vllm serve`; may be killed and started again where it was."""

    def __init__(self, folder, model, python, name):
        self.folder, self.model, self.python, self.name = folder, model, python, name
        self.port, self.events, self.replay = free_port(), free_port(), free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.start()

    def start(self):
        self.process = Program(self.name, [
            "nice", "-n", "10", self.python, "-m", "vllm.entrypoints.cli.main", "serve", self.model,
            "--host", "127.0.0.1", "--port", self.port, "--enable-prompt-tokens-details",
            *flags(self.events, replay_endpoint=f"tcp://*:{self.replay}")],
            {**os.environ, **ENV}, self.folder / f"{self.name}.log", self.folder)

    def wait(self):
        self.process.wait_log("Application startup complete", START)
        self.ask("/v1/completions", {"model": MODEL, "prompt": "a", "max_tokens": 1}, START)  # the first takes long

    def again(self):
        self.process.kill()
        self.process.log_path.unlink()
        self.start()

    def get(self, path):
        with urllib.request.urlopen(self.url + path, timeout=PATIENCE) as answer:
            return answer.read().decode()

    def ask(self, path, body, seconds=PATIENCE):
        request = urllib.request.Request(self.url + path, json.dumps(body).encode(), {"content-type": "application/json"})
        with urllib.request.urlopen(request, timeout=seconds) as answer:
            return json.load(answer)

    def metric(self, name, **labels):
        series = parse_metrics(self.get("/metrics"))
        return sum(value for (found, have), value in series.items() if found == name and set(labels.items()) <= set(have))


# --- frontends before them ---

def blocks(stack):
    return int(stack.metric("commutator_router_index_blocks", model=MODEL) or 0)


def teach(stack, content, worker):
    """Has it computed by this worker, and waits until the router knows."""
    def known():
        stack.chat(content, {"x-worker-instance-id": str(worker)}, max_tokens=1)
        return routed(stack)[-1][2] >= 2
    until("its blocks are known", known)
