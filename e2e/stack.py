# SPDX-License-Identifier: Apache-2.0
"""Frontend, workers and NATS as processes on loopback, found through a folder.

    with Stack(tmp_path) as stack:
        stack.start_nats()
        stack.mocker(workers=2)
        stack.frontend("--router-mode", "kv")
        stack.ready(workers=2)
        stack.chat("Hello")

Ports are free ones that the programs tell us. Leaving the block stops everything and checks that
nothing leaked: no booking and no stream is left, and every program exits 0 on SIGTERM. Logs are
printed for pytest, which shows them when a test fails. Only processes started here are signalled,
each by its own handle.
"""

import contextlib
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import time

import pytest

import asked
import file_store
from conftest import ROOT, free_port, program, run, unavailable

MODEL = "example"
MODEL_PATH = ROOT / "examples/model"
CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
RESPONSES = "/v1/responses"
# What the caller's environment says about routing must not reach the programs under test.
FOREIGN = re.compile(r"^(DYN_|NATS_|POD_|COMMUTATOR_(?!SHARED|CACHE)|KUBE)")


# How long a test waits for what has to come at some time: machines may be slow, and only failures wait so long.
PATIENCE = 90.0
# How long it waits for what is promised to come at once, with other work on the machine. Whatever would bring it
# about otherwise (the last token of a long answer, a lease) takes longer.
SOON = 20.0
# Environment of a frontend that waits for workers which are paused.
PATIENT = {"DYN_TCP_REQUEST_TIMEOUT": f"{PATIENCE:.0f}", "COMMUTATOR_CALL_HOME_TIMEOUT": f"{PATIENCE:.0f}"}


def until(what, holds, seconds=PATIENCE):
    """Asks holds() until it returns something true, which is returned."""
    deadline = time.monotonic() + seconds
    while True:
        value = holds()
        if value:
            return value
        if time.monotonic() > deadline:
            pytest.fail(f"not within {seconds:g} s: {what}")
        time.sleep(0.01)


def asked_path(log_path):
    return log_path.with_suffix(".asked")


def put(path, text):
    """Replaces a file that is looked at meanwhile: at no moment is it empty."""
    fresh = path.with_name(f"{path.name}.fresh")
    fresh.write_text(text)
    fresh.rename(path)


class Process:
    """A program of ours (or NATS) whose output goes to a file."""

    def __init__(self, name, command, env, log, folder):
        self.name, self.log_path, self.killed = name, log, False
        with open(log, "ab") as out:
            self.popen = subprocess.Popen([str(word) for word in command], env=env, stdout=out, stderr=out,
                                          cwd=folder, stdin=subprocess.DEVNULL, start_new_session=True)

    @property
    def pid(self):
        return self.popen.pid

    def log(self):
        """What it has said: whole lines, while it may be writing another one."""
        ended, text = not self.alive(), self.log_path.read_text(errors="replace")
        return text if ended else text[:text.rfind("\n") + 1]

    def log_lines(self):
        """Whole ones, though it was killed while it wrote."""
        return self.log().rpartition("\n")[0].splitlines()

    def asked(self):
        """What it was asked, if it is a worker program that tells it."""
        return asked.read(asked_path(self.log_path))

    def alive(self):
        return self.popen.poll() is None

    def wait_log(self, pattern, seconds=PATIENCE):
        """Waits for a line that matches, and returns the match."""
        def found():
            ended = not self.alive()
            match = re.search(pattern, self.log())
            if ended and not match:
                pytest.fail(f"{self.name} ended with {self.popen.returncode}\n{self.log()[-2000:]}")
            return match
        return until(f"{self.name} says {pattern!r}", found, seconds)

    def kill(self):
        self.killed = True
        if self.alive():
            self.popen.kill()
        self.popen.wait()

    def pause(self):
        self.popen.send_signal(signal.SIGSTOP)

    def resume(self):
        self.popen.send_signal(signal.SIGCONT)

    def end(self, seconds=PATIENCE):
        """Waits until it ends by itself and returns its exit code."""
        try:
            return self.popen.wait(seconds)
        except subprocess.TimeoutExpired:
            pytest.fail(f"{self.name} goes on after {seconds:g} s")

    def terminate(self):
        """Asks it to stop, without waiting."""
        if self.alive():
            self.popen.terminate()

    def stop(self, seconds=SOON):
        """Asks it to stop and returns its exit code."""
        self.terminate()
        try:
            return self.popen.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            pytest.fail(f"{self.name} did not stop within {seconds} s of SIGTERM\n{self.log()[-2000:]}")

    def cpu_seconds(self):
        """User and system time so far, to the nanosecond, over all threads that still run."""
        total = 0
        for task in os.listdir(f"/proc/{self.pid}/task"):
            with contextlib.suppress(OSError), open(f"/proc/{self.pid}/task/{task}/schedstat") as stat:
                total += int(stat.read().split()[0])
        return total / 1e9

    def waited_seconds(self):
        """How long its threads were ready to run and no processor was free."""
        total = 0
        for task in os.listdir(f"/proc/{self.pid}/task"):
            with contextlib.suppress(OSError), open(f"/proc/{self.pid}/task/{task}/schedstat") as stat:
                total += int(stat.read().split()[1])
        return total / 1e9

    def rss_mb(self):
        with open(f"/proc/{self.pid}/status") as status:
            return int(re.search(r"VmRSS:\s+(\d+)", status.read()).group(1)) / 1024


class Answer:
    """A whole HTTP answer."""

    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def events(self):
        """Server-sent events as (event or None, data or comment)."""
        return list(sse(self.body.decode().splitlines(keepends=True)))

    @property
    def chunks(self):
        return [json.loads(data) for event, data in self.events if event is None and data != "[DONE]"]

    @property
    def text(self):
        """What the model said, streamed or not."""
        if "event-stream" not in self.headers.get("content-type", ""):
            choice = self.json["choices"][0]
            return choice["message"].get("content") or "" if "message" in choice else choice["text"]
        parts = [choice for chunk in self.chunks for choice in chunk["choices"]]
        return "".join((c["delta"].get("content") if "delta" in c else c["text"]) or "" for c in parts)

    @property
    def usage(self):
        if "event-stream" in self.headers.get("content-type", ""):
            return [chunk["usage"] for chunk in self.chunks if chunk.get("usage")][-1]
        return self.json["usage"]


def sse(lines):
    """Yields (event or None, data or comment) of each server-sent event of an iterable of lines. Errors of 1.x, which
    are data alone, count as events of that name, as those of 0.9.0 are."""
    event, data = None, []
    for line in lines:
        line = line.rstrip("\r\n")
        if line.startswith("event:"):
            event = line[6:].strip()
        elif line.startswith("data:"):
            data.append(line[5:].removeprefix(" "))
        elif line.startswith(":"):
            data.append(line[1:].strip())
        elif not line and (event or data):
            whole = "\n".join(data)
            yield event or ("error" if whole.startswith('{"error":') else None), whole
            event, data = None, []


class Stream:
    """An answer that is still coming: iterate over its events, or close it in the middle."""

    def __init__(self, connection, response):
        self._connection, self._response = connection, response
        self.status, self.headers = response.status, response.headers
        self.events = sse(line.decode() for line in response)

    def close(self):
        self._response.close()
        self._connection.close()


class Stack:
    """Everything that one test runs. Use as a context manager."""

    def __init__(self, folder, events=True):
        self.folder, self.events = folder, events
        self.kv = folder / "kv"
        self.kv.mkdir()
        self.processes = []
        self.nats = self.nats_port = self.front = self.port = None

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        try:
            if kind is None:
                self.check_nothing_leaked()
        finally:
            for process in self.processes:
                if kind is not None or "PYTEST_CURRENT_TEST" in os.environ:  # pytest shows it for failures
                    print(f"--- {process.name}\n{process.log()[-6000:]}", file=sys.stderr)
                process.kill()

    # --- processes ---

    def start(self, name, command, **env):
        """Starts any program in this stack's folder, with its discovery and events."""
        base = {key: value for key, value in os.environ.items() if not FOREIGN.match(key)}
        base.update(DYN_STORE_KV="file", DYN_FILE_KV=str(self.kv), DYN_TCP_RPC_HOST="127.0.0.1")
        if self.nats_port:
            base["NATS_SERVER"] = f"nats://127.0.0.1:{self.nats_port}"
        log = self.folder / f"{name}-{len(self.processes)}.log"
        base.update(ASKED=str(asked_path(log)), **{key: str(word) for key, word in env.items()})
        process = Process(name, command, base, log, self.folder)
        self.processes.append(process)
        return process

    def start_nats(self, *flags):
        """Starts NATS; again on the port that it had before. Streams (-js) are in the stack's folder: by default all
        servers of the machine would have one, with what earlier ones left in it."""
        found = run(ROOT / "e2e/demo/find-nats", check=False)
        if found.returncode != 0:
            unavailable("no nats-server here and no Go to build one")
        self.nats_port = self.nats_port or free_port()
        self.nats = self.start("nats", [found.stdout.strip(), "-a", "127.0.0.1", "-p", self.nats_port, *flags,
                                       *(("-sd", self.folder / "jetstream") if "-js" in flags else ())])
        self.nats.wait_log("Server is ready")
        return self.nats

    def mocker(self, *flags, workers=1, blocks=1024, block_size=16, speedup=50, **env):
        if not self.nats_port:
            env.setdefault("DYN_EVENT_PLANE", "none")
        mocker = self.start("mocker", [program("dynamo-mocker"), "--model-path", MODEL_PATH, "--model-name", MODEL,
                                        "--block-size", block_size, "--num-gpu-blocks-override", blocks,
                                        "--num-workers", workers, "--speedup-ratio", speedup, *flags], **env)
        return mocker

    def frontend(self, *flags, **env):
        if not self.nats_port:
            env.setdefault("DYN_KV_EVENTS", "false")
        self.front = self.start("frontend", [program("dynamo-frontend"), "--http-host", "127.0.0.1",
                                              "--http-port", 0, *flags], **env)
        self.port = int(self.front.wait_log(r"serving\b.*?\bport\W+(\d+)").group(1))
        self.url = f"http://127.0.0.1:{self.port}"
        return self.front

    def up(self, *flags, workers=1, mocker=(), speedup=50, blocks=1024, **env):
        """NATS (unless the stack has no events), workers in one process, and a frontend; ready."""
        if self.events:
            self.start_nats()
        self.worker = self.mocker(*mocker, workers=workers, speedup=speedup, blocks=blocks)
        self.frontend(*flags, **env)
        self.ready(workers)
        return self

    def ready(self, workers):
        """Waits until the model is served by so many workers and events flow."""
        until(f"the model and {workers} workers", lambda: self.workers() == workers and self.models() == [MODEL])
        if self.nats_port and self.nats and self.nats.alive():
            until("NATS is connected", lambda: self.metric("commutator_nats_up") in (1, None))

    @contextlib.contextmanager
    def paused(self, process):
        """What this process is asked for in the block is not answered in it, however long the block takes: its records
        stay alive. A frontend is to be PATIENT with it."""
        process.pause()
        records = file_store.Living(*(path for path in self.kv.rglob("*") if path.is_file()))
        try:
            yield
        finally:
            records.leave()
            process.resume()

    # --- questions ---

    def connect(self, timeout=PATIENCE):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)

    def request(self, method, path, body=None, headers=None, timeout=PATIENCE):
        """One request on a connection of its own; a body that is no text is sent as JSON."""
        if body is not None and not isinstance(body, (bytes, str)):
            body = json.dumps(body)
        connection = self.connect(timeout)
        try:
            connection.request(method, path, body, {"content-type": "application/json", **(headers or {})})
            response = connection.getresponse()
            return Answer(response.status, response.headers, response.read())
        finally:
            connection.close()

    def get(self, path):
        return self.request("GET", path)

    def body(self, content, api=CHAT, **more):
        subject = {"messages": [{"role": "user", "content": content}]} if api == CHAT else {"prompt": content}
        return {"model": MODEL, "max_tokens": 4, **subject, **more}

    def chat(self, content="Hello", headers=None, timeout=PATIENCE, **more):
        """One chat completion, which must succeed."""
        answer = self.request("POST", CHAT, self.body(content, **more), headers, timeout)
        assert answer.status == 200, answer.body
        return answer

    def stream(self, content="Hello", headers=None, **more):
        """Begins a streamed chat completion and returns once its head is here."""
        connection = self.connect()
        connection.request("POST", CHAT, json.dumps(self.body(content, stream=True, **more)),
                           {"content-type": "application/json", **(headers or {})})
        return Stream(connection, connection.getresponse())

    def models(self):
        return [model["id"] for model in self.get("/v1/models").json["data"]]

    def instances(self):
        return sorted(instance["instance_id"] for instance in self.get("/health").json["instances"])

    def workers(self, worker_type="decode"):
        return int(self.metric("commutator_router_workers", model=MODEL, worker_type=worker_type) or 0)

    def metrics(self, url_answer=None):
        """{(name, ((label, value), …)): number} of /metrics."""
        answer = url_answer or self.get("/metrics")
        return parse_metrics(answer.body.decode())

    def metric(self, name, **labels):
        """Sum of the series with these labels, None when there is none."""
        want = set(labels.items())
        found = [value for (series, have), value in self.metrics().items() if series == name and want <= set(have)]
        return sum(found) if found else None

    def decisions(self):
        """Routing decisions by mode."""
        return {dict(labels)["mode"]: value for (name, labels), value in self.metrics().items()
                if name == "commutator_router_decisions_total"}

    # --- the end ---

    def loads(self):
        """What still counts for something: streams, requests, bookings."""
        names = ("dynamo_frontend_inflight_requests", "dynamo_frontend_queued_requests", "commutator_plane_streams",
                 "dynamo_frontend_worker_active_prefill_tokens")
        # What a worker says counts if it is more; the reference's mocker may leave out that its last blocks ended.
        if not any(process.name == "reference-mocker" for process in self.processes):
            names += ("dynamo_frontend_worker_active_decode_blocks",)
        return {series: value for series, value in self.metrics().items() if series[0] in names and value}

    def forget_the_killed(self):
        """Takes away what killed workers left in the folder: else the last load that they told counts until it ages."""
        for process in self.processes:
            if process.killed and process.name == "mocker":
                for worker in re.findall(r"worker registered worker_id=(\d+)", process.log()):
                    for record in self.kv.glob(f"v1/*/*%2F{int(worker):x}"):
                        record.unlink(missing_ok=True)

    def check_nothing_leaked(self):
        if self.port and self.front.alive():
            self.forget_the_killed()
            until("no request, stream or booking is left", lambda: not self.loads())
        # Frontend first: workers that leave under it would be news to it.
        for process in sorted(self.processes, key=lambda p: p.name != "frontend"):
            if process.killed or process.name not in ("frontend", "mocker"):
                continue
            code = process.stop()
            assert code == 0, f"{process.name}: exit {code} on SIGTERM\n{process.log()[-2000:]}"
            found = re.search(r"ERROR: AddressSanitizer|runtime error:|ThreadSanitizer", process.log())
            assert not found, process.log()[found.start():][:3000]


def parse_metrics(text):
    series = {}
    for line in text.splitlines():
        found = re.fullmatch(r"([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)", line)
        if found:
            labels = tuple(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', found.group(2) or ""))
            series[found.group(1), labels] = float(found.group(3))
    return series


def words(n, seed=0):
    """About n tokens of text that differ from the first word on with each seed."""
    return " ".join(f"{seed}x{i}" if i % 8 == 0 else "worker" for i in range(max(1, n // 2)))


# --- what the router says ---

FORMULA = re.compile(r"Formula for worker_id=(?P<worker>\d+) dp_rank=(?P<rank>\d+) with (?P<cached>\d+) cached blocks: "
                     r"(?P<logit>[\d.]+) = (?P<weight0>[\d.]+) \* prefill_blocks \+ decode_blocks = "
                     r"(?P<weight>[\d.]+) \* (?P<prefill>[\d.]+) \+ (?P<decode>[\d.]+)")
SELECTED = re.compile(r"Selected worker: worker_id=(?P<worker>\d+) dp_rank=(?P<rank>\d+), logit: (?P<logit>[\d.]+), "
                      r"cached blocks: (?P<cached>\d+), tree size: (?P<tree>\d+)(?:, total blocks: (?P<total>\d+))?")
# Debug lines that tell each decision in every mode.
ROUTED_LOG = "info,commutator::frontend::request=debug"
ROUTED = re.compile(r"^(\S+)Z .* routed request_id=(\S+) mode=(\S+) worker_id=(\d+) overlap_blocks=(\d+) isl=(\d+)",
                    re.MULTILINE)


class Decision:
    """The Formula lines of one request and its choice."""

    def __init__(self):
        self.rows, self.selected = [], None


def decisions_of(log):
    """{request id: Decision} of the text lines of a log."""
    found = {}
    for line in log.splitlines():
        for pattern in (FORMULA, SELECTED):
            if match := pattern.search(line):
                request = re.search(r"request_id=(\S+)", line).group(1)
                row = {key: float(value) if "." in value else int(value)
                       for key, value in match.groupdict().items() if value is not None}
                decision = found.setdefault(request, Decision())
                if pattern is FORMULA:
                    decision.rows.append(row)
                else:
                    decision.selected = row
    return found


def decision_for(stack, answer):
    """The traces of an answer's request."""
    return decisions_of(stack.front.log())[request_id(answer)]


def request_id(answer):
    """The id that the log knows an answer by."""
    body = answer.chunks[0] if "event-stream" in answer.headers["content-type"] else answer.json
    return body["id"].split("-", 1)[1]
