# SPDX-License-Identifier: Apache-2.0
"""An engine's KV event publisher, as vLLM 0.32 has it (or its older releases): PUB with a sequence number, ROUTER for replay."""

import threading
import time

import msgspec
import zmq

END = (-1).to_bytes(8, "big", signed=True)


class Engine:
    """Publishes events until close(). Hashes are the caller's, blocks have `block_size` tokens."""

    def __init__(self, block_size=4, replay=False, endpoint="tcp://127.0.0.1:*", rank=None, old=False):
        self.block_size, self.rank, self.sequence, self.log, self.old = block_size, rank, 0, [], old
        self._context = zmq.Context()
        self._pub = self._context.socket(zmq.XPUB)
        self._pub.setsockopt(zmq.XPUB_VERBOSE, 1)
        self._pub.setsockopt(zmq.LINGER, 0)
        self._pub.bind(endpoint)
        self.endpoint = self._pub.getsockopt_string(zmq.LAST_ENDPOINT)
        self.replay_endpoint, self.replays, self._closing = None, [], False
        if replay:
            self._router = self._context.socket(zmq.ROUTER)
            self._router.setsockopt(zmq.LINGER, 0)
            self._router.bind("tcp://127.0.0.1:*")
            self.replay_endpoint = self._router.getsockopt_string(zmq.LAST_ENDPOINT)
            self._thread = threading.Thread(target=self._serve_replay, daemon=True)
            self._thread.start()

    def wait_for_subscribers(self, n=1, seconds=90):
        """What is published before a subscriber is there is lost, as with every PUB socket."""
        for _ in range(n):
            assert self._pub.poll(seconds * 1000), "nobody subscribed"
            self._pub.recv()

    def wait_until_alone(self, seconds=90):
        """The last subscriber has gone."""
        assert self._pub.poll(seconds * 1000) and self._pub.recv()[:1] == b"\0"

    def send(self, *parts):
        """Anything, as it is."""
        self._pub.send_multipart(parts)

    def publish(self, *events, rank=None, lost=False):
        """One batch; a lost one is in the replay buffer only."""
        payload = msgspec.msgpack.encode([time.time(), events, self.rank if rank is None else rank])
        self.log.append((self.sequence, payload))
        if not lost:
            self._pub.send_multipart([b"kv-events", self.sequence.to_bytes(8, "big"), payload])
        self.sequence += 1

    def stored(self, hashes, tokens, parent=None, medium="GPU", **more):
        self._tell("BlockStored", {"block_hashes": hashes, "parent_block_hash": parent, "token_ids": tokens,
                                   "block_size": self.block_size, "lora_id": None, "medium": medium},
                   {"lora_name": None, "extra_keys": [None] * len(hashes), "group_idx": 0,
                    "kv_cache_spec_kind": "full_attention"}, **more)

    def salted(self, hashes, tokens, **how):
        """A prompt with a salt, told in one of the ways that engines have."""
        self.publish({"type": "BlockStored", "block_hashes": hashes, "parent_block_hash": None, "token_ids": tokens,
                      "block_size": self.block_size, "lora_id": None, "medium": "GPU", **how})

    def removed(self, hashes, medium="GPU", **more):
        self._tell("BlockRemoved", {"block_hashes": hashes, "medium": medium}, {"group_idx": 0}, **more)

    def cleared(self, **more):
        self._tell("AllBlocksCleared", {}, {}, **more)

    def _tell(self, kind, members, new, **more):
        """Maps; of older releases arrays, without what is new."""
        self.publish([kind, *members.values()] if self.old else {"type": kind, **members, **new}, **more)

    def _serve_replay(self):
        while not self._closing:
            if not self._router.poll(50):
                continue
            peer, empty, start = self._router.recv_multipart()
            head = [peer, empty] if self.old else [peer, empty, b""]  # the topic
            first = int.from_bytes(start, "big")
            self.replays.append(first)
            for sequence, payload in list(self.log):
                if sequence >= first:
                    self._router.send_multipart([*head, sequence.to_bytes(8, "big"), payload])
            self._router.send_multipart([*head, END, b""])

    def close(self):
        self._closing = True
        if self.replay_endpoint:
            self._thread.join()
            self._router.close()
        self._pub.close()
        self._context.term()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
