# SPDX-License-Identifier: Apache-2.0
"""Every parser of calls and of thoughts that 1.6.1 knows, beside it: texts that are whole, damaged, cut off or of another
form, token by token, as one item, streamed and folded. What differs is in DEVIATIONS, where each line must be needed."""

import contextlib
import re

import pytest

from fake_worker import FakeWorker
from stack import until
from test_openai_interop import CALLS, DSML, M3, NEWEST, TOOLS, Rig, pieces_of, said

# What those write that have no text of their own in CALLS.
SAME = {"qwen25": "hermes", "qwen3": "qwen3_coder", "nemotron_nano": "qwen3_coder", "glm45": "glm47", "kimi_k25": "kimi_k2",
        "deepseek-v4": "deepseek_v4", "deepseekv4": "deepseek_v4", "minimax-m3": "minimax_m3", "minimax_m3_nom": "minimax_m3",
        "minimax-m3-nom": "minimax_m3", "kimi-k3": "kimi_k3", "gemma-4": "gemma4", "muse_glimmer": "muse"}
TEXTS = CALLS | {name: CALLS[of] for name, of in SAME.items()} | {
    "nemotron_deci": ['hi <TOOLCALL>[{"name":"f","arguments":{"x": 1}}, {"name":"g","arguments":{}}]</TOOLCALL>'],
    "default": ['<TOOLCALL>[{"name":"f","arguments":{"x":1}}]</TOOLCALL>'],
    "phi4": ['functools[{"name":"f","arguments":{"x":1}},{"name":"g","arguments":{}}]'],
    "jamba": ['hi <tool_calls>[{"name":"f","arguments":{"x":1}}]</tool_calls>']}
MARK = re.compile(r"(<\|?[^<>]*>|\]<\]minimax\[>\[|\[/?[A-Z_]+\]|functools)")
BARE = '{"name":"f","arguments":{"x":1}}'


def tokens(text):
    """As a model gives them: marks whole, of the rest a word each."""
    return [piece for part in MARK.split(text) for piece in ([part] if MARK.fullmatch(part) else re.findall(r"\s*\S+|\s+", part))]


def variants(name):
    """(kind, text) of answers to a request with tools."""
    texts = TEXTS[name]
    made = [("whole", text) for text in texts]
    for text in texts[:1]:
        marks = [found.span() for found in MARK.finditer(text)]
        made += [("behind words", "Let me see. " + text), ("before words", text + " Done."), ("twice", text + "\n" + text), ("blanks", f"\n\n{text}\n")]
        made += [("no such tool", text.replace('"f"', '"zz"').replace("=f>", "=zz>").replace("[f(", "[zz(").replace(".f:", ".zz:").replace("call:f", "call:zz"))]
        if marks:
            made += [("no end", text[:marks[-1][0]]), ("no begin", text[:marks[0][0]] + text[marks[0][1]:]), ("cut", text[:(marks[0][1] + len(text)) // 2])]
        made += [("broken", text.replace("{", "").replace("[f", "f").replace("=1", "="))]
    made += [("bare", BARE), ("bare in words", f"I call {BARE} now."), ("words", "Nothing to call, 1 < 2 and [x] {y}."), ("nothing", ""), ("list", '["a", 1]'),
             ("other", "a <tool_call>\n" + BARE + "\n</tool_call> b" if "<tool_call>" not in texts[0] else f"a <TOOLCALL>[{BARE}]</TOOLCALL> b")]
    return made


class Sweep(Rig):
    """One worker for each name, as a model of that name."""

    def start_all(self, cards):
        mocker = self.stack.mocker()
        mocker.wait_log("worker registered")
        self.workers = {}
        for i, (model, config) in enumerate(cards.items()):
            def change(card, model=model, config=config):
                card.update(display_name=model, slug=model)
                card["runtime_config"].update(config)
            self.workers[model] = FakeWorker(self.stack.kv, lambda body: self.say, 0x1000 + i, change, component=f"model{i}")
        mocker.stop()
        return self

    def __exit__(self, *why):
        for worker in self.workers.values():
            worker.close()
        super().__exit__(*why)

    def ready(self, front):
        def serves_all():
            with contextlib.suppress(OSError):
                return all(front.ask("/v1/completions", {"model": model, "prompt": "x", "max_tokens": 1})[0] == 200 for model in self.workers)
        until("all models are served", serves_all)
        return front


def answers(front, rig, model, text, pieces, **more):
    rig.says([*pieces, ""])
    return said(front.answer(model=model, **more)), said(front.answer(model=model, stream=True, **more))
