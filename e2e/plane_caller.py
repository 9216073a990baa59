# SPDX-License-Identifier: Apache-2.0
"""The calling side of the request plane: sends a request to an endpoint and reads what comes home.

No code of ours or of the reference is used.
"""

import json
import socket
import struct
import uuid

import file_store
from fake_worker import receive, two_part


class PlaneError(Exception):
    """The endpoint refused: a non-empty acknowledgement, or an error prologue."""


def address_of(kv, namespace, component, endpoint):
    """[(instance id, "ip:port/<id hex>/<endpoint>")] of the endpoint's records in a file store."""
    found = []
    for record in file_store.records(kv, "instances"):
        if (record["namespace"], record["component"], record["endpoint"]) == (namespace, component, endpoint):
            found.append((record["instance_id"], record["transport"]["tcp"]))
    return found


def read_frame(connection):
    n_header, n_body, _ = struct.unpack(">QQQ", receive(connection, 24))
    return receive(connection, n_header), receive(connection, n_body)


def frame(path, control, body, headers=None):
    payload = two_part(json.dumps(control).encode(), json.dumps(body).encode())
    headers = json.dumps(headers or {}).encode()
    return (struct.pack(">H", len(path)) + path + struct.pack(">H", len(headers)) + headers +
            struct.pack(">I", len(payload)) + payload)


def control(request, home):
    """What a request says of itself, and of where to answer."""
    info = {"address": home, "subject": request, "context": request, "stream_type": "response"}
    return {"id": request, "request_type": "single_in", "response_type": "many_out",
            "connection_info": {"transport": "tcp_server", "info": json.dumps(info)}}


def take(listener, request):
    """The worker's connection home, with its prologue read."""
    home, _ = listener.accept()
    home.settimeout(listener.gettimeout())
    assert json.loads(read_frame(home)[0])["subject"] == request
    error = json.loads(read_frame(home)[0])["error"]
    if error is not None:
        home.close()
        raise PlaneError(error)
    return home


def offer(address, body, request, listener, timeout=90, headers=None):
    """Sends a request that is to be answered at the listener; returns its acknowledgement, empty if it is taken."""
    where, path = address.split("/", 1)
    host, port = where.rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout) as connection:
        home = f"127.0.0.1:{listener.getsockname()[1]}"
        connection.sendall(frame(path.encode(), control(request, home), body, headers))
        return receive(connection, struct.unpack(">I", receive(connection, 4))[0]).decode()


def start(address, body, timeout=90, headers=None):
    """Sends a request, with headers of the plane; returns the worker's connection home, with its prologue read."""
    request = str(uuid.uuid4())
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(timeout)
        ack = offer(address, body, request, listener, timeout, headers)
        if ack:
            raise PlaneError(ack)
        return take(listener, request)


def items(home):
    """Yields each item's `data` member until the stream has ended properly."""
    with home:
        while True:
            header, body = read_frame(home)
            if header == b'"sentinel"':
                return
            item = json.loads(body)
            if not item.get("complete_final"):
                yield item["data"]


def call(address, body, headers=None):
    """The data of all items of one request."""
    return [item.get("data") for item in items(start(address, body, headers=headers))]
