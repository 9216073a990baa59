#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Encoding by router/token against the crates tokenizers and fastokens: CPU time of the same prompts in
the same run, ids compared.

usage: BUILD=build <venv with e2e/requirements.txt>/bin/python e2e/bench/tokenizer_bench.py

170 prompts of 16.8 KB, English (Python's own reference, its sentences in random order with a number
before each), each encoded once by a process of its own whose caches begin empty: nothing was seen before. Two
tokenizers: TinyLlama's, and a byte-level one in Qwen's shape, trained on Python's library and not on
the prompts. Needs cargo for e2e/bench/token_peer; without it there are no ratios.
"""

import json
import os
import pathlib
import pydoc_data.topics
import random
import shutil
import subprocess
import sys
import sysconfig

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import tokenizers  # noqa: E402
from tokenizers import decoders, models, normalizers, trainers  # noqa: E402

from tokens import shapes  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
SHARED = pathlib.Path(os.environ.get("COMMUTATOR_SHARED", ROOT.parent / "shared"))
BUILD = pathlib.Path(os.environ.get("BUILD", ROOT / "build"))
OURS = BUILD / "bench/router/token/tokenizer_bench"
TARGET = pathlib.Path("~/.cache/commutator/peers").expanduser()
PEER = TARGET / "release/token_peer"
ROUNDS, PROMPTS, PROMPT_BYTES = 3, 170, 16800


def build_peer():
    if not shutil.which("cargo"):
        print("tokenizer_bench: no cargo, so no comparison", file=sys.stderr)
        return False
    cargo = ["cargo", "build", "--release", "--quiet", "--target-dir", str(TARGET)]
    return subprocess.run(cargo, cwd=HERE / "token_peer", stdout=sys.stderr).returncode == 0


def qwen():
    """A byte-level tokenizer with Qwen's normalizer and pattern, made once."""
    path = BUILD / "qwen_shape.json"
    if not path.exists():
        tok = tokenizers.Tokenizer(models.BPE())
        tok.normalizer, tok.pre_tokenizer = normalizers.NFC(), shapes.after(shapes.QWEN2)
        tok.decoder = decoders.ByteLevel()
        library = sorted(pathlib.Path(sysconfig.get_path("stdlib")).glob("*.py"))
        tok.train_from_iterator((p.read_text(errors="replace") for p in library), trainers.BpeTrainer(
            vocab_size=32000, show_progress=False, initial_alphabet=shapes.pre.ByteLevel.alphabet()))
        tok.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
        tok.save(str(path))
    return path


def write_prompts(path, rng):
    text = " ".join(" ".join(pydoc_data.topics.topics.values()).split())
    sentences, out = text.split(". "), []
    for _ in range(PROMPTS):
        prompt = ""
        while len(prompt) < PROMPT_BYTES:
            prompt += f"{rng.randrange(10000)}. {rng.choice(sentences)}. "
        out.append(prompt[:PROMPT_BYTES])
    path.write_text("\0".join(out) + "\0")


def figures(*command):
    return json.loads(subprocess.run([str(c) for c in command], check=True, stdout=subprocess.PIPE).stdout)


def line(name, value, peer, theirs):
    out = {"name": name, "value": round(value, 2), "unit": "MB/CPU s", "better": "higher"}
    if theirs:
        out |= {"peer": peer, "peer_value": round(theirs, 2), "ratio": round(value / theirs, 2)}
    print(json.dumps(out), flush=True)


def compare(suffix, tokenizer, with_peer):
    best, rng, prompts = {}, random.Random(2026), BUILD / "prompts.nul"
    for _ in range(ROUNDS):
        write_prompts(prompts, rng)
        ours = figures(OURS, tokenizer, prompts)
        rounds = {"ours": ours}
        for peer in ("tokenizers", "fastokens") if with_peer else ():
            rounds[peer] = figures(PEER, peer, tokenizer, prompts)
            assert all(rounds[peer][k] == ours[k] for k in ("tokens", "sum")), (peer, rounds[peer], ours)
        for who, got in rounds.items():
            best[who] = max(best.get(who, 0), got["mb_per_cpu_s"])
    line(f"tokenizer.encode_hf{suffix}", best["ours"], "tokenizers 0.23", best.get("tokenizers"))
    line(f"tokenizer.encode_fastokens{suffix}", best["ours"], "fastokens 0.3.5", best.get("fastokens"))


def main():
    with_peer = build_peer()
    tinyllama = SHARED / "data/models/TinyLlama_v1.1/tokenizer.json"
    if tinyllama.exists():
        compare("", tinyllama, with_peer)
    compare(".qwen", qwen(), with_peer)


if __name__ == "__main__":
    main()
