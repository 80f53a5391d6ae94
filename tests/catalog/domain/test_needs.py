"""What a profile needs of a node and of its cards: right sums, and what must be declared."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.domain import card_footprint, labels
from catalog.domain.caches import attention, latent
from catalog.domain.card_footprint import CARD_PROCESS, by_layers, evenly
from catalog.domain.facts import ModelFacts
from catalog.domain.footprint import estimate
from catalog.domain.needs import needs, undeclared
from llmgw_site.lib.units import GIB, MIB

EIGHT = ModelFacts(
    kind="model", bytes=4800 * MIB, parameters=8_000_000_000, layers=32, heads=32, heads_kv=8, key_length=128,
    value_length=128, context=131_072, embedding=4096, feed_forward=14_336, vocabulary=128_256,
)  # fmt: skip
"""The shape of an 8 billion model in 4 bits."""


@dataclass
class Way:
    engine: str = "llama.cpp"
    context: int = 4096
    slots: int = 1
    memory: int = 0
    card_memory: int = 0
    gpus_per_node: int = 0
    tp: int = 0
    pp: int = 1


def test_layers_on_cards_are_weights_and_cache_once_and_a_process_on_each() -> None:
    cpu, two = estimate(EIGHT, context=4096), by_layers(EIGHT, cards=2, context=4096)
    assert two.cards == cpu.weights + cpu.cache + 2 * (cpu.compute + CARD_PROCESS)
    assert by_layers(EIGHT, cards=1, context=4096).cards == two.cards - cpu.compute - CARD_PROCESS
    table = 128_256 * 4096 * 4800 * MIB // 8_000_000_000
    assert two.layer == max(table, -(-(4800 * MIB - 2 * table) // 32) + cpu.cache // 32)
    assert (two.layers, two.tail) == (32, table)
    assert two.base == cpu.compute + CARD_PROCESS
    assert two.memory < 2 * GIB  # the weights are not in the node's memory


def test_a_declared_figure_wins_and_an_unknown_shape_has_large_pieces() -> None:
    assert by_layers(EIGHT, cards=2, card_memory=40 * GIB).cards == 40 * GIB
    assert by_layers(EIGHT, cards=2, card_memory=MIB).base == MIB // 4
    unknown = by_layers(ModelFacts(kind="model"), cards=2, card_memory=32 * GIB)
    assert (unknown.layers, unknown.tail) == (0, 0)
    assert (unknown.cards, unknown.layer) == (32 * GIB, -(-(32 * GIB - 2 * unknown.base) // 16))


def test_layers_that_differ_count_as_the_largest() -> None:
    plain = replace(EIGHT, vocabulary=100)
    mixed = replace(plain, caches=attention(layers=32, heads_kv=(8,) * 8 + (0,) * 24, key=128, value=128))
    assert abs(by_layers(mixed, cards=2, context=4096).layer - by_layers(plain, cards=2, context=4096).layer) < MIB


def test_vllm_needs_weights_and_a_fifth_and_two_gib_a_card() -> None:
    found = evenly(ModelFacts(kind="model"), cards=4, weights=100 * GIB)
    assert found.cards == 128 * GIB
    assert found.memory == card_footprint.VLLM_HOST + 4 * card_footprint.VLLM_WORKER
    assert found.layer == 0


LLAMA_70B = ModelFacts(
    kind="model", layers=80, heads=64, heads_kv=8, key_length=128, value_length=128, context=131_072
)  # fmt: skip
DEEPSEEK_V3 = ModelFacts(
    kind="model", layers=61, heads=128, heads_kv=128, kv_lora_rank=512, rope_length=64, context=163_840,
    caches=latent(layers=61, rank=512, rope=64),
)  # fmt: skip
GEMMA_27B = ModelFacts(
    kind="model", layers=62, heads=32, heads_kv=16, key_length=128, value_length=128, context=131_072,
    caches=attention(
        layers=62, heads_kv=(16,), key=128, value=128, window=1024, windowed=tuple(at % 6 < 5 for at in range(62))
    ),
)  # fmt: skip


@pytest.mark.parametrize(
    ("facts", "cards", "context", "each"),
    [
        (LLAMA_70B, 1, 8192, 80 * 8 * 256 * 2 * 8192),  # 2.5 GiB
        (LLAMA_70B, 4, 131_072, 80 * 2 * 256 * 2 * 131_072),  # 10 GiB of 40
        (LLAMA_70B, 4, 0, 80 * 2 * 256 * 2 * 131_072),  # vLLM takes what the model was trained for
        (LLAMA_70B, 16, 131_072, 80 * 1 * 256 * 2 * 131_072),  # each head lies on two cards
        (LLAMA_70B, 1, 100, 80 * 8 * 256 * 2 * 112),  # whole blocks
        (DEEPSEEK_V3, 8, 163_840, 61 * 576 * 2 * 163_840),  # 10.7 GiB on every card
        (GEMMA_27B, 1, 131_072, (10 * 131_072 + 52 * (1023 + 8192 + 16 + 1)) * 16 * 256 * 2),  # 5/6 of the layers slide
        (GEMMA_27B, 2, 512, (10 * 512 + 52 * 528) * 8 * 256 * 2),
        (replace(LLAMA_70B, layers=0, state=8 * MIB), 4, 4096, 2 * MIB),
    ],
)
def test_vllm_holds_one_request_of_the_whole_context(facts: ModelFacts, cards: int, context: int, each: int) -> None:
    found = evenly(facts, cards=cards, weights=GIB // 1024, context=context)
    assert found.cards == MIB + cards * (each + 2 * GIB)
    large = evenly(facts, cards=cards, weights=1000 * cards * GIB, context=context)
    assert large.cards == 1200 * cards * GIB + cards * 2 * GIB  # in the fifth, already


def test_of_several_nodes_each_holds_the_cache_of_its_layers() -> None:
    one = Way(engine="vllm", tp=4, context=131_072)
    whole, half = (needs(way, LLAMA_70B, 140 * GIB).card_memory for way in (one, replace(one, pp=2)))
    assert whole == 140 * GIB + 4 * (10 + 2) * GIB
    assert half == (140 + 40) // 2 * GIB + 4 * 2 * GIB


def test_each_of_several_nodes_has_a_part_of_the_layers_and_all_that_a_card_has_beside_them() -> None:
    of, one = ModelFacts(kind="model"), Way(engine="vllm", tp=4)
    assert needs(one, of, 100 * GIB).card_memory == 128 * GIB
    assert needs(replace(one, pp=2), of, 100 * GIB).card_memory == 68 * GIB
    assert needs(replace(one, pp=2, card_memory=70 * GIB), of, 100 * GIB).card_memory == 70 * GIB


def test_a_way_without_cards_takes_nothing_of_any_card() -> None:
    found = needs(Way(), EIGHT, 0)
    assert (found.memory, found.card_memory, found.layer) == (estimate(EIGHT, context=4096).total, 0, 0)
    assert needs(Way(memory=GIB), EIGHT, 0).memory == GIB
    assert needs(Way(gpus_per_node=1, memory=GIB), EIGHT, 0).memory == GIB


@pytest.mark.parametrize(
    ("way", "weights", "code"),
    [
        (Way(), GIB, None),
        (Way(), 0, "memory_required"),
        (Way(memory=GIB), 0, None),
        (Way(engine="vllm"), GIB, "memory_required"),
        (Way(engine="vllm", memory=GIB), 0, None),
        (Way(gpus_per_node=2), 0, "card_memory_required"),
        (Way(gpus_per_node=2), GIB, None),
        (Way(engine="vllm", tp=2), 0, "card_memory_required"),
        (Way(engine="vllm", tp=2, card_memory=GIB), 0, None),
    ],
)
def test_what_cannot_be_estimated_must_be_declared(way: Way, weights: int, code: str | None) -> None:
    found = undeclared(way, ModelFacts(kind="model"), weights)
    assert (found.code if found else None) == code


@given(cards=st.integers(1, 16), context=st.integers(1, 1 << 18), slots=st.integers(1, 64))
def test_no_piece_is_larger_than_the_whole_and_more_never_takes_less(cards: int, context: int, slots: int) -> None:
    one = by_layers(EIGHT, cards=cards, context=context, slots=slots)
    assert 0 < one.layer <= one.cards
    assert by_layers(EIGHT, cards=cards + 1, context=context, slots=slots).cards >= one.cards
    assert by_layers(EIGHT, cards=cards, context=context, slots=slots + 1).cards >= one.cards


@pytest.mark.parametrize(
    ("given_labels", "words"),
    [
        ({}, ""),
        ({"zone": "b", "llmgw.io/rack": "r-12", "x": ""}, ""),
        ([], "names with texts"),
        ({"zone": 3}, "names with texts"),
        ({"-zone": "b"}, "no name of a label"),
        ({"a" * 64: "b"}, "no name of a label"),
        ({"zone": "b c"}, "no value of the label zone"),
        ({f"k{n}": "" for n in range(65)}, "up to 64"),
    ],
)
def test_labels_are_plain_names_and_values(given_labels: object, words: str) -> None:
    found = labels.problem(given_labels)
    assert words in found
    assert bool(found) == bool(words)
