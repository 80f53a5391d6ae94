"""What is the best way to run weights on a fleet: tables with known models."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.domain.caches import attention
from catalog.domain.facts import ModelFacts
from catalog.domain.needs import needs
from catalog.domain.repository import Format
from cluster.domain.board import Board
from cluster.domain.feasible import whole
from cluster.domain.offers import Plan, Speed, Variant, Way, plan, ways
from cluster.domain.types import CardView, ModelView, NodeView, ReplicaView, Share, World
from llmgw_site.lib.units import GIB
from tests.cluster.builders import a_card, a_model, a_node, a_replica

BOTH = {"llama.cpp": "", "vllm": ""}
EIGHT = ModelFacts(
    kind="model", parameters=8_000_000_000, layers=32, heads=32, heads_kv=8, key_length=128, value_length=128, context=131_072,
    embedding=4096, feed_forward=14_336, vocabulary=128_256, caches=attention(layers=32, heads_kv=(8,), key=128, value=128),
)  # fmt: skip
SEVENTY = replace(
    EIGHT, parameters=70_000_000_000, layers=80, heads=64, embedding=8192, feed_forward=28_672,
    caches=attention(layers=80, heads_kv=(8,), key=128, value=128),
)  # fmt: skip


def gguf(size: float, facts: ModelFacts = EIGHT, name: str = "m-Q4_K_M.gguf") -> Variant:
    return Variant(name=name, format=Format.GGUF, size=int(size * GIB), facts=facts, quantization="Q4_K_M")


def folder(size: float, facts: ModelFacts = EIGHT) -> Variant:
    return Variant(name="safetensors", format=Format.SAFETENSORS, size=int(size * GIB), facts=facts)


def cards(count: int, klass: str = "L4", memory: int = 24, prefix: str = "") -> tuple[CardView, ...]:
    return tuple(a_card(f"GPU-{prefix}{klass}{at}", klass=klass, memory=memory * GIB) for at in range(count))


def a_gpu_node(name: str, *held: CardView, memory: int = 256, **fields: Any) -> NodeView:
    return a_node(name, memory=memory * GIB, cards=held, engines=BOTH, cores=64, **fields)


def the(
    *nodes: NodeView,
    variant: Variant,
    models: tuple[ModelView, ...] = (),
    replicas: tuple[ReplicaView, ...] = (),
    **asked: Any,
) -> Plan:
    return plan(Board(World(nodes=nodes, models=models, replicas=replicas)), [variant], **asked)[0]


def told(found: Plan) -> list[tuple[str, int, int, bool]]:
    return [(item.way.klass or "cpu", item.way.cards, item.way.nodes, item.free_now) for item in found.offers]


def test_one_card_comes_before_the_processor() -> None:
    found = the(a_gpu_node("one", *cards(2)), variant=gguf(4.6))
    assert told(found) == [("L4", 1, 1, True), ("cpu", 0, 1, True)]
    assert found.offers[0].shares[0].cards == (("GPU-L40", found.offers[0].card_memory),)


@pytest.mark.parametrize(
    ("held", "variant", "asked", "why"),
    [
        ((), folder(16), {}, "only cards would do for safetensors, and no node has any"),
        (cards(2), gguf(4.6), {"klass": "H200"}, "only cards of the class H200 would do for m-Q4_K_M.gguf, and no node has any"),
        (cards(2), gguf(4.6), {"tp": 4}, "no node has 4 cards for m-Q4_K_M.gguf; the most that one has is 2"),
        (cards(1), gguf(40, SEVENTY), {"tp": 1}, "no node's cards hold m-Q4_K_M.gguf, or can share it evenly: its weights are 40.0 GiB, "
         "the most memory that the cards of one node have is 24.0 GiB"),
    ],
)  # fmt: skip
def test_where_no_way_is_worth_a_try_it_says_what_is_missing(
    held: tuple[CardView, ...], variant: Variant, asked: dict[str, Any], why: str
) -> None:
    refusal = the(a_gpu_node("one", *held), variant=variant, **asked).refusal
    assert refusal is not None
    assert (refusal.code, refusal.message) == ("no_suitable_node", why)


def test_the_fewest_cards_that_hold_it_by_layers() -> None:
    found = the(a_gpu_node("one", *cards(4)), variant=gguf(40, SEVENTY))
    assert told(found)[0] == ("L4", 2, 1, True)
    sizes = [size for _, size in found.offers[0].shares[0].cards]
    assert len(sizes) == 2
    assert all(size <= 24 * GIB for size in sizes)


def test_each_class_of_cards_is_an_offer_of_its_own() -> None:
    nodes = a_gpu_node("big", *cards(1, "H100", 80)), a_gpu_node("small", *cards(4))
    assert told(the(*nodes, variant=gguf(40, SEVENTY))) == [
        ("H100", 1, 1, True),
        ("L4", 2, 1, True),
        ("cpu", 0, 1, True),
    ]
    assert told(the(*nodes, variant=gguf(40, SEVENTY), klass="L4")) == [("L4", 2, 1, True)]


def test_what_is_in_use_is_offered_all_the_same_and_only_breaks_ties() -> None:
    model = a_model("other")
    first, second = a_gpu_node("one", *cards(1, prefix="a")), a_gpu_node("two", *cards(1, "A10"))
    busy = a_replica(
        model, first, shares=(Share(node_id=first.id, memory=GIB, cards=((first.cards[0].uuid, 20 * GIB),)),)
    )
    found = the(first, second, variant=gguf(10), models=(model,), replicas=(busy,))
    assert told(found) == [("A10", 1, 1, True), ("L4", 1, 1, False), ("cpu", 0, 1, True)]


def test_vllm_shares_layers_among_as_many_cards_as_divide_the_heads() -> None:
    found = the(a_gpu_node("one", *cards(8)), variant=folder(16))
    assert told(found) == [("L4", 1, 1, True)]
    assert told(the(a_gpu_node("one", *cards(8)), variant=folder(60, SEVENTY))) == [("L4", 4, 1, True)]
    odd = replace(SEVENTY, heads=28)
    assert [item.way.tp for item in the(a_gpu_node("one", *cards(8)), variant=folder(60, odd)).offers] == [4]
    assert the(a_gpu_node("one", *cards(8)), variant=folder(110, odd)).offers == ()  # 8 do not divide 28 heads


def test_kv_heads_that_cannot_be_divided_are_no_way() -> None:
    phi = replace(SEVENTY, heads=40, heads_kv=10, layers=40)
    node = a_gpu_node("one", *cards(5))
    assert the(node, variant=folder(60, phi), tp=4).offers == ()
    assert told(the(node, variant=folder(60, phi), tp=5)) == [("L4", 5, 1, True)]
    assert told(the(node, variant=folder(28, phi))) == [("L4", 2, 1, True)]
    assert the(node, variant=folder(60, phi)).offers == ()  # no way is tried by itself that is no power of two


def test_over_several_nodes_no_other_number_of_cards_is_offered_than_was_asked_for() -> None:
    nodes = [a_gpu_node(f"n{at}", *cards(4, prefix=f"{at}-"), fabric="ib0") for at in range(2)]
    assert the(*nodes, variant=folder(60), tp=3).offers == ()
    assert told(the(*nodes, variant=folder(110, SEVENTY), tp=4)) == [("L4", 4, 2, True)]
    odd = replace(SEVENTY, heads=62, heads_kv=62)
    assert told(the(*nodes, variant=folder(60, odd))) == [("L4", 2, 2, True)]


def test_vllm_over_the_nodes_of_a_fabric_where_no_node_holds_it() -> None:
    nodes = [a_gpu_node(f"n{at}", *cards(8, prefix=f"{at}-"), fabric="ib0") for at in range(2)]
    found = the(*nodes, variant=folder(220, SEVENTY))
    assert told(found) == [("L4", 8, 2, True)]
    assert {share.node_id for share in found.offers[0].shares} == {node.id for node in nodes}
    apart = [replace(node, fabric=f"f{at}") for at, node in enumerate(nodes)]
    nowhere = the(*apart, variant=folder(220, SEVENTY))
    assert nowhere.offers == ()
    assert nowhere.refusal is not None
    assert nowhere.refusal.code == "fabric_too_small"


def test_safetensors_are_not_offered_a_processor_nor_gguf_what_tp_is_for() -> None:
    node = a_gpu_node("one")
    assert the(node, variant=folder(1)).offers == ()
    assert told(the(node, variant=gguf(1))) == [("cpu", 0, 1, True)]
    assert told(the(a_gpu_node("two", *cards(4)), variant=folder(16), tp=2)) == [("L4", 2, 1, True)]
    assert the(a_gpu_node("two", *cards(4)), variant=folder(16), tp=3).offers == ()


def test_what_fits_nowhere_says_why_with_figures() -> None:
    found = the(a_gpu_node("one", memory=8), variant=gguf(40, SEVENTY))
    assert found.offers == ()
    assert found.refusal is not None
    assert found.refusal.code == "too_little_memory"
    assert "one:" in found.refusal.message
    assert "GiB" in found.refusal.message


def test_the_largest_context_that_would_fit_the_empty_hardware() -> None:
    found = the(a_gpu_node("one", *cards(1)), variant=gguf(8)).offers[0]
    assert found.way.context == 4096
    assert 98_304 < found.context < 131_072  # 128 KiB a token, of some 14 GiB beside the weights
    more = needs(replace(found.way, context=found.context + 512), EIGHT, 8 * GIB)
    least = needs(replace(found.way, context=found.context), EIGHT, 8 * GIB)
    most = whole(cards(1))[0]
    assert least.card_memory <= most < more.card_memory + 2 * 512 * 1024
    big = the(a_gpu_node("big", *cards(1, "H100", 80)), variant=gguf(4.6)).offers[0]
    assert big.context == 131_072


def test_a_context_that_was_asked_for_counts() -> None:
    assert told(the(a_gpu_node("one", *cards(2)), variant=gguf(8), context=131_072))[0] == ("L4", 2, 1, True)
    assert told(the(a_gpu_node("one", *cards(2)), variant=gguf(4.6), context=4096, slots=64))[0][1] == 2
    short = replace(EIGHT, context=2048)
    assert the(a_gpu_node("one", *cards(1)), variant=gguf(4.6, short)).offers[0].way.context == 2048


def test_a_fleet_without_engines_or_nodes_is_told_so() -> None:
    none = the(variant=gguf(1))
    assert none.refusal is not None
    assert none.refusal.code == "no_node"
    bare = the(a_node("one", memory=64 * GIB, engines={}), variant=gguf(1))
    assert bare.refusal is not None
    assert bare.refusal.code == "engine_missing"


@given(
    sizes=st.lists(st.sampled_from([8, 16, 24, 48, 80]), max_size=6),
    size=st.floats(0.1, 200),
    slots=st.integers(1, 16),
    context=st.sampled_from([0, 512, 4096, 32_768]),
    format=st.sampled_from([gguf, folder]),
)
def test_every_offer_holds_what_it_promises(
    sizes: list[int], size: float, slots: int, context: int, format: Any
) -> None:
    held = tuple(a_card(f"GPU-{at}", klass=f"C{memory}", memory=memory * GIB) for at, memory in enumerate(sizes))
    board = Board(World(nodes=(a_gpu_node("one", *held), a_gpu_node("two"))))
    variant = format(size)
    for offer in plan(board, [variant], context=context, slots=slots)[0].offers:
        assert offer.free_now
        assert offer.context >= offer.way.context
        by_uuid = {card.uuid: card.memory_total for card in held}
        for share in offer.shares:
            assert len(share.cards) == offer.way.cards
            assert all(taken < by_uuid[uuid] for uuid, taken in share.cards)
            assert sum(taken for _, taken in share.cards) >= offer.card_memory * (
                1 if variant.format is Format.SAFETENSORS else 0
            )
    fewest = {way.klass: way.cards for way in ways(board, variant, Way(engine="", context=context, slots=slots))}
    assert len(fewest) == len(ways(board, variant, Way(engine="", context=context, slots=slots)))


def test_what_was_measured_is_told_of_its_own_file_and_way_and_ranks_equals_only() -> None:
    nodes = (a_gpu_node("one", *cards(1, "A")), a_gpu_node("two", *cards(1, "B")))

    def speed(hardware: str, tps: float, held: int = 1, file: str = "m-Q4_K_M.gguf") -> Speed:
        return Speed(file=file, engine="llama.cpp", cards=held, hardware=hardware, tps=tps, at_once=4)

    speeds = [
        speed("1 x A", 50.0), speed("1 x B", 90.0), speed("1 x B", 70.0), speed("1 x B", 1.0, file="other.gguf"),
        speed("2 x A", 2.0, held=2), speed("processor with 8 cores", 300.0, held=0),
    ]  # fmt: skip
    found = the(*nodes, variant=gguf(4.6), speeds=speeds)
    assert [(offer.way.klass or "cpu", offer.rate, offer.at_once) for offer in found.offers] == [
        ("B", 70.0, 4), ("A", 50.0, 4), ("cpu", 300.0, 4),
    ]  # fmt: skip
    assert [offer.rate for offer in the(*nodes, variant=gguf(4.6)).offers] == [0, 0, 0]
    both = replace(speeds[0], file="", engine="vllm")
    assert the(nodes[0], variant=folder(4.6), speeds=[both]).offers[0].rate == 50.0


def test_every_card_has_room_for_the_projector() -> None:
    sees = replace(EIGHT, projector=GIB, projector_compute=GIB // 2)
    blind, with_it = (the(a_gpu_node("one", *cards(4)), variant=item) for item in (gguf(30), gguf(31, sees)))
    assert blind.offers[0].way.cards == with_it.offers[0].way.cards == 2
    assert with_it.offers[0].card_memory - blind.offers[0].card_memory == 2 * (GIB + GIB // 2)
    assert 0 <= with_it.offers[-1].memory - blind.offers[-1].memory - (GIB + GIB // 2) < GIB // 4


@pytest.mark.parametrize("format", [gguf, folder])
def test_a_plan_changes_nothing_on_the_board(format: Any) -> None:
    world = World(nodes=(a_gpu_node("one", *cards(2)),))
    board = Board(world)
    plan(board, [format(4.6)])
    assert board.as_world() == world
