"""Known models by their config.json (as published in their repositories, the fields that matter): figures checked by hand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from catalog.domain.facts import ModelFacts
from catalog.domain.footprint import estimate
from catalog.domain.hf_config import config_facts
from llmgw_site.lib.units import GIB, MIB


@dataclass(frozen=True)
class Known:
    """`per_token`: bytes of cache for one more token beyond every window; `at_8k`: bytes for one request of 8192 tokens."""

    config: dict[str, Any]
    per_token: int
    at_8k: int


LLAMA = {"model_type": "llama", "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128_256}
NEMOTRON = "M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-"
KNOWN = {
    # 32 layers x 2 x 8 heads x 128 x 2 bytes
    "meta-llama/Meta-Llama-3-8B": Known(
        {**LLAMA, "num_hidden_layers": 32, "hidden_size": 4096, "intermediate_size": 14_336}, 131_072, 1 * GIB
    ),
    # 80 layers x 2 x 8 heads x 128 x 2 bytes
    "meta-llama/Meta-Llama-3-70B": Known(
        {**LLAMA, "num_attention_heads": 64, "num_hidden_layers": 80, "hidden_size": 8192, "intermediate_size": 28_672},
        327_680,
        2560 * MIB,
    ),
    # 48 layers x 2 x 4 heads x 128 x 2 bytes; head_dim is stated, 2048 / 32 would be half of it
    "Qwen/Qwen3-30B-A3B": Known(
        {
            "model_type": "qwen3_moe", "num_hidden_layers": 48, "hidden_size": 2048, "num_attention_heads": 32,
            "num_key_value_heads": 4, "head_dim": 128, "intermediate_size": 6144, "num_experts": 128,
            "num_experts_per_tok": 8, "moe_intermediate_size": 768, "vocab_size": 151_936, "sliding_window": None,
            "use_sliding_window": False,
        },
        98_304,
        768 * MIB,
    ),
    # 62 layers, every sixth sees all: 10 x 2 x 16 heads x 128 x 2 bytes; the other 52 keep 1024 + 512 tokens
    "google/gemma-3-27b-it": Known(
        {
            "model_type": "gemma3",
            "text_config": {
                "model_type": "gemma3_text", "num_hidden_layers": 62, "hidden_size": 5376, "num_attention_heads": 32,
                "num_key_value_heads": 16, "head_dim": 128, "intermediate_size": 21_504, "sliding_window": 1024,
                "sliding_window_pattern": 6,
            },
        },
        81_920,
        10 * 8192 * 8192 + 52 * 1536 * 8192,
    ),
    # 61 layers x (512 + 64) x 2 bytes
    "deepseek-ai/DeepSeek-V3": Known(
        {
            "model_type": "deepseek_v3", "num_hidden_layers": 61, "hidden_size": 7168, "num_attention_heads": 128,
            "num_key_value_heads": 128, "kv_lora_rank": 512, "q_lora_rank": 1536, "qk_nope_head_dim": 128,
            "qk_rope_head_dim": 64, "v_head_dim": 128, "intermediate_size": 18_432, "moe_intermediate_size": 2048,
            "n_routed_experts": 256, "num_experts_per_tok": 8, "vocab_size": 129_280,
        },
        70_272,
        70_272 * 8192,
    ),
    # 32 layers x 2 x 8 heads x 128 x 2 bytes
    "mistralai/Mixtral-8x7B-v0.1": Known(
        {
            "model_type": "mixtral", "num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32,
            "num_key_value_heads": 8, "intermediate_size": 14_336, "num_local_experts": 8, "num_experts_per_tok": 2,
            "sliding_window": None, "vocab_size": 32_000,
        },
        131_072,
        1 * GIB,
    ),
    # 48 layers, every fourth of attention: 12 x 2 x 2 heads x 256 x 2 bytes; of the other 36 a request keeps
    # 3 x (32 x 128 + 2 x 16 x 128) values of the convolution and 32 heads x 128 x 128, 4 bytes each
    "Qwen/Qwen3-Next-80B-A3B-Instruct": Known(
        {
            "model_type": "qwen3_next", "num_hidden_layers": 48, "hidden_size": 2048, "num_attention_heads": 16,
            "num_key_value_heads": 2, "head_dim": 256, "intermediate_size": 5120, "num_experts": 512,
            "num_experts_per_tok": 10, "moe_intermediate_size": 512, "vocab_size": 151_936,
            "layer_types": (["linear_attention"] * 3 + ["full_attention"]) * 12, "linear_conv_kernel_dim": 4,
            "linear_num_key_heads": 16, "linear_key_head_dim": 128, "linear_num_value_heads": 32, "linear_value_head_dim": 128,
        },
        24_576,
        192 * MIB + 36 * (3 * 8192 + 32 * 128 * 128) * 4,
    ),
    # 40 layers, four of attention: 4 x 2 x 8 heads x 128 x 2 bytes; of the other 36 (Mamba 2) a request keeps
    # 3 x (128 heads x 64 + 2 x 128) values of the convolution and 128 heads x 64 x 128, 4 bytes each
    "ibm-granite/granite-4.0-h-small": Known(
        {
            "model_type": "granitemoehybrid", "num_hidden_layers": 40, "hidden_size": 4096, "num_attention_heads": 32,
            "num_key_value_heads": 8, "mamba_d_conv": 4, "mamba_d_head": 64, "mamba_d_state": 128, "mamba_expand": 2,
            "mamba_n_groups": 1, "mamba_n_heads": 128, "vocab_size": 100_352,
            "layer_types": (["mamba"] * 5 + ["attention"] + ["mamba"] * 4) * 4,
        },
        16_384,
        128 * MIB + 36 * (3 * 8448 + 128 * 64 * 128) * 4,
    ),
    # 52 layers, four of attention: 4 x 2 x 8 heads x 128 x 2 bytes; of 24 others (Mamba 2) a request keeps 3 x (128 heads x 64 +
    # 2 x 8 x 128) values of the convolution and 128 heads x 64 x 128, 4 bytes each; 24 are feed-forwards, which keep nothing
    "nvidia/Nemotron-H-8B-Base-8K": Known(
        {
            "model_type": "nemotron_h", "num_hidden_layers": 52, "hidden_size": 4096, "num_attention_heads": 32,
            "num_key_value_heads": 8, "attention_head_dim": 128, "mamba_num_heads": 128, "mamba_head_dim": 64,
            "ssm_state_size": 128, "n_groups": 8, "conv_kernel": 4, "expand": 2, "intermediate_size": 21_504,
            "hybrid_override_pattern": NEMOTRON, "vocab_size": 131_072,
        },
        16_384,
        128 * MIB + 24 * (3 * 10_240 + 128 * 64 * 128) * 4,
    ),
    # 24 layers, every second with a window of 128: 12 x 2 x 8 heads x 64 x 2 bytes, and 12 that keep 128 + 512 tokens
    "openai/gpt-oss-20b": Known(
        {
            "model_type": "gpt_oss", "num_hidden_layers": 24, "hidden_size": 2880, "num_attention_heads": 64,
            "num_key_value_heads": 8, "head_dim": 64, "intermediate_size": 2880, "num_local_experts": 32,
            "num_experts_per_tok": 4, "sliding_window": 128, "vocab_size": 201_088,
            "layer_types": ["sliding_attention", "full_attention"] * 12,
        },
        24_576,
        12 * 8192 * 2048 + 12 * 768 * 2048,
    ),
}  # fmt: skip


def facts(name: str) -> ModelFacts:
    return config_facts(KNOWN[name].config, size=GIB)


@pytest.mark.parametrize("name", KNOWN)
def test_the_cache_of_a_known_model(name: str) -> None:
    known = KNOWN[name]
    assert estimate(facts(name), context=8192).cache == known.at_8k
    more = estimate(facts(name), context=16_384).cache - estimate(facts(name), context=8192).cache
    assert more == known.per_token * 8192
    assert estimate(facts(name), context=8192, slots=3).cache == 3 * known.at_8k
    assert estimate(facts(name)).complete


def test_a_recurrent_state_is_of_the_layers_that_have_one_and_of_all_where_none_are_named() -> None:
    config = KNOWN["ibm-granite/granite-4.0-h-small"].config
    one = (3 * 8448 + 128 * 64 * 128) * 4
    states = {"attention": 0, "mamba": 40 * one}
    for kind, state in states.items():
        assert config_facts({**config, "layer_types": [kind] * 40}).state == state
    assert config_facts({**config, "layer_types": None}).state == 40 * one
    assert config_facts({**config, "mamba_n_heads": None}).state == 36 * one  # 2 x 4096 is as wide
    for field in ("mamba_d_conv", "mamba_d_state"):
        assert config_facts({**config, field: 0}).state == 0


def test_what_each_layer_is_may_be_said_in_three_ways() -> None:
    config = KNOWN["nvidia/Nemotron-H-8B-Base-8K"].config
    words = {"M": "mamba", "*": "attention", "-": "moe"}
    named = [words[letter] for letter in NEMOTRON]
    for way in ("layer_types", "layers_block_type"):
        said = config_facts({**config, "hybrid_override_pattern": None, way: named})
        assert (said.state, said.caches) == (config_facts(config).state, config_facts(config).caches)
    one = config_facts(config).state // 24
    both = config_facts({**config, "layers_block_type": ["hybrid"] * 52})
    assert (both.state, sum(kind.layers for kind in both.caches)) == (52 * one, 52)
    unsaid = config_facts({**config, "hybrid_override_pattern": "M*"})
    assert (unsaid.state, sum(kind.layers for kind in unsaid.caches)) == (52 * one, 52)


@pytest.mark.parametrize("types", [["full_attention"], "none", [1] * 62, None])
def test_layer_types_that_are_none_are_not_believed(types: Any) -> None:
    config = {**KNOWN["meta-llama/Meta-Llama-3-8B"].config, "layer_types": types}
    assert estimate(config_facts(config, size=GIB), context=8192).cache == GIB


@pytest.mark.parametrize("field", ["num_hidden_layers", "num_attention_heads", "sliding_window", "kv_lora_rank"])
@pytest.mark.parametrize("value", [-1, 0, 1.5, "many", True, 1 << 60, None, [], {}])
def test_figures_that_are_none_are_not_known(field: str, value: Any) -> None:
    config = {**KNOWN["meta-llama/Meta-Llama-3-8B"].config, field: value}
    assert estimate(config_facts(config, size=GIB), context=8192).total > GIB
