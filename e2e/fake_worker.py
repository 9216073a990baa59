# SPDX-License-Identifier: Apache-2.0
"""A worker that misbehaves in chosen ways, on the wire protocol of a real one.

It puts its records beside those of a mocker (whose card it borrows), takes requests on the TCP
plane, and then does what its behaviour says: one of the words below, or a function from the body of
a request to the items that answer it. No code of ours or of the reference is used.
"""

import contextlib
import http.server
import json
import os
import re
import socket
import struct
import threading

import file_store

# What it does with a request, in the order of the protocol.
REFUSE_CONNECTION = "refuse connection"      # nobody listens
NO_ACK = "no ack"                            # takes the request and says nothing
ACK_ERROR = "ack error"                      # "Unknown endpoint"
NO_CALL_HOME = "no call home"                # acknowledges and never calls
CLOSE_AT_HOME = "close at home"              # calls, says its name, hangs up
PROLOGUE_ERROR = "prologue error"            # calls and says that generate failed
NO_ITEMS = "no items"                        # ends without one
BREAK_BEFORE_TOKEN = "break before token"    # hangs up before its first item
BREAK_AFTER_TOKENS = "break after tokens"    # hangs up after two
GARBAGE = "garbage"                          # items that are no JSON
ERROR_ITEM = "error item"                    # two tokens, then an error
HANG_AFTER_TOKENS = "hang after tokens"      # two tokens, then waits to be told to stop
FLOOD = "flood"                              # tokens without end, until told to stop
ANSWER = "answer"                            # three tokens and a proper end
STORY = "story"                              # max_tokens tokens that depend on their place alone; see break_at
SILENT = "silent"                            # starts, says nothing, waits to be told to stop


def receive(connection, n):
    data = b""
    while len(data) < n:
        part = connection.recv(n - len(data))
        if not part:
            raise EOFError
        data += part
    return data


def two_part(header=b"", body=b""):
    return struct.pack(">QQQ", len(header), len(body), 0) + header + body


def item(data):
    return two_part(b"", json.dumps({"data": {"data": data}, "complete_final": False}).encode())


class FakeWorker:
    """Registered until close(). `requests` counts what it was sent; `told` the words "kill" and "stop". With
    `silent_queries` it takes questions for its KV events and never answers them."""

    def __init__(self, kv, behaviour, worker_id=0x1234567, change_card=lambda card: None,
                 silent_queries=False, component="backend", device=None):
        self.component, self.device = component, device
        self.silent_queries, self.queries = silent_queries, 0
        self.behaviour, self.worker_id, self._change_card = behaviour, worker_id, change_card
        self.requests, self.told, self.bodies = 0, [], []
        self.homes = []  # the addresses that it was told to call
        self.headers = []  # of the request plane, by name, one dict for each request
        self.silent_from = None  # prompt tokens from which it is SILENT, whatever its behaviour
        self.error = None  # an item that is sent after those of a function
        # STORY: prompt and output tokens at which a request ends early, or waits; what it does from then on
        self.break_at, self.wait_at, self.after_break = [], None, None
        self.ended = self.resets = 0  # of streams that were listened to, how their connections ended
        self._listener = socket.socket()
        self._listener.bind(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        if behaviour != REFUSE_CONNECTION:  # it keeps the port, or somebody else might listen there
            self._listener.listen(64)
            threading.Thread(target=self._accept, daemon=True).start()
        self.records = file_store.Living(*(self._put(kv, bucket) for bucket in ("mdc", "instances")))

    def _put(self, kv, bucket):
        folder = kv / "v1" / bucket
        model = next(p for p in folder.iterdir() if p.name.startswith("dynamo%2Fbackend%2Fgenerate%2F"))
        record = json.loads(model.read_text())
        record["instance_id"] = self.worker_id
        if bucket == "mdc":
            self._change_card(record["card_json"])
        else:
            record["transport"] = self._transport()
            record["device_type"] = self.device
        record["component"] = self.component
        path = folder / re.sub("backend(.*?)[0-9a-f]+$", rf"{self.component}\g<1>{self.worker_id:x}", model.name)
        whole = kv / f"whole-{bucket}-{self.worker_id:x}"
        whole.write_text(json.dumps(record))
        os.link(whole, path)
        whole.unlink()
        return path

    def _transport(self):
        return {"tcp": f"127.0.0.1:{self.port}/{self.worker_id:x}/generate"}

    def close(self):
        self.records.close()
        with contextlib.suppress(OSError):  # it never listened
            self._listener.shutdown(socket.SHUT_RDWR)  # else the thread waits on, and the next socket of that number is its
        self._listener.close()

    def _accept(self):
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._plane, args=(connection,), daemon=True).start()

    def _plane(self, connection):
        try:
            while True:
                path = receive(connection, struct.unpack(">H", receive(connection, 2))[0])
                headers = receive(connection, struct.unpack(">H", receive(connection, 2))[0])
                payload = receive(connection, struct.unpack(">I", receive(connection, 4))[0])
                self._request(connection, path, payload, json.loads(headers or b"{}"))
        except (EOFError, OSError):
            connection.close()

    def _request(self, connection, path, payload, headers):
        if self.silent_queries and b"worker_kv_indexer_query" in path:
            self.queries += 1
            connection.sendall(struct.pack(">I", 0))
            return
        if not path.endswith(b"/generate"):
            text = b"Unknown endpoint: " + path
            connection.sendall(struct.pack(">I", len(text)) + text)
            return
        self.requests += 1
        self.headers.append(headers)
        control, body = self._read(payload)
        if self.behaviour == NO_ACK:
            return
        text = b"Server overloaded: no" if self.behaviour == ACK_ERROR else b""
        connection.sendall(struct.pack(">I", len(text)) + text)
        if self.behaviour in (ACK_ERROR, NO_CALL_HOME):
            return
        threading.Thread(target=self._call_home, args=(control, body), daemon=True).start()

    def _read(self, payload):
        n_header, n_body, _ = struct.unpack(">QQQ", payload[:24])
        self.bodies.append(json.loads(payload[24 + n_header:24 + n_header + n_body]))
        return json.loads(payload[24:24 + n_header]), self.bodies[-1]

    def _call_home(self, control, body):
        info = json.loads(control["connection_info"]["info"])
        self.homes.append(info["address"])
        host, port = info["address"].rsplit(":", 1)
        with socket.create_connection((host, int(port))) as home:
            try:
                self._answer(home, info["subject"], body)
            except OSError:
                pass

    def _answer(self, home, subject, body):
        is_long = self.silent_from is not None and len(body["token_ids"]) >= self.silent_from
        does = SILENT if is_long else self.behaviour
        home.sendall(two_part(json.dumps({"subject": subject, "stream_type": "response"}).encode()))
        if does == CLOSE_AT_HOME:
            return
        if does == PROLOGUE_ERROR:
            home.sendall(two_part(b'{"error":"the engine is not well"}'))
            return
        home.sendall(two_part(b'{"error":null}'))
        if does == BREAK_BEFORE_TOKEN:
            return
        if does == SILENT:
            self._listen_for_word(home)
            return
        if does == STORY:
            self._tell(home, body)
            return
        if does == GARBAGE:
            home.sendall(two_part(b"", b"\xff\x00 no JSON"))
        if callable(does):
            for data in does(body):
                home.sendall(item(data))
        elif does not in (NO_ITEMS, GARBAGE):
            # At once: a caller that has the first may be gone before the second, and its word would not be heard.
            home.sendall(item({"token_ids": [300]}) + item({"token_ids": [301]}))
        if self.error:
            home.sendall(two_part(b"", json.dumps({"data": self.error, "complete_final": False}).encode()))
        if does == BREAK_AFTER_TOKENS:
            return
        if does == ERROR_ITEM:
            home.sendall(two_part(b"", json.dumps({"data": {"event": "error", "comment": ["out of memory"]},
                                                   "complete_final": False}).encode()))
        if does == HANG_AFTER_TOKENS:
            self._listen_for_word(home)
            return
        if does == FLOOD:
            threading.Thread(target=self._flood, args=(home.dup(),), daemon=True).start()
            self._listen_for_word(home)
            return
        if does == ANSWER:
            home.sendall(item({"token_ids": [302], "finish_reason": "length"}))
        home.sendall(two_part(b"", b'{"complete_final":true}') + two_part(b'"sentinel"'))
        self._listen_for_word(home)

    def _tell(self, home, body):
        """Which words follow depends on how many there are before them, as with a real model."""
        begin = len(body["token_ids"])
        end = begin + body["stop_conditions"]["max_tokens"]
        for place in range(begin, end):
            if self._breaks(place):
                return
            if place == self.wait_at:
                self._listen_for_word(home)
                return
            home.sendall(item({"token_ids": [400 + place % 97]}))
        if self._breaks(end):
            return
        home.sendall(item({"token_ids": [], "finish_reason": "length", "completion_usage": {
            "prompt_tokens": begin, "completion_tokens": end - begin, "total_tokens": end}}))
        home.sendall(two_part(b"", b'{"complete_final":true}') + two_part(b'"sentinel"'))
        self._listen_for_word(home)

    def _breaks(self, place):
        if place not in self.break_at:
            return False
        self.break_at.remove(place)
        self.behaviour = self.after_break or self.behaviour
        return True

    def _listen_for_word(self, home):
        try:
            header, body, _ = struct.unpack(">QQQ", receive(home, 24))
            self.told.append(json.loads(receive(home, header + body)))
            while home.recv(4096):
                pass
        except ConnectionResetError:
            self.resets += 1
        except EOFError:
            pass
        self.ended += 1

    def _flood(self, home):
        with home:
            try:
                told = len(self.told)
                while len(self.told) == told:
                    home.sendall(item({"token_ids": [300] * 50}) * 20)
            except OSError:
                pass


class HttpWorker(FakeWorker):
    """One that takes requests over HTTP, as 0.9.0's can."""

    def __init__(self, kv, behaviour, **more):
        worker = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                payload = self.rfile.read(int(self.headers["content-length"]))
                worker.headers.append({name.lower(): value for name, value in self.headers.items()})
                self.send_response(202)
                self.send_header("content-length", "0")
                self.end_headers()
                threading.Thread(target=worker._call_home, args=worker._read(payload), daemon=True).start()

            def log_message(self, *words):
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        super().__init__(kv, behaviour, **more)

    def _transport(self):
        return {"http": f"http://127.0.0.1:{self._server.server_port}/v1/rpc/generate"}

    def close(self):
        super().close()
        self._server.shutdown()
        self._server.server_close()


class NatsWorker(FakeWorker):
    """One that takes requests over NATS."""

    SUBJECT = "fake_worker.generate"

    def __init__(self, kv, behaviour, nats_port, **more):
        self._nats = socket.create_connection(("127.0.0.1", nats_port))
        self._lines = self._nats.makefile("rb")
        self._lines.readline()  # INFO
        self._nats.sendall(b'CONNECT {"verbose":false,"headers":true}\r\nSUB %s 1\r\nPING\r\n' % self.SUBJECT.encode())
        assert self._lines.readline().strip() == b"PONG"
        threading.Thread(target=self._read_nats, daemon=True).start()
        super().__init__(kv, behaviour, **more)

    def _transport(self):
        return {"nats_tcp": self.SUBJECT}

    def _read_nats(self):
        try:
            for line in self._lines:
                word, *rest = line.split()
                if word == b"PING":
                    self._nats.sendall(b"PONG\r\n")
                elif word in (b"MSG", b"HMSG"):
                    data = self._lines.read(int(rest[-1]) + 2)[:-2]
                    self._take(rest[2], *((data[:int(rest[-2])], data[int(rest[-2]):]) if word == b"HMSG" else (b"", data)))
        except (OSError, ValueError):
            pass

    def _take(self, reply, head, payload):
        lines = head.decode().split("\r\n")[1:]
        self.headers.append({name: value.strip() for name, value in (line.split(":", 1) for line in lines if line)})
        self._nats.sendall(b"PUB " + reply + b" 0\r\n\r\n")
        threading.Thread(target=self._call_home, args=self._read(payload), daemon=True).start()

    def close(self):
        super().close()
        self._nats.shutdown(socket.SHUT_RDWR)
        self._nats.close()
