"""How much memory llama.cpp will take for a model on a CPU, before it was ever measured. Pure arithmetic.

    total = weights + cache + compute + process + prompts

weights  sum of all tensors; mapped files are page cache, still they must fit, else every token reads the disk
cache    layers x cells x KV heads x (key length x key bytes + value length x value bytes); cells = slots x context,
         each slot's padded to 256. Layers with a sliding window are counted in full: which layers those are depends on
         the architecture, so this term is an upper bound for such models
compute  the largest layer's buffers: logits (vocabulary x batch x 4), feed-forward (3 x width x batch x 4) and the
         residual stream, plus the attention mask (cells x batch x 2); flash attention is on by default on CPUs
process  interpreter, server and buffers of an engine that serves nothing
prompts  caches of earlier prompts (`--cache-ram`): an eighth of what is reserved, as engine_command gives it

Sources: llama.cpp's log lines `KV buffer size` and `compute buffer size`, gguf-parser's estimate for llama.cpp.
Measured figures replace it where there are some (`cluster.Replica.memory`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from catalog.domain.engine_command import CACHE_RAM_MIB
from catalog.domain.facts import ModelFacts
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
    complete: bool = True

    @property
    def prompts(self) -> int:
        return min(CACHE_RAM_MIB * MIB, self._engine // 7)  # a seventh of the rest is an eighth of the whole

    @property
    def total(self) -> int:
        return self._engine + self.prompts

    @property
    def _engine(self) -> int:
        return self.weights + self.cache + self.compute + self.process

    def explain(self) -> str:
        """The sum for people."""
        names = ("weights", "cache", "compute", "process", "prompts")
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
    """What a replica takes. `weights`: bytes of the file(s), if known; `context`: tokens per slot, 0: as trained, bounded.

    1. Shape known: the sums above.
    2. Not known: a quarter of the weights for cache and compute, and never less than 256 MiB.
    """
    size = max(weights, facts.bytes)
    process = PROCESS + MARGIN
    heads = facts.heads_kv or facts.heads
    if not (facts.layers and heads and facts.key_length and facts.value_length and facts.embedding):  # 2
        guess = max(256 * MIB, size // 4)
        return Footprint(weights=size, cache=guess // 2, compute=guess // 2, process=process, complete=False)
    tokens = context or min(facts.context or DEFAULT_CONTEXT, DEFAULT_CONTEXT)
    cells = max(1, slots) * -(-tokens // PAD) * PAD
    per_layer = facts.heads_kv_per_layer or (heads,) * facts.layers
    per_head = facts.key_length * BYTES_PER_VALUE[cache_type_k] + facts.value_length * BYTES_PER_VALUE[cache_type_v]
    cache = int(cells * sum(per_layer) * per_head)
    rows = min(batch, cells)
    feed_forward = (facts.feed_forward or 4 * facts.embedding) * max(1, facts.experts_used or 1)
    layer = (3 * feed_forward + 4 * facts.embedding) * rows * 4
    logits = (facts.vocabulary or 32_000) * rows * 4
    return Footprint(weights=size, cache=cache, compute=max(layer, logits) + cells * rows * 2, process=process)
