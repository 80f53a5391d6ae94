"""How much memory a replica of a GGUF model will take on a CPU node, before it was ever measured.

Terms as in llama.cpp: weights + key-value cache + compute buffers + the process itself. The cache per token and layer
is 2 (keys and values) x KV heads x head size x 2 bytes (f16).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from llmgw_site.lib.units import MIB

PROCESS = 96 * MIB
"""Interpreter, server and its buffers around an engine that serves nothing."""
COMPUTE_SHARE = 0.05
"""Compute buffers as a share of the weights, and never less than COMPUTE_LEAST."""
COMPUTE_LEAST = 64 * MIB
DEFAULT_CONTEXT = 4096
"""Tokens per slot where neither profile nor facts say."""


def estimate(*, weights: int, facts: Mapping[str, Any], context: int, slots: int) -> int:
    """Bytes to reserve. `facts`: catalog.domain.gguf.ModelFacts as a dict; what is absent counts by its usual value.

    `context`: tokens per slot, 0: what the model was trained for, at most DEFAULT_CONTEXT.
    """
    trained = _number(facts, "context") or DEFAULT_CONTEXT
    tokens = (context or min(trained, DEFAULT_CONTEXT)) * max(1, slots)
    return weights + cache(facts, tokens) + max(COMPUTE_LEAST, int(weights * COMPUTE_SHARE)) + PROCESS


def cache(facts: Mapping[str, Any], tokens: int) -> int:
    """Bytes of the key-value cache for so many tokens; 0 where the facts do not tell the shape."""
    layers, width, heads = (_number(facts, name) for name in ("layers", "embedding", "heads"))
    if not layers or not width or not heads:
        return 0
    kv_heads = _number(facts, "heads_kv") or heads
    return 2 * layers * kv_heads * (width // heads) * 2 * tokens


def _number(facts: Mapping[str, Any], name: str) -> int:
    value = facts.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0
