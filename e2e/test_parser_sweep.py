# SPDX-License-Identifier: Apache-2.0
"""Every parser of calls and of thoughts that 1.6.1 knows, beside it: texts that are whole, damaged, cut off or of another
form, token by token, as one item, streamed and folded. What differs is in DEVIATIONS, where each line must be needed."""

import contextlib
import itertools
import json
import re

import pytest

from conftest import reference_python, run
from fake_worker import FakeWorker
from stack import COMPLETIONS, until
from test_openai_interop import CALLS, NEWEST, TOOLS, Rig, pieces_of, said

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
ONCE = "kimi_k2", "pythonic"  # whose calls would have the same ids, or indexes there
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
    return [one for one in made if one[0] != "twice" or name not in ONCE]


# What is not as there: names, kinds, and what ours says, as JSON of (content, thoughts, calls, why it ended). Of two that
# match the first counts. Content is never lost here.
KEPT = r'\["(?!", "").*, \[\], "stop"\]$'
READ = r'.*"tool_calls"\]$'
DEVIATIONS = [
    ("inkling", "no begin|behind words|blanks", READ, "the prompt ends with the mark that begins a header, in which such text is"),
    ("muse(_glimmer)?", "behind words|before words|blanks|twice|no begin", READ, "headers without their marks are no content"),
    ("glm4[57]|kimi_k25|qwen25|qwen3", "cut|no end", READ, "a call that is whole but for what ends the block is one"),
    ("deepseek_v41", "broken", READ, "a call whose arguments cannot be read has none"),
    (".*", "cut|broken", KEPT, "a block that is no call is content, not lost"),
    (".*", "no begin", KEPT, "a call needs the mark that begins it"),
    ("hermes|llama3_json|mistral|qwen25|nemotron_deci|default|phi4|jamba", "list", KEPT, "JSON that is no call is content, not lost"),
    ("pythonic", "behind words", KEPT, "a list among words is no call"),
    ("glm45|qwen3|kimi_k25", ".*", READ, "these names are listed there and their calls left in the text"),
]
ALIAS_KINDS = "whole", "cut", "bare"
PAIRED = "deepseek_v41",  # whose calls are read beside thoughts of the same name alone


# --- thoughts -----------------------------------------------------------------------------------------

# What begins and ends them, and what else such models write. Tokens are split at |, which is in none.
THINK = "<think>", "</think>"
THOUGHT_MARKS = {
    "kimi": ("◁think▷", "◁/think▷"), "mistral": ("[THINK]", "[/THINK]"), "minimax_m3": ("<mm:think>", "</mm:think>"),
    "granite": ("Here is my thought process:", "Here is my response:"), "gemma4": ("<|channel>thought\n", "<channel|>"),
    "kimi_k3": ("<|open|>think<|sep|>", "<|close|>think<|sep|>", "<|open|>response<|sep|>"),
    "inkling": ("<|content_thinking|>", "<|end_message|>", "<|message_model|><|content_text|>"),
    "gpt_oss": ("<|channel|>analysis<|message|>", "<|end|>", "<|start|>assistant<|channel|>final<|message|>"),
    "muse": (" to=self<|message|>", "<|eom|>", "<|start|>assistant to=user<|message|>", "<|eot|>")}
# The same parser; these names are looked at less.
THOUGHT_ALIASES = {"deepseek-v4": "deepseek_v4", "deepseekv4": "deepseek_v4", "minimax-m3": "minimax_m3", "kimi-k3": "kimi_k3",
                   "gemma-4": "gemma4", "muse_glimmer": "muse"}
ASKED = {"": {}, "effort": {"reasoning_effort": "high"}, "none": {"reasoning_effort": "none"}, "off": {"chat_template_args": {"enable_thinking": False}},
         "chat": {"chat_template_args": {"thinking_mode": "chat"}}, "thinking": {"chat_template_args": {"thinking_mode": "thinking"}}}


def thought_texts(name, longest):
    """Each order of the marks, with words between them: as pieces."""
    marks = THOUGHT_MARKS.get(THOUGHT_ALIASES.get(name, name), THINK)
    for n in range(1, longest + 1):
        for kinds in itertools.product([*marks, None], repeat=n):
            if all(a or b for a, b in itertools.pairwise(kinds)):
                words = iter("abc")
                yield [kind or next(words) for kind in kinds]


def split_tokens(pieces):
    """Special tokens stand alone."""
    return [token for piece in pieces for token in re.split(r"(<\|[a-z_]+\|>)", piece) if token]


# As above: names, what was asked, text, what ours says.
OPEN_K3 = r"<\|open\|>think<\|sep\|>"
THOUGHT_DEVIATIONS = [
    ("gpt_oss", ".*", r".*<\|", ".*", "its vocabulary is fetched there; without it nothing is read"),
    ("mistral", "|none|off|chat|thinking", r".*\[/?THINK\]", r'\["[abc]*", "', "thoughts are read without an effort, too"),
    ("nemotron(_nano|3|_v3)", "none|off", "<think>", r'\["<think>', "the first mark stays, too, where thoughts are not looked for"),
    ("kimi[-_]k3", "none|off", r".*<\|(open|close)\|>think", ".*", "thoughts are read when the request asks for none, too"),
    ("kimi_k3", ".*", f".*{OPEN_K3}a?{OPEN_K3}", rf'\["a?", "a?{OPEN_K3}', "a mark that begins thoughts in thoughts is text of them, not content"),
    ("minimax[-_]m3", ".*", "a$", r'\["a", "", ', "text without a mark is content, not lost"),
    ("inkling", ".*", r".*<\|content_text\|>.*<\|(content|message)_", r'\["[ab]?", "', "marks in what is said are no text of it"),
    ("inkling", ".*", r"(<\|end_message\|>)*a", r'\["a', "text without a header is content, not lost"),
    ("inkling", ".*", r"(<\|end_message\|>|a)<\|content_thinking\|>", r'\["", "', "thoughts without a header are thoughts, not lost"),
    ("muse(_glimmer)?", ".*", r".* to=self<\|message\|>", r".* to=self<\|message", "a header without its mark is text as it came"),
    ("muse(_glimmer)?", "none|off", r".* to=self<\|message\|>", r'\["", "[abc]', "thoughts are read when the request asks for none, too"),
    ("muse(_glimmer)?", ".*", r".*<\|eo[mt]\|>(.*[abc]| to=self)", r'\["[ab]?", "[ab]?"', "behind a message's end a header needs its mark"),
]


class Sweep(Rig):
    """One worker for each name, as a model of that name."""

    workers = {}

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
                return all(front.ask(COMPLETIONS, {"model": model, "prompt": "x", "max_tokens": 1})[0] == 200 for model in self.workers)
        until("all models are served", serves_all)
        return front


@pytest.fixture
def rig(tmp_path):
    with Sweep(tmp_path) as rig:
        yield rig


def names(kind):
    told = run(reference_python(NEWEST), "-c", f"import dynamo._core as c, json; print(json.dumps(c.get_{kind}_parser_names()))")
    return json.loads(told.stdout)


def answers(front, rig, model, pieces, **more):
    """Folded and streamed."""
    rig.says([*pieces, ""])
    return [said(front.answer(model=model, **more)), said(front.answer(model=model, stream=True, **more))]


def differs(want, got):
    """What ours says, as JSON, where the reference does not say so, however the text came."""
    assert all(one == got[0] for one in got), got
    return json.dumps(got[0], ensure_ascii=False) if got[0] not in want else None


class Comparison:
    """What both frontends make of texts, where each difference has to be one of a list, and each line of that is needed."""

    def __init__(self, deviations):
        self.deviations, self.needed, self.same, self.wrong = deviations, set(), 0, []

    def take(self, name, how, text, want, got):
        what = differs(want, got)
        if what is None:
            self.same += 1
            return
        known = [i for i, (*patterns, _) in enumerate(self.deviations) if self.fits(patterns, (name, how, text), what)][:1]
        self.needed.update(known)
        if not known:
            self.wrong.append((name, how, text, want, what))

    @staticmethod
    def fits(patterns, case, what):
        """The name and how it is asked are matched whole; of texts and what ours says the beginning."""
        *of_case, said_so = patterns
        matches = [re.fullmatch, re.fullmatch, re.match]
        return all(match(pattern, text) for match, pattern, text in zip(matches, of_case, case)) and re.match(said_so, what)

    def check(self, same):
        assert not self.wrong, "\n".join(map(str, self.wrong))
        assert self.needed == {*range(len(self.deviations))} and self.same > same


def test_calls(rig):
    """The reference knows no parser that is not here, and ours says the same however the text is cut."""
    assert {*names("tool")} == {*TEXTS, "harmony"}
    rig.start_all({name: {"tool_call_parser": name, "reasoning_parser": name if name in PAIRED else None} for name in TEXTS})
    theirs, ours = rig.reference(NEWEST), rig.ours()
    compared = Comparison(DEVIATIONS)
    for name in TEXTS:
        for kind, text in variants(name):
            if name in SAME and kind not in ALIAS_KINDS:
                continue
            want = [one for pieces in (tokens(text), [text]) for one in answers(theirs, rig, name, pieces, tools=TOOLS)]
            got = [one for pieces in (tokens(text), [text], pieces_of(text, 1)) for one in answers(ours, rig, name, pieces, tools=TOOLS)]
            compared.take(name, kind, text, want, got)
    compared.check(same=200)


def test_thoughts(rig):
    """Every order of marks and words; how a request asks for thoughts, for the shorter ones."""
    parsers = names("reasoning")
    assert {*THOUGHT_MARKS, *THOUGHT_ALIASES} < {*parsers}
    rig.start_all({name: {"reasoning_parser": name, "tool_call_parser": None} for name in parsers})
    theirs, ours = rig.reference(NEWEST), rig.ours()
    compared = Comparison(THOUGHT_DEVIATIONS)
    for name, (asked, more) in itertools.product(parsers, ASKED.items()):
        for pieces in thought_texts(name, 1 if name in THOUGHT_ALIASES else 2 if asked else 3):
            text = "".join(pieces)
            want = [one for cut in (split_tokens(pieces), [text]) for one in answers(theirs, rig, name, cut, **more)]
            got = [one for cut in (split_tokens(pieces), [text], pieces_of(text, 1)) for one in answers(ours, rig, name, cut, **more)]
            compared.take(name, asked, text, want, got)
    compared.check(same=1500)
