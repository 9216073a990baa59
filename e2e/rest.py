# SPDX-License-Identifier: Apache-2.0
"""Calls of an API server on a connection that is kept: a test asks again and again, and each greeting costs both sides
more than an answer does."""

import contextlib
import http.client
import json
import threading
import time

PATIENCE = 10  # times that a server may ask for it


class Refused(Exception):
    """An answer that is not a success."""

    def __init__(self, status, text):
        super().__init__(f"{status}: {text[:500]}")
        self.status = status


class NotFound(Refused):
    pass


class Rest:
    """JSON calls of one server, each thread on a connection of its own."""

    def __init__(self, address, tls, headers=(), timeout=20):
        self._address, self._tls, self._headers, self._timeout = address, tls, dict(headers), timeout
        self._kept = threading.local()

    def call(self, method, path, body=None, kind="application/json"):
        sent = None if body is None else json.dumps(body)
        for _ in range(PATIENCE):
            status, text = self._answer(method, path, sent, self._headers | {"Content-Type": kind})
            if method != "GET" or status != 429:
                break
            time.sleep(1)  # as such an answer asks for: the server still reads what it has of a new kind
        if status >= 300:
            raise (NotFound if status == 404 else Refused)(status, text)
        return json.loads(text)

    def get(self, path):
        """The object, or None where there is none."""
        try:
            return self.call("GET", path)
        except NotFound:
            return None

    def listed(self, path):
        """The objects of a list, each with the kind and version that a list tells only once."""
        answer = self.call("GET", path)
        told = {"kind": answer["kind"].removesuffix("List"), "apiVersion": answer["apiVersion"]}
        return [told | item for item in answer["items"]]

    def patch(self, path, change):
        return self.call("PATCH", path, change, "application/merge-patch+json")

    def stream(self, path):
        """The lines of a watch, on a connection of its own."""
        connection = self._connect()
        connection.request("GET", path, None, self._headers)
        return connection.getresponse()

    def _connect(self):
        return http.client.HTTPSConnection(self._address.hostname, self._address.port, context=self._tls,
                                           timeout=self._timeout)

    def _answer(self, *request):
        kept = getattr(self._kept, "connection", None)
        # A server that went away took the connection with it; only a new one tells whether it is back. What
        # changes something is sent once, so not on a connection that may be dead.
        if kept and request[0] == "GET":
            with contextlib.suppress(OSError, http.client.HTTPException):
                return self._ask(kept, *request)
        if kept:
            self._drop(kept)
        self._kept.connection = self._connect()
        return self._ask(self._kept.connection, *request)

    def _ask(self, connection, *request):
        try:
            connection.request(*request)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        except BaseException:
            self._drop(connection)
            raise

    def _drop(self, connection):
        connection.close()
        self._kept.connection = None
