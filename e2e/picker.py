# SPDX-License-Identifier: Apache-2.0
"""A caller of the C interface as a program: libdynamo_llm_capi.so through ctypes, as Go's plugin uses it through cgo.

    python picker.py LIBRARY GENERATION KIND ARGUMENT...

GENERATION is plain, ranks or namespaces, as the library is; KIND with its arguments is one of

    router NAMESPACE COMPONENT ENFORCE_DISAGG
    pipeline NAMESPACE COMPONENT MODEL OPTIONS     of 0.9.0; options are a JSON object
    engine NAMESPACE COMPONENT BLOCK_SIZE          an engine that tells of its blocks

Each line of its input is a JSON array, a function's name and its arguments; each answer is a line of JSON.
At the end of the input it destroys what it has made and exits 0.
"""

import ctypes as c
import json
import sys

TEXT, HANDLE, IDS = c.c_char_p, c.c_void_p, c.POINTER(c.c_uint32)
RANKS = [("prefill_dp_rank", c.c_uint32), ("decode_dp_rank", c.c_uint32)]
NAMESPACE = [("cache_namespace", TEXT), ("cache_namespace_len", c.c_size_t)]


def result_of(generation):
    class RoutingResult(c.Structure):
        _fields_ = [("is_disaggregated", c.c_bool), ("prefill_worker_id", c.c_uint64), ("decode_worker_id", c.c_uint64),
                    *(RANKS if generation != "plain" else []), ("token_ids", IDS), ("token_count", c.c_size_t),
                    *(NAMESPACE if generation == "namespaces" else []),
                    ("behind", c.c_uint64)]  # nobody's: it must stay as it was
    return RoutingResult


def declare(lib, functions):
    for name, arguments in functions.items():
        function = getattr(lib, name)
        function.argtypes, function.restype = arguments, c.c_uint32


def ids(tokens):
    return (c.c_uint32 * len(tokens))(*tokens)


class Router:
    BEHIND = 0x5A5A5A5A5A5A5A5A

    def __init__(self, lib, generation, namespace, component, enforce):
        self.lib, self.handle, self.Result = lib, HANDLE(), result_of(generation)
        result = c.POINTER(self.Result)
        booking = (HANDLE, TEXT, IDS, c.c_size_t, c.c_uint64, c.c_uint32)
        declare(lib, {"create_routers": (TEXT, TEXT, c.c_bool, c.POINTER(HANDLE)),
                      "route_prefill_request": (HANDLE, TEXT, TEXT, result),
                      "route_decode_request": (HANDLE, TEXT, TEXT, c.c_bool, result), "add_request": booking,
                      "mark_prefill_complete": (HANDLE, TEXT), "free_request": (HANDLE, TEXT),
                      "free_routing_result": (result,), "destroy": (HANDLE,)})
        if generation == "namespaces":
            declare(lib, {"add_request_with_cache_namespace": (*booking, TEXT, c.c_size_t)})
        lib.destroy.restype = lib.free_routing_result.restype = None
        self.code = lib.create_routers(namespace.encode(), component.encode(), enforce == "1", c.byref(self.handle))

    def answer(self, route, request, pods, *more):
        result = self.Result(behind=self.BEHIND)
        code = route(self.handle, json.dumps(request).encode(), pods and json.dumps(pods).encode(), *more, c.byref(result))
        assert result.behind == self.BEHIND
        if code:
            return {"code": code}
        told = {"code": 0, "disagg": result.is_disaggregated, "tokens": result.token_ids[:result.token_count],
                "prefill": result.prefill_worker_id, "decode": result.decode_worker_id,
                "prefill_rank": getattr(result, "prefill_dp_rank", 0), "decode_rank": getattr(result, "decode_dp_rank", 0),
                "namespace": (getattr(result, "cache_namespace", None) or b"").decode()}
        assert len(told["namespace"]) == getattr(result, "cache_namespace_len", 0)
        self.lib.free_routing_result(c.byref(result))
        return told

    def prefill(self, request, pods=None):
        return self.answer(self.lib.route_prefill_request, request, pods)

    def decode(self, request, disagg=False, pods=None):
        return self.answer(self.lib.route_decode_request, request, pods, disagg)

    def add(self, request_id, tokens, worker, rank=0, namespace=None):
        booking = (self.handle, request_id.encode(), ids(tokens), len(tokens), worker, rank)
        if namespace is None:
            return {"code": self.lib.add_request(*booking)}
        text = namespace.encode()
        return {"code": self.lib.add_request_with_cache_namespace(*booking, text, len(text))}

    def prefilled(self, request_id):
        return {"code": self.lib.mark_prefill_complete(self.handle, request_id.encode())}

    def free(self, request_id):
        return {"code": self.lib.free_request(self.handle, request_id.encode())}

    def end(self):
        self.lib.destroy(self.handle)


def declare_engine(lib, generation):
    declare(lib, {"dynamo_llm_init": (TEXT, TEXT, *([TEXT] if generation == "namespaces" else []), c.c_uint32),
                  "dynamo_llm_shutdown": (), "dynamo_llm_load_publisher_create": (),
                  "dynamo_kv_event_publish_stored": (c.c_uint64, IDS, c.POINTER(c.c_size_t), c.POINTER(c.c_uint64), c.c_size_t,
                                                     c.POINTER(c.c_uint64), c.c_uint64 if generation == "plain" else TEXT),
                  "dynamo_kv_event_publish_removed": (c.c_uint64, c.POINTER(c.c_uint64), c.c_size_t)})


class Pipeline:
    OPTIONS = {"kv": True, "busy": -1, "weight": -1, "temperature": -1, "events": True, "sync": False, "enforce": False}

    def __init__(self, lib, generation, namespace, component, model, options):
        self.lib, self.handle = lib, HANDLE()
        declare_engine(lib, generation)
        f64, i64 = c.c_double, c.POINTER(c.c_int64)
        declare(lib, {"dynamo_create_worker_selection_pipeline": (TEXT, TEXT, TEXT, c.c_bool, f64, f64, f64, c.c_bool, c.c_bool,
                                                                  c.c_bool, c.POINTER(HANDLE)),
                      "dynamo_destroy_worker_selection_pipeline": (HANDLE,),
                      "dynamo_query_worker_selection_and_annotate": (HANDLE, TEXT, i64, i64, c.POINTER(IDS),
                                                                     c.POINTER(c.c_size_t), c.POINTER(HANDLE)),
                      "dynamo_free_worker_selection_result": (IDS, c.c_size_t, HANDLE),
                      "dynamo_router_add_request": (HANDLE, TEXT, IDS, c.c_size_t, c.c_uint64, c.c_uint32),
                      "dynamo_router_mark_prefill_complete": (HANDLE, TEXT), "dynamo_router_free_request": (HANDLE, TEXT)})
        names = [text.encode() for text in (namespace, component, model)]
        self.code = lib.dynamo_llm_init(*names[:2], 16) or lib.dynamo_create_worker_selection_pipeline(
            *names, *{**self.OPTIONS, **json.loads(options)}.values(), c.byref(self.handle))

    @staticmethod
    def worker(told):
        """Ids are of 64 bits without a sign, but for -1, which is none."""
        return -1 if told.value == -1 else told.value % 2**64

    def query(self, request):
        decode, prefill, tokens, n, text = c.c_int64(), c.c_int64(), IDS(), c.c_size_t(), HANDLE()
        code = self.lib.dynamo_query_worker_selection_and_annotate(
            self.handle, json.dumps(request).encode(), *map(c.byref, (decode, prefill, tokens, n, text)))
        if code:
            return {"code": code}
        told = {"code": 0, "decode": self.worker(decode), "prefill": self.worker(prefill), "tokens": tokens[:n.value],
                "request": json.loads(c.cast(text, TEXT).value)}
        assert self.lib.dynamo_free_worker_selection_result(tokens, n, text) == 0
        return told

    def add(self, request_id, tokens, worker, rank=0):
        return {"code": self.lib.dynamo_router_add_request(self.handle, request_id.encode(), ids(tokens), len(tokens), worker,
                                                           rank)}

    def prefilled(self, request_id):
        return {"code": self.lib.dynamo_router_mark_prefill_complete(self.handle, request_id.encode())}

    def free(self, request_id):
        return {"code": self.lib.dynamo_router_free_request(self.handle, request_id.encode())}

    def end(self):
        assert self.lib.dynamo_destroy_worker_selection_pipeline(self.handle) == 0
        assert self.lib.dynamo_llm_shutdown() == 0


class Engine:
    def __init__(self, lib, generation, namespace, component, block_size):
        self.lib, self.block, self.adapter = lib, int(block_size), 0 if generation == "plain" else None
        declare_engine(lib, generation)
        where = [namespace.encode(), component.encode(), *([b"generate"] if generation == "namespaces" else [])]
        self.code = lib.dynamo_llm_init(*where, self.block)
        assert lib.dynamo_llm_load_publisher_create() == 0

    def stored(self, event_id, tokens, blocks, parent=None):
        sizes = (c.c_size_t * len(blocks))(*[self.block] * len(blocks))
        return {"code": self.lib.dynamo_kv_event_publish_stored(
            event_id, ids(tokens), sizes, (c.c_uint64 * len(blocks))(*blocks), len(blocks),
            None if parent is None else c.byref(c.c_uint64(parent)), self.adapter)}

    def removed(self, event_id, blocks):
        return {"code": self.lib.dynamo_kv_event_publish_removed(event_id, (c.c_uint64 * len(blocks))(*blocks), len(blocks))}

    def end(self):
        assert self.lib.dynamo_llm_shutdown() == 0


def main(library, generation, kind, *arguments):
    caller = {"router": Router, "pipeline": Pipeline, "engine": Engine}[kind](c.CDLL(library), generation, *arguments)
    print(json.dumps({"code": caller.code}), flush=True)
    for line in sys.stdin:
        name, *more = json.loads(line)
        print(json.dumps(getattr(caller, name)(*more)), flush=True)
    if caller.code == 0:
        caller.end()


if __name__ == "__main__":
    main(*sys.argv[1:])
