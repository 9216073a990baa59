# SPDX-License-Identifier: Apache-2.0
"""router/token against the libraries that define what is right: PyPI `tokenizers` and `jinja2`.

TOKEN_STRINGS multiplies the number of texts (1: about 60,000 in all).
"""

import datetime
import json
import os
import pathlib
import random

import jinja2
import pytest
import tokenizers
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from conftest import ROOT, SHARED, unavailable
from tokens import binding, shapes, texts

SCALE = float(os.environ.get("TOKEN_STRINGS", "1"))
NOW = datetime.datetime(2026, 11, 21, 9, 8, 7)
TEMPLATES = sorted((ROOT / "e2e/tokens/templates").glob("*.jinja"))


@pytest.fixture(scope="session")
def lib(tmp_path_factory):
    return binding.build(tmp_path_factory.mktemp("token"))


# --- tokenizers ------------------------------------------------------------------------------------


def compare(lib, file, count, seed):
    """Ids of texts, texts of ids, texts of random ids; all must be equal."""
    ours, theirs = binding.Tokenizer(lib, file), tokenizers.Tokenizer.from_str(file)
    rng, size = random.Random(seed), theirs.get_vocab_size()
    for i in range(round(count * SCALE)):
        text = texts.text(rng) if i else ""
        ids = theirs.encode(text, add_special_tokens=False).ids
        assert ours.encode(text) == ids, repr(text)
        some = [rng.randrange(size if rng.random() < 0.5 else 400) for _ in range(rng.randint(1, 20))]
        for sequence in (ids, some):
            for skip in (False, True):
                assert ours.decode(sequence, skip) == theirs.decode(sequence, skip_special_tokens=skip), \
                    (text, sequence)


def test_tinyllama(lib):
    path = SHARED / "data/models/TinyLlama_v1.1/tokenizer.json"
    if not path.exists():
        unavailable(f"{path} is absent")
    compare(lib, path.read_text(), 15000, 1)


def test_example_model(lib):
    compare(lib, (ROOT / "examples/model/tokenizer.json").read_text(), 10000, 2)


@pytest.mark.parametrize("shape", shapes.SHAPES)
def test_shape(lib, shape):
    compare(lib, shapes.train(shape), 2500, shape)


@pytest.mark.parametrize("shape", ["gpt2", "llama2", "metaspace"])
def test_stream_is_the_text(lib, shape):
    """Detokenized one by one, a text is what it is at once, up to a character in the making."""
    tok = binding.Tokenizer(lib, shapes.train(shape))
    rng = random.Random(shape)
    for _ in range(round(1000 * SCALE)):
        ids = tok.encode(texts.text(rng))
        cut = rng.randint(0, len(ids))
        got = "".join(tok.stream(ids[:cut], ids[cut:]))
        whole = tok.decode(ids, False)
        if whole.endswith("\ufffd") or tok.decode(ids[:cut], False).endswith("\ufffd"):
            assert "\ufffd" in got or got in whole
        else:
            assert tok.decode(ids[:cut], False) + got == whole


def test_every_character_is_classed_alike(lib):
    """One word per character class: what is a letter, a number, a blank to the two engines."""
    for pattern in (r"\p{L}", r"\p{N}", r"\s", r"\w", r"\d", r"\p{P}", r"\p{S}", r"\p{M}", r"\p{Lu}"):
        tok = tokenizers.Tokenizer(tokenizers.models.BPE({"a": 0, "b": 1}, [], unk_token="a"))
        tok.pre_tokenizer = tokenizers.pre_tokenizers.Split(tokenizers.Regex(pattern), "removed")
        tok.decoder = tokenizers.decoders.Fuse()
        ours = binding.Tokenizer(lib, tok.to_str())
        for start in range(0, 0x110000, 64):
            text = "".join(chr(c) for c in range(start, start + 64) if not 0xD800 <= c < 0xE000)
            assert ours.encode(text) == tok.encode(text, add_special_tokens=False).ids, (pattern, start)


def test_every_character_is_normalized_alike(lib):
    """Byte-level tokens of a text give its NFC back."""
    tok = binding.Tokenizer(lib, shapes.train("qwen2"))
    nfc = tokenizers.normalizers.NFC().normalize_str
    for start in range(0, 0x110000, 64):
        chars = [chr(c) for c in range(start, start + 64) if not 0xD800 <= c < 0xE000]
        text = "".join(f"a{c}\u0301\u0323{c}" for c in chars)
        assert tok.decode(tok.encode(text), False) == nfc(text), hex(start)


# --- templates -------------------------------------------------------------------------------------


def environment():
    """As `transformers` makes it, with the tojson of the reference frontend (wire.md 8.4)."""
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])

    def tojson(value, indent=None):
        text = json.dumps(value, sort_keys=True, ensure_ascii=False, indent=indent,
                          separators=(",", ":") if indent is None else (",", ": "))
        for c in "<>&'":
            text = text.replace(c, f"\\u{ord(c):04x}")
        return text

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    env.filters["tojson"] = tojson
    env.globals.update(raise_exception=raise_exception, strftime_now=NOW.strftime)
    return env


def tool(name):
    return {"type": "function", "function": {
        "name": name, "description": "It's <b>bold</b> & \"quoted\".",
        "parameters": {"type": "object", "required": ["x"], "properties": {
            "x": {"type": "integer", "enum": [1, 2, 3]}, "é": {"type": "string", "default": None}}}}}


def conversation(rng):
    """Messages that make sense to most templates; now and then one that does not."""
    def words():
        return rng.choice(["", "Hi!", "  spaced \n", "naïve 👨‍👩‍👧 שלום", "<think>\nhm\n</think>\n\nyes",
                           "{{ not }} {% code %}", "a\n\nb", "'quotes' & \"more\" <tags>"])

    messages = []
    if rng.random() < 0.5:
        messages.append({"role": "system", "content": words()})
    for _ in range(rng.randint(0, 4)):
        messages.append({"role": "user", "content": words()})
        if rng.random() < 0.3:
            calls = [{"id": "abcdefgh" + str(i), "type": "function", "function": {
                "name": "f", "arguments": {"x": rng.randint(0, 9), "s": words(), "l": [1, None, True]}}}
                for i in range(rng.choice([1, 1, 2]))]
            messages.append({"role": "assistant", "content": rng.choice([None, words()]),
                             "tool_calls": calls})
            messages += [{"role": "tool", "content": words(), "tool_call_id": call["id"]}
                         for call in calls]
        messages.append({"role": "assistant", "content": words()})
    if rng.random() < 0.8:
        messages.append({"role": "user", "content": words()})
    if rng.random() < 0.1:
        messages.append({"role": rng.choice(["user", "critic"]), "content": words()})
    context = {"messages": messages, "bos_token": "<s>", "eos_token": "</s>",
               "add_generation_prompt": rng.random() < 0.8}
    if rng.random() < 0.4:
        context["tools"] = [tool(f"f{i}") for i in range(rng.randint(0, 3))]
    if rng.random() < 0.3:
        context["enable_thinking"] = rng.random() < 0.5
    if rng.random() < 0.2:
        context["builtin_tools"] = ["search", "code_interpreter"]
    if rng.random() < 0.2:
        context["tools_in_user_message"] = rng.random() < 0.5
    # The reference sorts the keys of objects, so both sides get them sorted.
    return json.loads(json.dumps(context, sort_keys=True))


@pytest.mark.parametrize("path", [*TEMPLATES, ROOT / "examples/model/chat_template.jinja"],
                         ids=lambda p: p.stem)
def test_template(lib, path):
    source = path.read_text()
    theirs, ours = environment().from_string(source), binding.Template(lib, source)
    rng, rendered = random.Random(path.stem), 0
    for _ in range(round(600 * SCALE)):
        context = conversation(rng)
        try:
            want = theirs.render(**context)
        except (jinja2.exceptions.TemplateError, TypeError) as why:
            with pytest.raises(ValueError) as got:
                ours.render(context, NOW)
            if type(why) is jinja2.exceptions.TemplateError:  # raised by the template itself
                assert str(why) in str(got.value)
            continue
        assert ours.render(context, NOW) == want, context
        rendered += 1
    assert rendered > 100 * SCALE


def snippets():
    folder = ROOT / "e2e/corpus/template"
    return [p for p in sorted(folder.iterdir()) if p.name.isdigit()]


@pytest.mark.parametrize("path", snippets(), ids=lambda p: p.name)
def test_snippet(lib, path):
    """Every filter, test and method that we have, in small. Constants print as the reference's do."""
    source = path.read_text()
    context = json.loads((pathlib.Path(__file__).parent / "tokens/context.json").read_text())
    try:
        want = environment().from_string(source).render(**context)
    except (jinja2.exceptions.TemplateError, TypeError):
        with pytest.raises(ValueError):
            binding.Template(lib, source).render(context, NOW)
        return
    for python, reference in (("True", "true"), ("False", "false"), ("None", "none")):
        want = want.replace(python, reference)
    assert binding.Template(lib, source).render(context, NOW) == want
