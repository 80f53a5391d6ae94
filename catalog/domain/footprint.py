"""How much memory llama.cpp will take for a model on a CPU, before it was ever measured. Pure arithmetic.

    total = weights + projector + cache + compute + process + prompts

weights  sum of all tensors; mapped files are page cache, still they must fit, else every token reads the disk
projector  the file that lets it see or hear, and what it computes with (projectors.py)
cache    for each kind of layer: layers x cells x (key values x key bytes + value values x value bytes). Cells are those of
         each slot, padded to 256: its context, or of layers with a sliding window no more than window + batch. Recurrent
         layers have a state of fixed size for each slot
compute  the largest layer's buffers at `batch` tokens, in 32-bit values: of a dense model 3 x feed-forward + 5 x width, of
         a mixture the same over the experts that a token uses, with their outputs; the masks of the attention, and one
         row of logits for each slot
process  interpreter, server and buffers of an engine that serves nothing
prompts  caches of earlier prompts (`--cache-ram`): an eighth of what is reserved, as engine_command gives it

Sources: llama.cpp's log lines `KV buffer size`, `RS buffer size` and `compute buffer size`, which tests/e2e/test_memory.py
compares for models of each kind; gguf-parser's estimate for llama.cpp.
Measured figures replace it where there are some (`cluster.Replica.memory`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from catalog.domain.caches import Caches, attention
from catalog.domain.engine_command import CACHE_RAM_MIB
from catalog.domain.facts import ModelFacts
from catalog.domain.foreign import MOST
from llmgw_site.lib.units import MIB, format_bytes

BYTES_PER_VALUE: Mapping[str, float] = {
    "f32": 4, "f16": 2, "bf16": 2, "q8_0": 34 / 32, "q5_1": 24 / 32, "q5_0": 22 / 32, "q4_1": 20 / 32, "q4_0": 18 / 32,
    "iq4_nl": 18 / 32,
}  # fmt: skip
"""Bytes of one cached number, by llama.cpp's cache type."""
PAD = 256
BATCH = 512
"""Tokens computed at once (`--ubatch-size`'s default)."""
DEFAULT_CONTEXT = 4096
"""Tokens per slot where neither profile nor facts say."""
PROCESS = 96 * MIB
MARGIN = 32 * MIB
"""Graph, scheduler and allocator, which grow with nothing that is known here."""


@dataclass(frozen=True, kw_only=True)
class Footprint:
    """Bytes, term by term. `complete` False: the facts do not tell the shape, cache and compute are guesses."""

    weights: int
    cache: int
    compute: int
    process: int
    projector: int = 0
    complete: bool = True

    @property
    def prompts(self) -> int:
        return min(CACHE_RAM_MIB * MIB, self._engine // 7)  # a seventh of the rest is an eighth of the whole

    @property
    def total(self) -> int:
        return self._engine + self.prompts

    @property
    def _engine(self) -> int:
        return self.weights + self.projector + self.cache + self.compute + self.process

    def explain(self) -> str:
        """The sum for people."""
        names = ("weights", *(("projector",) if self.projector else ()), "cache", "compute", "process", "prompts")
        text = " + ".join(f"{format_bytes(getattr(self, name))} {name}" for name in names)
        return f"{format_bytes(self.total)} = {text}" + ("" if self.complete else " (shape not known)")


def estimate(
    facts: ModelFacts,
    *,
    weights: int = 0,
    context: int = 0,
    slots: int = 1,
    cache_type_k: str = "f16",
    cache_type_v: str = "f16",
    batch: int = BATCH,
) -> Footprint:
    """What a replica takes. `weights`: bytes of the file(s), that of a projector too, if known; `context`: tokens per
    slot, 0: as trained, bounded.

    1. Shape known: the sums above.
    2. Not known: a quarter of the weights for cache and compute, and never less than 256 MiB.
    """
    size = max(weights, facts.bytes)
    own = size - min(facts.projector or 0, size)
    sees = size - own + (facts.projector_compute or 0)
    process = PROCESS + MARGIN
    kinds = layers_of(facts)
    if not kinds and not facts.state:  # 2
        guess = max(256 * MIB, size // 4)
        return Footprint(
            weights=own, projector=sees, cache=guess // 2, compute=guess // 2, process=process, complete=False
        )
    tokens = context or min(facts.context or DEFAULT_CONTEXT, DEFAULT_CONTEXT)
    each = _padded(tokens)
    cache = max(1, slots) * facts.state
    for kind in kinds:
        per_token = kind.key * BYTES_PER_VALUE[cache_type_k] + kind.value * BYTES_PER_VALUE[cache_type_v]
        cache += int(kind.layers * max(1, slots) * cells(kind, each, batch) * per_token)
    masks = sum({kind.window: cells(kind, each, batch) for kind in kinds}.values()) * batch * 2
    logits = (facts.vocabulary or 32_000) * max(1, slots) * 4
    compute = _layer(facts) * batch * 4 + masks + logits
    return Footprint(weights=own, projector=sees, cache=min(cache, MOST), compute=min(compute, MOST), process=process)


def layers_of(facts: ModelFacts) -> tuple[Caches, ...]:
    """What the layers keep of tokens; (): not known. Facts of before the caches were read tell heads and lengths."""
    heads = facts.heads_kv or facts.heads
    if facts.caches or not (facts.layers and heads and facts.key_length and facts.value_length):
        return facts.caches
    return attention(layers=facts.layers, heads_kv=(heads,), key=facts.key_length, value=facts.value_length)


def cells(kind: Caches, tokens: int, batch: int = BATCH) -> int:
    """Rows of one slot in a layer of this kind; `tokens`: its context, padded."""
    return min(tokens, _padded(kind.window + batch)) if kind.window else tokens


def _padded(tokens: int) -> int:
    return -(-tokens // PAD) * PAD


def _layer(facts: ModelFacts) -> int:
    """32-bit values of the largest layer's buffers for one token: what the engine's allocator was seen to need. Up to a
    feed-forward of twice the width the allocator fits it into the room that the attention leaves."""
    width = facts.embedding or 0
    wide = facts.feed_forward or (0 if facts.inner else 4 * width)
    found = 3 * wide + (5 if wide > 2 * width else 3) * width
    if facts.experts_used:
        inner, outer = facts.experts_used * (facts.experts_feed_forward or wide), facts.experts_used * width
        found = max(
            found if not facts.experts_feed_forward else 0, 3 * inner + 5 * width, 2 * outer + inner + 3 * width
        )
    if facts.kv_lora_rank and facts.heads:
        found = max(found, facts.heads * 2 * (facts.kv_lora_rank + (facts.rope_length or 0)) + 5 * width)
    return max(found, 7 * width, 8 * (facts.inner or 0))
