"""From header to facts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from catalog.domain.caches import Caches
from catalog.domain.facts import ModelFacts, Split, facts_from_dict, model_facts, shard_names
from catalog.domain.gguf import Array, BadGguf, Header, Tensor, read_header
from tests.catalog.domain.test_gguf import Bytes
from tests.tiny import tiny_gguf

GROUPS = ("general.", "tokenizer.", "split.", "adapter.")


def header(**pairs: Any) -> Header:
    """A header with these pairs; `__` stands for a dot, and a key is the architecture's own unless it says otherwise."""
    named = {key.replace("__", "."): value for key, value in pairs.items()}
    full = {key if key.startswith(GROUPS) else f"llama.{key}": value for key, value in named.items()}
    return Header(
        version=3,
        pairs={"general.architecture": "llama", **full},
        tensors=(Tensor("w", (32, 4), 8, 0),),
        alignment=32,
        data_offset=0,
        data_size=136,
        file_size=136,
        sizes={"w": 136},
    )


def facts(*, file_name: str = "", **pairs: Any) -> ModelFacts:
    return model_facts(header(**pairs), file_name=file_name)


def test_a_real_file_tells_its_shape() -> None:
    found = model_facts(read_header(Bytes(tiny_gguf(context=2048).read_bytes())))
    assert (found.kind, found.architecture, found.name, found.quantization) == ("model", "llama", "tiny", "F16")
    assert (found.layers, found.heads, found.heads_kv, found.context) == (2, 4, 2, 2048)
    assert found.chat_template
    assert not found.embeddings
    assert facts_from_dict(found.as_dict()) == found


def test_heads_may_be_one_number_or_one_per_layer() -> None:
    one = facts(attention__head_count=8, attention__head_count_kv=2, embedding_length=64)
    assert (one.heads, one.heads_kv, one.caches, one.key_length) == (8, 2, (), 8)
    many = facts(attention__head_count=8, attention__head_count_kv=(2, 4, 0), embedding_length=64, block_count=3)
    assert many.heads_kv == 4
    assert many.caches == (Caches(layers=1, key=16, value=16), Caches(layers=1, key=32, value=32))
    assert facts_from_dict(many.as_dict()) == many


def test_missing_kv_heads_are_as_many_as_heads_and_what_is_not_said_is_not_known() -> None:
    found = facts(attention__head_count=8)
    assert found.heads_kv == 8
    assert (found.layers, found.context, found.key_length, found.experts) == (None, None, None, None)
    assert "layers" not in found.as_dict()


@pytest.mark.parametrize(
    ("pairs", "name", "kind"),
    [
        ({}, "x.gguf", "model"),
        ({"general__type": "adapter"}, "x.gguf", "adapter"),
        ({"adapter__type": "lora"}, "x.gguf", "adapter"),
        ({"general__type": "mmproj"}, "x.gguf", "mmproj"),
        ({"general__architecture": "clip"}, "x.gguf", "mmproj"),
        ({}, "mmproj-model.gguf", "mmproj"),
        ({"general__type": "imatrix"}, "x.gguf", "imatrix"),
    ],
)
def test_the_kind_of_file_is_told(pairs: dict[str, Any], name: str, kind: str) -> None:
    assert facts(file_name=name, **pairs).kind == kind


@pytest.mark.parametrize(
    ("pairs", "pooling", "embeddings"),
    [
        ({}, "", False),
        ({"pooling_type": 0}, "none", False),
        ({"pooling_type": 1}, "mean", True),
        ({"pooling_type": 3}, "last", True),
        ({"pooling_type": 4}, "rank", True),
        ({"general__architecture": "bert"}, "", True),
    ],
)
def test_an_embedding_model_is_told(pairs: dict[str, Any], pooling: str, embeddings: bool) -> None:
    found = facts(**pairs)
    assert (found.pooling, found.embeddings) == (pooling, embeddings)


def test_quantization_is_the_label_or_what_most_bytes_are() -> None:
    assert facts(general__file_type=15).quantization == "Q4_K_M"
    assert facts(general__file_type=1024 + 7).quantization == "Q8_0"
    assert facts(general__file_type=999).quantization == "Q8_0"


def test_the_vocabulary_is_counted() -> None:
    assert facts(tokenizer__ggml__tokens=Array(8, 32_000)).vocabulary == 32_000
    assert facts(vocab_size=99).vocabulary == 99


def test_parts_are_told_and_a_name_may_not_contradict() -> None:
    split = {"split__no": 1, "split__count": 3}
    assert facts(file_name="m-00002-of-00003.gguf", **split).split == Split(number=2, count=3)
    assert facts(file_name="m.gguf", **split).split == Split(number=2, count=3)
    assert facts(split__no=0, split__count=1).split is None
    for wrong in ({"file_name": "m-00001-of-00003.gguf", **split}, {"split__no": 3, "split__count": 3}):
        with pytest.raises(BadGguf):
            facts(**wrong)


@pytest.mark.parametrize("value", [-1, True, 0.5, 1 << 60])
def test_a_figure_that_is_no_count_is_refused(value: Any) -> None:
    with pytest.raises(BadGguf, match="a count is needed"):
        facts(block_count=value)


@pytest.mark.parametrize(("architecture", "states"), [("nemotron_h", 4), ("nemotron_h_moe", 4), ("granitehybrid", 6)])
def test_feed_forwards_that_are_layers_of_their_own_keep_no_state(architecture: str, states: int) -> None:
    given = {
        "block_count": 8, "embedding_length": 4096, "attention.head_count": 32, "attention.key_length": 128,
        "attention.value_length": 128, "attention.head_count_kv": (0, 0, 0, 8, 0, 0, 0, 8),
        "feed_forward_length": (0, 0, 21_504, 0, 0, 0, 21_504, 0),
        "ssm.conv_kernel": 4, "ssm.inner_size": 8192, "ssm.state_size": 128, "ssm.group_count": 8,
    }  # fmt: skip
    pairs = {"general.architecture": architecture, **{f"{architecture}.{key}": value for key, value in given.items()}}
    found = model_facts(replace(header(), pairs=pairs))
    assert found.state == states * (3 * (8192 + 2 * 8 * 128) + 128 * 8192) * 4
    assert found.caches == (Caches(layers=2, key=1024, value=1024),)


def test_shard_names() -> None:
    assert shard_names("m.gguf") == ("m.gguf",)
    assert shard_names("m-00002-of-00003.gguf") == tuple(f"m-0000{n}-of-00003.gguf" for n in (1, 2, 3))
    assert shard_names("m-00002-of-99999.gguf") == ("m-00002-of-99999.gguf",)


def test_what_no_model_has_costs_nothing_and_is_not_known() -> None:
    many = tuple([1] * 4096)
    found = facts(block_count=4096, attention__head_count=many, attention__head_count_kv=many, embedding_length=64)
    assert sum(kind.layers for kind in found.caches) == 4096
    huge = 1 << 48
    assert (
        facts(block_count=8, attention__head_count=huge, attention__key_length=huge, attention__value_length=8).caches
        == ()
    )
    state = facts(block_count=8, ssm__conv_kernel=huge, ssm__inner_size=huge, ssm__state_size=huge).state
    assert state < 1 << 63


def test_names_are_kept_without_what_no_database_takes() -> None:
    assert facts(general__name="a\0\x1b[31mb").name == "a[31mb"
