# SPDX-License-Identifier: Apache-2.0
"""An endpoint picker as a program: libdynamo_llm_capi.so through ctypes, as Go's plugin uses it through cgo.

    python picker.py LIBRARY NAMESPACE COMPONENT ENFORCE_DISAGG

Each line of its input is a JSON array, a function's name and its arguments; each answer is a line of JSON.
At the end of the input it destroys the router and exits 0.
"""

import ctypes as c
import json
import sys


class RoutingResult(c.Structure):
    _fields_ = [("is_disaggregated", c.c_bool), ("prefill_worker_id", c.c_uint64), ("decode_worker_id", c.c_uint64),
                ("prefill_dp_rank", c.c_uint32), ("decode_dp_rank", c.c_uint32),
                ("token_ids", c.POINTER(c.c_uint32)), ("token_count", c.c_size_t)]


def load(path):
    lib = c.CDLL(path)
    text, handle, result = c.c_char_p, c.c_void_p, c.POINTER(RoutingResult)
    for name, arguments in {"create_routers": (text, text, c.c_bool, c.POINTER(handle)),
                            "route_prefill_request": (handle, text, text, result),
                            "route_decode_request": (handle, text, text, c.c_bool, result),
                            "add_request": (handle, text, c.POINTER(c.c_uint32), c.c_size_t, c.c_uint64, c.c_uint32),
                            "mark_prefill_complete": (handle, text), "free_request": (handle, text),
                            "free_routing_result": (result,), "destroy": (handle,)}.items():
        function = getattr(lib, name)
        function.argtypes, function.restype = arguments, c.c_uint32
    lib.destroy.restype = lib.free_routing_result.restype = None
    return lib


class Picker:
    def __init__(self, lib, namespace, component, enforce):
        self.lib, self.handle = lib, c.c_void_p()
        self.code = lib.create_routers(namespace.encode(), component.encode(), enforce, c.byref(self.handle))

    def answer(self, code, result):
        if code:
            return {"code": code}
        told = {"code": 0, "disagg": result.is_disaggregated, "tokens": result.token_ids[:result.token_count],
                "prefill": result.prefill_worker_id, "decode": result.decode_worker_id,
                "prefill_rank": result.prefill_dp_rank, "decode_rank": result.decode_dp_rank}
        self.lib.free_routing_result(c.byref(result))
        return told

    def prefill(self, request, pods=None):
        result = RoutingResult()
        return self.answer(self.lib.route_prefill_request(
            self.handle, json.dumps(request).encode(), pods and json.dumps(pods).encode(), c.byref(result)), result)

    def decode(self, request, disagg=False, pods=None):
        result = RoutingResult()
        return self.answer(self.lib.route_decode_request(
            self.handle, json.dumps(request).encode(), pods and json.dumps(pods).encode(), disagg, c.byref(result)), result)

    def add(self, request_id, tokens, worker, rank=0):
        ids = (c.c_uint32 * len(tokens))(*tokens)
        return {"code": self.lib.add_request(self.handle, request_id.encode(), ids, len(tokens), worker, rank)}

    def prefilled(self, request_id):
        return {"code": self.lib.mark_prefill_complete(self.handle, request_id.encode())}

    def free(self, request_id):
        return {"code": self.lib.free_request(self.handle, request_id.encode())}


def main(library, namespace, component, enforce):
    lib = load(library)
    picker = Picker(lib, namespace, component, enforce == "1")
    print(json.dumps({"code": picker.code}), flush=True)
    for line in sys.stdin:
        name, *arguments = json.loads(line)
        print(json.dumps(getattr(picker, name)(*arguments)), flush=True)
    lib.destroy(picker.handle)


if __name__ == "__main__":
    main(*sys.argv[1:])
