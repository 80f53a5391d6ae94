"""A tiny projector that a real llama.cpp loads and runs: it lets a model of `tests.tiny` see. Random weights, a real graph.

It is of the kind with the fewest tensors, LLaVA's (`mlp`): patches of the picture, two layers of attention of which the last
one counts for nothing, and two matrices into the model's width. Any picture is made 32 x 32 and becomes 16 tokens, unless another shape is asked for.

Source: llama.cpp's tools/mtmd, clip-impl.h (names of keys and tensors), clip.cpp (which of them must be there).
"""

from __future__ import annotations

import functools
import struct
import tempfile
import zlib
from pathlib import Path
from typing import NamedTuple

import gguf
import numpy as np

from tests.tiny import finish, tiny_gguf

LAYERS = 2


class Shape(NamedTuple):
    """Pixels of a side, of a picture and of a patch; values of a position, of its feed-forward; heads."""

    side: int = 32
    patch: int = 8
    width: int = 32
    feed_forward: int = 64
    heads: int = 2

    @property
    def tokens(self) -> int:
        """Of a picture, whatever its size."""
        return (self.side // self.patch) ** 2


TINY = Shape()


def make_projector(path: Path, model: Path, shape: Shape = TINY) -> Path:
    """Write a projector into the width of `model`, a GGUF file; returns `path`. Always the same bytes for the same width."""
    width = int(gguf.GGUFReader(model).get_field("llama.embedding_length").contents())  # type: ignore[union-attr]
    dice = np.random.default_rng(1)
    writer = gguf.GGUFWriter(str(path), "clip")
    writer.add_type("mmproj")
    writer.add_name(path.stem)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
    writer.add_bool("clip.has_vision_encoder", True)
    writer.add_string("clip.projector_type", "mlp")
    writer.add_bool("clip.use_gelu", True)
    for name, number in {
        "image_size": shape.side, "patch_size": shape.patch, "embedding_length": shape.width, "feed_forward_length": shape.feed_forward,
        "projection_dim": width, "block_count": LAYERS, "attention.head_count": shape.heads,
    }.items():  # fmt: skip
        writer.add_uint32(f"clip.vision.{name}", number)
    writer.add_float32("clip.vision.attention.layer_norm_epsilon", 1e-5)
    writer.add_array("clip.vision.image_mean", [0.5, 0.5, 0.5])
    writer.add_array("clip.vision.image_std", [0.5, 0.5, 0.5])

    def matrix(name: str, *shape: int) -> None:
        writer.add_tensor(name, (dice.standard_normal(shape) * 0.02).astype(np.float16))

    def norm(name: str) -> None:
        writer.add_tensor(f"{name}.weight", np.ones(shape.width, np.float32))
        writer.add_tensor(f"{name}.bias", np.zeros(shape.width, np.float32))

    matrix("v.patch_embd.weight", shape.width, 3, shape.patch, shape.patch)
    matrix("v.position_embd.weight", shape.tokens, shape.width)
    for layer in range(LAYERS):
        block = f"v.blk.{layer}."
        norm(block + "ln1")
        for name in ("q", "k", "v", "out"):
            matrix(f"{block}attn_{name}.weight", shape.width, shape.width)
        norm(block + "ln2")
        matrix(block + "ffn_up.weight", shape.feed_forward, shape.width)
        matrix(block + "ffn_down.weight", shape.width, shape.feed_forward)
    matrix("mm.0.weight", shape.feed_forward, shape.width)
    writer.add_tensor("mm.0.bias", np.zeros(shape.feed_forward, np.float32))
    matrix("mm.2.weight", width, shape.feed_forward)
    writer.add_tensor("mm.2.bias", np.zeros(width, np.float32))
    finish(writer)
    return path


@functools.cache
def projector_bytes() -> bytes:
    """Of `make_projector` for `tiny_gguf`."""
    with tempfile.TemporaryDirectory(prefix="llmgw-eyes-") as folder:
        return make_projector(Path(folder) / "mmproj.gguf", tiny_gguf()).read_bytes()


def png(side: int = 8, color: tuple[int, int, int] = (255, 0, 0)) -> bytes:
    """A square picture of one colour."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = (b"\0" + bytes(color) * side) * side
    head = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
