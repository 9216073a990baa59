# SPDX-License-Identifier: Apache-2.0
"""/v1/embeddings before workers made of the reference's own runtime, of texts and of ids: what its frontend answers and
ours, key for key, and what the worker is asked for."""

import base64
import json
import shutil
import struct

import pytest

from stack import CHAT, COMPLETIONS, MODEL_PATH, until
from test_openai_interop import NEWEST, Front
from test_text_workers import EMBEDDINGS, PLANES, RELEASES, rig_of  # noqa: F401

MODELS = ("embed", "embed-ids")
INPUTS = ["hello world", ["a b", "c d e"], [1, 2, 3], [[1, 2], [3]], "", [], [""], [[]], "é \"\\\n", ["a"] * 300]
MORE = [{"encoding_format": "float"}, {"encoding_format": "base64"}, {"dimensions": 2, "user": "u"}, {"dimensions": 0}, {"foo": 1},
        {"user": ""}, {"nvext": {"annotations": ["a"]}}, {"encoding_format": None, "dimensions": None, "user": None, "nvext": None},
        {"stream": True}, {"nvext": {"x": 1, "backend_instance_id": "x", "annotations": None}}, {"nvext": {}}]
REFUSED = [{"input": 5}, {"input": [1, "a"]}, {"input": None}, {}, {"input": "x", "encoding_format": "zz"}, {"input": "x", "dimensions": -1},
           {"input": "x", "dimensions": "3"}, {"input": "x", "user": 5}, {"input": [-1]}, {"input": [1.5]}, {"input": ["a", 1]},
           {"input": [["a"]]}, {"input": {"a": 1}}, {"input": [4294967296]}, {"input": ["a", [1]]}, {"input": [[1], "a"]}, {"input": "x", "nvext": 5},
           *({"input": "x", "nvext": {"annotations": value}} for value in ("x", [5], {}))]
TWICE = ['"input":"x"', '"user":"u"', '"encoding_format":null', '"dimensions":1', '"nvext":{}']


def ask(front, model, more):
    status, text = front.ask(EMBEDDINGS, {"model": model, **more})
    return status, json.loads(text)


def packed(*numbers):
    return base64.b64encode(struct.pack(f"<{len(numbers)}f", *numbers)).decode()


def answer_of(embedding, **more):
    return {"object": "list", "model": "embed", "usage": {"prompt_tokens": 5, "total_tokens": 5},
            "data": [{"object": "embedding", "embedding": embedding, "index": 0}], **more}


FLOATS = [0.1, 0.5, -1.0, 1e-7, 3.4e38, 123456.79, 1 / 3, 0.0, -0.0, 1e10, 2.0**24, 1e16, 1.5e-5, 1e-40, 3e-45, 8.589973e9, 16777216.0,
          0.12345679, 9.999999e-5, float("nan"), *(struct.unpack("<f", struct.pack("<I", 0x2b000000 + 7919 * i * i))[0] for i in range(200))]


@pytest.mark.parametrize("release,plane", PLANES)
def test_answers(rig_of, release, plane):  # noqa: F811
    rig = rig_of(release, plane, models=MODELS)
    theirs, ours = rig.theirs(), rig.ours()
    cases = [{"input": each} for each in INPUTS] + [{"input": "hello", **more} for more in MORE]
    answers = [answer_of([0.5, 1])] + [answer_of([]), answer_of([2.5], model="other", object="x")]
    cases += [{"input": json.dumps([answer])} for answer in answers] + [{"input": json.dumps([answer_of([1]), answer_of([2])])}]
    if release == NEWEST:  # whose workers tell bytes
        cases += [{"input": json.dumps([answer_of(packed(*FLOATS))]), "encoding_format": form} for form in ("float", "base64")]
    differ = []
    for model in MODELS:
        for case in cases:
            if model == "embed-ids" and release == NEWEST and case["input"] == []:
                continue  # an error there
            want, got = (ask(front, model, case) for front in (theirs, ours))
            payloads = [{key: value for key, value in payload.items() if value is not None and key != "mdc_sum"} for payload in rig.asked()[-2:]]
            if want != got or want[0] != 200 or payloads[0] != payloads[1]:
                differ.append((model, case, want, got, *payloads))
    assert not differ, "\n".join("\n".join(map(str, case)) for case in differ)


BOS, SEP, EOS = 6141, 6142, 6143  # of the example's tokenizer
SPECIAL = {name: {"id": name, "ids": ids, "tokens": ["x"] * len(ids)} for name, ids in (("b", [BOS]), ("e", [SEP, EOS]))}
PAIR = [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}]
TEMPLATE = {"type": "TemplateProcessing", "pair": PAIR, "special_tokens": SPECIAL,
            "single": [{"SpecialToken": {"id": "b", "type_id": 0}}, PAIR[0], {"SpecialToken": {"id": "e", "type_id": 0}}]}
ENDS = {"cls": ["x", BOS], "sep": ["y", SEP]}
ROBERTA = {"type": "RobertaProcessing", **ENDS, "trim_offsets": True, "add_prefix_space": True}
BYTES = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
CUT = {"truncation": {"direction": "Right", "max_length": 3, "strategy": "LongestFirst", "stride": 0}}
FILL = {"padding": {"strategy": {"Fixed": 8}, "direction": "Left", "pad_to_multiple_of": None, "pad_id": 6140, "pad_type_id": 0, "pad_token": "x"}}
FILL_UP = {"padding": {**FILL["padding"], "strategy": "BatchLongest", "direction": "Right"}}
AROUND = {  # what is put around a text; the rest of the tokenizer; of config.json
    "none": (None, {}, {"vocab_size": 6000}), "template": (TEMPLATE, {}, {}),
    "bert": ({"type": "BertProcessing", **ENDS}, {}, {"max_position_embeddings": 16}), "roberta": (ROBERTA, {}, {"vocab_size": 7000}),
    "llama": ({"type": "Sequence", "processors": [BYTES, TEMPLATE]}, {}, {"text_config": {"vocab_size": 7000}}),
    "nested": ({"type": "Sequence", "processors": [ROBERTA, TEMPLATE, BYTES]}, {}, {"vocab_size": 7000, "text_config": {"vocab_size": 6200}}),
    "cut": (TEMPLATE, CUT, {}), "fill": (TEMPLATE, FILL, {}), "fill-up": (TEMPLATE, FILL_UP, {}),
}
TEXTS = [{"input": text, **more} for text in ("hello world", ["a b c d e f", "c", "<|im_end|>", ""], "a " * 40)
         for more in ({}, {"add_special_tokens": False}, {"add_special_tokens": True}, {"add_special_tokens": None})]
CUTS = [{"input": ["a " * 20, "c"], "truncate_prompt_tokens": n, **more} for n in (0, 1, 2, 4, 16, 17, 1000, 32768, 32769, -1, -2, None)
          for more in ({}, {"add_special_tokens": False})]
WRONG = [{"input": text, key: value} for text in ("a b c", [1, 2]) for key in ("add_special_tokens", "truncate_prompt_tokens")
          for value in ("x", 1, 2.0, True, [], {}, "3", 2**63, -2**63)]
CUTS += [{"input": [1, 2, 3], "truncate_prompt_tokens": n} for n in (0, 2, 17, 2**40, -1, -2)]
TEXTS += [{"input": ids} for ids in ([5999], [6143], [6144], [6199], [6200], [6999], [7000], [2**32 - 1], [[1], [7000]])]


def told(rig, front, model, cases):
    """Of each case the status and, if that is 200, the answer and what the worker was asked for."""
    before = len(rig.asked())
    answers = [ask(front, model, case) for case in cases]
    payloads = rig.asked()[before:]
    assert [status for status, _ in answers].count(200) == len(payloads)
    for payload in payloads:
        payload.pop("mdc_sum", None)
    return [(status, answer, {key: value for key, value in payloads.pop(0).items() if value is not None}) if status == 200 else (status,)
            for status, answer in answers]


@pytest.mark.parametrize("release", RELEASES)
def test_what_is_put_around_texts(rig_of, tmp_path, release):  # noqa: F811
    """1.6.1 embeds what engines would; 0.9.0 makes prompts of texts, and knows none of its keys."""
    for name, (processor, more, config) in AROUND.items():
        shutil.copytree(MODEL_PATH, tmp_path / name)
        for file, change in (("tokenizer", {"post_processor": processor, **more}), ("config", config)):
            path = tmp_path / name / f"{file}.json"
            path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    rig = rig_of(release, models=("embed", *(f"embed-ids={tmp_path / name}" for name in AROUND)))
    theirs, ours = rig.theirs(), rig.ours()
    differ = []
    for model in ("embed", *AROUND):
        cases = TEXTS + CUTS * (model in ("embed", "template", "bert", "cut")) + WRONG * (model in ("embed", "template"))
        wants, gots = (told(rig, front, model, cases) for front in (theirs, ours))
        differ += [(model, case, want, got) for case, want, got in zip(cases, wants, gots) if want != got]
    assert not differ, "\n".join("\n".join(map(str, case)) for case in differ)


@pytest.mark.parametrize("release", RELEASES)
def test_errors(rig_of, release):  # noqa: F811
    """The words are ours. What a worker may not be asked for is told by 1.6.1 from what it cannot do."""
    rig = rig_of(release, models=("say", *MODELS))
    theirs, ours = rig.theirs(), rig.ours()
    broken = [{"input": json.dumps([item])} for item in ({"raise": "boom"}, {"foo": 1}, answer_of(["a"]), {**answer_of([1]), "usage": None})]
    if release == NEWEST:
        broken += [{"input": json.dumps([answer_of(text)])} for text in ("not base64!", "YWJj")]
    cases = [("embed", case) for case in REFUSED + broken] + [("embed-ids", case) for case in REFUSED + [{"input": [13]}]]
    cases += [("nope", {"input": "x"}), ("", {"input": "x"}), ("say", {"input": "x"})]
    differ = []
    for model, case in cases:
        (want, _), (got, answer) = (ask(front, model, case) for front in (theirs, ours))
        if want != got or want == 200 or answer["code"] != got:
            differ.append((model, case, want, got, answer))
    assert not differ, "\n".join(map(str, differ))
    assert "boom" in ask(ours, "embed", broken[0])[1]["message"]
    for model in MODELS:
        for api, subject in ((CHAT, {"messages": [{"role": "user", "content": "x"}]}), (COMPLETIONS, {"prompt": "x"})):
            assert theirs.ask(api, {"model": model, **subject})[0] == ours.ask(api, {"model": model, **subject})[0] == 404
    for text in ("{bad", '{"input":"x"}', *('{"model":"embed","input":"x",%s}' % ",".join([twice] * (2 - ("input" in twice))) for twice in TWICE)):
        assert ours.ask_text(EMBEDDINGS, text) == theirs.ask_text(EMBEDDINGS, text) == 400, text
    for model in MODELS:
        assert ours.ask_text(EMBEDDINGS, '{"model":"%s","input":"x","x":1,"x":2}' % model) == 200


@pytest.mark.parametrize("mode", ["kv", "round-robin", "random", "least-loaded"])
def test_modes(rig_of, mode):  # noqa: F811
    """In mode kv, where the reference fails, the least loaded worker is asked. A worker that is lost is replaced."""
    rig = rig_of("0.9.0", models=MODELS)
    rig.stack.frontend("--router-mode", mode)
    ours = rig.ready(Front(rig.stack.port))
    for model in MODELS:
        assert ask(ours, model, {"input": "x"})[0] == 200
        assert rig.stack.metric("dynamo_frontend_requests_total", model=model, endpoint="embeddings", request_type="unary",
                                status="success") == 1
    assert rig.stack.decisions() == {{"kv": "least-loaded"}.get(mode, mode): 1}
    big = ask(ours, "embed-ids", {"input": ["word " * 30000, "x"]})
    assert big[0] == 200 and len(big[1]["data"]) == 2 and big[1]["usage"]["prompt_tokens"] > 30000
    rig.start_worker()
    until("two workers", lambda: rig.stack.metric("commutator_router_workers", model="embed") == 2)
    rig.worker.kill()
    for _ in range(4):
        assert ask(ours, "embed", {"input": "x"})[0] == 200
    assert rig.stack.metric("dynamo_frontend_inflight_requests") == 0


@pytest.mark.parametrize("release", RELEASES)
def test_body_limit(rig_of, release):  # noqa: F811
    rig = rig_of(release, models=MODELS)
    rig.env["DYN_HTTP_BODY_LIMIT_MB"] = "1"
    theirs = rig.theirs()
    rig.stack.frontend(DYN_HTTP_BODY_LIMIT_MB="1")
    ours = rig.ready(Front(rig.stack.port))
    for model in MODELS:
        for size in (2**20 - 1, 2**20, 2**20 + 1, 2**20 + 2):
            head = json.dumps({"model": model, "input": ""})[:-2]
            body = head + "a " * ((size - len(head) - 2) // 2) + "a" * ((size - len(head)) % 2) + '"}'
            assert len(body) == size
            want, got = (front.ask_text(EMBEDDINGS, body) for front in (theirs, ours))
            assert got == want == (200 if size <= 2**20 else 413), (model, size)
    assert ours.ask(EMBEDDINGS, {"model": "embed", "input": "x"})[0] == 200
