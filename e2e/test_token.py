# SPDX-License-Identifier: Apache-2.0
"""Tokenizers of router/token against the libraries that define what is right: PyPI `tokenizers`, `tiktoken`, `sentencepiece`.

TOKEN_STRINGS multiplies the number of texts. 1, which CI runs, compares ids and decoded texts of 200,000 with
PyPI `tokenizers` (test_tinyllama, _example_model, _shape: Llama 2 and 3, Qwen, Mistral, DeepSeek, GPT-OSS, Gemma, BERT
have 19,000 each) in about two minutes of CPU time; what else is here has as many again. A second run finds the
libraries' answers kept (tokens/kept.py) and takes a third of that.
"""

import base64
import json
import os
import pathlib
import random
import re

import pytest
import sentencepiece
import tiktoken
import tokenizers
from tokenizers import normalizers

from conftest import ROOT, SHARED, unavailable
from tokens import binding, kept, pieces, shapes, texts

# 64 characters from each on: all but the planes where nothing is assigned.
STARTS = [*range(0, 0x33000, 64), *range(0xE0000, 0xE1000, 64), *range(0x10FF00, 0x110000, 64)]
FAMILIES = ("llama2", "llama3", "qwen2", "mistral_v3", "deepseek", "gpt_oss", "gemma", "bert")
SCALE = float(os.environ.get("TOKEN_STRINGS", "1"))


@pytest.fixture(scope="session")
def lib():
    return binding.build()


# --- tokenizers ------------------------------------------------------------------------------------


def answers(library, *follows_from):
    """The library's answers to texts as they are drawn here."""
    return kept.Answers(library.__name__, library.__version__, SCALE, pathlib.Path(__file__), pathlib.Path(texts.__file__),
                        texts.LICENSE, *follows_from)


def compare_damaged(answered, ours, theirs, text, rng):
    """Bytes that are no UTF-8 are refused; the library does not take them either."""
    data = bytearray(text.encode() or b"x")
    data[rng.randrange(len(data))] = rng.randrange(256)
    data = bytes(data[:rng.randint(1, len(data))])
    try:
        text = data.decode()
    except UnicodeDecodeError:
        with pytest.raises(ValueError, match="not UTF-8"):
            ours.encode(data)
    else:
        answered.compare(ours.encode(data), lambda: theirs.encode(text, add_special_tokens=False).ids, data)


def compare(lib, file, count, seed):
    """Ids of texts, texts of ids, texts of random ids; all must be equal."""
    ours, theirs = binding.Tokenizer(lib, file), tokenizers.Tokenizer.from_str(file)
    rng, size, answered = random.Random(seed), theirs.get_vocab_size(), answers(tokenizers, file, count, seed)
    for i in range(round(count * SCALE)):
        text = texts.text(rng) if i else ""
        ids = ours.encode(text)
        answered.compare(ids, lambda: theirs.encode(text, add_special_tokens=False).ids, text)
        if i % 16 == 0:
            compare_damaged(answered, ours, theirs, text, rng)
        some = texts.ids(rng, size)
        ways = [(sequence, skip) for sequence in (ids, some) for skip in (False, True)]
        answered.compare([ours.decode(*way) for way in ways],
                         lambda: [theirs.decode(sequence, skip_special_tokens=skip) for sequence, skip in ways], (text, some))
    answered.keep()


def test_tinyllama(lib):
    path = SHARED / "data/models/TinyLlama_v1.1/tokenizer.json"
    if not path.exists():
        unavailable(f"{path} is absent")
    compare(lib, path.read_text(), 15000, 1)


def test_example_model(lib):
    compare(lib, (ROOT / "examples/model/tokenizer.json").read_text(), 10000, 2)


@pytest.mark.parametrize("shape", shapes.SHAPES)
def test_shape(lib, shape):
    compare(lib, shapes.train(shape), 19000 if shape in FAMILIES else 1000, shape)


@pytest.mark.parametrize("shape", shapes.SHAPES)
def test_prompts_that_begin_alike(lib, shape):
    """Prompts that go on where a recent one ended, or left it: their ids are those of the whole."""
    file = shapes.train(shape)
    ours, theirs = binding.Tokenizer(lib, file), tokenizers.Tokenizer.from_str(file)
    rng, prompts, reused, answered = random.Random(shape), [""], 0, answers(tokenizers, file, shape)
    for _ in range(round(1500 * SCALE)):
        prompt = rng.choice(prompts[-20:])
        prompt = prompt[:rng.choice([len(prompt), len(prompt), rng.randint(0, len(prompt))])]
        for _ in range(rng.randint(1, 3)):
            prompt += texts.text(rng) + rng.choice(["<|im_end|>", "</s>", "[PAD]", "<|im_end|>\n", "<ls>", "<rs>", "<sw>", ""])
        ids, known = ours.encode_cached(prompt)
        answered.compare(ids, lambda: theirs.encode(prompt, add_special_tokens=False).ids, prompt)
        prompts.append(prompt if len(prompt) < 3000 else "")
        reused += known
    answered.keep()
    assert reused > 1000 * SCALE


@pytest.mark.parametrize("shape", shapes.SHAPES)
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


@pytest.mark.parametrize("shape", shapes.SHAPES)
def test_stream_is_the_library_s(lib, shape):
    """Ids as a model may draw them, beside the library's own stream: the same text, token by token, where it has one."""
    file = shapes.train(shape)
    ours, theirs = binding.Tokenizer(lib, file), tokenizers.Tokenizer.from_str(file)
    rng, size, compared = random.Random(shape), theirs.get_vocab_size(), 0
    for _ in range(round(300 * SCALE)):
        ids = texts.ids(rng, size) if rng.random() < 0.5 else ours.encode(texts.text(rng))
        stream = tokenizers.decoders.DecodeStream(skip_special_tokens=False)
        try:
            want = [stream.step(theirs, i) or "" for i in ids]
        except Exception:  # it refuses to go on where a text's beginning changes with what follows
            continue
        assert ours.stream([], ids) == want, ids
        compared += 1
    assert compared > 100 * SCALE


@pytest.mark.parametrize("shaping", [
    {"truncation": {"max_length": 9, "direction": "Right"}}, {"truncation": {"max_length": 9, "direction": "Left"}},
    {"truncation": {"max_length": 0, "direction": "Right"}}, {"padding": {"strategy": {"Fixed": 20}, "direction": "Right"}},
    {"padding": {"strategy": "BatchLongest", "direction": "Left", "pad_to_multiple_of": 8}},
    {"padding": {"strategy": {"Fixed": 12}, "direction": "Left", "pad_to_multiple_of": 5},
     "truncation": {"max_length": 14, "direction": "Left"}}], ids=str)
def test_truncation_and_padding(lib, shaping):
    file = json.loads(shapes.train("llama3"))
    for key, value in shaping.items():
        file[key] = {"strategy": "LongestFirst", "stride": 0, "pad_to_multiple_of": None, "pad_id": 7, "pad_type_id": 0,
                     "pad_token": "x"} | value
    compare(lib, json.dumps(file), 300, str(shaping))


@pytest.mark.parametrize("unk", ["[UNK]", "absent"])
def test_word_level(lib, unk):
    """Also Unigram without an unknown token: what it does not know is an error on both sides."""
    words = tokenizers.models.WordLevel({word: i for i, word in enumerate(["[UNK]", *sorted({*texts.WORDS, *".,;()"})])}, unk)
    tok = tokenizers.Tokenizer(words)
    tok.pre_tokenizer = shapes.pre.Whitespace()
    files = [tok.to_str()]
    if unk == "absent":
        file = json.loads(shapes.train("t5"))
        file["model"]["unk_id"] = None
        files.append(json.dumps(file))
    for file in files:
        ours, theirs, rng = binding.Tokenizer(lib, file), tokenizers.Tokenizer.from_str(file), random.Random(file)
        failed = 0
        for _ in range(round(3000 * SCALE)):
            text = " ".join(rng.choices(texts.WORDS, k=3)) + rng.choice(["", "", texts.text(rng)])
            try:
                ids = theirs.encode(text, add_special_tokens=False).ids
            except Exception:
                failed += 1
                with pytest.raises(ValueError, match="no token for"):
                    ours.encode(text)
                continue
            assert ours.encode(text) == ids, repr(text)
            assert ours.decode(ids, False) == theirs.decode(ids, skip_special_tokens=False)
        assert (failed > 0) == (unk == "absent") and failed < 3000 * SCALE


@pytest.mark.parametrize("family", shapes.TIKTOKEN)
def test_tiktoken(lib, family):
    """Files of ranks, against PyPI tiktoken."""
    pattern, special, named, nfc = shapes.TIKTOKEN[family]
    ranks = shapes.ranks()
    special = special(len(ranks))
    theirs = tiktoken.Encoding(family, pat_str=pattern, mergeable_ranks=ranks, special_tokens=special)
    listed = {str(i): {"content": text} for text, i in list(special.items())[:named]}
    lines = [f"{base64.b64encode(token).decode()} {rank}\n" for token, rank in ranks.items()]
    random.Random(family).shuffle(lines)
    ours = binding.Tokenizer(lib, "".join(lines), {"model_type": family},
                             {"added_tokens_decoder": listed} if listed else {})
    rng, ids_special = random.Random(family), set(special.values())
    answered = answers(tiktoken, tokenizers.__version__, family, "".join(lines), pathlib.Path(shapes.__file__))
    every = ["".join(chr(c) for c in range(start, start + 64) if not 0xD800 <= c < 0xE000) for start in STARTS]
    for text in [*every, *(texts.text(rng) + rng.choice(["", "<|eot_id|>", "<|extra_7|>", "[EOS]", "中<|im_end|>文a"])
                           for _ in range(round(4000 * SCALE)))]:
        ids = ours.encode(text)
        answered.compare(ids, lambda: theirs.encode(normalizers.NFC().normalize_str(text) if nfc else text, allowed_special="all"), text)
        some = [rng.randrange(theirs.n_vocab if family != "kimi_k2" else len(ranks) + 256)
                for _ in range(rng.randint(1, 20))]
        answered.compare([ours.decode(sequence, skip) for sequence in (ids, some) for skip in (False, True)],
                         lambda: [theirs.decode(which) for sequence in (ids, some)
                                  for which in (sequence, [i for i in sequence if i not in ids_special])], (text, some))
    answered.keep()


def test_tiktoken_files_that_are_refused(lib):
    lines = [f"{base64.b64encode(bytes([b])).decode()} {b}\n" for b in range(256)]
    for text, config, why in [
        ("".join(lines), {"model_type": "gpt9"}, "gpt9"), ("".join(lines), {}, "model_type"),
        ("".join(lines[1:]), {"model_type": "qwen"}, "byte 0"), ("".join(lines) + "AA==\n", {"model_type": "qwen"}, "line 257"),
        ("".join(lines) + lines[0], {"model_type": "qwen"}, "twice"), ("".join(lines) + "YWI= 9999999\n", {"model_type": "qwen"}, "large"),
    ]:
        with pytest.raises(ValueError, match=why):
            binding.Tokenizer(lib, text, config)


class Pieces:
    """PyPI sentencepiece, and around it what finds special tokens in a text."""

    def __init__(self, model, special=None, first_only=False):
        load = lambda file: sentencepiece.SentencePieceProcessor(model_proto=file)
        self.whole, self.printing = load(model), load(pieces.all_printing(model))
        self.later = load(pieces.without_prefix(model)) if first_only else self.whole
        control = [i for i in range(len(self.whole)) if self.whole.is_control(i)]
        self.special = special or {self.whole.id_to_piece(i): i for i in control}
        self.pattern = re.compile("|".join(map(re.escape, sorted(self.special, key=len, reverse=True))))

    def encode(self, text):
        out, at = [], 0
        for found in [*self.pattern.finditer(text), None]:
            end = found.start() if found else len(text)
            out += (self.later if at else self.whole).encode(text[at:end])
            if found:
                out.append(self.special[found.group()])
                at = found.end()
        return out


@pytest.mark.parametrize("name", pieces.MODELS)
def test_sentencepiece(lib, name):
    """Files tokenizer.model, against PyPI sentencepiece."""
    model = pieces.train(name)
    theirs, ours = Pieces(model), binding.Tokenizer(lib, model)
    rng, size, answered = random.Random(name), len(theirs.whole), answers(sentencepiece, model, name, pathlib.Path(pieces.__file__))
    every = ["".join(chr(c) for c in range(start, start + 64) if not 0xD800 <= c < 0xE000) for start in STARTS]
    random_texts = (texts.text(rng) + rng.choice(["", "  <cls> x", "[INST]  a", " ", "▁▁ ", "\n\n\n", "ﬁ", "abcabc"])
                    for _ in range(round(8000 * SCALE)))
    for text in ["", " ", "  ", "▁", *every, *random_texts]:
        ids = ours.encode(text)
        answered.compare(ids, lambda: theirs.encode(text), text)
        some = texts.ids(rng, size)
        answered.compare([ours.decode(sequence, skip) for sequence in (ids, some) for skip in (True, False)],
                         lambda: [by.decode(sequence) for sequence in (ids, some) for by in (theirs.whole, theirs.printing)],
                         (text, some))
    answered.keep()


@pytest.mark.parametrize("name", ["llama2", "bpe_identity", "bpe_nmt"])
@pytest.mark.parametrize("seed", range(3))
def test_sentencepiece_characters_that_are_no_pieces(lib, name, seed):
    rng = random.Random(seed)
    model = pieces.sparse(pieces.train(name), rng)
    theirs, ours = Pieces(model), binding.Tokenizer(lib, model)
    answered = answers(sentencepiece, model, seed, pathlib.Path(pieces.__file__))
    for _ in range(round(3000 * SCALE)):
        text = texts.text(rng)
        answered.compare(ours.encode(text), lambda: theirs.encode(text), text)
    answered.keep()


@pytest.mark.parametrize("name", ["llama2", "gemma", "t5", "unigram_bytes"])
def test_sentencepiece_long_texts(lib, name):
    """Sums of scores grow with a text, and their last bits decide; prompts are cached between special tokens."""
    model = pieces.train(name)
    theirs, ours, rng = Pieces(model), binding.Tokenizer(lib, model), random.Random(name)
    answered = answers(sentencepiece, "long", model, name, pathlib.Path(pieces.__file__))
    for _ in range(4):
        text = "".join(texts.text(rng) for _ in range(3000))
        ids, longer = ours.encode(text), text + "</s> x"
        answered.compare(ids, lambda: theirs.encode(text), text)
        assert ours.encode_cached(text)[0] == ids
        answered.compare(ours.encode_cached(longer)[0], lambda: theirs.encode(longer), longer)
        text = re.sub(r"[<[]", "", text)  # one piece of text, of 100,000 and more points
        answered.compare(ours.encode(text), lambda: theirs.encode(text), text)
    answered.keep()


@pytest.mark.parametrize("name", pieces.MODELS)
def test_sentencepiece_stream_is_the_text(lib, name):
    ours, rng = binding.Tokenizer(lib, pieces.train(name)), random.Random(name)
    for _ in range(round(1000 * SCALE)):
        ids = ours.encode(texts.text(rng))
        whole = ours.decode(ids, False)
        got = "".join(ours.stream([], ids))
        assert got == whole or whole.endswith("\ufffd") and whole.startswith(got)


def test_sentencepiece_with_tokenizer_config(lib):
    """Special tokens that are listed there, and the blank before a text."""
    model = pieces.train("llama2")
    listed = {"1": "<s>", "2": "</s>", "5000": "<|im_end|>", "5001": "<extra>"}
    config = {"added_tokens_decoder": {i: {"content": text, "special": i != "5001"} for i, text in listed.items()}}
    for switch, changes in [({}, {}), ({"legacy": False}, {"first_only": True}), ({"add_prefix_space": False}, {})]:
        theirs = Pieces(pieces.without_prefix(model) if "add_prefix_space" in switch else model,
                        {text: int(i) for i, text in listed.items()}, **changes)
        ours, rng = binding.Tokenizer(lib, model, None, config | switch), random.Random(1)
        for _ in range(round(3000 * SCALE)):
            text = texts.text(rng) + rng.choice(["", "<extra>", "<s>  x<extra>"])
            assert ours.encode(text) == theirs.encode(text), repr(text)
    assert ours.decode([5000, 5001], True) == "<extra>" and ours.decode([5000, 5001], False) == "<|im_end|><extra>"


def test_sentencepiece_files_that_are_refused(lib):
    model, unk = pieces.train("llama2"), pieces.piece("<unk>", 0, 2)
    bpe, normal = b"\x12\x02\x18\x02", pieces.piece("a")
    for file, why in [
        (model[:-1], "malformed"), (model[:5000], "malformed"), (unk, "no pieces"), (normal, "no unknown"), (unk + unk + normal, "twice"),
        (unk + pieces.piece("<u>", 0, 2) + normal, "second"),
        (model + b"\x12\x02\x18\x09", "model_type 9"), (model + b"\x2a\x03\x12\x01x", "denormalizer"),
        (unk + normal + pieces.piece("b", float("nan")), "score"),
        (unk + normal + pieces.piece("b", 0, 7), "type 7"), (unk + normal + bpe + pieces.piece("b", 0, 5), "UNUSED"),
        (unk + normal + pieces.piece("<0x00>", 0, 6), "BYTE"), (unk + normal + b"\x12\x03\x98\x02\x01", "each byte"),
        (unk + normal + pieces.piece(""), "empty"), (unk + normal + pieces.piece("b" * 2000), "longer"),
        (unk + normal + b"\x1a\x03\x12\x01x", "charsmap"), (unk + b"\x0b" + normal, "malformed"),
    ]:
        with pytest.raises(ValueError, match=f"SentencePiece model: .*{why}"):
            binding.Tokenizer(lib, file)
    assert binding.Tokenizer(lib, unk + normal + pieces.piece("b", -1, 5)).encode("ab") == [0, 1, 0]


def test_every_character_is_classed_alike(lib):
    """One word per character class: what is a letter, a number, a blank to the two engines."""
    for pattern in (r"\p{L}", r"\p{N}", r"\s", r"\w", r"\d", r"\p{P}", r"\p{S}", r"\p{M}", r"\p{Lu}"):
        tok = tokenizers.Tokenizer(tokenizers.models.BPE({"a": 0, "b": 1}, [], unk_token="a"))
        tok.pre_tokenizer = tokenizers.pre_tokenizers.Split(tokenizers.Regex(pattern), "removed")
        tok.decoder = tokenizers.decoders.Fuse()
        ours = binding.Tokenizer(lib, tok.to_str())
        for start in STARTS:
            text = "".join(chr(c) for c in range(start, start + 64) if not 0xD800 <= c < 0xE000)
            assert ours.encode(text) == tok.encode(text, add_special_tokens=False).ids, (pattern, start)


NORMALIZERS = {
    "nfc": normalizers.NFC(), "nfd": normalizers.NFD(), "nfkc": normalizers.NFKC(), "nfkd": normalizers.NFKD(),
    "lower": normalizers.Lowercase(), "accents": normalizers.StripAccents(), "nmt": normalizers.Nmt(),
    "strip": normalizers.Strip(), "bert": normalizers.BertNormalizer(),
    "bert_cased": normalizers.BertNormalizer(lowercase=False), "precompiled": shapes.PRECOMPILED,
}


@pytest.mark.parametrize("name", NORMALIZERS)
def test_every_character_is_normalized_alike(lib, name):
    """Byte-level tokens of a text give what the normalizer made of it."""
    tok = tokenizers.Tokenizer(tokenizers.models.BPE(
        {c: i for i, c in enumerate(sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet()))}, []))
    tok.normalizer = NORMALIZERS[name]
    tok.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tok.decoder = tokenizers.decoders.ByteLevel()
    ours = binding.Tokenizer(lib, tok.to_str())
    for start in STARTS:
        chars = [chr(c) for c in range(start, start + 64) if not 0xD800 <= c < 0xE000]
        text = "".join(f"a{c}\u0301\u0323{c}\r\n{c}" for c in chars)
        assert ours.decode(ours.encode(text), False) == NORMALIZERS[name].normalize_str(text), hex(start)
