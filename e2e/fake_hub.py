# SPDX-License-Identifier: Apache-2.0
"""A model hub on loopback with one repository, as Hugging Face's clients see one: HEAD and GET of
/<repository>/resolve/<revision>/<file>, ranges, large files elsewhere, tokens; and with bad days."""

import hashlib
import http.server
import re
import threading

COMMIT = "5f3c0c0ffee5f3c0c0ffee5f3c0c0ffee5f3c0c0"


class FakeHub:
    """Serves the files of a folder until close(). `asked` lists (method, file, range)."""

    def __init__(self, folder, repository, token=None, large=("tokenizer.json",)):
        self.repository, self.token, self.large = repository, token, large
        self.files = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
        self.breaks = 0  # so many answers are cut in their middle
        self.damages = 0  # so many have a wrong byte
        self.held = None  # an Event that bytes wait for
        self.asked, self.leaked = [], 0
        self._lock = threading.Lock()
        hub = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                hub._answer(self)

            do_HEAD = do_GET

            def log_message(self, *_):
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        # Another name of this machine: what is said to the one is not for the other.
        self.elsewhere = f"http://localhost:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self):
        self._server.shutdown()
        self._server.server_close()

    def gets(self, name):
        return [item for item in self.asked if item[0] == "GET" and item[1] == name]

    def _answer(self, x):
        cdn = re.fullmatch(r"/cdn/([^/]+)", x.path)
        asked = cdn or re.fullmatch(rf"/{self.repository}/resolve/(?:main|{COMMIT})/([^/]+)", x.path)
        name = asked and asked[1]
        if cdn:
            self.leaked += "authorization" in x.headers
        elif self.token and x.headers.get("authorization") != f"Bearer {self.token}":
            return self._say(x, 401)
        if name not in self.files:
            return self._say(x, 404)
        body = self.files[name]
        head = {"X-Repo-Commit": COMMIT}
        if name in self.large and not cdn:
            head.update({"X-Linked-ETag": f'"{hashlib.sha256(body).hexdigest()}"', "X-Linked-Size": len(body),
                         "Location": f"{self.elsewhere}/cdn/{name}"})
            return self._say(x, 302, head)
        git = hashlib.sha1(b"blob %d\0" % len(body) + body).hexdigest()
        head["ETag"] = '"of-the-cdn"' if cdn else f'"{git}"'
        if x.command == "GET":
            self._send(x, name, body, head)
        else:
            self._say(x, 200, {**head, "Content-Length": len(body)})

    def _send(self, x, name, body, head):
        asked = re.fullmatch(r"bytes=(\d+)-", x.headers.get("range", ""))
        begin = int(asked[1]) if asked else 0
        with self._lock:
            self.asked.append((x.command, name, begin))
            broken, damaged = self.breaks > 0, self.damages > 0
            self.breaks -= broken
            self.damages -= damaged and not broken
        if self.held:
            self.held.wait(60)
        part = body[begin:]
        if asked:
            head["Content-Range"] = f"bytes {begin}-{len(body) - 1}/{len(body)}"
        x.send_response(206 if asked else 200)
        for key, value in {**head, "Content-Length": len(part)}.items():
            x.send_header(key, str(value))
        x.end_headers()
        if damaged and not broken:
            part = part[:-1] + bytes([part[-1] ^ 1])
        x.wfile.write(part[:len(part) // 2] if broken else part)
        x.close_connection = x.close_connection or broken

    def _say(self, x, status, head=()):
        x.send_response(status)
        for key, value in dict(head).items():
            x.send_header(key, str(value))
        if "Content-Length" not in dict(head):
            x.send_header("Content-Length", "0")
        x.end_headers()
