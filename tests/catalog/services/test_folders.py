"""Weights that are a folder: its config.json says what the model is."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import orjson
import pytest

from catalog.domain.hf_config import config_facts
from catalog.services import profiles, weights
from llmgw_site.lib.errors import Refused
from tests.rows import ACTOR, a_model

CONFIG = {
    "architectures": ["Qwen2ForCausalLM"], "num_hidden_layers": 24, "num_attention_heads": 14, "num_key_value_heads": 2,
    "hidden_size": 896, "intermediate_size": 4864, "vocab_size": 151_936, "max_position_embeddings": 32_768,
}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_bytes(orjson.dumps(CONFIG))
    for number in (1, 2):
        (tmp_path / f"model-0000{number}-of-00002.safetensors").write_bytes(b"x" * 500)
    return tmp_path


def test_a_folder_is_read_by_its_config_and_its_weights_are_counted(folder: Path) -> None:
    found = weights.look_folder(str(folder))
    assert (found.size, len(found.files)) == (1000, 2)
    facts = found.facts
    assert (facts.architecture, facts.layers, facts.heads, facts.heads_kv) == ("Qwen2ForCausalLM", 24, 14, 2)
    assert (facts.key_length, facts.context, facts.vocabulary, facts.bytes) == (64, 32_768, 151_936, 1000)


@pytest.mark.parametrize(
    ("config", "heads"),
    [
        ({"text_config": {"num_attention_heads": 8}, "num_attention_heads": 3}, 8),
        ({"num_attention_heads": True}, None),
        ({"num_attention_heads": -1}, None),
        ({"num_attention_heads": 1 << 60}, None),
        ({"architectures": "x", "quantization_config": 5, "text_config": 3}, None),
        ({}, None),
    ],
)
def test_what_is_no_count_is_not_known(config: dict[str, Any], heads: int | None) -> None:
    assert config_facts(config).heads == heads


@pytest.mark.parametrize("damage", ["no config", "no json", "a list", "a pipe", "no weights", "too long"])
def test_a_folder_that_is_no_whole_model_is_refused(folder: Path, damage: str) -> None:
    config = folder / "config.json"
    if damage == "no weights":
        for file in folder.glob("*.safetensors"):
            file.unlink()
    elif damage == "no config":
        config.unlink()
    elif damage == "a pipe":
        config.unlink()
        os.mkfifo(config)
    else:
        config.write_bytes({"no json": b"{", "a list": b"[]", "too long": b" " * (weights.MAX_CONFIG + 1)}[damage])
    with pytest.raises(Refused) as refused:
        weights.look_folder(str(folder))
    assert refused.value.code == "weights_incomplete"


@pytest.mark.django_db
def test_a_vllm_model_of_a_folder_has_its_card_memory_estimated_and_its_heads_checked(folder: Path) -> None:
    model = a_model(weights_path=str(folder), profile={"engine": "vllm", "tp": 2})
    assert (model.weights_size, model.facts["heads"]) == (1000, 14)
    with pytest.raises(Refused, match=r"14 attention heads and 2 KV heads .* one of 1, 2, 14") as refused:
        profiles.add(actor=ACTOR, model=model, name="four", engine="vllm", tp=4)
    assert refused.value.code == "heads_not_divisible"
