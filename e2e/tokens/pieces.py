# SPDX-License-Identifier: Apache-2.0
"""Small SentencePiece models of the shapes that published tokenizer.model files have."""

import functools
import io
import pathlib
import struct

import sentencepiece

from tokens import kept, shapes

USUAL = dict(model_type="bpe", vocab_size=2000, hard_vocab_limit=False)
LLAMA = USUAL | dict(byte_fallback=True, normalization_rule_name="identity", remove_extra_whitespaces=False,
                     allow_whitespace_only_pieces=True, split_digits=True, character_coverage=0.99)
KEPT = dict(user_defined_symbols=["<|im_end|>", "<extra_id_0>", "\n\n", "▁▁", "▁▁▁", "naïve<", "ﬁ", "  ", "1", "abc"],
            control_symbols=["<|im_start|>", "[PAD]", "<cls>"])
UNIGRAM = USUAL | dict(model_type="unigram")
MODELS = {
    "llama2": LLAMA,
    "mistral": LLAMA | dict(control_symbols=["[INST]", "[/INST]", "<|im_end|>"]),
    "gemma": LLAMA | KEPT | dict(add_dummy_prefix=False, pad_id=0, eos_id=1, bos_id=2, unk_id=3),
    "bpe_nmt": USUAL | dict(normalization_rule_name="nmt_nfkc"),
    "bpe_kept": USUAL | KEPT | dict(character_coverage=0.99),
    "bpe_identity": USUAL | dict(normalization_rule_name="identity", character_coverage=0.98, unk_surface="<??>"),
    "bpe_folded": LLAMA | dict(normalization_rule_name="nfkc_cf", remove_extra_whitespaces=True),
    "bpe_suffix": USUAL | dict(treat_whitespace_as_suffix=True, remove_extra_whitespaces=False),
    "t5": UNIGRAM | KEPT | dict(pad_id=0, eos_id=1, unk_id=2, bos_id=-1),
    "unigram": UNIGRAM | dict(normalization_rule_name="identity", remove_extra_whitespaces=False,
                              allow_whitespace_only_pieces=True, character_coverage=0.98),
    "unigram_bytes": UNIGRAM | KEPT | dict(byte_fallback=True, normalization_rule_name="nfkc", character_coverage=0.98),
    "unigram_llama": LLAMA | dict(model_type="unigram"),
    "unigram_no_prefix": UNIGRAM | dict(add_dummy_prefix=False, remove_extra_whitespaces=False),
    "word": USUAL | dict(model_type="word"),
    "word_kept": USUAL | KEPT | dict(model_type="word", normalization_rule_name="identity", remove_extra_whitespaces=False),
    "word_suffix": USUAL | dict(model_type="word", treat_whitespace_as_suffix=True),
    "word_bytes": LLAMA | KEPT | dict(model_type="word"),
    "char": USUAL | dict(model_type="char", character_coverage=0.99),
    "char_kept": USUAL | KEPT | dict(model_type="char", normalization_rule_name="identity", add_dummy_prefix=False),
    "char_bytes": LLAMA | KEPT | dict(model_type="char"),
    "unigram_suffix": UNIGRAM | KEPT | dict(treat_whitespace_as_suffix=True),
}


@functools.cache
def train(name):
    """The bytes of tokenizer.model."""
    follows_from = sentencepiece.__version__, pathlib.Path(__file__), *shapes.corpus(), name
    return kept.made("trained", lambda: trained(name), *follows_from).read_bytes()


def trained(name):
    out = io.BytesIO()
    lines = [line for text in shapes.corpus() for line in text.split("\n") if line]
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(lines), model_writer=out, minloglevel=2,
                                             num_threads=1, max_sentence_length=20000, **MODELS[name])
    return out.getvalue()


def varint(n):
    return bytes([n]) if n < 0x80 else bytes([n & 0x7F | 0x80]) + varint(n >> 7)


def piece(text, score=0.0, kind=None):
    """One piece as a member of the model."""
    message = b"\x0a" + varint(len(text.encode())) + text.encode() + b"\x15" + struct.pack("<f", score)
    message += b"" if kind is None else b"\x18" + varint(kind)
    return b"\x0a" + varint(len(message)) + message


def sparse(model, rng):
    """The same, but for a third of the characters: they are parts of pieces only."""
    load = sentencepiece.SentencePieceProcessor(model_proto=model)
    kinds = [(load.is_unknown, 2), (load.is_control, 3), (load.is_byte, 6)]
    kinds = [next((kind for holds, kind in kinds if holds(i)), None) for i in range(len(load))]
    whole = [piece(load.id_to_piece(i), load.get_score(i), kind) for i, kind in enumerate(kinds)]
    assert model.startswith(b"".join(whole))
    kept = [i for i, kind in enumerate(kinds) if kind or len(load.id_to_piece(i)) > 1 or rng.random() > 1 / 3]
    return b"".join(whole[i] for i in kept) + model[len(b"".join(whole)):]


def without_prefix(model):
    """The same, but for the blank before a text: what is said later counts."""
    return model + b"\x1a\x02\x18\x00"


def all_printing(model):
    """The same, but control pieces print, as those do that the user defines."""
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    for i in range(processor.get_piece_size()):
        if processor.is_control(i):
            text = processor.id_to_piece(i)
            before, after = piece(text, 0.0, 3), piece(text, 0.0, 4)
            assert model.count(before) == 1
            model = model.replace(before, after)
    return model
