# SPDX-License-Identifier: Apache-2.0
"""A worker made of the reference's own runtime, for what its mocker does not do: serves dynamo.backend.generate with the
base model MODEL of FOLDER and the adapters that are named. Run by the Python of a 1.x environment:

    reference_worker.py FOLDER MODEL [ADAPTER ...]

Each request's model and routing are printed as a line of JSON, and its prompt's blocks are published as stored. A line
on standard input names an adapter that is to be unloaded.
"""

import asyncio
import hashlib
import json
import sys

from dynamo.llm import KvEventPublisher, ModelInput, ModelType, WorkerType, register_model, unregister_model
from dynamo.runtime import dynamo_worker


BLOCK = 16
publisher = None


def publish(tokens, adapter):
    """As an engine would: its own names for the blocks, the adapter's apart from the base model's."""
    n = len(tokens) // BLOCK
    names = [int.from_bytes(hashlib.sha256(f"{adapter} {tokens[:(i + 1) * BLOCK]}".encode()).digest()[:7]) for i in range(n)]
    if n:
        publisher.publish_stored(tokens[:n * BLOCK], [BLOCK] * n, names, lora_name=adapter)


async def generate(request, context):
    print(json.dumps({"model": request["model"], "routing": request.get("routing")}), flush=True)
    publish(request["token_ids"], (request.get("routing") or {}).get("lora_name"))
    wanted = request["stop_conditions"]["max_tokens"]
    for place in range(wanted):
        yield {"token_ids": [400 + place], **({"finish_reason": "length"} if place + 1 == wanted else {})}


@dynamo_worker()
async def serve(runtime):
    folder, model, *adapters = sys.argv[1:]
    endpoint = runtime.endpoint("dynamo.backend.generate")
    card = dict(kv_cache_block_size=BLOCK, worker_type=WorkerType.Aggregated)
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
