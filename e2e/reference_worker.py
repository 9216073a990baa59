# SPDX-License-Identifier: Apache-2.0
"""A worker made of the reference's own runtime, for what its mocker does not do: serves dynamo.backend.generate with the
base model MODEL of FOLDER and the adapters that are named. Run by the Python of a 1.x environment:

    reference_worker.py FOLDER MODEL [ADAPTER ...]

Each request's model and routing are told as `asked.py` says, and its prompt's blocks are published as stored. A line on
standard input names an adapter that is to be unloaded. With HICACHE in the environment (JSON) its card says that of
SGLang's HiCache, but for null, and prompts are published of requests for more than one token alone; with TOKEN_BUDGET (JSON) that of
vLLM's worker.
"""

import asyncio
import hashlib
import json
import os
import sys

import asked
from dynamo.llm import KvEventPublisher, ModelInput, ModelRuntimeConfig, ModelType, WorkerType, register_model, unregister_model
from dynamo.runtime import dynamo_worker


BLOCK = 16
HICACHE = os.environ.get("HICACHE")
publisher = None


def publish(tokens, adapter, salt):
    """As an engine would: its own names for the blocks, those of adapters and salts apart from the base model's."""
    n = len(tokens) // BLOCK
    of = f"{adapter} {salt}" if salt else f"{adapter}"
    names = [int.from_bytes(hashlib.sha256(f"{of} {tokens[:(i + 1) * BLOCK]}".encode()).digest()[:7]) for i in range(n)]
    if n:
        publisher.publish_stored(tokens[:n * BLOCK], [BLOCK] * n, names, lora_name=adapter, cache_salt=salt)


async def generate(request, context):
    asked.tell({"model": request["model"], "routing": request.get("routing")})
    routing = request.get("routing") or {}
    wanted = request["stop_conditions"]["max_tokens"] or 2  # as an engine's default
    if not HICACHE or wanted > 1:
        publish(request["token_ids"], routing.get("lora_name"), routing.get("cache_salt"))
    for place in range(wanted):
        yield {"token_ids": [400 + place], **({"finish_reason": "length"} if place + 1 == wanted else {})}


@dynamo_worker()
async def serve(runtime):
    folder, model, *adapters = sys.argv[1:]
    endpoint = runtime.endpoint("dynamo.backend.generate")
    config = ModelRuntimeConfig()
    if HICACHE not in (None, "null"):
        config.set_engine_specific("sglang_hicache_mooncake", HICACHE)
    if "TOKEN_BUDGET" in os.environ:
        config.set_engine_specific("token_budget", os.environ["TOKEN_BUDGET"])
    card = dict(kv_cache_block_size=BLOCK, worker_type=WorkerType.Aggregated, runtime_config=config)
    serving = asyncio.ensure_future(endpoint.serve_endpoint(generate))
    global publisher
    publisher = KvEventPublisher(endpoint, kv_block_size=BLOCK, enable_local_indexer=True)
    await register_model(ModelInput.Tokens, ModelType.Chat | ModelType.Completions, endpoint, folder, model, **card)
    for adapter in adapters:
        await register_model(ModelInput.Tokens, ModelType.Chat | ModelType.Completions, endpoint, folder, adapter,
                             lora_name=adapter, base_model_path=folder, max_gpu_lora_count=4, **card)
    print("registered", flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        await unregister_model(endpoint, lora_name=line.strip())
    await serving


asyncio.run(serve())
