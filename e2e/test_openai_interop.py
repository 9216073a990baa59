# SPDX-License-Identifier: Apache-2.0
"""The OpenAI API beside the reference's own frontend, 0.9.0 and 1.6.1, in front of the same worker.

The worker (`fake_worker.py`) says what the test wants, under a card that names parsers. Each answer is
read by the `openai` package's shapes or by hand, streamed and folded, and must say the same.
"""

import http.client
import itertools
import json
import re
import shutil

import openai
import pytest

import stack
from conftest import free_port, reference_python
from fake_worker import FakeWorker
from stack import CHAT, COMPLETIONS, MODEL, PATIENCE, Stack, until

NEWEST = "1.6.1"
TOOLS = [{"type": "function", "function": {"name": "f", "description": "It's <b>", "parameters": {
    "type": "object", "properties": {"x": {"type": "integer"}, "s": {"type": "string"}}, "required": ["x"]}}},
    {"type": "function", "function": {"name": "g", "parameters": {"type": "object", "properties": {}}}}]


class Front:
    """One frontend, ours or the reference's."""

    def __init__(self, port):
        self.port = port

    def ask(self, path, body, headers=()):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        text = body if isinstance(body, str) else json.dumps(body) if body else None
        connection.request("POST" if body else "GET", path, text,
                           {"content-type": "application/json", **dict(headers)})
        response = connection.getresponse()
        return response.status, response.read().decode()

    def ask_text(self, path, text):
        """The status of a body as it stands."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        connection.request("POST", path, text, {"content-type": "application/json"})
        return connection.getresponse().status

    def serves(self):
        try:
            return self.ask(COMPLETIONS, {"model": MODEL, "prompt": "x", "max_tokens": 1})[0] == 200
        except OSError:
            return False

    def answer(self, path=CHAT, **more):
        """(status, folded answer or events of the stream)."""
        body = {"model": MODEL, "max_tokens": 50, **more}
        if path == CHAT:
            body.setdefault("messages", [{"role": "user", "content": "x"}])
        status, text = self.ask(path, body)
        assert status == 200, text
        return events(text) if body.get("stream") else json.loads(text)


def events(text):
    """{annotation: value} and the chunks of a stream."""
    told, chunks = {}, []
    for block in text.split("\n\n"):
        lines = block.split("\n")
        if lines[0].startswith("event: "):
            told[lines[0][7:]] = json.loads(lines[1][2:])
        elif lines[0].startswith("data: {"):
            chunks.append(json.loads(lines[0][6:]))
    return told, chunks


def said(answer):
    """What an answer says: content, thoughts, calls as (name, arguments), why it ended."""
    if isinstance(answer, tuple):
        choices = [choice for chunk in answer[1] for choice in chunk["choices"]]
        parts = [choice["delta"] for choice in choices]
        finish = [choice["finish_reason"] for choice in choices if choice.get("finish_reason")][-1]
        indexes = [call["index"] for part in parts for call in part.get("tool_calls") or []]
        assert indexes == list(range(len(indexes)))
    else:
        parts, finish = [answer["choices"][0]["message"]], answer["choices"][0]["finish_reason"]
    calls = [call for part in parts for call in part.get("tool_calls") or []]
    assert len({call["id"] for call in calls}) == len(calls) and all(call["type"] == "function" for call in calls)
    return ("".join(part.get("content") or "" for part in parts), "".join(part.get("reasoning_content") or "" for part in parts),
            [(call["function"]["name"], call["function"]["arguments"]) for call in calls], finish)


def blocks(answer):
    """The names of the calls in each chunk that has any."""
    chunks = ((choice["delta"].get("tool_calls") for choice in chunk["choices"]) for chunk in answer[1])
    return [[call["function"]["name"] for call in calls] for parts in chunks for calls in parts if calls]


class Rig:
    def __init__(self, folder):
        self.stack, self.say, self.worker = Stack(folder, events=False), [{"token_ids": [300], "finish_reason": "stop"}], None

    def __enter__(self):
        self.stack.start_nats("-js")
        return self

    def __exit__(self, *why):
        if self.worker:
            self.worker.close()
        for process in self.stack.processes:
            process.kill()

    def start(self, tools=None, thoughts=None, change=lambda card: None):
        """The worker, under a card like the mocker's, changed so."""
        mocker, kv = self.stack.mocker(), self.stack.kv
        mocker.wait_log("worker registered")

        def change_card(card):
            card["runtime_config"].update(tool_call_parser=tools, reasoning_parser=thoughts)
            change(card)
        self.worker = FakeWorker(kv, lambda body: self.say, change_card=change_card)
        mocker.stop()
        return self

    def ours(self, *flags, **env):
        self.stack.frontend(*flags, **env)
        return self.ready(Front(self.stack.port))

    def reference(self, version, *flags, **env):
        port = free_port()
        store = "--store-kv" if version.startswith("0.") else "--discovery-backend"
        self.stack.start("reference", [reference_python(version), "-m", "dynamo.frontend", store, "file", "--request-plane",
                                       "tcp", "--event-plane", "nats", "--http-host", "127.0.0.1", "--http-port", port, *flags],
                         HF_HUB_OFFLINE="1", DYN_EVENT_PLANE="nats", PYTHONUNBUFFERED="1", **env)
        return self.ready(Front(port))

    def ready(self, front):
        until("it serves the model", front.serves)
        return front

    def says(self, pieces):
        self.say = [{"token_ids": [300 + i], "text": piece} for i, piece in enumerate(pieces)]
        self.say[-1]["finish_reason"] = "stop"


@pytest.fixture
def rig(tmp_path):
    with Rig(tmp_path) as rig:
        yield rig


def pieces_of(text, n):
    return [text[i:i + n] for i in range(0, len(text), n)]


DSML, M3 = "｜DSML｜", "]<]minimax[>["
CALLS = {
    "hermes": ['hi <tool_call>\n{"name":"f","arguments":{"x": 1,"s":"é"}}\n</tool_call>',
               'a<tool_call>{"name":"f","arguments":{"x":1}}</tool_call>b<tool_call>{"name":"g","arguments":{}}</tool_call>c'],
    "llama3_json": ['<|python_tag|>{"name":"f","parameters":{"x":1}}', '{"name":"f","parameters":{"x":1}}'],
    "mistral": ['hi [TOOL_CALLS][{"name":"f","arguments":{"x":1}},{"name":"g","arguments":{}}]'],
    "pythonic": ['[f(x=1, s="a b"), g()]'],
    "qwen3_coder": ['<tool_call>\n<function=f>\n<parameter=x>\n1\n</parameter>\n<parameter=s>\na b\n</parameter>\n</function>\n</tool_call>',
                    '<tool_call><function=f><parameter=x>"1"</parameter><parameter=s>12</parameter><parameter=new>{"a": 1}'
                    '</parameter></function></tool_call>'],
    "deepseek_v3": ['<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{"x": 1,  "q": [2.0, {"a": null}]}\n```'
                    '<｜tool▁call▁end｜><｜tool▁calls▁end｜>'],
    "deepseek_v3_1": ['hm <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{"x": 1}<｜tool▁call▁end｜><｜tool▁calls▁end｜>'],
    "deepseek_v3_2": [f'hm<{DSML}function_calls>\n<{DSML}invoke name="f">\n<{DSML}parameter name="x" string="false">1</{DSML}parameter>\n'
                      f'<{DSML}parameter name="s" string="true"> a b</{DSML}parameter>\n</{DSML}invoke>\n<{DSML}invoke name="g">\n'
                      f'</{DSML}invoke>\n</{DSML}function_calls>after',
                      f'<{DSML}function_calls>\n<{DSML}invoke name="f">\n<{DSML}parameter name="x" string="true">1</{DSML}parameter>\n'
                      f'<{DSML}parameter name="s" string="false">{{"a": [1, 2.0]}}</{DSML}parameter>\n</{DSML}invoke>\n</{DSML}function_calls>'],
    "deepseek_v4": [f'hm<{DSML}tool_calls>\n<{DSML}invoke name="f">\n<{DSML}parameter name="x" string="false">zz</{DSML}parameter>\n'
                    f'</{DSML}invoke>\n</{DSML}tool_calls>after'],
    "minimax_m2": ['hm<minimax:tool_call>\n<invoke name="f">\n<parameter name="x">1</parameter>\n<parameter name="s">12</parameter>\n'
                   '<parameter name="new">{"a": 1}</parameter>\n</invoke>\n<invoke name="g">\n</invoke>\n</minimax:tool_call>after'],
    "glm47": ['yes<tool_call>f<arg_key>x</arg_key><arg_value> 1 </arg_value><arg_key>s</arg_key><arg_value>a\nb</arg_value></tool_call>'],
    "kimi_k2": ['hi<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{"x": 1}<|tool_call_end|>'
                '<|tool_call_begin|>g:1<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>after'],
    "deepseek_v41": [f'hm<{DSML} calls>\n<{DSML} invoke name="f">\n<{DSML} parameter name="x" string="false">1</{DSML} parameter>\n'
                     f'<{DSML} parameter name="s" string="true"> a b</{DSML} parameter>\n</{DSML} invoke>\n<{DSML} invoke name="g">'
                     f'{{"x": 1}}</{DSML} invoke>\n</{DSML} calls>after'],
    "gemma4": ['hi <|tool_call>call:f{x:1,s:<|"|>a } b<|"|>,o:{a:[1,true,null],b:<|"|><|"|>}}<tool_call|>after'],
    "minimax_m3": [f'hm{M3}<tool_call>\n{M3}<invoke name="f">{M3}<x>1{M3}</x>{M3}<s>a &lt; b{M3}</s>{M3}<o>{M3}<k>1{M3}</k>{M3}<l>'
                   f'{M3}<item>p{M3}</item>{M3}<item>q{M3}</item>{M3}</l>{M3}</o>{M3}</invoke>{M3}<invoke name="g">{M3}</invoke>\n'
                   f'{M3}</tool_call>after'],
    "kimi_k3": ['<|open|>response<|sep|>hi<|close|>response<|sep|><|open|>tools<|sep|><|open|>call tool="f" index="1"<|sep|>'
                '<|open|>argument key="x" type="number"<|sep|>1<|close|>argument<|sep|><|open|>argument key="s" type="string"<|sep|> b'
                '<|close|>argument<|sep|><|close|>call<|sep|><|open|>call tool="g" index="2"<|sep|><|close|>call<|sep|>'
                '<|close|>tools<|sep|><|close|>message<|sep|><|end_of_msg|>'],
    "inkling": ['<|message_model|>f<|content_invoke_tool_json|>{"name":"f","args":{"x": 1}}<|end_message|>'],
    "muse": [' to=self<|message|>hm<|eom|><|start|>assistant to=f<|message|><atem:function_calls><atem:invoke name="f">\n'
             '<atem:parameter name="x">1</atem:parameter>\n<atem:parameter name="s"> a b</atem:parameter>\n</atem:invoke>'
             '<atem:invoke name="g">\n</atem:invoke></atem:function_calls><|eom|><|start|>assistant to=user<|message|>bye<|eot|>'],
}
EACH_ALONE = {"deepseek_v41", "muse"}  # calls that 1.6.1 tells in a chunk each
PAIRED = {"deepseek_v41"}  # whose calls 1.6.1 reads beside the thoughts of the same name alone
MARKS = re.compile(r"(<[^<>]*>|\[/?TOOL_CALLS\])")


@pytest.mark.parametrize("parser", CALLS)
def test_calls_of_tools(rig, parser):
    """The reference gets each mark at once, as from a model; ours pieces of all sizes."""
    rig.start(tools=parser, thoughts=parser if parser in PAIRED else None)
    theirs, ours = rig.reference(NEWEST), rig.ours()
    for text in CALLS[parser]:
        at_marks = [*(piece for piece in MARKS.split(text) if piece), ""]
        rig.says(at_marks)
        streamed, folded = theirs.answer(tools=TOOLS, stream=True), theirs.answer(tools=TOOLS)
        want = said(streamed)
        assert want[2] and want[3] == "tool_calls", want
        if parser not in EACH_ALONE:
            assert blocks(ours.answer(tools=TOOLS, stream=True)) == blocks(streamed)
        for size in (1, 3, 7, 1000):
            rig.says([*pieces_of(text, size), ""])
            assert said(ours.answer(tools=TOOLS)) == want
            assert said(ours.answer(tools=TOOLS, stream=True)) == want
        if parser == "kimi_k2":  # by which the next prompt names them
            assert [ids(answer) for answer in (folded, ours.answer(tools=TOOLS))] == [["functions.f:0", "g:1"]] * 2
        # Not asked for, calls are text, but for Muse's headers.
        if parser == "muse":
            continue
        assert said(ours.answer()) == (text, "", [], "stop")
        assert said(ours.answer(tools=TOOLS, tool_choice="none", stream=True)) == (text, "", [], "stop")


def ids(answer):
    return [call["id"] for call in answer["choices"][0]["message"]["tool_calls"]]


TO_F = "<|channel|>commentary to=functions.f <|constrain|>json<|message|>"
HARMONY = [
    ('<|channel|>analysis<|message|>Need f.<|end|><|start|>assistant' + TO_F + '{"x": 1}<|call|>',
     ("", "Need f.", [("f", '{"x":1}')], "tool_calls")),
    ("<|channel|>analysis<|message|>Think.<|end|><|start|>assistant<|channel|>final<|message|>Hello there<|return|>",
     ("Hello there", "Think.", [], "stop")),
    ("<|channel|>commentary<|message|>preamble<|end|><|start|>assistant" + TO_F + '{"x":1}<|call|><|start|>assistant'
     '<|channel|>commentary to=functions.g <|constrain|>json<|message|>{}<|call|>',
     ("preamble", "", [("f", '{"x":1}'), ("g", "{}")], "tool_calls")),
    (TO_F + "not json<|call|>", ("", "", [("f", "not json")], "tool_calls")),
]


def test_harmony(rig):
    """What 1.6.1 says of these texts where it has the vocabulary of gpt-oss, which it downloads when it starts."""
    rig.start(tools="harmony", thoughts="gpt_oss")
    ours = rig.ours()
    for text, want in HARMONY:
        for size in (1, 4, 1000):
            rig.says([*pieces_of(text, size), ""])
            assert said(ours.answer(tools=TOOLS)) == want
            assert said(ours.answer(tools=TOOLS, stream=True)) == want
    rig.says([HARMONY[0][0], ""])
    assert said(ours.answer()) == (TO_F + '{"x": 1}<|call|>', "Need f.", [], "stop")


def test_a_tool_that_must_be_called(rig):
    rig.start()
    theirs, ours = rig.reference(NEWEST), rig.ours()
    one = {"type": "function", "function": {"name": "f"}}
    for choice, text in (("required", '[{"name":"f","parameters":{"x":1}},{"name":"g","parameters":{}}]'), (one, '{"x":1}')):
        rig.says([text, ""])
        want = said(theirs.answer(tools=TOOLS, tool_choice=choice))
        guided = rig.worker.bodies[-1]["sampling_options"]["guided_decoding"]
        assert said(ours.answer(tools=TOOLS, tool_choice=choice)) == want and want[2]
        assert rig.worker.bodies[-1]["sampling_options"]["guided_decoding"] == guided
        assert said(ours.answer(tools=TOOLS, tool_choice=choice, stream=True))[:3] == want[:3]


@pytest.mark.parametrize("parser,text", [
    ("qwen3", "<think>\nhm\n</think>\n\nyes"), ("deepseek_r1", "hm</think>yes"), ("deepseek_r1", "<think>hm</think>yes"),
    ("basic", "no thoughts"), ("kimi", "◁think▷hm◁/think▷yes"), ("minimax_m2", "hm</think>yes"), ("deepseek_v3_2", "hm</think>yes"),
    ("nemotron_nano", "hm</think>yes"), ("nemotron_nano", "hm"), ("mistral", "no thoughts"),
    ("qwen3", "x <think>a</think> y<think>b</think>"), ("glm45", "hm</think>yes"), ("deepseek_r1", "x <think>a</think> y<think>b</think>"),
    ("minimax_append_think", "hm</think>yes"), ("kimi_k25", "x <think>a</think>yes"), ("nemotron_v3", "hm<tool_call>yes"),
    ("minimax_m3", "a<mm:think>b</mm:think>c<mm:think>d</mm:think>e"), ("minimax_m3", "hm</mm:think>yes"),
    ("kimi_k3", "<|open|>think<|sep|>hm<|close|>think<|sep|>yes"),
    ("inkling", "<|content_thinking|>hm<|end_message|><|message_model|><|content_text|>yes<|end_message|>"),
    ("muse", " to=self<|message|>hm<|eom|><|start|>assistant to=user<|message|>yes<|eot|>"), ("deepseek_v3", "a</think>b")])
def test_thoughts(rig, parser, text):
    rig.start(thoughts=parser, tools="hermes")
    theirs, ours = rig.reference(NEWEST), rig.ours()
    rig.says([*re.split(r"((?:</?(?:mm:)?|◁/?|)think[>▷])", text), ""])
    want = said(theirs.answer())
    for size in (1, 5, 1000):
        rig.says([*pieces_of(text, size), ""])
        got = said(ours.answer()), said(ours.answer(stream=True))
        assert got[0] == got[1] and [part.strip() for part in got[0][:2]] == [part.strip() for part in want[:2]]


@pytest.mark.parametrize("parser,text", [
    ("deepseek_r1", "a</think>b"), ("deepseek_v3", "a</think>b"), ("gemma4", "x<|channel>thought\na<channel|>b"),
    ("minimax_m3", "a</mm:think>b"), ("qwen3", "<think>a</think>b"), ("deepseek_v4", "a</think>b")])
def test_thoughts_asked_for(rig, parser, text):
    rig.start(thoughts=parser)
    theirs, ours = rig.reference(NEWEST), rig.ours()
    for more in ({}, {"reasoning_effort": "high"}, {"reasoning_effort": "none"}, *(
            {"chat_template_args": {key: value}} for key in ("thinking", "enable_thinking") for value in (True, False))):
        rig.says([*(piece for piece in re.split(r"(</?[^<>]*>)", text) if piece), ""])
        want = said(theirs.answer(**more))
        assert said(ours.answer(**more)) == want, more
        # Tokens of thoughts are counted where thoughts are read.
        counts = [front.answer(**more)["usage"].get("completion_tokens_details") for front in (theirs, ours)]
        assert counts[0] == counts[1], more
        rig.says([*pieces_of(text, 3), ""])
        assert said(ours.answer(stream=True, **more)) == want, more


NAMES = ("thinking", "enable_thinking", "thinking_mode", "reasoning_effort")
SAYS_IT = [  # or does not
    {}, {"thinking": None}, {"reasoning_effort": None}, {"chat_template_kwargs": {}}, {"chat_template_args": {"x": 1}},
    *({"reasoning_effort": effort} for effort in ("high", "none")), *({"thinking": {"type": kind}} for kind in ("enabled", "disabled", "adaptive")),
    *({"chat_template_args": {name: value}} for name in NAMES[:2] for value in (True, False, None, "zz")),
    *({"chat_template_args": {"thinking_mode": value}} for value in ("enabled", "adaptive")), {"chat_template_args": {"reasoning_effort": "none"}},
]


@pytest.mark.parametrize("mode", ["enabled", "disabled", "Enabled", True])
def test_thoughts_by_default(rig, monkeypatch, mode):
    """What the deployment says counts where the request says nothing, in prompts and in answers."""
    model = rig.stack.folder / "model"
    shutil.copytree(stack.MODEL_PATH, model)
    (model / "chat_template.jinja").write_text("".join(f"{{{{ {name} is defined }}}}{{{{ {name} }}}}|" for name in NAMES))
    monkeypatch.setattr(stack, "MODEL_PATH", model)
    rig.start(thoughts="deepseek_v3", change=lambda card: card["runtime_config"].update(runtime_data={"default_thinking_mode": mode}))
    fronts = rig.reference(NEWEST), rig.ours()
    rig.says(["a</think>b", ""])
    for more in SAYS_IT:
        answers = [front.answer(stream=True, nvext={"annotations": ["formatted_prompt"]}, **more) for front in fronts]
        want, got = ((answer[0]["formatted_prompt"], said(answer)) for answer in answers)
        assert got == want, more
        if more == {}:
            assert want[0] == {"enabled": "TrueTrue|TrueTrue|Trueenabled|False|",
                               "disabled": "TrueFalse|TrueFalse|Truedisabled|False|"}.get(mode, "False|" * 4)


OPENED = ["{}think>", "{}think> \t\n\n", "{}think>x", "{}think>\n\n</think>\n\n", ""]
OPEN_ANSWERS = ["a</think>b", "a", " \na \n</think>\n\nb", "<think>a</think>b<think>c</think>d", "a<think>b</think>c", "</think>b"]


@pytest.mark.parametrize("parser", ["qwen3", "some_new_thoughts", "deepseek_r1", "deepseek_v3", "nemotron_v3", "kimi_k25", "minimax_m3", "mistral"])
def test_thoughts_that_the_prompt_opens(rig, parser, monkeypatch):
    """An answer goes on with them, in which their mark is text, whatever the request asks for."""
    model = rig.stack.folder / "model"
    shutil.copytree(stack.MODEL_PATH, model)
    (model / "chat_template.jinja").write_text("{% for m in messages %}{{ m.content }}{% endfor %}{{ end }}")
    monkeypatch.setattr(stack, "MODEL_PATH", model)
    rig.start(thoughts=parser)
    theirs, ours = rig.reference(NEWEST), rig.ours()
    mark = {"minimax_m3": "<mm:"}.get(parser, "<")
    read = 0
    for end in OPENED if parser != "minimax_m3" else OPENED[:2]:  # an answer without a mark is lost there
        for text in OPEN_ANSWERS:
            text = text.replace("<", mark).replace("<mm:/", "</mm:") if parser == "minimax_m3" else text
            pieces = [*(piece for piece in re.split(r"(</?[^<>]*>)", text) if piece), ""]
            for asked in ({}, {"enable_thinking": True}, {"enable_thinking": False}):
                if parser == "nemotron_v3" and text.startswith("<think>") and asked.get("enable_thinking") is False:
                    continue  # the mark alone is taken away there
                more = {"chat_template_kwargs": {"end": end.format(mark), **asked}}
                rig.says(pieces)
                want = said(theirs.answer(**more))[:2], said(theirs.answer(stream=True, **more))[:2]
                rig.says([*pieces_of(text, 3), ""])
                got = said(ours.answer(**more))[:2], said(ours.answer(stream=True, **more))[:2]
                assert got == want, (end, text, asked)
                read += bool(want[0][1])
    assert read > 10 or parser == "mistral"


def test_unknown_parsers_are_said(rig):
    rig.start(tools="some_new_calls", thoughts="some_new_thoughts")
    ours = rig.ours()
    rig.says(["<tool_call>{}</tool_call>", ""])
    assert said(ours.answer(tools=TOOLS)) == ("<tool_call>{}</tool_call>", "", [], "stop")
    log = rig.stack.processes[-1].log()
    assert "tool_call_parser is not supported" in log and "some_new_calls" in log
    assert "reasoning_parser is not known" in log and "some_new_thoughts" in log


def test_log_probabilities(rig):
    rig.start()
    theirs, ours = rig.reference(NEWEST), rig.ours()
    rig.say = [{"token_ids": [300], "log_probs": [-0.5], "top_logprobs": [[
        {"rank": 1, "token_id": 300, "token": "zz", "logprob": -0.5}, {"rank": 2, "token_id": 301, "token": None, "logprob": -1.25}]]},
        {"token_ids": [301, 302], "log_probs": [-0.25, -2], "top_logprobs": [
            [{"rank": 2, "token_id": 9, "token": "q", "logprob": -0.125}], [{"rank": 1, "token_id": 302, "token": "w", "logprob": -2.0}]],
         "finish_reason": "length"}]
    for path, more in ((CHAT, {"logprobs": True, "top_logprobs": 2}), (COMPLETIONS, {"prompt": "hello", "logprobs": 2})):
        want = theirs.answer(path, **more)["choices"][0]["logprobs"]
        assert ours.answer(path, **more)["choices"][0]["logprobs"] == want
        assert rig.worker.bodies[-1]["output_options"]["logprobs"] == 2
        streamed = [chunk["choices"][0].get("logprobs") for chunk in ours.answer(path, stream=True, **more)[1]]
        key = "content" if path == CHAT else "tokens"
        assert sum((part[key] for part in streamed if part), []) == want[key]
        assert ours.answer(path, **{k: v for k, v in more.items() if k == "prompt"})["choices"][0].get("logprobs") is None
    with openai.OpenAI(base_url=f"http://127.0.0.1:{ours.port}/v1", api_key="unused", max_retries=0) as client:
        answer = client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "x"}], logprobs=True)
        tokens = answer.choices[0].logprobs.content
        assert "".join(token.token for token in tokens) == answer.choices[0].message.content
        assert bytes(tokens[0].bytes).decode() == tokens[0].token and tokens[0].logprob == -0.5


def test_models(rig):
    """The list, and one of it, say the same."""
    rig.start()
    told = []
    for front in (rig.reference(NEWEST), rig.ours()):
        whole, one, other = (front.ask(f"/v1/models{name}", None) for name in ("", "/" + MODEL, "/nope"))
        models = [*json.loads(whole[1])["data"], json.loads(one[1])]
        assert all(model.pop("created") > 0 for model in models) and json.loads(other[1])["message"] == "Model not found"
        told.append((models, one[0], other[0]))
    assert told[0] == told[1] and told[0][0][1]["context_window"] > 0


COUNTED = {"prompt_tokens": 5, "completion_tokens": 4, "total_tokens": 9, "prompt_tokens_details": {"cached_tokens": 3}}
THOUGHT = {**COUNTED, "completion_tokens_details": {"reasoning_tokens": 9, "audio_tokens": 1}}


@pytest.mark.parametrize("parser", ["qwen3", "deepseek_r1", None])
def test_usage(rig, parser):
    """The same counts, of what the frontend sees and of what the engine says itself."""
    rig.start(thoughts=parser)
    theirs, ours = rig.reference(NEWEST), rig.ours()
    for texts in (["hm ", "so</think>yes", "a", ""], ["<think>", "more", "x</think>", "z", ""], ["<think>hm</think>a", "b"],
                  ["<th", "ink>a", "b</thi", "nk>c", "d"], ["<think>", "hm", "</think>", "yes", ""], ["no", "thoughts", ""]):
        for told in (None, COUNTED, THOUGHT):
            rig.says(texts)
            rig.say[-1].update({"completion_usage": told} if told else {})
            for path, more in ((CHAT, {}), (COMPLETIONS, {"prompt": "hello"})):
                want, got = (usages(front, path, **more) for front in (theirs, ours))
                assert got == want, (texts, told, path)
                assert got[0] == got[1]


def usages(front, path, **more):
    """Of a folded and of a streamed answer; what is null is not there."""
    streamed = front.answer(path, stream=True, stream_options={"include_usage": True}, **more)[1]
    return [without_null(usage) for usage in (front.answer(path, **more)["usage"], streamed[-1]["usage"])]


def without_null(value):
    return {k: without_null(v) for k, v in value.items() if v is not None} if isinstance(value, dict) else value


CONVERSATION = [
    {"role": "system", "content": "be"}, {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "<b>'"}]},
    {"role": "assistant", "content": None, "tool_calls": [{"id": "c1", "type": "function", "function": {
        "name": "f", "arguments": '{"z": 1, "a": {"q": 1.0}}'}}]},
    {"role": "tool", "tool_call_id": "c1", "content": "r"}, {"role": "user", "content": "é"}]


@pytest.mark.parametrize("release,style", [(NEWEST, "transformers"), ("0.9.0", "dynamo-0.9")])
def test_prompts_and_annotations(rig, release, style):
    """The same prompt, of the same ids, told in the same events."""
    rig.start()
    theirs, ours = rig.reference(release), rig.ours("--chat-template-style", style)
    more = {"messages": CONVERSATION, "tools": TOOLS, "stream": True,
            "nvext": {"annotations": ["token_ids", "formatted_prompt", "request_id"]}}
    want, got = theirs.answer(**more), ours.answer(**more)
    assert got[0]["formatted_prompt"] == want[0]["formatted_prompt"]
    assert got[0]["token_ids"] == want[0]["token_ids"] and set(got[0]) == set(want[0])
    assert got[1][0]["id"] == "chatcmpl-" + got[0]["request_id"]
    assert rig.worker.bodies[-1]["token_ids"] == json.loads(got[0]["token_ids"])
    told = ours.answer(COMPLETIONS, prompt="hello", stream=True, nvext=more["nvext"])[0]
    assert set(told) == {"request_id", "token_ids"}


ENDS = [{}, {"add_generation_prompt": False}, {"add_generation_prompt": True}, {"continue_final_message": False},
        {"add_generation_prompt": False, "continue_final_message": True}, {"continue_final_message": True}]
OPEN = [{"role": "user", "content": "x"}, {"role": "assistant", "content": "ab "}]

GOOD = {"messages": [{"role": "user", "content": "x"}]}
TOOL = {"type": "function", "function": {"name": "f"}}
EDGES = [{}, *({key: value} for key, values in {
    "model": ["nope", "", 5], "messages": [[], "x", [{"role": "user"}], [{"role": "alien", "content": "x"}], [{"content": "x"}]],
    "foo": [1], "temperature": [3, -0.1, "1", None, 0], "top_p": [1.5, 0, 1], "frequency_penalty": [2.5], "presence_penalty": [-3],
    "repetition_penalty": [0, 2.5], "min_p": [2], "top_k": [0, -1, -2], "n": [0, 129], "logit_bias": [{"5": 101}, {"a": 1}, {"5": 1}],
    "top_logprobs": [2], "stop": [["a"] * 5, [""], "", "a", [5], 5, ["a", 5], [-5], [1.5]], "tools": [[{"type": "function"}], [TOOL]],
    "tool_choice": ["f", "required", TOOL], "max_tokens": [-1, "1"], "max_completion_tokens": [0], "user": [""],
    "stream_options": [{"include_usage": True}, {}], "function_call": ["auto", "none", "f", 5, {"name": "f"}, None], "require_reasoning": [True],
    "functions": [[], 5, [5], [{"name": "f"}], [{"name": "f", "parameters": {}}], None], "seed": ["a", -1], "stream": ["yes"],
    "min_tokens": [-1], "ignore_eos": ["x"], "reasoning_effort": ["low", "none", "max", "nope", "High", "", 5], "continue_final_message": [True, False],
    "add_generation_prompt": [True, False], "metadata": [{"a": "b"}], "store": [True], "service_tier": ["auto"],
    "parallel_tool_calls": [False], "prompt_cache_key": ["x"], "logprobs": [1, True], "best_of": [2], "echo": [True],
    "chat_template_kwargs": [{"a": 1}, 5], "include_stop_str_in_output": [True], "priority": [1], "skip_special_tokens": [False],
    "stop_token_ids": [[5], [], 5, ["a"], [-1]], "allowed_token_ids": [[5], [], "x"], "cache_salt": ["x", "", 5],
    "thinking": [True, {"type": "enabled", "budget_tokens": 9}, {"type": "disabled"}, {"type": "foo"}],
    "mm_processor_kwargs": [{"a": 1}, 5], "prompt_logprobs": [1, 0, -1, "a"],
    "response_format": [{"type": "text"}, {"type": "json_object"}, {"type": "nope"}, {}, {"type": 5}, {"type": "json_schema"},
                        *({"type": "json_schema", "json_schema": schema} for schema in
                          ({}, {"name": "a"}, {"schema": {}}, {"name": "a", "schema": {"type": "object"}}))],
    "nvext": [{}, {"annotations": "x"}, {"annotations": ["x"]}, {"extra_fields": "timing"}, {"cache_salt": "x"}],
}.items() for value in values)]
PROMPTS = [{}, *({key: value} for key, values in {
    "model": ["nope"], "prompt": ["", [], 5, None, ["a", 1], [[]], [1, 2], ["a"] * 129], "logprobs": [6, 5], "best_of": [21],
    "echo": [True], "stream_options": [{}], "foo": [1], "user": [""], "suffix": ["x"], "messages": [[]],
    "stop": [[5]], "stop_token_ids": [[5]], "allowed_token_ids": [[5]], "cache_salt": ["x"], "prompt_logprobs": [1],
    "max_tokens": [0], "thinking": [True], "mm_processor_kwargs": [{}], "response_format": [{"type": "text"}]}.items() for value in values),
    {"n": 2, "temperature": 0}, {"best_of": 1, "n": 2}, {"prompt": ["a"] * 65, "n": 2}, {"guided_regex": "a", "guided_json": {}}]
RAW = ["{", "", "[]", "null", "{}", '{"model":"example"}', '{"model":"example","messages":[],"prompt":""} x']


def test_how_a_prompt_ends(rig):
    rig.start()
    fronts = rig.reference(NEWEST), rig.ours()
    for end in ENDS:
        told = []
        for front in fronts:
            status, text = front.ask(CHAT, {"model": MODEL, "messages": OPEN, "stream": True,
                                            "nvext": {"annotations": ["formatted_prompt"]}, **end})
            told.append((status, status == 200 and events(text)[0]["formatted_prompt"]))
        assert told[0] == told[1], end


def told(body):
    """What a worker is told beside the prompt, without what is null or for the parsers of 1.6.1 alone."""
    extra = {k: v for k, v in (body.get("extra_args") or {}).items() if k in ("nvext", "sampling_options")}
    kinds = "stop_conditions", "sampling_options", "output_options", "mm_processor_kwargs", "router", "routing", "token_ids"
    return without_null({**{k: body.get(k) or None for k in kinds}, "extra_args": extra or None})


HINTS = [{"priority": 1, "latency_sensitivity": 2.5}, {"priority": -3}, {"latency_sensitivity": -2.5}, {"strict_priority": 3, "osl": 5}]
NVEXT = [*({"agent_hints": hints} for hints in HINTS), {"router": {"ttft_target": 0, "itl_target": 20.5}}, {"router": {"ttft_target": 5, "itl_target": None}},
         {"routing_constraints": {"preferred_taints": {"b": 1, "a": 2.5}}}, {"prefill_dp_rank": 1}, {"token_data": [1, 2]},
         {"extra_fields": ["completion_token_ids"], "cache_salt": "s", "token_data": [1]}]
HEADERS = [{"x-dynamo-request-priority": "-4", "x-dynamo-request-strict-priority": "1"}, {"x-dynamo-request-priority": "4"},
           {"x-dynamo-prefill-dp-rank": "2"}]


def test_what_workers_of_1_x_are_told(rig):
    rig.start()
    rig.says(["hi", ""])
    theirs, ours = rig.reference(NEWEST), rig.ours()
    plain = None
    for more in ({}, *({"nvext": nvext} for nvext in NVEXT), {"stop_token_ids": [5, 6]}, {"stop": [5], "stop_token_ids": [7]},
                 {"stop_token_ids": [7], "stop": [5]}, {"stop_token_ids": [5], "ignore_eos": True}, {"stop_token_ids": []}, {"allowed_token_ids": [5, 6]},
                 {"cache_salt": "a"}, {"cache_salt": "a", "nvext": {"cache_salt": "b"}}, {"prompt_logprobs": 2},
                 {"cache_salt": "a", "allowed_token_ids": [5]}, {"mm_processor_kwargs": {"a": [1, {"b": "c"}]}}):
        bodies = []
        for front in (theirs, ours):
            front.answer(**more)
            bodies.append(told(rig.worker.bodies[-1]))
        assert bodies[0] == bodies[1], more
        plain = plain or bodies[1]
        assert (bodies[1] != plain) == bool(more), more
    for headers in HEADERS:
        for more in ({}, {"nvext": NVEXT[0]}):
            bodies = []
            for front in (theirs, ours):
                assert front.ask(CHAT, {"model": MODEL, "max_tokens": 50, **GOOD, **more}, headers)[0] == 200
                bodies.append(told(rig.worker.bodies[-1]))
            assert bodies[0] == bodies[1] != plain, (headers, more)


def test_where_workers_call_home(rig):
    """At the address and port that both are given."""
    rig.start()
    rig.says(["hi", ""])
    for serve, host in ((lambda **env: rig.reference(NEWEST, **env), "127.0.0.2"), (rig.ours, "127.0.0.3")):
        port = free_port()
        serve(DYN_TCP_RESPONSE_STREAM_HOST=host, DYN_TCP_RESPONSE_STREAM_PORT=str(port)).answer()
        assert rig.worker.homes[-1] == f"{host}:{port}"


DATA = "data:image/png;base64,aGk="


def medium(kind, url, **more):
    return {"type": kind, kind: url and {"url": url, **more}}


def with_media(release):
    """Chats with images, videos and sounds, and what else goes to workers outside of the prompt."""
    image, text = medium("image_url", "http://a/b.png", detail="high"), {"type": "text", "text": "t"}
    user = {"role": "user", "content": [text, image, text, medium("image_url", DATA)]}
    chats = [[user], [user, {"role": "assistant", "content": "x"}, {**user, "name": "n"}], [{"role": "user", "content": [text]}],
             [{"role": "user", "content": [medium("video_url", "http://a/v.mp4"), image, medium("audio_url", "http://a/s.wav"), text]}],
             [user, {"role": "assistant", "content": None, "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
              {"role": "tool", "tool_call_id": "c", "content": "r"}]]
    asked = [{"messages": chat} for chat in chats]
    if release == NEWEST:
        asked += [{"messages": [{"role": "user", "content": content}]} for content in (
            [{**medium("image_url", None), "uuid": "u"}], [{**image, "uuid": "u"}, image])]
        asked += [{"messages": [user], **more} for more in ({"mm_processor_kwargs": {"a": 1}}, {"nvext": {"extra_fields": ["timing"]}})]
        asked += [{"messages": [{**chats[4][-1], "content": [text, image]} if message is chats[4][-1] else message for message in chats[4]]}]
    return asked + [{"messages": chat, **more} for chat in chats[1:3] for more in (
        {"chat_template_args": {"enable_thinking": True}}, {"chat_template_args": {"foo": [1]}}, {"reasoning_effort": "low"})]


def take_any_content(rig, monkeypatch):
    """Before the worker: its template takes what is no text, too."""
    model = rig.stack.folder / "model"
    shutil.copytree(stack.MODEL_PATH, model)
    (model / "chat_template.jinja").write_text("{{ messages | tojson }}")
    monkeypatch.setattr(stack, "MODEL_PATH", model)


@pytest.mark.parametrize("thoughts", [None, "qwen3"])
@pytest.mark.parametrize("release", ["0.9.0", NEWEST])
def test_what_workers_are_told_of_media(rig, monkeypatch, release, thoughts):
    """And of the template's arguments: all that the reference tells beside tokens, URLs of data too."""
    from test_answer_shapes import of_release

    take_any_content(rig, monkeypatch)
    rig.start(thoughts=thoughts, change=of_release(release))
    style = ["--chat-template-style", "dynamo-0.9"] if release == "0.9.0" else []
    fronts = rig.reference(release), rig.ours(*style)
    for body in with_media(release):
        bodies = []
        for front in fronts:
            assert front.ask(CHAT, {"model": MODEL, "max_tokens": 5, **body})[0] == 200, body
            bodies.append({key: rig.worker.bodies[-1].get(key) for key in ("token_ids", "multi_modal_data", "multi_modal_uuids", "extra_args")})
        assert bodies[0] == bodies[1], body
        assert bool(bodies[1]["multi_modal_data"]) == ("_url" in json.dumps(body))


def test_a_card_with_a_media_decoder(rig, monkeypatch):
    """Which 0.9.0's mocker has: ours and 0.9.0's frontend leave URLs to the worker. That of 1.6.1 hands images over
    by NIXL, without which it does not serve the model; and its fetcher must say one thing more."""
    from test_answer_shapes import of_release

    def change(card):
        of_release("0.9.0")(card)
        card.update(media_decoder={"image": {"limits": {"max_image_width": None, "max_image_height": None, "max_alloc": 134217728}}},
                    media_fetcher={"user_agent": "dynamo-ai/dynamo", "allow_direct_ip": False, "allow_direct_port": False,
                                   "allowed_media_domains": None, "timeout": {"secs": 30, "nanos": 0}})
    take_any_content(rig, monkeypatch)
    rig.start(change=change)
    told = []
    for front in (rig.reference("0.9.0"), rig.ours("--chat-template-style", "dynamo-0.9")):
        assert front.ask(CHAT, {"model": MODEL, "max_tokens": 5, **with_media("0.9.0")[0]})[0] == 200
        told.append(rig.worker.bodies[-1]["multi_modal_data"])
    assert told[0] == told[1] and {"Url": DATA} in told[1]["image_url"]


def told_apart(body):
    """What one of two sides is told, without what is drawn anew for each request or null."""
    meeting = {k: v for k, v in (body.get("bootstrap_info") or {}).items() if k in ("bootstrap_host", "bootstrap_port")}
    kinds = "routing", "router_config_override", "prefill_result", "stop_conditions", "token_ids", "annotations"
    return without_null({**{k: body.get(k) or None for k in kinds}, "bootstrap_info": meeting or None})


COMPUTED = {"token_ids": [300], "text": "p", "finish_reason": "length", "disaggregated_params": {"a": 1}}


class Sides:
    """A prefill and a decode worker before a frontend of the reference and ours."""

    def __init__(self, rig, mode, meets, release=NEWEST):
        from test_answer_shapes import of_release

        mocker, kv = rig.stack.mocker(), rig.stack.kv
        mocker.wait_log("worker registered")

        def of_side(side, other):
            def change(card):
                card.update(worker_type=side, needs=[[other]], **({"model_type": "Prefill"} if side == "prefill" else {}))
                of_release(release)(card)
                if meets and side == "prefill":
                    card["runtime_config"]["disaggregated_endpoint"] = {"bootstrap_host": "127.0.0.1", "bootstrap_port": 9}
            return change
        self.computed = [COMPUTED]
        self.prefill = FakeWorker(kv, lambda body: self.computed, 0xbbb1, of_side("prefill", "decode"), component="prefill")
        self.decode = FakeWorker(kv, lambda body: [{"token_ids": [300], "text": "hi", "finish_reason": "stop"}], 0xaaa1,
                                 of_side("decode", "prefill"))
        mocker.stop()
        flags = "--router-mode", mode, "--no-kv-events"
        self.fronts = rig.reference(release, *flags), rig.ours(*flags)

    def __enter__(self):
        for front in self.fronts:
            asked = len(self.prefill.bodies)
            until("both sides are known", lambda: front.answer() and len(self.prefill.bodies) > asked)
        return self

    def __exit__(self, *why):
        self.prefill.close()
        self.decode.close()

    def asked(self):
        return len(self.prefill.bodies), len(self.decode.bodies)


@pytest.mark.parametrize("mode", ["kv", "round-robin"])
@pytest.mark.parametrize("meets", [True, False], ids=["bootstrap", "synchronous"])
def test_what_both_sides_of_1_x_are_told(rig, mode, meets):
    """Whose engines may have to find each other by it, or routers before them."""
    with Sides(rig, mode, meets) as sides:
        prefill, decode = sides.prefill, sides.decode
        for more in ({}, {"nvext": {"agent_hints": {"priority": 3}}}, {"cache_salt": "s", "stream": True},
                     {"nvext": {"prefill_worker_id": 0xbbb1, "decode_worker_id": 0xaaa1}}):
            bodies = []
            for front in sides.fronts:
                asked = sides.asked()
                front.answer(**more)
                until("both were asked", lambda: sides.asked() == (asked[0] + 1, asked[1] + 1))
                bodies.append((told_apart(prefill.bodies[-1]), told_apart(decode.bodies[-1])))
            assert bodies[0] == bodies[1], more


USAGE = {"prompt_tokens": 5, "completion_tokens": 9, "total_tokens": 14, "prompt_tokens_details": {"cached_tokens": 3}}
# What a prefill worker says.
PREFILL_ENDS = [[{**COMPUTED, "finish_reason": reason}] for reason in ("stop", "eos", "cancelled", "content_filter", "length", None)]
PREFILL_ENDS += [[{"token_ids": [300], "text": "p", "finish_reason": "stop"}], [{"token_ids": [], "finish_reason": "eos"}],
         [{"token_ids": [300], "finish_reason": "stop"}], [{"token_ids": [300], "finish_reason": "stop", "completion_usage": USAGE}],
         [{**COMPUTED, "finish_reason": None}, {"token_ids": [301], "text": "q", "finish_reason": "stop"}]]
FIELDS = {"nvext": {"extra_fields": ["worker_id", "completion_token_ids"]}}


@pytest.mark.parametrize("release", ["0.9.0", NEWEST])
def test_a_prefill_that_ends_the_answer(rig, release):
    """The first token may: then 1.6.1 asks nobody for more, 0.9.0 does in any case."""
    with Sides(rig, "kv", False, release) as sides:
        for items in PREFILL_ENDS:
            sides.computed = items
            for more in ({}, {"stream": True}, {"stream": True, "stream_options": {"include_usage": True}}, FIELDS, {"stop": ["p"]}, {"max_tokens": 1}):
                if release == "0.9.0" and more is FIELDS:
                    continue
                found = []
                for front in sides.fronts:
                    before = sides.asked()
                    answer = front.answer(**more)
                    whole = answer[1][-1] if isinstance(answer, tuple) else answer
                    found.append((said(answer), whole.get("usage"), whole.get("nvext"), sides.asked()[1] - before[1]))
                assert found[0] == found[1], (items, more)
                assert found[1][3] == (release == "0.9.0" or items[0]["finish_reason"] in ("length", None))


@pytest.mark.parametrize("release", ["0.9.0", "1.4.2", NEWEST])
def test_an_answer_without_limit(rig, release):
    """Is for the worker to limit, which may have a default of its own."""
    from test_answer_shapes import of_release

    rig.start(change=of_release(release))
    rig.says(["hi", ""])
    for front in (rig.reference(release), rig.ours()):
        for path, body in ((CHAT, {"messages": GOOD["messages"]}), (COMPLETIONS, {"prompt": "x"})):
            for more, want in (({}, None), ({"max_tokens": 7}, 7)):
                assert front.ask(path, {"model": MODEL, **body, **more})[0] == 200
                assert rig.worker.bodies[-1]["stop_conditions"]["max_tokens"] == want


@pytest.mark.parametrize("more", [{"stop_token_ids": [302]}, {"stop": [302]}, {"stop_token_ids": [302], "min_tokens": 10},
                                  {"stop_token_ids": [302], "ignore_eos": True}, {"stop_token_ids": [301, 9]}])
def test_ids_that_stop(rig, more):
    """Of a worker that goes on behind them."""
    rig.start()
    theirs, ours = rig.reference(NEWEST), rig.ours()
    rig.say = [{"token_ids": [token]} for token in (300, 301, 302, 303)]
    rig.say[-1]["finish_reason"] = "length"
    want = said(theirs.answer(**more))
    assert want[0] and said(ours.answer(**more)) == want
    assert said(ours.answer(stream=True, **more)) == want


def test_thinking_reaches_the_template(rig):
    """Which asks for it by the names of chat_template_kwargs."""
    rig.start(thoughts="deepseek_r1")
    ours = rig.ours()
    rig.says(["yes", ""])
    assert said(ours.answer())[:2] == ("", "yes")
    for off in (False, {"type": "disabled"}):
        assert said(ours.answer(thinking=off))[:2] == said(ours.answer(chat_template_kwargs={"thinking": False}))[:2] == ("yes", "")
    assert said(ours.answer(thinking={"type": "enabled"}))[:2] == ("", "yes")


def test_content_types(rig):
    rig.start()
    rig.says(["hi", ""])
    fronts = rig.reference(NEWEST), rig.ours()
    for path, subject in ((CHAT, {"messages": GOOD["messages"]}), (COMPLETIONS, {"prompt": "x"})):
        for kind in ("text/plain", None, "application/json; charset=utf-8", "application/vnd.api+json", "application/x-www-form-urlencoded"):
            told = []
            for front in fronts:
                connection = http.client.HTTPConnection("127.0.0.1", front.port, timeout=PATIENCE)
                connection.request("POST", path, json.dumps({"model": MODEL, **subject}), {"content-type": kind} if kind else {})
                response = connection.getresponse()
                told.append((response.status, json.loads(response.read()).get("message")))
            assert told[0] == told[1], (path, kind)


EFFORTS = [{}, *({"reasoning_effort": word} for word in ("none", "minimal", "low", "medium", "high", "xhigh", "max")),
           {"reasoning_effort": "low", "chat_template_kwargs": {"reasoning_effort": "z"}},
           {"reasoning_effort": "none", "chat_template_kwargs": {"enable_thinking": True}},
           {"reasoning_effort": "high", "thinking": False}, {"reasoning_effort": "none", "thinking": True}]
# All names of it, alone and against each other.
ASKED = {"thinking": (True, False, None, "no", "enabled", 1, [], " TRUE"), "enable_thinking": (True, False, None, "no", "x", 0),
         "thinking_mode": ("enabled", "Disabled", "chat", " disabled", "off", "adaptive", True, 0.5, {}),
         "reasoning_effort": ("none", "NONE", "low", "x", 5, None)}
EFFORTS += [{"chat_template_kwargs": {key: value}} for key, values in ASKED.items() for value in values]
EFFORTS += [{"chat_template_kwargs": {a: x, b: y}} for a, b in itertools.combinations(ASKED, 2) for x in ASKED[a] for y in ASKED[b]]
EFFORTS += [{**top, "chat_template_kwargs": {key: value}} for key, values in ASKED.items() for value in values for top in (
    {"thinking": True}, {"thinking": {"type": "disabled"}}, {"thinking": {"type": "adaptive"}}, {"reasoning_effort": "low"}, {"reasoning_effort": "none"})]


def test_effort_reaches_the_template(rig, monkeypatch):
    """By the names that templates use."""
    model = rig.stack.folder / "model"
    shutil.copytree(stack.MODEL_PATH, model)
    (model / "chat_template.jinja").write_text("{{ reasoning_effort }} {{ enable_thinking }} {{ thinking }} {{ thinking_mode }}")
    monkeypatch.setattr(stack, "MODEL_PATH", model)
    rig.start()
    rig.says(["hi", ""])
    theirs, ours = rig.reference(NEWEST), rig.ours()
    asks = {"stream": True, "nvext": {"annotations": ["formatted_prompt"]}}
    prompts = [[front.answer(**asks, **more)[0]["formatted_prompt"] for more in EFFORTS] for front in (theirs, ours)]
    assert not [case for case in zip(EFFORTS, *prompts) if case[1] != case[2]]
    assert len(set(prompts[0])) > 30


def test_edges_of_requests(rig):
    """What is accepted and what is refused, and with which status."""
    rig.start()
    rig.says(["hi", ""])
    theirs, ours = rig.reference(NEWEST), rig.ours()
    cases = [(CHAT, json.dumps({"model": MODEL, **GOOD, **more})) for more in EDGES]
    cases += [(COMPLETIONS, json.dumps({"model": MODEL, "prompt": "x", **more})) for more in PROMPTS]
    cases += [(path, text) for path in (CHAT, COMPLETIONS) for text in RAW]
    statuses = {case: [front.ask_text(*case) for front in (theirs, ours)] for case in cases}
    assert not {case: pair for case, pair in statuses.items() if pair[0] != pair[1]}
    assert len(statuses) > 100 and {status for pair in statuses.values() for status in pair} == {200, 400, 404, 501}
