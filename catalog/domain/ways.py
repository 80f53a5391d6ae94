"""Which ways to run a model an engine knows: how it is divided over cards and nodes."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from catalog.domain.facts import ModelFacts


class Way(Protocol):
    """Of a profile, how it is divided."""

    @property
    def engine(self) -> str: ...

    @property
    def gpus_per_node(self) -> int: ...

    @property
    def tp(self) -> int: ...

    @property
    def pp(self) -> int: ...

    @property
    def card_memory(self) -> int: ...

    @property
    def card_classes(self) -> object: ...


class Problem(NamedTuple):
    code: str
    field: str
    message: str


def divides(facts: ModelFacts, tp: int) -> bool:
    """Whether vLLM can share the attention among so many cards, as far as the heads are known: each has as many heads as the others,
    and as many KV heads, or one that the same number of cards have. Of latent attention each has all that is kept.

    Source: vLLM, `models/llama.py` and its kin; a Phi-4 of 40 heads and 10 KV heads runs on 1, 2, 5 or 10 cards, not on 4."""
    kv = 0 if facts.kv_lora_rank else facts.heads_kv or 0
    return not (facts.heads or 0) % tp and (not kv or not kv % tp or not tp % kv)


def problem(way: Way, facts: ModelFacts) -> Problem | None:
    """Why no engine can run a model this way; None if one can.

    1. `llama_cpp_by_layers`   llama.cpp with tp or pp: it divides by layers
    2. `vllm_by_tp`            vLLM with several cards that are not named as tp, or named twice and differently
    3. `heads_not_divisible`   vLLM divides heads, and KV heads, over tp cards, and they cannot be divided so
    4. `cards_needed`          over several nodes, and no cards of each are named, or something is said of cards and none are used
    5. `too_few_layers`        over more nodes than the model has layers: each has a stage of its own
    """
    if way.engine == "llama.cpp":  # 1
        for field, value, off in (("tp", way.tp, 0), ("pp", way.pp, 1)):
            if value not in (off, 0):
                instead = (
                    f"gpus_per_node={value}" if field == "tp" else f"gpus_per_node={max(way.gpus_per_node, value)}"
                )
                text = f"{field}: llama.cpp divides a model by layers over cards of one node: write {instead}, and leave tp and pp out."
                return Problem("llama_cpp_by_layers", field, text)
    elif way.gpus_per_node > 1 and way.gpus_per_node != way.tp:  # 2
        if way.tp:
            text = f"gpus_per_node: vLLM uses the cards that tp says, {way.tp}, not {way.gpus_per_node}: leave gpus_per_node out."
        else:
            text = f"gpus_per_node: vLLM divides each layer over its cards: write tp={way.gpus_per_node} instead."
        return Problem("vllm_by_tp", "gpus_per_node", text)
    elif way.tp and not divides(facts, way.tp):  # 3
        fit = ", ".join(str(number) for number in range(1, min(facts.heads or 64, 64) + 1) if divides(facts, number))
        kv = f" and {facts.heads_kv} KV heads" if facts.heads_kv and facts.heads_kv != facts.heads else ""
        text = f"tp: the model's {facts.heads} attention heads{kv} cannot be divided over {way.tp} cards: write one of {fit}."
        return Problem("heads_not_divisible", "tp", text)
    if way.pp > 1 and not way.tp:  # 4
        text = f"pp: a replica over {way.pp} nodes takes cards of each of them: write tp=1 or more with it."
        return Problem("cards_needed", "pp", text)
    if facts.layers and way.pp > facts.layers:  # 5
        text = f"pp: each of {way.pp} nodes takes a part of the layers, and the model has {facts.layers}: write pp={facts.layers} or less."
        return Problem("too_few_layers", "pp", text)
    if not (way.tp or way.gpus_per_node) and (way.card_memory or way.card_classes):  # 4
        field = "card_memory" if way.card_memory else "card_classes"
        count = "gpus_per_node" if way.engine == "llama.cpp" else "tp"
        text = f"{field}: the profile uses no card, so nothing can be said of cards: write {count}=1 or more with it."
        return Problem("cards_needed", field, text)
    return None
