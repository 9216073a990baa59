#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the frontend costs beside the reference's newest, in one run: CPU per request, memory, time to
first token.

usage: BUILD=build build/venv/bin/python e2e/bench/frontend_bench.py

One mocker process with four workers that answer at once (speed-up 1000, blocks of 16 tokens), file
discovery, KV events over NATS; before it our frontend and ai-dynamo 1.6.1's, both in mode kv, theirs with
its fastest tokenizer. A closed loop of keep-alive connections streams chat completions whose prompts all
differ. Only the frontend's own CPU time counts, so that the client on the same cores does not matter. The
two take turns; the best of three rounds is told. So do ours with and without spans that go to a collector,
of every request. The time to first token that a frontend adds is its
median over that of a direct connection to a worker, one request at a time, by clients that acknowledge at
once and by those that the kernel lets wait. One JSON object a line.
"""

import asyncio
import json
import pathlib
import random
import re
import socket
import statistics
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import plane_caller  # noqa: E402
from conftest import reference_python  # noqa: E402
from otlp_collector import Collector  # noqa: E402
from stack import CHAT, MODEL, MODEL_PATH, ROOT, Stack, until  # noqa: E402

RELEASE = "1.6.1"
ROUNDS = 3
ASKS = 60  # of a median


def tell(name, unit, value, **more):
    print(json.dumps({"name": name, "value": round(value, 4), "unit": unit, "better": "lower", **more}), flush=True)


def tell_pair(name, unit, pair):
    """Of our frontend and theirs."""
    tell(name, unit, pair[0], peer=f"dynamo-frontend {RELEASE} ({pair[1]:.4g})", ratio=round(pair[1] / pair[0], 3))


class Frontend:
    def __init__(self, process, port):
        self.process, self.port = process, port


def theirs(stack):
    """Their frontend on the same workers."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = stack.start("reference-frontend", [
        reference_python(RELEASE), "-m", "dynamo.frontend", "--discovery-backend", "file", "--request-plane", "tcp",
        "--event-plane", "nats", "--http-host", "127.0.0.1", "--http-port", port, "--router-mode", "kv",
        "--tokenizer", "fastokens"], HF_HUB_OFFLINE="1", DYN_EVENT_PLANE="nats", PYTHONUNBUFFERED="1")
    made = Frontend(process, port)
    until("their frontend serves", lambda: asks(made), 60)
    return made


def asks(frontend):
    with socket.socket() as sock:
        if sock.connect_ex(("127.0.0.1", frontend.port)) != 0:
            return False
        body = json.dumps({"model": MODEL, "prompt": "Hello", "max_tokens": 1}).encode()
        sock.sendall(b"POST /v1/completions HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\n"
                     b"connection: close\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
        return sock.recv(12) == b"HTTP/1.1 200"


class Prompts:
    """Sentences in an order never seen before, each with a number, of about so many tokens."""

    def __init__(self, stack):
        text = " ".join((ROOT / "LICENSE").read_text().split())
        self._sentences = re.split(r"(?<=[.;:]) ", text)
        self._rng, self._stack = random.Random(1), stack
        self._bytes_per_token = 4.0
        for _ in range(3):  # calibrated on the server's own count
            usage = stack.chat(self.make(1000), max_tokens=1).usage
            self._bytes_per_token *= 1000 / usage["prompt_tokens"]

    def make(self, tokens):
        parts, size = [], 0
        while size < tokens * self._bytes_per_token:
            parts.append(f"{self._rng.randrange(100000)} {self._rng.choice(self._sentences)}")
            size += len(parts[-1]) + 1
        return " ".join(parts)[:int(tokens * self._bytes_per_token)]

    def request(self, tokens, output):
        body = json.dumps(self._stack.body(self.make(tokens), max_tokens=output, ignore_eos=True, stream=True,
                                           stream_options={"include_usage": True}))
        return (f"POST {CHAT} HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\n"
                f"content-length: {len(body)}\r\n\r\n{body}").encode()


async def closed_loop(port, requests, connections, output):
    waiting = iter(requests)

    async def client():
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 22)
        for request in waiting:
            writer.write(request)
            answer = await reader.readuntil(b"\r\n0\r\n\r\n")
            if not answer.startswith(b"HTTP/1.1 200") or f'"completion_tokens":{output}'.encode() not in answer[-900:]:
                raise RuntimeError(answer[-500:])
        writer.close()

    await asyncio.gather(*(client() for _ in range(connections)))


def cpu_per_request(frontends, prompts, tokens, output, requests, connections):
    """CPU milliseconds of each frontend for one request, at best."""
    best = [float("inf")] * len(frontends)
    for _ in range(ROUNDS):
        for i, frontend in enumerate(frontends):
            def run(n):
                batch = [prompts.request(tokens, output) for _ in range(n)]
                before = frontend.process.cpu_seconds()
                asyncio.run(closed_loop(frontend.port, batch, connections, output))
                return (frontend.process.cpu_seconds() - before) / n * 1e3
            run(connections * 2)
            best[i] = min(best[i], run(requests))
    return best


def first_tokens(frontend, prompts, tokens, quick):
    """Median milliseconds to the first event with a token, on one connection."""
    times = []
    with socket.create_connection(("127.0.0.1", frontend.port)) as sock:
        for i in range(ASKS):
            request = prompts.request(tokens, 2)
            sock.sendall(request)
            began, got, first = time.perf_counter(), b"", None
            while not got.endswith(b"\r\n0\r\n\r\n"):
                if quick:
                    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
                got += sock.recv(1 << 16)
                if first is None and b"\ndata: " in got:
                    first = time.perf_counter() - began
            times.append(first)
    return statistics.median(times[5:]) * 1e3


def direct_first_tokens(stack, tokens):
    """The same of a worker that is asked over a connection which stays, as a frontend does."""
    address, path = plane_caller.address_of(stack.kv, "dynamo", "backend", "generate")[0][1].split("/", 1)
    host, port = address.rsplit(":", 1)
    draw, times = random.Random(2), []
    with socket.create_server(("127.0.0.1", 0)) as home, socket.create_connection((host, int(port))) as worker:
        where = f"127.0.0.1:{home.getsockname()[1]}"
        for i in range(ASKS):
            body = {"model": MODEL, "token_ids": [draw.randrange(300, 30000) for _ in range(tokens)],
                    "stop_conditions": {"max_tokens": 2, "ignore_eos": True}, "sampling_options": {},
                    "output_options": {}, "eos_token_ids": [], "annotations": []}
            frame = plane_caller.frame(path.encode(), plane_caller.control(str(i), where), body)
            began = time.perf_counter()
            worker.sendall(frame)
            stream = plane_caller.items(plane_caller.take(home, str(i)))
            next(stream)
            times.append(time.perf_counter() - began)
            for _ in stream:
                pass
            plane_caller.receive(worker, 4)
    return statistics.median(times[5:]) * 1e3


def with_spans(stack, collector):
    """Another of ours on the same workers, which exports the spans of every request."""
    before = stack.front, stack.port
    stack.frontend("--router-mode", "kv", OTEL_EXPORT_ENABLED="true",
                   OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=f"http://127.0.0.1:{collector.grpc_port}")
    made = Frontend(stack.front, stack.port)
    stack.front, stack.port = before
    until("it serves", lambda: asks(made), 60)
    return made


def spans_cost(stack, plain, prompts):
    """CPU of a request whose spans go to a collector, beside one without; both in the same minute."""
    collector = Collector()
    try:
        traced = with_spans(stack, collector)
        pair = cpu_per_request([traced, plain], prompts, 100, 100, 500, 16)
        tell("frontend.cpu_100_100_spans", "ms/request", pair[0], peer=f"without spans ({pair[1]:.4g})", ratio=round(pair[1] / pair[0], 3))
        until("spans have come", lambda: collector.spans)
        traced.process.stop()
    finally:
        collector.close()


def main():
    with tempfile.TemporaryDirectory() as folder, Stack(pathlib.Path(folder)) as stack:
        # The reference names a model by the path that it is given.
        (pathlib.Path(folder) / MODEL).symlink_to(MODEL_PATH)
        stack.up("--router-mode", "kv", workers=4, blocks=16384, speedup=1000)
        pair = Frontend(stack.front, stack.port), theirs(stack)
        tell_pair("frontend.rss_idle", "MB", [each.process.rss_mb() for each in pair])
        prompts = Prompts(stack)
        short = cpu_per_request(pair, prompts, 100, 100, 500, 16)
        tell_pair("frontend.cpu_100_100", "ms/request", short)
        spans_cost(stack, pair[0], prompts)
        tell_pair("frontend.cpu_4k_100", "ms/request", cpu_per_request(pair, prompts, 4000, 100, 200, 8))
        tell_pair("frontend.cpu_16k_10", "ms/request", cpu_per_request(pair, prompts, 16000, 10, 60, 4))
        long = cpu_per_request(pair[:1], prompts, 100, 1100, 50, 16)
        tell("sse.cpu_us_per_token", "us", long[0] - short[0])
        tell_pair("frontend.rss", "MB", [each.process.rss_mb() for each in pair])
        direct = direct_first_tokens(stack, 4000)
        for name, quick in (("frontend.added_ttft_ms_4k", True), ("frontend.added_ttft_ms_4k_default_ack", False)):
            tell_pair(name, "ms", [first_tokens(each, prompts, 4000, quick) - direct for each in pair])


if __name__ == "__main__":
    main()
