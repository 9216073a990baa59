# SPDX-License-Identifier: Apache-2.0
"""Every program ends by status 0 on SIGTERM, whenever that comes, and leaves no record of itself.

A moment is told by what the program has done: the processor time that it has used since it catches the
signal, or what it has said. So a busy machine meets the same moments. The operator needs an API server: its
stops are in test_operator_controller.py.
"""

import contextlib
import json
import re
import signal

import pytest

from conftest import free_port, program
from stack import CHAT, MODEL, Stack, until, words

MOMENTS_MS = (0, 1, 2, 4, 7, 12, 20)  # of processor time
SANITIZED = re.compile(r"AddressSanitizer|runtime error:|ThreadSanitizer|LeakSanitizer")
INTERRUPTED = 130  # of the load generator, as shells have it


@pytest.fixture
def stack(tmp_path):
    with Stack(tmp_path) as stack:
        stack.start_nats()
        yield stack


def records(stack):
    return [path for path in stack.kv.rglob("*") if path.is_file()]


def catches_sigterm(process):
    with contextlib.suppress(OSError), open(f"/proc/{process.pid}/status") as status:
        caught = re.search(r"^SigCgt:\s+(\w+)", status.read(), re.MULTILINE)
        return caught and int(caught.group(1), 16) >> (signal.SIGTERM - 1) & 1


def used_ms(process):
    """Processor time; without end for a process that has ended."""
    try:
        return process.cpu_seconds() * 1000
    except OSError:
        return float("inf")


def check(*processes, statuses=(0,)):
    """They are asked to stop, some once more, which changes nothing."""
    for process in processes:
        process.terminate()
    for process in processes:
        ended = process.stop(120)
        assert ended in statuses, f"{process.name} ended by {ended}\n{process.log()[-3000:]}"
        assert not SANITIZED.search(process.log()), process.log()[-6000:]


def stop_along(start, settled):
    """Starts a program once for each moment and stops it there, or when it has said that it has settled."""
    stopping = []
    for moment in MOMENTS_MS:
        process = start()
        until("SIGTERM is caught", lambda: catches_sigterm(process) or not process.alive(), 60)
        begun = used_ms(process)
        until("the moment", lambda: used_ms(process) - begun >= moment or not process.alive()
              or re.search(settled, process.log()), 60)
        process.terminate()
        stopping.append(process)
    check(*stopping)
    # Before it catches the signal it has done nothing, and may end by it.
    early = start()
    early.terminate()
    check(early, statuses=(0, -signal.SIGTERM))
    early.killed = True


def frontend(stack, *flags, **env):
    return stack.start("starting-frontend", [program("dynamo-frontend"), "--http-host", "127.0.0.1", "--http-port", 0,
                                             "--router-mode", "kv", *flags], **env)


def router(stack, command, *flags, **env):
    return stack.start(command, [program("dynamo-router"), command, *flags],
                       **{"DYN_SYSTEM_PORT": 0, "DYN_SYSTEM_HOST": "127.0.0.1", **env})


def route(stack, **env):
    return router(stack, "route", "--endpoint", "dynamo.backend.generate", "--block-size", 16, **env)


def bridge(stack, **env):
    return router(stack, "bridge", "--kv-events", f"tcp://127.0.0.1:{free_port()}", "--worker-id", 7,
                  "--publish-as", "endpoint", "--block-size", 16, **env)


def service(command, *flags):
    return lambda stack, **env: router(stack, command, "--host", "127.0.0.1", "--port", 0, *flags, **env)


# How each is started, and what it says once it has nothing more to begin.
STARTS = {
    "frontend": (frontend, "model ready"),
    "mocker": (lambda stack, **env: stack.mocker(workers=2, **env), "(?s)(worker registered.*){2}"),
    "route": (route, "KV Routing initialized"),
    "bridge": (bridge, "NATS is connected|serving"),
    "index": (service("index"), "serving"),
    "select": (service("select"), "serving"),
    "slots": (service("slots"), "serving"),
}


@pytest.mark.parametrize("name", STARTS)
def test_while_it_starts(stack, name):
    start, settled = STARTS[name]
    workers = [] if name == "mocker" else [stack.mocker(workers=2)]
    for worker in workers:
        worker.wait_log("worker registered")
    stop_along(lambda: start(stack), settled)
    check(*workers)
    assert not records(stack)


def leave(stack, content):
    """Asks, and is gone before the answer."""
    connection = stack.connect()
    connection.request("POST", CHAT, json.dumps(stack.body(content, stream=True)), {"content-type": "application/json"})
    connection.close()


def bench(stack):
    load = stack.start("bench", [program("dynamo-bench"), "load", "--url", stack.url, "--model", MODEL,
                                 "--concurrency", 8, "--duration", 60])
    until("it asks", lambda: (stack.metric("dynamo_frontend_requests_total") or 0) > 8, 60)
    return load


def test_under_load(stack):
    """Clients that stream, and some that left while their long prompts are cut into tokens."""
    workers = [stack.mocker(speedup=20), stack.mocker(speedup=20)]
    long = words(60000)
    for round_ in range(3):
        stack.frontend("--router-mode", "kv")
        stack.ready(2 if round_ < 2 else 1)
        load = bench(stack)
        for _ in range(4):
            leave(stack, long)
        if round_ == 1:
            check(workers.pop())
            assert len(records(stack)) > 0
        stack.front.terminate()
        check(load, statuses=(INTERRUPTED,))
        check(stack.front)
    check(*workers)
    assert not records(stack)


@pytest.mark.parametrize("how", ["killed", "paused"])
def test_with_nats_gone(stack, how):
    worker = stack.mocker(workers=2)
    worker.wait_log("worker registered")
    stack.frontend("--router-mode", "kv")
    stack.ready(2)
    # The bridge may still be shaking hands when the server falls silent.
    others = [route(stack), bridge(stack)]
    others[0].wait_log("KV Routing initialized")
    until("SIGTERM is caught", lambda: catches_sigterm(others[1]), 60)
    stack.chat("Before it goes.")
    if how == "killed":
        stack.nats.kill()
        until("it is noticed", lambda: stack.metric("commutator_nats_up") == 0)
    else:
        stack.nats.pause()
    stack.chat("Nobody hears of this one.")
    try:
        check(stack.front, *others, worker)
    finally:
        if how == "paused":
            stack.nats.resume()
    assert not records(stack)


def test_with_no_etcd(stack):
    where = {"DYN_STORE_KV": "etcd", "ETCD_ENDPOINTS": f"http://127.0.0.1:{free_port()}"}
    processes = [frontend(stack, **where), stack.mocker(**where)]
    processes[0].wait_log("serving")
    until("SIGTERM is caught", lambda: catches_sigterm(processes[1]), 60)
    check(*processes)
