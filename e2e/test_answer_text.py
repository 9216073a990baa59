# SPDX-License-Identifier: Apache-2.0
"""What becomes of tokens that end an answer: stop strings and ids, special tokens, characters that are cut off. Beside
the frontend of the workers' generation, 0.9.0 or 1.6.1, in front of the same worker, which sends chosen tokens."""

import json
import re

import pytest

from stack import CHAT, COMPLETIONS, MODEL_PATH
from test_answer_shapes import RELEASES, USAGE, ask, fronts, id_items, of_release
from test_openai_interop import NEWEST, Rig

TOKENIZER = json.loads((MODEL_PATH / "tokenizer.json").read_text())
IDS = {**TOKENIZER["model"]["vocab"], **{token["content"]: token["id"] for token in TOKENIZER["added_tokens"]}}
EOS, SPECIAL = "<|im_end|>", "<|im_start|>"
HELLO = ("h", "ell", "o", "Ġw", "or", "ld")  # as the vocabulary spells them
E, ACUTE = "Ã", "©"  # the bytes of é
SMILE = ("ð", "Ł", "ĺ")  # three of an emoji's four


def says(*items, finish="length"):
    """Of a worker that sends these tokens, an item each or several."""
    items = [(item,) if isinstance(item, str) else item for item in items]
    return id_items(*([IDS[token] for token in item] for item in items), finish=finish)


def included(*stops, **more):
    return {"stop": [*stops], "include_stop_str_in_output": True, **more}


ENDS_IN_ITEM = [{"token_ids": [IDS["h"]]}, {"token_ids": [IDS["ell"]], "finish_reason": "length"}]
SAME = [  # what the worker says and what is asked
    *((says(*HELLO), {"stop": [*stops]}) for stops in ("l", "e", ("ll", "e"), ("e", "ll"), ("h",), ("ell",), ("zz",))),
    *((says(*HELLO), included(*stops)) for stops in (
        "l", ("lo wor",), ("lo wo",), ("lo world", "lo"), ("lo", "lo world"), ("low",))),
    (says(HELLO), included("lo")), (says(*HELLO), included("ello w", min_tokens=2)), (says("h", "ell", EOS, "o"), included("llo")),
    (says("h", E, ACUTE, "lo"), included("é")), (says("h", E, ACUTE, E), included("el")),
    *((says("h", "ell", "ell", "ell"), {"stop": ["ell"], "min_tokens": n}) for n in range(5)),
    (says("h", "ell", "o"), {"stop": ["ello"], "min_tokens": 3}),
    *((says("h", EOS, "ell", EOS, "o"), {"min_tokens": n}) for n in (1, 2, 3)),
    (says("h", "ell", EOS, "h", finish="stop"), {}), (says(("h", "ell", EOS, "o"), finish="stop"), {}),
    (says("h", EOS, "ell"), {"ignore_eos": True}), (says("h", "ell"), {"stop": ["l"], "ignore_eos": True}),
    (says("h", SPECIAL, "ell"), {}), *((says("h", SPECIAL, "ell"), {"skip_special_tokens": skips}) for skips in (True, False)),
    (ENDS_IN_ITEM, {"stop": ["l"]}), ([ENDS_IN_ITEM[0], {**ENDS_IN_ITEM[1], "finish_reason": "stop", "stop_reason": "l"}], {"stop": ["l"]}),
    (says("h", E, ACUTE, "lo"), {}), *((says("h", E, finish=why), {}) for why in ("length", "stop", "content_filter")),
    (says(E), {}), (says(("h", E)), {}), (says("h", E, "lo"), {}), (says(("h", E, "lo")), {}), (says("h", ACUTE, "lo"), {}),
    (says("h", *SMILE), {}), (says("h", *SMILE, E), {}), (says("h", E, E, E), {}), (says("h", E, E, E, "lo"), {}),
    (says("h", E, EOS, finish="stop"), {}), (says("h", E, "ell"), {"stop": ["l"]}), (says("h", E, ACUTE, "lo"), {"stop": ["é"]}),
    (says("h", E, "lo"), {"stop": ["\ufffd"]}),
]
# Text that may be the start of a stop string waits until that is decided. 0.9.0 sends it, and so the starts of strings
# that span tokens: what it says with them and what there is to say.
WAITS = [
    (says(*HELLO), {"stop": ["lo wor"]}, "hello w", "hel"), (says(HELLO), {"stop": ["lo wor"]}, "hello w", "hel"),
    *((says(*HELLO), {"stop": stops}, "hell", "hel") for stops in (["lo world", "lo"], ["lo", "lo world"], ["o w", "lo"])),
    (says(HELLO), {"stop": ["lo world", "lo"]}, "hell", "hel"), (says("h", E, ACUTE, "lo"), {"stop": ["él"]}, "hé", "h"),
    *((items, {"stop": [stop]}, None, None) for items, stop in (
        (says("h", "ell", "o", "Ġw"), "wor"), (says("h", "ell", "o", "Ġw", finish="stop"), "wor"), (says(*HELLO[:4], "e"), "lo wor"),
        (says(("h", "ell"), ("o", "e")), "lo wor"), (says("h", "ell", EOS, "o", finish="stop"), "ll w"), (ENDS_IN_ITEM, "lo w"),
        (says("h", E), "hé"), (says("h", E), "h\ufffdz"))),
    # 1.6.1 begins to look one token later.
    *((says(*HELLO), {"stop": [stop], "min_tokens": 2}, theirs, ours) for stop, theirs, ours in (
        ("ello", "hell", "h"), ("ello w", "hello", "h"), ("lo", "hell", "hel"))),
    (says("h", "ell", "o", "e"), {"stop": ["ow"], "min_tokens": 3}, None, None),
]
AT_THE_END = [(says("h", E), {"stop": ["\ufffd"]})]  # 0.9.0 says nothing of what is cut off, and so finds nothing in it


@pytest.fixture
def rig(tmp_path):
    with Rig(tmp_path) as rig:
        yield rig


def different(rig, theirs, ours, cases):
    """Those whose answers are not the same, streamed or folded, of either API."""
    for items, more in cases:
        rig.say = items
        for api in (CHAT, COMPLETIONS):
            for stream in ({"stream": True, **USAGE}, {"stream": False}):
                want, got = (ask(front, api, {**more, **stream}) for front in (theirs, ours))
                if got != want:
                    yield items, more, api, want, got


@pytest.mark.parametrize("release", RELEASES)
def test_ends(rig, release):
    rig.start(change=of_release(release))
    theirs, ours = fronts(rig, release)
    cases = SAME + ([(items, more) for items, more, *_ in WAITS] + AT_THE_END) * (release == NEWEST)
    differ = [*different(rig, theirs, ours, cases)]
    assert not differ, "\n".join("\n".join(map(str, case)) for case in differ)


def folded(front, items_and_more, api=CHAT):
    """The answer without its text, and that."""
    status, text = ask(front, api, items_and_more)
    answer = json.loads(text)
    assert status == 200
    return answer, answer["choices"][0]["message"].pop("content")


def test_what_0_9_0_gives_away(rig):
    rig.start(change=of_release("0.9.0"))
    theirs, ours = fronts(rig, "0.9.0")
    for items, more, leaks, text in WAITS:
        rig.say = items
        (want, said), (got, ours_said) = folded(theirs, more), folded(ours, more)
        assert got == want and (said == ours_said if leaks is None else (said, ours_said) == (leaks, text)), (items, more)
        streamed = "".join(re.findall(r'"content":"([^"]*)"', ask(ours, CHAT, {**more, "stream": True})[1]))
        assert streamed == ours_said


@pytest.mark.parametrize("tools,thoughts", [("kimi_k2", None), (None, "kimi_k25"), ("gemma4", "gemma4"), ("hermes", "qwen3")])
def test_parsers_that_need_special_tokens(rig, tools, thoughts):
    """Get them, and the worker is told so."""
    rig.start(tools, thoughts)
    theirs, ours = fronts(rig, NEWEST)
    for more in ({}, {"skip_special_tokens": True}, {"skip_special_tokens": False}):
        assert not [*different(rig, theirs, ours, [(says("h", SPECIAL, "ell"), more)])]
        told = []
        for front in (theirs, ours):
            ask(front, CHAT, more)
            told.append(rig.worker.bodies[-1]["output_options"]["skip_special_tokens"])
        assert told[0] == told[1]


def test_mistral_s_calls_keep_their_mark(rig):
    """It is a special token. 1.6.1 hides it, and so loses the call."""
    rig.start("mistral")
    theirs, ours = fronts(rig, NEWEST)
    rig.say = says("h", SPECIAL, "ell")
    assert [folded(front, {})[1] for front in (theirs, ours)] == ["hell", f"h{SPECIAL}ell"]


@pytest.mark.parametrize("release,told", [("0.9.0", ["h", "", "é", "lo"]), (NEWEST, ["h", "\ufffd", "\ufffd", "lo"])])
def test_log_probabilities_of_a_character_s_tokens(rig, release, told):
    """The last is told as the character, and each has a text. 1.6.1 decodes each alone."""
    rig.start(change=of_release(release))
    theirs, ours = fronts(rig, release)
    rig.say = [{**item, "log_probs": [-0.5] * len(item["token_ids"])} for item in says("h", E, ACUTE, "lo")]
    tokens = [json.loads(ask(front, COMPLETIONS, {"logprobs": 1})[1])["choices"][0]["logprobs"]["tokens"] for front in (theirs, ours)]
    assert tokens == [told, ["h", "\ufffd", "é", "lo"]]
