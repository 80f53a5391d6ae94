"""Which ways to run a model an engine knows: how it is divided over cards and nodes."""

from __future__ import annotations

from typing import NamedTuple, Protocol


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


def problem(way: Way, heads: int | None = None, layers: int | None = None) -> Problem | None:
    """Why no engine can run a model this way; None if one can. `heads`, `layers`: of the model, where known.

    1. `llama_cpp_by_layers`   llama.cpp with tp or pp: it divides by layers
    2. `vllm_by_tp`            vLLM with several cards that are not named as tp, or named twice and differently
    3. `heads_not_divisible`   vLLM divides heads over tp cards, and they cannot be divided so
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
    elif heads and way.tp and heads % way.tp:  # 3
        fit = ", ".join(str(number) for number in range(1, min(heads, 64) + 1) if heads % number == 0)
        text = f"tp: the model's {heads} attention heads cannot be divided over {way.tp} cards: write one of {fit}."
        return Problem("heads_not_divisible", "tp", text)
    if way.pp > 1 and not way.tp:  # 4
        text = f"pp: a replica over {way.pp} nodes takes cards of each of them: write tp=1 or more with it."
        return Problem("cards_needed", "pp", text)
    if layers and way.pp > layers:  # 5
        text = f"pp: each of {way.pp} nodes takes a part of the layers, and the model has {layers}: write pp={layers} or less."
        return Problem("too_few_layers", "pp", text)
    if not (way.tp or way.gpus_per_node) and (way.card_memory or way.card_classes):  # 4
        field = "card_memory" if way.card_memory else "card_classes"
        count = "gpus_per_node" if way.engine == "llama.cpp" else "tp"
        text = f"{field}: the profile uses no card, so nothing can be said of cards: write {count}=1 or more with it."
        return Problem("cards_needed", field, text)
    return None
