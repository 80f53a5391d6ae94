"""cluster.domain.serving: which file, which way, which profiles, and when waiting is no use."""

from __future__ import annotations

from typing import Any

import pytest

from catalog.domain import sources
from catalog.domain.facts import ModelFacts
from catalog.domain.repository import Format
from catalog.services import profiles as service
from cluster.domain import serving
from cluster.domain.nowhere import NoPlace
from cluster.domain.offers import Offer, Plan, Variant, Way
from cluster.domain.serving import Build, Hopeless, InUse, WaitOn
from cluster.domain.types import Share
from llmgw_site.lib.errors import Refused
from llmgw_site.lib.units import GIB

L4, H100 = "NVIDIA L4", "NVIDIA H100 80GB HBM3"
FACTS = ModelFacts(kind="model", architecture="llama", layers=32, heads=32)


def variant(label: str = "Q4_K_M", *, size: int = 5 * GIB, format: Format = Format.GGUF) -> Variant:
    return Variant(name=f"m-{label or format}.x", format=format, size=size, facts=FACTS, quantization=label)


def offer(of: Variant, klass: str = "", cards: int = 0, *, free: bool = True, nodes: int = 1) -> Offer:
    engine = "llama.cpp" if of.format is Format.GGUF else "vllm"
    how: dict[str, Any] = {"tp": cards} if engine == "vllm" else {"gpus_per_node": cards}
    way = Way(engine=engine, klass=klass, nodes=nodes, context=4096, slots=2, **how)
    shares = (Share(node_id="n", memory=1),) if free else ()
    return Offer(variant=of, way=way, memory=GIB, card_memory=of.size if klass else 0, shares=shares, context=8192)


def plan(of: Variant, *offers: Offer, refusal: NoPlace | None = None) -> Plan:
    return Plan(variant=of, offers=offers, refusal=refusal)


def test_cards_come_before_the_processor_and_then_the_usual_quantisation() -> None:
    big, usual, tiny = variant("Q8_0", size=9 * GIB), variant("Q4_K_M"), variant("Q2_K", size=3 * GIB)
    plans = [
        plan(big, offer(big, L4, 1), offer(big)),
        plan(tiny, offer(tiny, L4, 1), offer(tiny)),
        plan(usual, offer(usual, L4, 2), offer(usual)),
    ]
    found = serving.choose(plans)
    assert (found.variant, found.offers) == (usual, (plans[2].offers[0],))
    only_there = serving.choose([plan(usual, offer(usual)), plan(tiny, offer(tiny, L4, 1))])
    assert only_there.variant is tiny


def test_of_quantisations_that_nobody_knows_the_smallest_is_taken() -> None:
    one, other = variant("Q3_K_L", size=4 * GIB), variant("Q2_K", size=3 * GIB)
    assert serving.choose([plan(one, offer(one)), plan(other, offer(other))]).variant is other


def test_fallbacks_are_the_next_best_ways_of_the_same_file() -> None:
    of = variant()
    plans = [plan(of, offer(of, H100, 1), offer(of, L4, 2), offer(of))]
    assert [serving.way_name(item.way) for item in serving.choose(plans).offers] == [f"1 x {H100}"]
    chosen = serving.choose(plans, fallbacks=True)
    assert [serving.way_name(item.way) for item in chosen.offers] == [f"1 x {H100}", f"2 x {L4}", "processor"]
    made = serving.profiles(chosen)
    assert [(item["name"], item["priority"]) for item in made] == [("default", 20), (f"2 x {L4}", 10), ("processor", 0)]
    assert made[0]["card_classes"] == [H100]
    assert made[0]["gpus_per_node"] == 1
    assert "card_classes" not in made[2]
    assert all(set(item) <= service.FIELDS for item in made)


def test_a_card_profile_of_vllm_says_tp() -> None:
    of = variant("", format=Format.SAFETENSORS)
    (made,) = serving.profiles(serving.choose([plan(of, offer(of, H100, 4))]))
    assert (made["engine"], made["tp"], made["card_classes"]) == ("vllm", 4, [H100])
    assert "gpus_per_node" not in made


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("processor", "processor"), ("CPU", "processor"), ("cards", f"1 x {H100}"), ("gpu", f"1 x {H100}"),
        ("2 x nvidia l4", f"2 x {L4}"), ("2×NVIDIA L4", f"2 x {L4}"),
    ],
)  # fmt: skip
def test_case_1_a_way_is_named_as_the_plan_shows_it(words: str, name: str) -> None:
    of = variant()
    plans = [plan(of, offer(of, H100, 1), offer(of, L4, 2), offer(of))]
    assert serving.way_name(serving.choose(plans, way=words).offers[0].way) == name


def test_case_1_a_way_that_is_none_is_refused_with_those_that_there_are() -> None:
    of = variant()
    with pytest.raises(Refused, match=f"2 x {L4}, processor") as refused:
        serving.choose([plan(of, offer(of, L4, 2), offer(of))], way="3 x NVIDIA L4")
    assert refused.value.code == "way_unknown"


def test_a_way_over_several_nodes_is_named_chosen_and_made_a_profile() -> None:
    of = variant("", format=Format.SAFETENSORS)
    wide = offer(of, H100, 8, nodes=2)
    chosen = serving.choose([plan(of, wide)], way=f"8 x {H100} on each of 2 nodes")
    (made,) = serving.profiles(chosen)
    assert (made["engine"], made["tp"], made["pp"]) == ("vllm", 8, 2)
    assert set(made) <= service.FIELDS
    (_, second) = serving.profiles(serving.choose([plan(of, offer(of, H100, 4), wide)], fallbacks=True))
    assert (second["pp"], second["name"]) == (2, f"8 x {H100} on each of 2 nodes")


def test_case_2_what_fits_nowhere_is_refused_with_the_words_of_the_smallest_file() -> None:
    big, small = variant("Q8_0", size=9 * GIB), variant("Q2_K", size=3 * GIB)
    words = NoPlace(code="too_little_memory", message="n1 has 2 GiB")
    plans = [plan(big, refusal=NoPlace(code="x", message="y")), plan(small, refusal=words)]
    with pytest.raises(Refused, match=r"m-Q2_K\.x fits nowhere: n1 has 2 GiB") as refused:
        serving.choose(plans)
    assert refused.value.code == "too_little_memory"


@pytest.mark.parametrize(
    ("builds", "known"),
    [
        ([], True),
        ([Build(node="a", version="1")], True),
        ([Build(node="a", version="1", architectures=("mamba",))], False),
        ([Build(node="a", version="1", architectures=("mamba",)), Build(node="b", version="2", architectures=("command_r",))], True),
        ([Build(node="a", version="1", architectures=("mamba",)), Build(node="b", version="2")], True),
    ],
)  # fmt: skip
def test_an_architecture_is_unknown_where_every_build_says_so(builds: list[Build], known: bool) -> None:
    words = serving.unknown_to_all(builds, "command-r")
    assert (words == "") is known
    if not known:
        assert "command-r" in words
        assert "1 on 1 node" in words


NEVER = {"engine_missing"}


def look(code: str, since: Any = None, *, now: float = 100.0, **more: Any) -> serving.Patience:
    values = {"never": NEVER, "coming": False, "give_up": 20, "enough": 30, **more}
    return serving.patience(code, since=since or {}, now=now, **values)


def test_case_1_a_parked_model_ends_the_wait_at_once() -> None:
    assert look("model_parked") == Hopeless()


def test_case_2_what_no_waiting_mends_ends_it_after_a_while() -> None:
    assert look("engine_missing") == WaitOn({"never": 100.0})
    assert look("engine_missing", {"never": 100.0}, now=120.0) == WaitOn({"never": 100.0})
    assert look("engine_missing", {"never": 100.0}, now=120.1) == Hopeless()
    assert look("", {"never": 100.0}, now=130.0) == WaitOn({})


@pytest.mark.parametrize("code", ["engine_missing", "no_card_memory_now"])
def test_cases_2_and_3_count_from_when_nodes_have_said_what_they_have(code: str) -> None:
    assert look(code, {"never": 100.0, "busy": 100.0}, now=140.0, unsaid=True) == WaitOn({})
    assert isinstance(look(code, {}, now=141.0), WaitOn)
    assert look("model_parked", unsaid=True) == Hopeless()


def test_case_3_cards_that_others_use_end_it_as_in_use_unless_something_is_coming() -> None:
    assert look("no_card_memory_now") == WaitOn({"busy": 100.0})
    assert look("over_limit", {"busy": 100.0}, now=131.0) == InUse()
    assert look("no_card_memory_now", {"busy": 100.0}, now=131.0, coming=True) == WaitOn({})
    assert look("engine_missing", {"busy": 100.0}, now=131.0) == WaitOn({"never": 131.0})


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (["Qwen/Qwen3-8B-GGUF"], "Qwen3-8B"), (["org/tiny"], "tiny"), (["org/gguf@abcdef1"], "model"),
        (["https://host/a/m-Q8_0-00001-of-00002.gguf", "https://host/a/m-Q8_0-00002-of-00002.gguf"], "m-Q8_0"),
        (["https://host/a/%20odd%20name.gguf"], "odd-name"),
    ],
)  # fmt: skip
def test_a_model_is_named_after_its_repository_or_first_file(words: list[str], name: str) -> None:
    sums = ["0" * 64] * len(words) if "://" in words[0] else []
    found = sources.source(words, sums)
    assert not isinstance(found, sources.FromPath)
    assert serving.default_name(found) == name
