"""Memory estimates: each term by hand, and what must hold for any shape."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from catalog.domain.caches import Caches, attention, latent
from catalog.domain.engine_command import Run, command
from catalog.domain.facts import ModelFacts
from catalog.domain.footprint import MARGIN, PROCESS, estimate
from llmgw_site.lib.units import MIB

SMALL = ModelFacts(
    kind="model", bytes=100 * MIB, layers=30, heads=9, heads_kv=3, key_length=64, value_length=64, context=8192,
    embedding=576, feed_forward=1536, vocabulary=49_152,
)  # fmt: skip
"""The shape of SmolLM2-135M."""


def test_each_term_is_what_it_says() -> None:
    found = estimate(SMALL, context=1000, slots=2)
    cells = 2 * 1024
    assert found.weights == 100 * MIB
    assert found.cache == 30 * cells * 3 * (64 * 2 + 64 * 2)
    assert found.compute == (3 * 1536 + 5 * 576) * 512 * 4 + 1024 * 512 * 2 + 2 * 49_152 * 4
    assert found.process == PROCESS + MARGIN
    assert found.prompts == (found.total - found.prompts) // 7
    assert found.total == found.weights + found.cache + found.compute + found.process + found.prompts
    assert found.complete
    assert found.explain().endswith("prompts")


def test_a_quantised_cache_is_smaller() -> None:
    full, small = estimate(SMALL), estimate(SMALL, cache_type_k="q8_0", cache_type_v="q8_0")
    assert small.cache * 32 == full.cache * 17


def test_without_a_context_the_trained_one_counts_up_to_a_bound() -> None:
    assert estimate(SMALL).cache == estimate(SMALL, context=4096).cache
    short = ModelFacts(**{**SMALL.as_dict(), "context": 512})
    assert estimate(short).cache == estimate(SMALL, context=512).cache


def test_layers_that_differ_are_summed() -> None:
    mixed = replace(SMALL, caches=attention(layers=30, heads_kv=(3,) * 10 + (0,) * 20, key=64, value=64))
    assert estimate(mixed).cache * 3 == estimate(SMALL).cache


def test_layers_with_a_window_keep_no_more_than_it_and_a_batch() -> None:
    kinds = (Caches(layers=5, key=192, value=192), Caches(layers=25, key=192, value=192, window=1000))
    sliding = replace(SMALL, caches=kinds)
    per_token = 192 * 2 + 192 * 2
    assert estimate(sliding, context=8192, slots=2).cache == 2 * per_token * (5 * 8192 + 25 * 1536)
    assert estimate(sliding, context=1024).cache == per_token * 30 * 1024


def test_latent_attention_keeps_one_row_of_each_token() -> None:
    found = estimate(replace(SMALL, caches=latent(layers=61, rank=512, rope=64)), context=4096)
    assert found.cache == 61 * 4096 * 576 * 2


def test_recurrent_layers_keep_the_same_of_every_request() -> None:
    mamba = ModelFacts(kind="model", bytes=MIB, layers=4, embedding=128, inner=256, state=77_824, vocabulary=512)
    assert [estimate(mamba, context=context, slots=3).cache for context in (512, 8192)] == [3 * 77_824] * 2
    assert estimate(mamba).complete


def test_an_unknown_shape_is_guessed_from_the_weights_and_says_so() -> None:
    found = estimate(ModelFacts(kind="model"), weights=4000 * MIB)
    assert (found.weights, found.cache + found.compute, found.complete) == (4000 * MIB, 1000 * MIB, False)
    assert "shape not known" in found.explain()


def test_the_prompt_cache_is_what_the_engine_is_given() -> None:
    for model in (SMALL, ModelFacts(kind="model", bytes=20_000 * MIB)):
        found = estimate(model)
        argv = command(
            "llama.cpp", ("engine",), Run(model="m", weights="/m.gguf", port=1, threads=1, memory=found.total)
        ).argv
        given_mib = int(argv[argv.index("--cache-ram") + 1])
        assert abs(given_mib * MIB - found.prompts) <= MIB


@given(context=st.integers(0, 1 << 20), slots=st.integers(1, 64), more=st.integers(1, 1 << 16))
def test_more_context_or_slots_never_take_less(context: int, slots: int, more: int) -> None:
    base = estimate(SMALL, context=context or 4096, slots=slots).total
    assert estimate(SMALL, context=(context or 4096) + more, slots=slots).total >= base
    assert estimate(SMALL, context=context or 4096, slots=slots + 1).total >= base


def test_a_projector_is_one_of_the_files_and_computes_with_more() -> None:
    sees = replace(SMALL, projector=100, projector_compute=50)
    plain, found = estimate(SMALL, weights=SMALL.bytes + 5000), estimate(sees, weights=SMALL.bytes + 5100)
    assert (found.weights, found.projector, found.cache, found.compute) == (
        plain.weights,
        150,
        plain.cache,
        plain.compute,
    )
    assert "projector" in found.explain()
    assert "projector" not in plain.explain()
