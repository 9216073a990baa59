# SPDX-License-Identifier: Apache-2.0
"""Images of chats in routing: what workers are told of them beside 1.6.1's frontend, for the families of models that it knows,
and that equal texts with other images are no longer one prefix."""

import base64
import json
import random
import shutil
import struct
import zlib

import pytest

import stack
from stack import CHAT, MODEL
from test_openai_interop import NEWEST, rig  # noqa: F401: a fixture

MARK = 6144
TEMPLATE = """{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content -%}
{% if p.type == 'text' %}{{ p.text }}{% elif p.type == 'image' %}<|image_pad|>{% else %}[{{ p.type }}]{% endif %}
{%- endfor %}{% endif %}{% endfor %}"""
MOON = {"in_patch_limit": 4096, "patch_limit_on_one_side": 512, "patch_size": 14, "merge_kernel_size": 2}
# What config.json and preprocessor_config.json say.
FAMILIES = {
    "qwen2": ({"model_type": "qwen2_vl", "image_token_id": MARK}, {"min_pixels": 3136, "max_pixels": 12845056, "patch_size": 14, "merge_size": 2}),
    "qwen2.5 of edges": ({"model_type": "qwen2_5_vl", "image_token_id": MARK}, {"size": {"shortest_edge": 3136, "longest_edge": 100000}}),
    "qwen3": ({"model_type": "qwen3_vl", "image_token_id": MARK}, {"size": {"shortest_edge": 65536, "longest_edge": 1777216}, "patch_size": 16}),
    "qwen3.5": ({"model_type": "qwen3_5", "image_token_id": MARK}, {"patch_size": {"height": 14, "width": 14}}),
    "qwen3 omni": ({"model_type": "qwen3_omni_moe", "image_token_id": MARK}, {}),
    "llava": ({"model_type": "llava", "image_token_id": MARK}, {"size": {"shortest_edge": 336}}),  # which is none that it knows
    "llava next": ({"model_type": "llava_next", "image_token_index": MARK}, {"size": {"shortest_edge": 336}}),
    "llama 4": ({"model_type": "llama4", "image_token_index": MARK}, {}),
    "phi 3": ({"model_type": "phi3_v", "image_token_id": MARK}, {}),
    "kimi": ({"model_type": "kimi_k25", "media_placeholder_token_id": MARK}, {"media_proc_cfg": MOON}),
    "no mark": ({"model_type": "qwen2_vl", "image_token_index": MARK}, {}),
    "no processor": ({"model_type": "qwen2_vl", "image_token_id": MARK}, None),
    "others": ({"model_type": "gemma3", "image_token_id": MARK}, {}),
}
SIZES = [(640, 480), (1, 1), (3000, 2000), (6000, 20), (37, 4000), (448, 448), (350, 350)]


def png(width, height, salt=b""):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)) + chunk(b"tEXt", b"a\0" + salt)
            + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b""))


GIF = b"GIF89a" + struct.pack("<HH", 640, 480) + b"\0\0\0\x2c" + struct.pack("<HHHH", 0, 0, 640, 480) + b"\0\x02\0\x3b"
WEBP = b"RIFF" + struct.pack("<I", 30) + b"WEBPVP8L" + struct.pack("<I", 8) + b"\x2f" + struct.pack("<I", 639 | 479 << 14) + b"\0\0\0"
BMP = b"BM" + struct.pack("<IHHI", 54, 0, 0, 54) + struct.pack("<IiiHHIIiiII", 40, 640, 480, 1, 24, 0, 0, 0, 0, 0, 0)


def data(raw, kind="image/png"):
    return f"data:{kind};base64," + base64.b64encode(raw).decode()


def image(url, **more):
    return {"type": "image_url", "image_url": url and {"url": url}, **more}


def text(words):
    return {"type": "text", "text": words}


def use_model(rig, monkeypatch, name, change_tokenizer=None):
    """The reference keeps files of models by their checksums, among which the processor's is not: each has a config of its own."""
    config, processor = FAMILIES[name]
    model = rig.stack.folder / "model"
    shutil.copytree(stack.MODEL_PATH, model)

    def change(file, what):
        told = json.loads((model / file).read_text())
        what(told)
        (model / file).write_text(json.dumps(told))
    change("config.json", lambda told: told.update(config, vocab_size=MARK + 1, of_test=[name, str(rig.stack.folder)]))
    change("tokenizer.json", lambda told: told["added_tokens"].append({**told["added_tokens"][-1], "id": MARK, "content": "<|image_pad|>"}))
    change("tokenizer_config.json", lambda told: told.update(change_tokenizer or {}))
    if processor is not None:
        (model / "preprocessor_config.json").write_text(json.dumps(processor))
    (model / "chat_template.jinja").write_text(TEMPLATE)
    monkeypatch.setattr(stack, "MODEL_PATH", model)
    rig.start()


def told(rig, front, content):
    """Of a chat's images: what routing is to go by, and their names."""
    status, answer = front.ask(CHAT, {"model": MODEL, "max_tokens": 5, "messages": [{"role": "user", "content": content}]})
    assert status == 200, answer
    body = rig.worker.bodies[-1]
    return {"info": body.get("mm_routing_info"), "names": (body.get("extra_args") or {}).get("mm_hashes"), "ids": body["token_ids"]}


def sizes(n, seed):
    draw = random.Random(seed)
    return SIZES + [tuple(draw.randint(1, draw.choice([60, 700, 5000])) for _ in range(2)) for _ in range(n)]


@pytest.mark.parametrize("name", FAMILIES)
def test_families(rig, monkeypatch, name):
    use_model(rig, monkeypatch, name)
    theirs, ours = rig.reference(NEWEST), rig.ours()
    known = 0
    for size in sizes(20, name):
        content = [text("hello "), image(data(png(*size))), text(" bye")]
        want = told(rig, theirs, content)
        assert told(rig, ours, content) == want, size
        known += want["info"] is not None
    assert known == (0 if name in ("llava", "no mark", "no processor", "others") else len(SIZES) + 20)


@pytest.mark.parametrize("begins", [False, True])
def test_chats(rig, monkeypatch, begins):
    """Several images, other media, those that say no size, texts that look like images."""
    use_model(rig, monkeypatch, "qwen2", {"add_bos_token": begins, "bos_token": "<|endoftext|>"})
    theirs, ours = rig.reference(NEWEST, "--router-mode", "kv"), rig.ours("--router-mode", "kv")
    one, other = image(data(png(56, 56))), image(data(png(60, 100, b"x")))
    plain = one["image_url"]["url"].split(",")[1]
    contents = {
        "one": [one], "three": [text("a"), one, text("b"), other, one], "first": [text("<|endoftext|>a"), one],
        "gif": [image(data(GIF))], "webp": [image(data(WEBP, "image/jpeg"))], "bmp": [image(data(BMP))],
        "of no kind": [image("data:;base64," + plain)], "parameters": [image("data:image/png;x=y;base64," + plain)],
        "no image": [image(data(b"hi"))], "cut": [image(data(png(9, 9)[:20]))], "one is none": [one, image(data(b"hi"))],
        "no code": [image("data:image/png,abc")], "wrong code": [image("data:image/png;base64," + plain[:8] + " " + plain[8:])],
        "uuid": [one, {**other, "uuid": "u"}], "seen": [image(None, uuid="u"), one],
        "video": [one, {"type": "video_url", "video_url": {"url": "http://a/v.mp4"}}],
        "sound": [one, {"type": "audio_url", "audio_url": {"url": "http://a/s.wav"}}],
        "said": [one, text("<|image_pad|>")],
    }
    known = {}
    for name, content in contents.items():
        want = told(rig, theirs, content)
        assert told(rig, ours, content) == want, name
        known[name] = want["info"] is not None
    assert [name for name in known if known[name]] == list(contents)[:8]


def cached(rig, content):
    """Blocks that the worker chosen is thought to have, of so many."""
    rig.ours_front.answer(messages=[{"role": "user", "content": content}])
    record = json.loads(rig.stack.get("/decisions").body.splitlines()[-1])
    return record["candidates"][record["chosen"]["at"]]["overlap_blocks"], record["inputs"]["isl"] // record["inputs"]["block_size"]


@pytest.mark.parametrize("name,url", [("qwen2", None), ("others", None), ("qwen2", "http://a.example/{}.png"), ("no mark", None)])
def test_equal_images_alone_are_one_prefix(rig, monkeypatch, name, url):
    """Where routing goes by its own placements, for models whose images nobody can measure too, and for images that are elsewhere."""
    use_model(rig, monkeypatch, name)
    rig.ours_front = rig.ours("--router-mode", "kv", "--no-kv-events")
    before, after = text("word " * 40), text("other " * 40)
    urls = [url.format(i) if url else data(png(448, 448, b"%d" % i)) for i in range(2)]
    first = [before, image(urls[0]), after]
    assert cached(rig, first)[0] == 0
    held, blocks = cached(rig, first)
    assert held == blocks > 4
    head, blocks = cached(rig, [before, image(urls[1]), after])
    assert 0 < head < blocks - 2  # what stands before the image
    assert cached(rig, [before, image(urls[1]), after])[0] == blocks
    assert cached(rig, first)[0] == blocks
