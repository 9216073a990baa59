# SPDX-License-Identifier: Apache-2.0
"""Small tokenizers in the shapes of published ones, trained on a text that stays as it is: corpus.txt."""

import functools
import io
import json
import pathlib

import sentencepiece
import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, processors, trainers
from tokenizers import pre_tokenizers as pre

from tokens import kept

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
CLIP = r"""'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"""
FALLBACK = {"unk_token": "<unk>", "byte_fallback": True, "fuse_unk": True}


def letters(**options):
    return pre.ByteLevel(add_prefix_space=False, **options)


def after(*patterns):
    cuts = [pre.Split(Regex(p), "isolated") for p in patterns]
    return pre.Sequence([*cuts, letters(use_regex=False)])


def llama2_decoder():
    return decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
                              decoders.Strip(" ", 1, 0)])


def precompiled():
    """The map that SentencePiece makes of its usual rules (T5, XLM-R, ALBERT), out of a model."""
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["a b c"] * 9), model_writer=out, vocab_size=8, hard_vocab_limit=False,
        normalization_rule_name="nmt_nfkc", minloglevel=2)
    return normalizers.Precompiled(member(member(out.getvalue(), 3), 2))


def member(message, wanted):
    """The bytes of a member of a protobuf message."""
    def varint(at):
        value, shift = 0, 0
        while True:
            value |= (message[at] & 0x7F) << shift
            at, shift = at + 1, shift + 7
            if message[at - 1] < 0x80:
                return value, at

    at = 0
    while at < len(message):
        key, at = varint(at)
        if key & 7 == 0:
            _, at = varint(at)
            continue
        size, at = (4, at) if key & 7 == 5 else (8, at) if key & 7 == 1 else varint(at)
        if key >> 3 == wanted:
            return message[at:at + size]
        at += size
    raise KeyError(wanted)


PRECOMPILED = precompiled()
# name: normalizer, pre-tokenizer, decoder, options of the model
SHAPES = {
    "gpt2": (None, letters(), decoders.ByteLevel(), {}),
    "gpt2_prefix_space": (None, pre.ByteLevel(add_prefix_space=True), decoders.ByteLevel(), {}),
    "llama3": (None, after(LLAMA3), decoders.ByteLevel(), {"ignore_merges": True}),
    "qwen2": (normalizers.NFC(), after(QWEN2), decoders.ByteLevel(), {}),
    "gpt_oss": (None, after(GPT_OSS), decoders.ByteLevel(), {}),
    "deepseek": (normalizers.Sequence([]), after(*DEEPSEEK), decoders.ByteLevel(), {}),
    "falcon": (None, pre.Sequence([pre.Punctuation("contiguous"), letters()]), decoders.ByteLevel(), {}),
    "falcon_7b": (None, pre.Sequence([pre.Punctuation("contiguous"), letters(), pre.Digits(False),
                                      pre.Split(Regex("[0-9][0-9][0-9]"), "isolated")]), decoders.ByteLevel(), {}),
    "late_cuts": (None, pre.Sequence([letters(), pre.Digits(True), pre.Punctuation("removed"), pre.Whitespace(),
                                      pre.Split(Regex("e+"), "merged_with_next")]), decoders.ByteLevel(), {}),
    "digits": (None, pre.Sequence([pre.Digits(True), letters()]), decoders.ByteLevel(), {}),
    "llama2": (normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]), None,
               llama2_decoder(), FALLBACK),
    "mistral_v3": (None, pre.Metaspace(prepend_scheme="first", split=False), llama2_decoder(), FALLBACK),
    "gemma": (normalizers.Replace(" ", "▁"), pre.Split(" ", "merged_with_previous"),
              decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]),
              FALLBACK),
    "metaspace": (None, pre.Metaspace(), decoders.Metaspace(), {"unk_token": "<unk>"}),
    "whitespace": (None, pre.Whitespace(), None, {"unk_token": "<unk>", "fuse_unk": True}),
    "clip": (normalizers.Sequence([normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Lowercase()]),
             pre.Sequence([pre.Split(Regex(CLIP), "removed", invert=True), letters()]), decoders.ByteLevel(),
             {"end_of_word_suffix": "</w>"}),
    "gpt1": (normalizers.BertNormalizer(), pre.BertPreTokenizer(), decoders.BPEDecoder("</w>"),
             {"unk_token": "<unk>", "end_of_word_suffix": "</w>"}),
    "affixes": (None, pre.WhitespaceSplit(), decoders.Sequence([decoders.BPEDecoder("@"), decoders.Fuse()]),
                FALLBACK | {"continuing_subword_prefix": "##", "end_of_word_suffix": "@"}),
    "prefixed": (None, pre.Whitespace(), decoders.WordPiece(), {"unk_token": "<unk>", "continuing_subword_prefix": "##"}),
    "scripts": (normalizers.Replace(" ", "▁"), pre.Sequence([pre.UnicodeScripts(), pre.Digits(True)]),
                decoders.Sequence([decoders.Replace("▁", " "), decoders.Fuse()]), {"unk_token": "<unk>"}),
    "scripts_bytes": (None, pre.Sequence([pre.UnicodeScripts(), letters()]), decoders.ByteLevel(), {}),
    "ctc": (None, pre.Split("", "isolated"), decoders.CTC("<pad>", "e", True), {"unk_token": "<unk>"}),
    "ctc_fused": (None, pre.WhitespaceSplit(), decoders.Sequence([decoders.CTC("a", "|", False), decoders.Fuse()]),
                  {"unk_token": "<unk>"}),
    "letters": (normalizers.Sequence([normalizers.NFC(), normalizers.ByteLevel()]), None, decoders.ByteLevel(), {}),
    "letters_cut": (normalizers.ByteLevel(), pre.Split(Regex("Ġ?[^Ġ]+"), "isolated"), decoders.ByteLevel(), {}),
    "fixed_length": (None, pre.FixedLength(7), decoders.Fuse(), {"unk_token": "<unk>"}),
    "fixed_length_bytes": (None, pre.Sequence([pre.WhitespaceSplit(), pre.FixedLength(3), letters()]), decoders.ByteLevel(), {}),
    "fixed_length_letters": (None, pre.Sequence([letters(), pre.FixedLength(4)]), decoders.ByteLevel(), {}),
    "cuts": (None, pre.Sequence([pre.Split(" ", "merged_with_next"),
                                 pre.Split(Regex(r"\d"), "merged_with_previous")]),
             decoders.Fuse(), {"unk_token": "<unk>"}),
}
def bert(**switches):
    return normalizers.BertNormalizer(**switches), pre.BertPreTokenizer(), decoders.WordPiece(), {}


def replacing(*pairs):
    return [normalizers.Replace(pattern, content) for pattern, content in pairs]


# The same for models that are not BPE: those in UNIGRAM are cut by scores, those in WORDPIECE greedily.
UNIGRAM = {
    "t5": (normalizers.Sequence([PRECOMPILED]), pre.Sequence([pre.WhitespaceSplit(), pre.Metaspace()]),
           decoders.Metaspace(), {}),
    "t5_2024": (normalizers.Sequence([PRECOMPILED, *replacing((Regex(" {2,}"), " "))]), pre.Metaspace(),
                decoders.Metaspace(), {}),
    "xlm_r": (normalizers.Sequence([PRECOMPILED, *replacing((Regex(" {2,}"), "▁"))]), pre.Metaspace(),
              decoders.Metaspace(), {}),
    "albert": (normalizers.Sequence([*replacing(("``", '"'), ("''", '"')), normalizers.NFKD(),
                                     normalizers.StripAccents(), normalizers.Lowercase(), PRECOMPILED]),
               pre.Sequence([pre.WhitespaceSplit(), pre.Metaspace()]), decoders.Metaspace(), {}),
    "nfkc": (normalizers.Sequence([normalizers.Nmt(), normalizers.NFKC(), normalizers.Strip()]),
             pre.Metaspace(prepend_scheme="never"), decoders.Metaspace(prepend_scheme="never"), {}),
    "unigram_whole": (normalizers.Replace(" ", "▁"), None,
                      decoders.Sequence([decoders.Replace("▁", " "), decoders.Fuse()]), {}),
    "unigram_bytes": (normalizers.Replace(" ", "▁"), pre.Split(" ", "merged_with_previous"),
                      decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(),
                                         decoders.Fuse()]), {"byte_fallback": True}),
}
WORDPIECE = {
    "bert": bert(lowercase=True),
    "bert_cased": bert(lowercase=False),
    "bert_chinese": bert(lowercase=True, strip_accents=False, clean_text=False),
    "bert_plain": (normalizers.Sequence([normalizers.NFD(), normalizers.Lowercase(),
                                         normalizers.StripAccents()]), pre.Whitespace(),
                   decoders.WordPiece(prefix="##", cleanup=False), {}),
    "wordpiece_cuts": (normalizers.Strip(right=False), pre.Sequence(
        [pre.CharDelimiterSplit("-"), pre.Digits(False), pre.Punctuation("removed")]),
        decoders.WordPiece(), {}),
}
SHAPES |= UNIGRAM | WORDPIECE
# Tokens around a text are not asked for, so these must change nothing.
ENDS = ("</s>", 1), ("<s>", 0)
POST = {
    "gpt2": processors.ByteLevel(trim_offsets=False),
    "llama3": processors.Sequence([processors.ByteLevel(), processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 0)])]),
    "gpt2_prefix_space": processors.RobertaProcessing(*ENDS),
    "bert": processors.BertProcessing(*ENDS),
    "t5": processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)]),
}
ADDED = [
    AddedToken("<sw>", single_word=True), AddedToken("\n\n<sp>", normalized=True),
    AddedToken("naïve<norm>", normalized=True), AddedToken("[PAD]", normalized=False),
    AddedToken("<norm>", normalized=True, lstrip=True, rstrip=True), AddedToken("é\u0301x"), "   "]
SPECIAL = ["<s>", "</s>", "<|im_start|>", "<|im_end|>", AddedToken("<ls>", lstrip=True),
           AddedToken("<rs>", rstrip=True)]
FOREIGN = ("中文字符 日本語テキスト 한국어 שלום עולם مرحبا بالعالم привет мир ñandú café naïve "
           "👨‍👩‍👧‍👦 🇩🇪 e\u0301 ") * 20


def corpus():
    """What all of them are trained on."""
    return [(ROOT / "e2e/tokens/corpus.txt").read_text(), (ROOT / "LICENSE").read_text(), FOREIGN]


def parts(name, options):
    """An untrained model of the shape, and its trainer."""
    if name in UNIGRAM:
        trainer = trainers.UnigramTrainer(vocab_size=3000, show_progress=False, unk_token="<unk>",
                                          special_tokens=["<unk>"])
        return models.Unigram(), trainer
    if name in WORDPIECE:
        trainer = trainers.WordPieceTrainer(vocab_size=3000, show_progress=False,
                                            special_tokens=["[UNK]"])
        return models.WordPiece(unk_token="[UNK]"), trainer
    special = ["<unk>"] if "unk_token" in options else []
    if options.get("byte_fallback"):
        special += BYTES
    alphabet = [] if "unk_token" in options else pre.ByteLevel.alphabet()
    affixes = {name: options[name] for name in ("continuing_subword_prefix", "end_of_word_suffix") if name in options}
    return models.BPE(**options), trainers.BpeTrainer(**affixes,
        vocab_size=3000, show_progress=False, initial_alphabet=alphabet, special_tokens=special,
        max_token_length=16)


BYTES = [f"<0x{byte:02X}>" for byte in range(256)]


@functools.cache
def train(name):
    """The tokenizer.json of a shape, as text. It is kept: trained again, half of them would be others."""
    follows_from = tokenizers.__version__, pathlib.Path(__file__), *corpus(), name
    return kept.made("trained", lambda: trained(name).encode(), *follows_from).read_text()


def trained(name):
    normalizer, cutter, decoder, options = SHAPES[name]
    model, trainer = parts(name, options)
    tok = Tokenizer(model)
    if normalizer is not None:
        tok.normalizer = normalizer
    if cutter is not None:
        tok.pre_tokenizer = cutter
    if decoder is not None:
        tok.decoder = decoder
    if name in POST:
        tok.post_processor = POST[name]
    tok.train_from_iterator(corpus(), trainer)
    if name in UNIGRAM and options.get("byte_fallback"):
        model = json.loads(tok.to_str())["model"]
        tok.model = models.Unigram([tuple(piece) for piece in model["vocab"]] +
                                   [(byte, -20.0) for byte in BYTES], model["unk_id"], True)
    tok.add_special_tokens(SPECIAL)
    # Strip would make a token of blanks empty, which we refuse.
    tok.add_tokens([a for a in ADDED if "Strip" not in repr(normalizer) or a != "   "])
    file = json.loads(tok.to_str())
    # Byte tokens were special only so that training makes them; published files do not list them.
    file["added_tokens"] = [a for a in file["added_tokens"] if not a["content"].startswith("<0x")]
    return json.dumps(file, ensure_ascii=False)


# The pattern as the reference frontend has it, in the language of its engine.
_SUFFIX, _HAN = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?", r"&&[^\p{Han}]]"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}" + _HAN, r"[\p{Ll}\p{Lm}\p{Lo}\p{M}" + _HAN
KIMI = (
    rf"[\p{{Han}}]+|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+{_SUFFIX}"
    rf"|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*{_SUFFIX}"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")


@functools.cache
def ranks():
    """What a tiktoken file holds: bytes and their rank, trained with Llama 3's pattern."""
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = after(LLAMA3)
    tok.train_from_iterator(corpus(), trainers.BpeTrainer(
        vocab_size=3000, show_progress=False, initial_alphabet=pre.ByteLevel.alphabet(), max_token_length=16))
    others = [b for b in range(256) if not (0x21 <= b <= 0x7E or 0xA1 <= b <= 0xAC or b >= 0xAE)]
    byte = {chr(256 + i): b for i, b in enumerate(others)}
    return {bytes(byte.get(c, ord(c) & 0xFF) for c in word): i for word, i in tok.get_vocab().items()}


def numbered(prefix, start, ids, first=0):
    return {f"<|{prefix}_{first + i}|>": start + i for i in range(ids)}


def kimi_special(base):
    named = {"[BOS]": base, "[EOS]": base + 1, "<|im_end|>": base + 2, "<|im_start|>": base + 9, "[PAD]": base + 300}
    free = [i for i in range(base, base + 256) if i not in named.values()]
    return named | {f"<|reserved_token_{i}|>": i for i in free}


def qwen_special(base):
    return {"<|endoftext|>": base, "<|im_start|>": base + 1, "<|im_end|>": base + 2} | numbered("extra", base + 3, 205)


def llama_special(base):
    reserved = "reserved_special_token"
    return ({"<|begin_of_text|>": base, "<|end_of_text|>": base + 1} | numbered(reserved, base + 2, 4) |
            {"<|start_header_id|>": base + 6, "<|end_header_id|>": base + 7, f"<|{reserved}_4|>": base + 8,
             "<|eot_id|>": base + 9} | numbered(reserved, base + 10, 246, 5))


# model_type: pattern, special tokens, how many of them tokenizer_config.json names, NFC before
TIKTOKEN = {
    "kimi_k2": (KIMI, kimi_special, 5, False),
    "qwen": (QWEN2, qwen_special, 0, True),
    "llama": (LLAMA3, llama_special, 0, False),
}
