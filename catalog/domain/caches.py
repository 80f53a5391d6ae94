"""What the layers of a model remember of the tokens before: the shapes of their caches, from a header or a config.json.

1. attention   keys and values of every token: KV heads x (key length + value length) values
2. sliding     the same, of no more than a window of tokens
3. latent      multi-head latent attention (MLA): one compressed row of `kv_lora_rank` + rope values for every token, no
               values beside it
4. recurrent   no tokens: a state of fixed size for every request (Mamba and its kin, linear attention)

Sources: llama.cpp, `llama-kv-cache*.cpp`, `llama-memory-recurrent.cpp`, the loaders of the architectures; what the pinned
engine takes for tiny models of each kind is compared in tests/e2e/test_memory.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from catalog.domain.foreign import MOST

MAX_LAYERS = 4096
PERIODS: Mapping[str, int] = {
    "gemma2": 2, "gpt-oss": 2, "cohere2": 4, "olmo2": 4, "exaone4": 4, "exaone-moe": 4, "llama4": 4, "afmoe": 4,
    "smallthinker": 4, "gemma3n": 5, "gemma3": 6, "gemma-embedding": 6, "plamo3": 8,
}  # fmt: skip
"""Architectures whose every n-th layer sees all tokens and the others a window, where the header does not say."""


@dataclass(frozen=True, kw_only=True)
class Caches:
    """Layers of one kind. `key`, `value`: values of one token in one layer; `window`: tokens, 0: all of them."""

    layers: int
    key: int
    value: int
    window: int = 0


def attention(
    *, layers: int, heads_kv: Sequence[int], key: int, value: int, window: int = 0, windowed: Sequence[bool] = ()
) -> tuple[Caches, ...]:
    """The caches of layers with `heads_kv` heads each (one figure: all alike; 0: a layer that keeps no tokens). (): no model has
    so many layers, or layers of such a size."""
    if layers > MAX_LAYERS or max(heads_kv, default=0) * max(key, value) * layers > MOST:  # no model's shape: not known
        return ()
    each = tuple(heads_kv) if len(heads_kv) > 1 else tuple(heads_kv) * layers
    slides = tuple(windowed) or (False,) * layers
    found: dict[tuple[int, int], int] = {}
    for heads, slide in zip(each, slides, strict=False):
        if heads:
            kind = (heads, window if slide else 0)
            found[kind] = found.get(kind, 0) + 1
    return tuple(
        Caches(layers=count, key=heads * key, value=heads * value, window=tokens)
        for (heads, tokens), count in sorted(found.items(), key=lambda item: (item[0][1], item[0][0]))
    )


def latent(*, layers: int, rank: int, rope: int) -> tuple[Caches, ...]:
    """The caches of multi-head latent attention: the values are made from the same rows."""
    return (Caches(layers=layers, key=rank + rope, value=0),)


def slides(architecture: str, layers: int, pattern: Sequence[int] | int | None) -> tuple[bool, ...]:
    """Which layers see a window only. `pattern`: as the header says, a period or one mark for each layer; None: unsaid.

    Of a period the last layer sees all tokens. Architectures that nobody knows are taken to see all tokens everywhere: that
    is too much memory, never too little.
    """
    if pattern is None:
        pattern = PERIODS.get(architecture, 1)
    if isinstance(pattern, int):
        return tuple(pattern == 0 or at % pattern < pattern - 1 for at in range(layers))
    return tuple(bool(pattern[at % len(pattern)]) for at in range(layers)) if pattern else (False,) * layers


def state(*, layers: int, conv: int, inner: int, size: int, groups: int) -> int:
    """Bytes of one request's recurrent state, in 32-bit values: (conv - 1) x (inner + 2 x groups x size) + size x inner."""
    return min(MOST, layers * ((conv - 1) * (inner + 2 * groups * size) + size * inner) * 4)
