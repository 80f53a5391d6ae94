"""Gives damaged files to the readers of headers, many times over, in a process of its own: `python -m … READER COUNT SEED`.

Prints the slowest case in seconds and the memory that all of them together came to need, in bytes. Anything but a refusal
ends it with a traceback.
"""

from __future__ import annotations

import json
import random
import resource
import sys
import time
from collections.abc import Callable

from catalog.domain.facts import model_facts
from catalog.domain.gguf import BadGguf, read_header
from catalog.domain.hf_config import config_facts
from catalog.domain.manifests import manifest_from_dict
from catalog.domain.safetensors import BadSafetensors, read_index
from catalog.domain.safetensors import read_header as read_safetensors
from llmgw_site.lib.errors import Refused
from tests.tiny import tiny_gguf


class Bytes:
    """A source whose file claims to be as long as it likes."""

    def __init__(self, data: bytes, size: int) -> None:
        self.data, self.size = data, size

    def read(self, offset: int, count: int) -> bytes:
        return self.data[offset : offset + count]


NUMBERS = [0, 1, 0xFF, 0x7FFF, 0xFFFFFFFF, 1 << 31, (1 << 63) - 1, (1 << 64) - 1, 1 << 40]
TEXTS = [
    b"null",
    b"-1",
    b"1e999",
    b'"',
    b"[",
    b"{",
    b"]",
    b"}",
    b",",
    b"\\u0000",
    b"true",
    b"99999999999999999999",
    b"\xff",
]


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


def gguf(dice: random.Random, seed: bytes) -> None:
    data = damaged(dice, seed)
    try:
        model_facts(read_header(Bytes(data, dice.choice((len(data), 1 << 20, 1 << 50)))), file_name="m.gguf")
    except BadGguf:
        pass


def safetensors(dice: random.Random, seed: bytes) -> None:
    text = damaged(dice, seed)
    length = dice.choice((len(text), len(text), dice.choice(NUMBERS))) % (1 << 64)
    try:
        read_safetensors(
            Bytes(length.to_bytes(8, "little") + text, dice.choice((8 + len(text), 64 + len(text), 1 << 50)))
        )
    except BadSafetensors:
        pass


def index(dice: random.Random, seed: bytes) -> None:
    try:
        read_index(damaged(dice, seed))
    except BadSafetensors:
        pass


def parsed(read: Callable[[object], object]) -> Callable[[random.Random, bytes], None]:
    def one(dice: random.Random, seed: bytes) -> None:
        try:
            data = json.loads(damaged(dice, seed))
        except (ValueError, RecursionError):
            return
        try:
            read(data)
        except Refused:
            pass

    return one


def _config(data: object) -> object:
    return config_facts(data) if isinstance(data, dict) else None


def seeds() -> dict[str, tuple[Callable[[random.Random, bytes], None], bytes]]:
    tensors = {
        f"blk.{at}.w": {"dtype": "F16", "shape": [4, 2], "data_offsets": [16 * at, 16 * at + 16]} for at in range(20)
    }
    weights = {f"blk.{at}.w": f"model-0000{at % 3 + 1}-of-00003.safetensors" for at in range(40)}
    config = {
        "architectures": ["X"], "num_hidden_layers": 8, "num_attention_heads": 8, "num_key_value_heads": 2, "hidden_size": 64,
        "sliding_window": 128, "sliding_window_pattern": 4, "layer_types": ["full_attention", "sliding_attention"] * 4,
        "kv_lora_rank": None, "quantization_config": {"quant_method": "fp8"}, "text_config": {"num_hidden_layers": 8},
    }  # fmt: skip
    manifest = {
        "id": "ver_0123456789", "format": "gguf", "first": "a.gguf", "registry": "", "repository": "o/r", "commit": "a" * 40,
        "files": [{"path": "a.gguf", "size": 3, "sha256": "0" * 64, "blob": "", "url": ""}],
    }  # fmt: skip
    return {
        "gguf": (gguf, tiny_gguf().read_bytes()[:24_000]),
        "safetensors": (safetensors, json.dumps({"__metadata__": {"a": "b"}, **tensors}).encode()),
        "index": (index, json.dumps({"metadata": {"total_size": 9}, "weight_map": weights}).encode()),
        "config": (parsed(_config), json.dumps(config).encode()),
        "manifest": (parsed(manifest_from_dict), json.dumps(manifest).encode()),
    }


def main(reader: str, count: int, seed: int) -> None:
    one, good = seeds()[reader]
    for _ in range(100):  # what is made once is not counted
        one(random.Random(0), good)
    before, slowest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, 0.0
    for at in range(count):
        began = time.process_time()
        one(random.Random(seed * 1_000_003 + at), good)
        slowest = max(slowest, time.process_time() - began)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    sys.stdout.write(json.dumps({"slowest": slowest, "memory": grown * 1024}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
