# SPDX-License-Identifier: Apache-2.0
"""Workers made of the reference's own runtime that take requests of the OpenAI API as they are, and that embed:
`say` (ModelInput.Text: chat and completions), `embed` (Text) and `embed-ids` (Tokens), each at an endpoint of its
own. Run by the Python of an environment of 0.9.0 or 1.x:

    text_worker.py FOLDER [MODEL[=FOLDER] ...]

A model with a folder of its own is called as that folder.

A request names the items of its answer itself, as a JSON array: in its last message, its prompt, or, where texts are
embedded, its input. Beside items that are sent as they are there are {"echo": true}, the request itself as a text,
{"raise": WORDS}, {"until": PATH}, a file that is to appear, {"wait": true}, until the client has left, and {"exit": true}.
Each request is told as `asked.py` says, and `stopped` printed when one that waited was cancelled.
"""

import asyncio
import base64
import json
import os
import struct
import sys

import asked
import dynamo.llm
from dynamo.llm import ModelInput, ModelType
from dynamo.runtime import dynamo_worker


IS_OF_1 = hasattr(dynamo.llm, "WorkerType")


def said(request):
    """What the items are to be; NONE of them is said by a request that only wants an answer."""
    text = request["messages"][-1]["content"] if "messages" in request else request.get("prompt", request.get("input"))
    try:
        items = json.loads(text)
    except (TypeError, ValueError):
        return None
    return items if isinstance(items, list) else None


def chunk(request, text, finish=None):
    about = {"id": "a", "created": 1, "model": request["model"]}
    if "messages" in request:
        delta = {"role": "assistant", "content": text}
        return {**about, "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}
    return {**about, "object": "text_completion", "choices": [{"index": 0, "text": text, "finish_reason": finish, "logprobs": None}]}


async def items_of(items, request, context):
    for item in items:
        if "raise" in item:
            raise ValueError(item["raise"])
        if "exit" in item:
            os._exit(1)
        if "until" in item:
            while not os.path.exists(item["until"]):
                await asyncio.sleep(0.01)
            continue
        if "wait" in item:
            while not context.is_stopped():
                await asyncio.sleep(0.01)
            print("stopped", flush=True)
            return
        yield chunk(request, json.dumps(request, sort_keys=True), "stop") if "echo" in item else item


async def say(request, context):
    asked.tell(request)
    async for item in items_of(said(request) or [{"echo": True}], request, context):
        yield item


def vector(text):
    return [len(str(text)) / 8, -0.5, 0.1]


async def embed(request, context):
    asked.tell(request)
    items = said(request)
    if items is None or not items or not isinstance(items[0], dict):
        inputs = request["input"]
        inputs = inputs if isinstance(inputs, list) and not isinstance((inputs or [0])[0], int) else [inputs]
        items = [{"object": "list", "model": request["model"], "usage": {"prompt_tokens": 5, "total_tokens": 5},
                  "data": [{"object": "embedding", "embedding": vector(each), "index": i} for i, each in enumerate(inputs)]}]
    async for item in items_of(items, request, context):
        yield item


def of_ids(numbers):
    """As an engine's worker tells them: since 1.x as the bytes of floats, in base64."""
    return base64.b64encode(struct.pack(f"<{len(numbers)}f", *numbers)).decode() if IS_OF_1 else numbers


async def embed_ids(request, context):
    asked.tell(request)
    count = sum(map(len, request["token_ids"]))
    if any(ids == [13] for ids in request["token_ids"]):
        raise ValueError("out of memory")
    embeddings = [of_ids(vector(ids)) for ids in request["token_ids"]]
    yield {"embeddings": embeddings, "prompt_tokens": count, "total_tokens": count}


MODELS = {
    "say": (say, ModelInput.Text, ModelType.Chat | ModelType.Completions),
    "embed": (embed, ModelInput.Text, ModelType.Embedding),
    "embed-ids": (embed_ids, ModelInput.Tokens, ModelType.Embedding),
}
register = getattr(dynamo.llm, "register_model", None) or dynamo.llm.register_llm


def endpoint_of(runtime, component):
    """Named apart too: endpoints of one name in a process of 0.9.0 get each other's requests."""
    if hasattr(runtime, "namespace"):
        return runtime.namespace("dynamo").component(component).endpoint(component)
    return runtime.endpoint(f"dynamo.{component}.{component}")


@dynamo_worker()
async def serve(runtime):
    folder, *models = sys.argv[1:]
    more = {"kv_cache_block_size": 16}
    if IS_OF_1:
        more["worker_type"] = dynamo.llm.WorkerType.Aggregated
    serving = []
    for model in models or MODELS:
        kind, _, own = model.partition("=")
        name = os.path.basename(own) or kind
        handler, model_input, model_type = MODELS[kind]
        endpoint = endpoint_of(runtime, name)
        serving.append(asyncio.ensure_future(endpoint.serve_endpoint(handler)))
        await register(model_input, model_type, endpoint, own or folder, name, **more)
    print("registered", flush=True)
    await asyncio.gather(*serving)


asyncio.run(serve())
