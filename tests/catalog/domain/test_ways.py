"""Which ways to run a model are refused, with what to write instead."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from catalog.domain.facts import ModelFacts
from catalog.domain.ways import divides, problem


@dataclass
class Way:
    engine: str = "llama.cpp"
    gpus_per_node: int = 0
    tp: int = 0
    pp: int = 1
    card_classes: tuple[str, ...] = ()
    card_memory: int = 0


@pytest.mark.parametrize(
    ("way", "heads", "code", "words"),
    [
        (Way(), None, "", ""),
        (Way(gpus_per_node=4, card_classes=("H100",), card_memory=1), 32, "", ""),
        (Way(tp=2), None, "llama_cpp_by_layers", "gpus_per_node=2"),
        (Way(pp=2), None, "llama_cpp_by_layers", "gpus_per_node=2"),
        (Way(engine="vllm"), None, "", ""),
        (Way(engine="vllm", gpus_per_node=1), None, "", ""),
        (Way(engine="vllm", tp=4, gpus_per_node=4), 32, "", ""),
        (Way(engine="vllm", tp=4), 32, "", ""),
        (Way(engine="vllm", tp=3), None, "", ""),  # heads not known: vLLM will say
        (Way(engine="vllm", tp=3), 32, "heads_not_divisible", "one of 1, 2, 4, 8, 16, 32"),
        (Way(engine="vllm", gpus_per_node=2), None, "vllm_by_tp", "write tp=2"),
        (Way(engine="vllm", gpus_per_node=2, tp=4), None, "vllm_by_tp", "leave gpus_per_node out"),
        (Way(engine="vllm", tp=4, pp=2), 32, "", ""),
        (Way(engine="vllm", tp=4, pp=24), 32, "", ""),
        (Way(engine="vllm", tp=4, pp=25), 32, "too_few_layers", "write pp=24 or less"),
        (Way(engine="vllm", tp=3, pp=2), 32, "heads_not_divisible", "one of 1, 2, 4, 8, 16, 32"),
        (Way(engine="vllm", pp=2), 32, "cards_needed", "write tp=1 or more"),
        (Way(engine="vllm", pp=2, gpus_per_node=1), 32, "cards_needed", "write tp=1 or more"),
        (Way(card_memory=1), None, "cards_needed", "gpus_per_node=1"),
        (Way(engine="vllm", card_classes=("H100",)), None, "cards_needed", "tp=1"),
    ],
)
def test_a_way_that_no_engine_knows_is_refused_with_what_to_write(
    way: Way, heads: int | None, code: str, words: str
) -> None:
    found = problem(way, ModelFacts(kind="model", heads=heads, heads_kv=heads, layers=24))
    assert (found.code if found else "") == code
    assert words in (found.message if found else "")


@pytest.mark.parametrize(
    ("heads", "heads_kv", "rank", "fit"),
    [
        (32, 8, None, [1, 2, 4, 8, 16, 32]),  # beyond 8 a KV head is on two cards, or four
        (40, 10, None, [1, 2, 5, 10, 20, 40]),  # Phi-4
        (71, 1, None, [1, 71]),  # Falcon 7B
        (16, 16, None, [1, 2, 4, 8, 16]),
        (40, 10, 512, [1, 2, 4, 5, 8, 10, 20, 40]),
        (None, None, None, list(range(1, 65))),
    ],
)
def test_heads_and_kv_heads_are_shared_evenly(
    heads: int | None, heads_kv: int | None, rank: int | None, fit: list[int]
) -> None:
    facts = ModelFacts(kind="model", heads=heads, heads_kv=heads_kv, kv_lora_rank=rank)
    assert [number for number in range(1, 65) if divides(facts, number)] == [item for item in fit if item <= 64]
    if heads == 40 and not rank:
        found = problem(Way(engine="vllm", tp=4), facts)
        assert found is not None
        assert found.code == "heads_not_divisible"
        assert (
            "40 attention heads and 10 KV heads cannot be divided over 4 cards: write one of 1, 2, 5, 10"
            in found.message
        )
