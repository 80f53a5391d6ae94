"""Projectors: the files beside a model that let it see or hear. What one takes of memory, from its header. Pure.

    bytes = its file + positions x (input + feed-forward + 3 x width) x 4

positions  of the largest picture that the engine takes in one piece: patches of the trained size; where the size of pictures is
           free, as many as the header or the engine allows; of sound, half a minute's
input      values of one patch: its pixels in three colours

The second term is what llama.cpp's allocator was seen to need for the layers of a picture, with flash attention, which it
takes where it can; 0 to 40 % more than its log says for shapes from 32 to 896 pixels (tests/e2e/test_memory.py compares one).
Source: llama.cpp tools/mtmd, clip-impl.h (keys), clip.cpp (`set_limit_image_tokens`: what is allowed).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from catalog.domain.gguf import Header

MOST_TOKENS: Mapping[str, int] = {
    "qwen2vl_merger": 4096, "qwen2.5vl_merger": 4096, "qwen3vl_merger": 4096, "glm4v": 4096, "kimik25": 4096, "pixtral": 1024,
    "kimivl": 1024, "minimax_m3": 576, "gemma4v": 280, "lfm2": 256,
}  # fmt: skip
"""Tokens of the largest picture, by type of projector, where the size of pictures is free."""
MERGE = 2
"""Patches of a side that become one token, where the header does not say and pictures are free."""
MOST_POSITIONS = 1 << 16
MOST_WIDTH = 1 << 20
HEARD = 1500
"""Positions of half a minute of sound (Whisper's, which most that hear are made of)."""


@dataclass(frozen=True, kw_only=True)
class Projector:
    """Bytes of its file, and those that it computes with."""

    size: int
    compute: int


def is_projector(header: Header) -> bool:
    return header.pairs.get("general.architecture") == "clip" or header.pairs.get("general.type") == "mmproj"


def takes(header: Header) -> Projector:
    """What it takes; of a file that tells no shape a quarter of its bytes, as of a model."""
    needs = [_values(header.pairs, kind) for kind in ("vision", "audio")]
    compute = max(needs) * 4
    return Projector(size=header.file_size, compute=compute or header.file_size // 4)


def _values(pairs: Mapping[str, Any], kind: str) -> int:
    """32-bit values that one picture or sound is computed with; 0: it has no encoder of this kind."""

    def figure(name: str, most: int = MOST_WIDTH) -> int:
        found = pairs.get(f"clip.{kind}.{name}")
        return min(found, most) if isinstance(found, int) and not isinstance(found, bool) and found > 0 else 0

    width, wide = figure("embedding_length"), figure("feed_forward_length")
    if not width:
        return 0
    patch = figure("patch_size", 1 << 10) if kind == "vision" else 1
    positions = HEARD if kind == "audio" else (figure("image_size", 1 << 14) // patch) ** 2 if patch else 0
    if kind == "vision" and patch:
        merge = figure("spatial_merge_size", 16) or figure("projector.scale_factor", 16) or MERGE
        named = str(pairs.get("clip.projector_type") or pairs.get("clip.vision.projector_type"))
        free = figure("image_max_pixels", 1 << 30) // patch**2 or MOST_TOKENS.get(named, 0) * merge**2
        positions = max(positions, free)
    return min(positions, MOST_POSITIONS) * (3 * patch**2 + wide + 3 * width)
