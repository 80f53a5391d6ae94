"""What damaged files are made of: sound ones of each kind, and ways to spoil them."""

from __future__ import annotations

import copy
import json
import random
import struct
from typing import Any

from tests.tiny import tiny_gguf

NUMBERS = [0, 1, 0xFF, 0x7FFF, 0xFFFFFFFF, 1 << 31, (1 << 63) - 1, (1 << 64) - 1, 1 << 40]
TEXTS = [
    b"null", b"-1", b"1e999", b'"', b"[", b"{", b"]", b"}", b",", b"\\u0000", b"\\ud800", b"true", b"99999999999999999999",
    b"\xff", b"[" * 2000, b'{"a":' * 500,
]  # fmt: skip


class Bytes:
    """A source whose file claims to be as long as it likes."""

    def __init__(self, data: bytes, size: int) -> None:
        self.data, self.size = data, size

    def read(self, offset: int, count: int) -> bytes:
        return self.data[offset : offset + count]


def damaged(dice: random.Random, seed: bytes) -> bytes:
    """The seed with a few bytes, numbers or pieces changed, doubled, moved or gone."""
    data = bytearray(seed)
    for _ in range(dice.choice((1, 1, 2, 3, 8))):
        if not data:
            break
        at, kind = dice.randrange(len(data)), dice.randrange(7)
        if kind == 0:
            data[at] = dice.randrange(256)
        elif kind == 1:
            number = dice.choice(NUMBERS).to_bytes(8, "little")[: dice.choice((4, 8))]
            data[at : at + len(number)] = number
        elif kind == 2:
            del data[at:]
        elif kind == 3:
            del data[at : at + dice.randrange(1, 64)]
        elif kind == 4:
            piece = data[at : at + dice.randrange(1, 64)]
            data[at:at] = piece * dice.choice((1, 2, 100))
        elif kind == 5:
            data[at:at] = dice.choice(TEXTS)
        else:
            other = dice.randrange(len(data))
            data[at], data[other] = data[other], data[at]
    return bytes(data)


_DEEP = "@deep@"
"""Stands for lists in lists, which a writer of JSON would not write."""


def strange(dice: random.Random) -> Any:
    """A value that nobody expects at its place."""
    return dice.choice(
        (
            None, True, False, 0, -1, 1, 1.5, -0.0, 1e308, 1 << 31, 1 << 47, 1 << 48, (1 << 63) - 1, 1 << 63, 1 << 64, 1 << 70, "", "a",
            "\0", "a\0b", "\ud800", "\u2028", "\x1b[31m", "x" * 100_000, "../../etc/passwd", "/etc/passwd", "a/../b", ".", [], {},
            [None], [[]], [0] * 5000, {"a": {}}, {"": 0}, {"\0": "\0"}, "9" * 5000, _DEEP,
        )
    )  # fmt: skip


def odd(dice: random.Random, seed: Any) -> bytes:
    """The JSON text of the seed, with a few values, keys or items that nobody expects. A big list now and then."""
    data, grown = copy.deepcopy(seed), False
    for _ in range(dice.choice((1, 1, 2, 4))):
        place = data
        while True:
            keys = list(place) if isinstance(place, dict) else list(range(len(place)))
            if not keys:
                break
            key = dice.choice(keys)
            if isinstance(place[key], (dict, list)) and place[key] and dice.random() < 0.7:
                place = place[key]
                continue
            kind = dice.randrange(8)
            if kind == 0:
                del place[key]
            elif kind == 1 and isinstance(place, dict):
                name = strange(dice)
                place[name if isinstance(name, str) else str(kind)] = place.pop(key)
            elif kind == 2 and isinstance(place, list) and not grown:
                grown = True
                small = len(str(place[key])) < 300
                place.extend(copy.deepcopy(place[key]) for _ in range(dice.choice((1, 10, 3000 if small else 30))))
            else:
                place[key] = strange(dice)
            break
    if dice.random() < 0.001:
        many: list[Any] = dice.choice(([[]], ["ab"], [1.5], [{"a": 1}])) * 120_000
        data = {**data, "many": many} if isinstance(data, dict) else [*data, many]
    depth = dice.choice((2, 100, 900, 990, 1020, 5000))
    return json.dumps(data).encode().replace(f'"{_DEEP}"'.encode(), b"[" * depth + b"]" * depth, 10)


# --- GGUF ---------------------------------------------------------------------------------------------------------------


def _text(value: str | bytes) -> bytes:
    raw = value if isinstance(value, bytes) else value.encode()
    return struct.pack("<Q", len(raw)) + raw


def _value(value: Any) -> bytes:
    """Type and value of a pair."""
    if isinstance(value, bool):
        return struct.pack("<IB", 7, value)
    if isinstance(value, (str, bytes)):
        return struct.pack("<I", 8) + _text(value)
    if isinstance(value, float):
        return struct.pack("<If", 6, value)
    if isinstance(value, int):
        return struct.pack("<IQ", 10, value) if value >= 0 else struct.pack("<Iq", 11, value)
    if value and isinstance(value[0], str):
        return struct.pack("<IIQ", 9, 8, len(value)) + b"".join(map(_text, value))
    return struct.pack(f"<IIQ{len(value)}Q", 9, 10, len(value), *value)


def packed(pairs: dict[str, Any], tensors: list[tuple[str, tuple[int, ...], int, int]]) -> bytes:
    """A GGUF header; tensors are name, dimensions, type and offset."""
    out = [b"GGUF", struct.pack("<IQQ", 3, len(tensors), len(pairs))]
    out += [_text(key) + _value(value) for key, value in pairs.items()]
    for name, sizes, kind, offset in tensors:
        out.append(_text(name) + struct.pack(f"<I{len(sizes)}QIQ", len(sizes), *sizes, kind, offset))
    return b"".join(out)


FIGURES = (
    "block_count", "attention.head_count", "embedding_length", "attention.head_count_kv", "pooling_type", "attention.key_length",
    "attention.value_length", "context_length", "feed_forward_length", "vocab_size", "attention.sliding_window", "expert_count",
    "expert_used_count", "expert_feed_forward_length", "attention.kv_lora_rank", "rope.dimension_count", "ssm.inner_size",
    "attention.key_length_mla", "full_attention_interval", "attention.shared_kv_layers", "ssm.conv_kernel", "ssm.state_size",
    "ssm.group_count", "attention.sliding_window_pattern",
    *(f"{kind}.{key}" for kind in ("vision", "audio") for key in (
        "embedding_length", "feed_forward_length", "patch_size", "image_size", "image_max_pixels", "spatial_merge_size")),
)  # fmt: skip
_PLAIN = (1, 2, 4, 8, 32, 4096)


def _figure(dice: random.Random) -> Any:
    if dice.random() < 0.6:
        return dice.choice(_PLAIN)
    some: tuple[Any, ...] = (
        0,
        3,
        4095,
        4097,
        1 << 31,
        (1 << 48) - 1,
        1 << 48,
        (1 << 64) - 1,
        -1,
        1.5,
        True,
        "8",
        [],
        [2],
        [2, 0],
        [1] * 4096,
    )
    return dice.choice(some)


def made_gguf(dice: random.Random) -> bytes:
    """A sound header with figures that no model has."""
    name = dice.choice(("llama", "gemma3", "clip", "mamba", "bert", "", "a\0b", "x" * 200))
    pairs: dict[str, Any] = {"general.architecture": name}
    pairs |= {f"{name}.{key}": _figure(dice) for key in FIGURES if dice.random() < 0.7}
    for key in ("general.type", "general.name", "adapter.type", "tokenizer.chat_template", "general.file_type", "split.count",
                "split.no", "tokenizer.ggml.tokens", "general.alignment"):  # fmt: skip
        if dice.random() < 0.3:
            pairs[key] = dice.choice(("model", "adapter", "n\0ame", 2, 3, 32, 1 << 63, ["a", "b"], [1, 2], True, 0.5))
    tensors, at = [], 0
    for number in range(dice.choice((0, 1, 3))):
        sizes = tuple(dice.choice((1, 2, 32, 256, 1 << 31)) for _ in range(dice.randrange(5)))
        tensors.append((f"blk.{number}.w", sizes, dice.choice((0, 1, 2, 8, 99)), at))
        at += dice.choice((0, 32, 4096))
    return packed(pairs, tensors)


def tiny_header() -> bytes:
    return tiny_gguf().read_bytes()[:24_000]


ADAPTER = packed(
    {
        "general.architecture": "llama", "general.type": "adapter", "general.name": "An adapter", "adapter.type": "lora",
        "adapter.lora.alpha": 16.0, "general.base_model.count": 1, "general.base_model.0.name": "Base",
    },
    [(f"blk.{at // 2}.attn_q.weight.lora_{'ab'[at % 2]}", (64, 8) if at % 2 == 0 else (8, 64), 0, at * 2048) for at in range(8)],
)  # fmt: skip
PROJECTOR = packed(
    {
        "general.architecture": "clip", "general.type": "mmproj", "general.name": "Eyes", "clip.has_vision_encoder": True,
        "clip.projector_type": "mlp", "clip.vision.image_size": 336, "clip.vision.block_count": 4, "clip.vision.embedding_length": 1024,
        "clip.vision.feed_forward_length": 4096, "clip.vision.patch_size": 14, "general.file_type": 1,
    },
    [(f"v.blk.{at}.attn_q.weight", (32, 32), 1, at * 2048) for at in range(4)],
)  # fmt: skip

# --- JSON ---------------------------------------------------------------------------------------------------------------

TENSORS = {
    "__metadata__": {"a": "b"},
    **{f"blk.{at}.w": {"dtype": "F16", "shape": [4, 2], "data_offsets": [16 * at, 16 * at + 16]} for at in range(20)},
}
TENSOR_BYTES = 320
INDEX = {
    "metadata": {"total_size": 9},
    "weight_map": {f"blk.{at}.w": f"model-0000{at % 3 + 1}-of-00003.safetensors" for at in range(40)},
}
CONFIG = {
    "architectures": ["X"], "model_type": "mistral", "num_hidden_layers": 8, "num_attention_heads": 8, "num_key_value_heads": 2,
    "hidden_size": 64, "head_dim": 8, "sliding_window": 128, "sliding_window_pattern": 4, "use_sliding_window": True,
    "layer_types": ["full_attention", "sliding_attention"] * 4, "kv_lora_rank": None, "qk_rope_head_dim": 4,
    "quantization_config": {"quant_method": "fp8"}, "text_config": {"num_hidden_layers": 8}, "vocab_size": 32000,
    "num_local_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 64, "intermediate_size": 256,
    "max_position_embeddings": 4096,
}  # fmt: skip
_PAIRS = [f"base_model.model.model.layers.{at}.self_attn.q_proj.lora_{half}.weight" for at in range(4) for half in "AB"]
PEFT_TENSORS = {
    name: {"dtype": "F32", "shape": [8, 64] if at % 2 == 0 else [64, 8], "data_offsets": [2048 * at, 2048 * at + 2048]}
    for at, name in enumerate(_PAIRS)
}
PEFT_BYTES = 2048 * len(_PAIRS)
PEFT = {
    "peft_type": "LORA",
    "lora_alpha": 16,
    "r": 8,
    "base_model_name_or_path": "org/base",
    "target_modules": ["q_proj"],
}
MANIFEST: dict[str, Any] = {
    "id": "ver_0123456789", "format": "gguf", "first": "m-Q4_K_M.gguf", "registry": "", "repository": "o/r", "commit": "a" * 40,
    "files": [
        {"path": "m-Q4_K_M.gguf", "size": 3, "sha256": "0" * 64, "blob": "", "url": ""},
        {"path": "beside/config.json", "size": 3, "sha256": "", "blob": "0" * 40, "url": "https://host/config.json"},
    ],
}  # fmt: skip
_NAMES = (
    "m-Q4_K_M.gguf", "m-Q8_0-00001-of-00002.gguf", "m-Q8_0-00002-of-00002.gguf", "mmproj-F16.gguf", "imatrix.dat",
    "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors", "model.safetensors.index.json", "config.json",
    "tokenizer.json", "UD/m-UD-IQ1_S.gguf", "README.md",
)  # fmt: skip
CARD = {
    "id": "org/name", "sha": "b" * 40, "gated": "auto", "private": False, "tags": ["gguf", "license:mit"], "pipeline_tag": "text",
    "library_name": "x", "downloads": 5, "likes": 3, "lastModified": "2026-01-01T00:00:00.000Z",
    "cardData": {"license": ["mit"], "base_model": ["org/base"]},
    "siblings": [
        {"rfilename": name, "size": 10, "blobId": "c" * 40, "lfs": {"sha256": "d" * 64, "size": 10, "pointerSize": 130}}
        for name in _NAMES
    ],
}  # fmt: skip

# --- as much as is let in -----------------------------------------------------------------------------------------------

PIECES = (b"[]", b"[[]]", b'{"a":1}', b"1.5", b'"abcd"', '"\U0001f600"'.encode())


def of_pieces(piece: bytes, items: int) -> bytes:
    """A list that has no more than so many items, each worth what it takes to write it."""
    each = piece.count(b"[") + piece.count(b"{") + 1
    return b"[" + b",".join([piece] * ((items - 1) // each)) + b"]"


def of_keys(items: int) -> bytes:
    return b"{" + b",".join(b'"%07x":1' % number for number in range(items - 1)) + b"}"


def of_length(size: int) -> bytes:
    """One text of so many bytes with a character that makes four of each."""
    return b'"' + b"a" * (size - 6) + '\U0001f600"'.encode()


NAMES = (
    "model-{:05d}-of-15000.safetensors",
    "model{}-00001-of-01000.safetensors",
    "m{}-00001-of-01000.gguf",
    "m-00001-of-{:05d}.gguf",
)
"""Of very many files: one set, and sets of which each lacks all but one."""


def of_files(count: int, name: str = NAMES[0]) -> bytes:
    """A repository of so many files, as the Hub tells of them."""
    files = (
        b'{"rfilename":"%s","size":%d,"blobId":"%040x","lfs":{"sha256":"%064x","size":%d,"pointerSize":135}}'
        % (name.format(at).encode(), 10**9 + at, at, at, 10**9 + at)
        for at in range(count)
    )
    return b'{"id":"org/name","sha":"%s","siblings":[' % (b"a" * 40) + b",".join(files) + b"]}"


def of_tensors(count: int) -> bytes:
    """A safetensors header."""
    tensors = (
        b'"model.layers.%02d.mlp.experts.%05d.w":{"dtype":"BF16","shape":[1,1],"data_offsets":[%d,%d]}'
        % (at % 60, at, 2 * at, 2 * at + 2)
        for at in range(count)
    )
    return b"{" + b",".join(tensors) + b"}"


def of_map(count: int) -> bytes:
    """The index of a model of very many experts."""
    names = (
        b'"model.layers.%02d.mlp.experts.%05d.down_proj.weight_scale":"model-%05d-of-00163.safetensors"'
        % (at % 60, at, at % 163 + 1)
        for at in range(count)
    )
    return b'{"metadata":{},"weight_map":{' + b",".join(names) + b"}}"
