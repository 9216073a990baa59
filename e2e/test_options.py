# SPDX-License-Identifier: Apache-2.0
"""Options of the reference's programs, as their --help lists them: ours take each with each of its words, or say why not."""

import os
import re
import subprocess

import pytest

from conftest import program, reference_python
from stack import Stack

PROGRAMS = {"frontend": ["dynamo-frontend"], "router": ["dynamo-router", "route"], "indexer": ["dynamo-router", "index"],
            "select_service": ["dynamo-router", "select"], "slot_tracker": ["dynamo-router", "slots"],
            "global_router": ["dynamo-router", "global"]}
RELEASES = [(version, module) for version in ("0.9.0", "1.4.2", "1.6.1") for module in PROGRAMS
            if version != "0.9.0" or module in ("frontend", "router")]
# What is meant not to be here (router/frontend/README.md), as option and word.
REFUSED = re.compile(r"--(a[ic][sc]-.*|custom-backend-metrics-.*|frontend-route-extension .*)|--(interactive|kserve-grpc-server)"
                     r"|--dyn-chat-processor (vllm|sglang)|--router-prefill-load-model a[ic][sc]|--response-plane quic")
# Variables of which a start says that they have no effect here, and of what.
IDLE = {f"DYN_{name}": name.lower().replace("_", "-") for name in (
    "TOKENIZER", "TOKENIZER_FALLBACK", "DUMP_CONFIG_TO", "GRPC_METRICS_PORT", "TRUST_REMOTE_CODE", "ENABLE_SESSION_PREFIX_INDEX",
    "EXCLUDE_TOOLS_WHEN_TOOL_CHOICE_NONE")} | {
    "DYN_ROUTER_EVENT_THREADS": "router-event-threads", "DYN_PREPROCESS_WORKERS": "dyn-preprocess-workers",
    "DYN_DEBUG_PERF": "dyn-debug-perf"}
# Variables of what is refused, or known by an option that help leaves out.
NO_HELP = re.compile(r"DYN_(INTERACTIVE|KSERVE_GRPC_SERVER|CHAT_PROCESSOR|FRONTEND_ROUTE_EXTENSIONS|MODEL_(NAME|PATH)|AI[SC]_.*)")


def help_of(version, module, nats):
    """Without NATS routers do not get as far as their options."""
    env = {**os.environ, "DYN_DISCOVERY_BACKEND": "mem", "DYN_STORE_KV": "mem", "DYN_EVENT_PLANE": "zmq", "DYN_REQUEST_PLANE": "tcp",
           "COLUMNS": "200", "NATS_SERVER": f"nats://127.0.0.1:{nats}"}
    done = subprocess.run([reference_python(version), "-m", f"dynamo.{module}", "--help"], env=env, capture_output=True, text=True,
                          timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-1000:]
    return done.stdout


def options(text):
    """(names, words to try, variable) of each."""
    text = text[re.search(r"^options:$", text, re.M | re.I).end():]
    for entry in re.split(r"^ {2,6}(?=-)", text, flags=re.M)[1:]:
        head, body = re.split(r"\n| {2,}", entry, maxsplit=1)
        body = " ".join(body.split())
        choices, default = re.search(r"\{(.*?)\}", head), re.search(r"default: ([^\]\s|]+)", body)
        takes = choices or re.search(r"--[\w-]+ [A-Z<]", head)
        words = choices.group(1).split(",") if choices else ["1", "0.5", "x", "public-xxh3-v1"] if takes else [None]
        if takes and not choices and default:
            words.append(default.group(1))
        env = re.search(r"env var: (\w+)", body)
        yield [name for name in re.findall(r"--[\w-]+", head) if name not in ("--help", "--version")], choices, words, env and env.group(1)


def taken(command, option, word):
    """Or why not. What is wrong is the option at the end."""
    done = subprocess.run([program(command[0]), *command[1:], option, *([word] if word is not None else []), "--last"],
                          capture_output=True, text=True, timeout=60, check=False)
    said = done.stderr + done.stdout
    assert done.returncode == 1, said
    return None if "unknown option --last" in said else said


def missing(module, text):
    command = PROGRAMS[module]
    helped = subprocess.run([program(command[0]), *command[1:], "--help"], capture_output=True, text=True, check=True).stdout
    for names, choices, words, env in options(text):
        for name in names:
            why = {word: taken(command, name, word) for word in words}
            if choices or None not in why.values():  # of those that are no choice one fits its type
                for word, said in why.items():
                    if said and not REFUSED.fullmatch(name if word is None else f"{name} {word}"):
                        yield name, word, said.strip()
        if env and not re.search(rf"\b{env}\b", helped) and not NO_HELP.fullmatch(env) and env not in IDLE:
            yield names, env


@pytest.mark.parametrize("version, module", RELEASES)
def test_each_option_is_taken(tmp_path, version, module):
    with Stack(tmp_path) as stack:
        stack.start_nats("-js")
        text = help_of(version, module, stack.nats_port)
    assert len(list(options(text))) > 2
    assert not list(missing(module, text))


@pytest.mark.parametrize("flags, env, why", [
    (["--interactive"], {}, "no console"), ([], {"DYN_INTERACTIVE": "true"}, "no console"),
    (["--kserve-grpc-server"], {}, "KServe"), ([], {"DYN_KSERVE_GRPC_SERVER": "1"}, "KServe"),
    (["--dyn-chat-processor", "vllm"], {}, "only dynamo"), ([], {"DYN_CHAT_PROCESSOR": "sglang"}, "only dynamo"),
])
def test_what_is_not_here_says_so(flags, env, why):
    done = subprocess.run([program("dynamo-frontend"), "--http-port", "0", *flags], env={**os.environ, **env}, capture_output=True,
                          text=True, timeout=60, check=False)
    assert done.returncode == 1 and why in done.stderr + done.stdout


def test_what_is_not_here_may_be_ruled_out(tmp_path):
    with Stack(tmp_path, events=False) as stack:
        stack.frontend("--no-interactive", "--no-kserve-grpc-server", "--dyn-chat-processor", "dynamo", DYN_KSERVE_GRPC_SERVER="false")


def test_variables_without_effect_are_named(tmp_path):
    with Stack(tmp_path, events=False) as stack:
        stack.frontend(**{variable: "1" for variable in IDLE})
        named = stack.front.wait_log(r'options that have no effect here options="([^"]*)"').group(1)
        assert set(named.split()) == {f"--{option}" for option in IDLE.values()}
