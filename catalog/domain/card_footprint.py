"""How much memory a model will take on cards, before it was ever measured. Pure arithmetic.

llama.cpp, layers divided over `cards` cards of a node:

    on the cards = weights + cache + cards x (compute + projector + process)      of the node = process + embeddings + prompts

weights     all tensors: a model that uses its token embeddings for its output too has them on the node and on a card
cache       as on a processor (footprint.py): each layer's lies where the layer lies
compute     the largest layer's buffers; every card has its own, the last one with the logits
projector   as on a processor. It lies on the first card; the room is left on each, so that any may be the first
process     what the driver and its libraries take on each card
base        compute, projector and process: what each card holds beside its layers
layer       the largest piece that cannot be divided: a repeating layer with its cache, or the output layer
tail        the output layer, which lies on the last card
embeddings  the table of token embeddings stays in the node's memory

vLLM divides each layer over the cards evenly, takes all that it is given and makes cache of what is left; the estimate is
the least that it starts with:

    on the cards = weights + the larger of (a fifth of them, cards x cache) + cards x 2 GiB

cache       of one request of the whole context, without which vLLM does not start, on each card: 16-bit keys and values of the
            card's KV heads, at least one (more cards than heads: each head lies on several); of latent attention the whole
            row, which is not divided; of layers with a window no more than window and batch; a recurrent state

Sources: as footprint.py; GPUStack's rule for vLLM (weights x 1.2 + 2 GiB); vLLM, vllm/v1/kv_cache_interface.py
(max_memory_usage_bytes of each kind of layer) and vllm/v1/core/kv_cache_utils.py (check_enough_kv_cache_memory).
"""

from __future__ import annotations

from dataclasses import dataclass

from catalog.domain.facts import ModelFacts
from catalog.domain.footprint import DEFAULT_CONTEXT, MARGIN, PROCESS, cells, estimate, layers_of
from catalog.domain.foreign import MOST
from llmgw_site.lib.units import GIB, MIB

CARD_PROCESS = 400 * MIB
"""CUDA's context and libraries on one card."""
CARD_HOST = 512 * MIB
"""The same in the node's memory."""
PIECES = 16
"""Pieces that a model of unknown shape is thought to have: few, so that they are large."""
VLLM_HOST = 4 * GIB
"""Of the node's memory for a vLLM engine; a worker for each card comes to it. A guess until it is measured."""
VLLM_WORKER = 2 * GIB
VLLM_CARD = 2 * GIB
VLLM_BATCH = 8192
"""Tokens that vLLM computes at once, by its default for large cards (`--max-num-batched-tokens`)."""
VLLM_BLOCK = 16
"""Tokens of a block of its cache."""


@dataclass(frozen=True, kw_only=True)
class CardFootprint:
    """Bytes. `memory`: of the node's own; `cards`: of all its cards together; `layer`, `tail`, `base`: see above. `layers`:
    repeating layers; 0: not known."""

    memory: int
    cards: int
    layer: int = 0
    layers: int = 0
    tail: int = 0
    base: int = 0


def by_layers(
    facts: ModelFacts, *, cards: int, weights: int = 0, context: int = 0, slots: int = 1, card_memory: int = 0
) -> CardFootprint:
    """What llama.cpp takes with all layers on cards. `card_memory`: bytes of the cards as declared; 0: estimated here."""
    base = estimate(facts, weights=weights, context=context, slots=slots)
    beside = base.compute + base.projector + CARD_PROCESS
    total = card_memory or base.weights + base.cache + cards * beside
    each = min(beside, total // (2 * cards))  # a declared figure may be a small one
    layers = facts.layers or 0
    table = _table(facts, base.weights)
    if layers:
        repeating = max(0, base.weights - 2 * table) if table else base.weights
        layer = max(-(-repeating // layers) + _cached(facts, base.cache, context), table)
    else:
        layer = -(-(total - each * cards) // PIECES)
    host = PROCESS + MARGIN + CARD_HOST + table
    body = total - each * cards
    return CardFootprint(
        memory=host + min(base.prompts, host // 7),
        cards=total,
        layer=min(layer, body),
        layers=layers,
        tail=min(table, body) if layers else 0,
        base=each,
    )


def evenly(facts: ModelFacts, *, cards: int, weights: int = 0, context: int = 0, card_memory: int = 0) -> CardFootprint:
    """What vLLM takes with each layer divided over the cards. `context`: tokens; 0: as trained, which vLLM takes then."""
    size = max(weights, facts.bytes)
    least = size + max(size // 5, cards * _paged(facts, cards, context)) + cards * VLLM_CARD
    return CardFootprint(memory=VLLM_HOST + cards * VLLM_WORKER, cards=card_memory or least)


def _paged(facts: ModelFacts, cards: int, context: int) -> int:
    """Bytes on each card of the cache of one request with the whole context."""
    tokens = context or facts.context or DEFAULT_CONTEXT
    heads = 0 if facts.kv_lora_rank else facts.heads_kv or facts.heads or 0
    held = max(1, -(-heads // cards))  # KV heads of one card
    size = -(-facts.state // cards)
    for kind in layers_of(facts):
        rows = min(tokens, kind.window - 1 + VLLM_BATCH) + VLLM_BLOCK if kind.window else tokens
        blocks = -(-rows // VLLM_BLOCK)
        values = -(-(kind.key + kind.value) * held // heads) if heads else kind.key + kind.value
        size += kind.layers * blocks * VLLM_BLOCK * values * 2
    return min(size, MOST)


def _cached(facts: ModelFacts, cache: int, context: int) -> int:
    """Bytes of the layer that keeps most, of `cache` bytes of all layers."""
    tokens = context or DEFAULT_CONTEXT
    sizes = {kind: (kind.key + kind.value) * cells(kind, tokens) for kind in layers_of(facts)}
    every = sum(kind.layers * size for kind, size in sizes.items())
    return -(-cache * max(sizes.values()) // every) if every else -(-cache // (facts.layers or 1))


def _table(facts: ModelFacts, size: int) -> int:
    """Bytes of the table of token embeddings, at the mean size of a weight."""
    if not facts.vocabulary or not facts.embedding:
        return 0
    values = facts.vocabulary * facts.embedding
    return min(size, values * size // facts.parameters if facts.parameters else values * 2)
