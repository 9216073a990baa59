#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the frontend costs: CPU time per request and per streamed token, memory.

usage: BUILD=build build/venv/bin/python e2e/bench/frontend_bench.py

One mocker process with four workers that answer at once (speed-up 1000, blocks of 16 tokens), file
discovery, KV events over NATS, mode kv. A closed loop of keep-alive connections streams chat
completions whose prompts all differ. Only the frontend's own CPU time counts, so that the client on
the same cores does not matter. The best of three rounds is told, as it was for the peer, whose
figures were recorded on a machine of this kind with the same load. One JSON object a line.
"""

import asyncio
import json
import pathlib
import random
import re
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from stack import CHAT, ROOT, Stack  # noqa: E402

PEER = "dynamo-frontend 0.9.0 (recorded)"
ROUNDS = 3


def tell(name, value, unit, peer=None):
    case = {"name": name, "value": round(value, 4), "unit": unit, "better": "lower"}
    if peer:
        case.update(peer=PEER, ratio=round(peer / value, 3))
    print(json.dumps(case), flush=True)


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


def cpu_per_request(stack, prompts, tokens, output, requests, connections):
    """CPU seconds of the frontend for one request, at best."""
    best = None
    for _ in range(ROUNDS):
        asyncio.run(closed_loop(stack.port, [prompts.request(tokens, output) for _ in range(connections * 2)],
                                connections, output))
        batch = [prompts.request(tokens, output) for _ in range(requests)]
        before = stack.front.cpu_seconds()
        asyncio.run(closed_loop(stack.port, batch, connections, output))
        spent = (stack.front.cpu_seconds() - before) / requests
        best = spent if best is None else min(best, spent)
    return best


def main():
    with tempfile.TemporaryDirectory() as folder, Stack(pathlib.Path(folder)) as stack:
        stack.up("--router-mode", "kv", workers=4, blocks=16384, speedup=1000)
        tell("frontend.rss_mb_idle", stack.front.rss_mb(), "MB", 110)
        prompts = Prompts(stack)
        short = cpu_per_request(stack, prompts, 100, 100, requests=500, connections=16)
        tell("frontend.cpu_100_100", short * 1e3, "ms/request", 3.09)
        tell("frontend.cpu_4000_100", cpu_per_request(stack, prompts, 4000, 100, 200, 8) * 1e3, "ms/request", 9.20)
        long = cpu_per_request(stack, prompts, 100, 1100, requests=50, connections=16)
        tell("sse.cpu_us_per_token", (long - short) / 1000 * 1e6, "us")
        tell("frontend.rss_mb_loaded", stack.front.rss_mb(), "MB", 168)


if __name__ == "__main__":
    main()
