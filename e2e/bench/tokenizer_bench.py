#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Encoding by router/token against PyPI `tokenizers`: CPU time on the same prompts, ids compared.

usage: <venv with e2e/requirements.txt>/bin/python e2e/bench/tokenizer_bench.py

Prompts of 16 KB of English sentences in an order never seen before. Prints one JSON object a line.
"""

import json
import os
import pathlib
import random
import sys
import tempfile
import time

os.environ["RAYON_NUM_THREADS"] = "1"
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import tokenizers  # noqa: E402

from tokens import binding  # noqa: E402

ROOT = binding.ROOT
SHARED = pathlib.Path(os.environ.get("COMMUTATOR_SHARED", ROOT.parent / "shared"))
CASES = {
    "tokenizer.encode_hf": ROOT / "examples/model/tokenizer.json",
    "tokenizer.encode_hf_fallback": SHARED / "data/models/TinyLlama_v1.1/tokenizer.json",
}
ROUNDS, PROMPTS, PROMPT_BYTES = 5, 24, 16 << 10


def prompts(rng):
    sentences = " ".join((ROOT / "LICENSE").read_text().split()).split(". ")
    for _ in range(PROMPTS):
        text = ""
        while len(text) < PROMPT_BYTES:
            text += f"{rng.randrange(10000)}. {rng.choice(sentences)}. "
        yield text


def seconds(encode, texts):
    start = time.process_time()
    ids = [encode(text) for text in texts]
    return time.process_time() - start, ids


def main():
    with tempfile.TemporaryDirectory() as folder:
        lib = binding.build(folder)
    for name, path in CASES.items():
        if not path.exists():
            continue
        ours = binding.Tokenizer(lib, path.read_text())
        theirs = tokenizers.Tokenizer.from_file(str(path))
        rng, best = random.Random(2026), [float("inf")] * 2
        for _ in range(ROUNDS):
            texts = list(prompts(rng))
            mine, my_ids = seconds(ours.encode, texts)
            other, encodings = seconds(
                lambda text: theirs.encode(text, add_special_tokens=False), texts)
            assert my_ids == [e.ids for e in encodings]
            best = [min(best[0], mine), min(best[1], other)]
        size = sum(len(text.encode()) for text in texts) / 1e6
        print(json.dumps({"name": name, "value": round(size / best[0], 2), "unit": "MB/s",
                          "better": "higher", "peer": f"tokenizers {tokenizers.__version__}",
                          "ratio": round(best[1] / best[0], 2)}), flush=True)


if __name__ == "__main__":
    main()
