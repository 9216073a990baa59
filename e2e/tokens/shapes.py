# SPDX-License-Identifier: Apache-2.0
"""Small tokenizers in the shapes of published ones, trained on this repository's text."""

import json
import pathlib

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, trainers
from tokenizers import pre_tokenizers as pre

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
SUFFIX = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
GPT_OSS = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+{SUFFIX}|[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*{SUFFIX}"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
DEEPSEEK = [
    r"\p{N}{1,3}", r"[一-龥぀-ゟ゠-ヿ]+",
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"""
    r"""| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"""]
FALLBACK = {"unk_token": "<unk>", "byte_fallback": True, "fuse_unk": True}


def letters(**options):
    return pre.ByteLevel(add_prefix_space=False, **options)


def after(*patterns):
    cuts = [pre.Split(Regex(p), "isolated") for p in patterns]
    return pre.Sequence([*cuts, letters(use_regex=False)])


def llama2_decoder():
    return decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
                              decoders.Strip(" ", 1, 0)])


# name: normalizer, pre-tokenizer, decoder, options of the model
SHAPES = {
    "gpt2": (None, letters(), decoders.ByteLevel(), {}),
    "gpt2_prefix_space": (None, pre.ByteLevel(add_prefix_space=True), decoders.ByteLevel(), {}),
    "llama3": (None, after(LLAMA3), decoders.ByteLevel(), {"ignore_merges": True}),
    "qwen2": (normalizers.NFC(), after(QWEN2), decoders.ByteLevel(), {}),
    "gpt_oss": (None, after(GPT_OSS), decoders.ByteLevel(), {}),
    "deepseek": (normalizers.Sequence([]), after(*DEEPSEEK), decoders.ByteLevel(), {}),
    "falcon": (None, pre.Sequence([pre.Punctuation("contiguous"), letters()]), decoders.ByteLevel(), {}),
    "digits": (None, pre.Sequence([pre.Digits(True), letters()]), decoders.ByteLevel(), {}),
    "llama2": (normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]), None,
               llama2_decoder(), FALLBACK),
    "mistral_v3": (None, pre.Metaspace(prepend_scheme="first", split=False), llama2_decoder(), FALLBACK),
    "gemma": (normalizers.Replace(" ", "▁"), pre.Split(" ", "merged_with_previous"),
              decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]),
              FALLBACK),
    "metaspace": (None, pre.Metaspace(), decoders.Metaspace(), {"unk_token": "<unk>"}),
    "whitespace": (None, pre.Whitespace(), None, {"unk_token": "<unk>", "fuse_unk": True}),
    "cuts": (None, pre.Sequence([pre.Split(" ", "merged_with_next"),
                                 pre.Split(Regex(r"\d"), "merged_with_previous")]),
             decoders.Fuse(), {"unk_token": "<unk>"}),
}
ADDED = [
    AddedToken("<sw>", single_word=True), AddedToken("\n\n<sp>", normalized=True),
    AddedToken("naïve<norm>", normalized=True), AddedToken("[PAD]", normalized=False),
    AddedToken("<norm>", normalized=True, lstrip=True, rstrip=True), AddedToken("é\u0301x"), "   "]
SPECIAL = ["<s>", "</s>", "<|im_start|>", "<|im_end|>", AddedToken("<ls>", lstrip=True),
           AddedToken("<rs>", rstrip=True)]
FOREIGN = ("中文字符 日本語テキスト 한국어 שלום עולם مرحبا بالعالم привет мир ñandú café naïve "
           "👨‍👩‍👧‍👦 🇩🇪 e\u0301 ") * 20


def train(name):
    """The tokenizer.json of a shape, as text."""
    normalizer, cutter, decoder, options = SHAPES[name]
    tok = Tokenizer(models.BPE(**options))
    if normalizer is not None:
        tok.normalizer = normalizer
    if cutter is not None:
        tok.pre_tokenizer = cutter
    if decoder is not None:
        tok.decoder = decoder
    special = ["<unk>"] if "unk_token" in options else []
    if options.get("byte_fallback"):
        special += [f"<0x{byte:02X}>" for byte in range(256)]
    texts = [p.read_text() for p in sorted((ROOT / "lib/base").glob("*.h"))]
    texts += [(ROOT / "LICENSE").read_text(), FOREIGN]
    alphabet = [] if "unk_token" in options else pre.ByteLevel.alphabet()
    tok.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=3000, show_progress=False, initial_alphabet=alphabet, special_tokens=special,
        max_token_length=16))
    tok.add_special_tokens(SPECIAL)
    tok.add_tokens(ADDED)
    file = json.loads(tok.to_str())
    # Byte tokens were special only so that training makes them; published files do not list them.
    file["added_tokens"] = [a for a in file["added_tokens"] if not a["content"].startswith("<0x")]
    return json.dumps(file, ensure_ascii=False)
