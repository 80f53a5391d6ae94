"""A model's config.json to what llmgw wants to know of it, for weights that are a folder. None: it does not say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from catalog.domain.facts import MAX_FIGURE, ModelFacts

TEXT = ("text_config", "llm_config", "language_config")
"""Where models that also see or hear keep the shape of the part that writes."""


def config_facts(config: Mapping[str, Any], *, size: int = 0) -> ModelFacts:
    """Facts of the model whose config.json this is. `size`: bytes of its weights. What is no count is not known."""
    inner = next((config[key] for key in TEXT if isinstance(config.get(key), Mapping)), config)

    def count(*names: str) -> int | None:
        for source in (inner, config):
            for name in names:
                value = source.get(name)
                if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= MAX_FIGURE:
                    return value
        return None

    heads, width = count("num_attention_heads", "n_head"), count("hidden_size", "n_embd")
    head = count("head_dim") or (width // heads if width and heads else None)
    names = config.get("architectures")
    quantization = config.get("quantization_config")
    method = quantization.get("quant_method") if isinstance(quantization, Mapping) else None
    return ModelFacts(
        kind="model",
        architecture=str(names[0])[:64] if isinstance(names, list) and names else "",
        quantization=method[:40] if isinstance(method, str) else "",
        bytes=size,
        layers=count("num_hidden_layers", "n_layer"),
        heads=heads,
        heads_kv=count("num_key_value_heads") or heads,
        key_length=head,
        value_length=head,
        context=count("max_position_embeddings", "n_positions"),
        embedding=width,
        feed_forward=count("intermediate_size"),
        vocabulary=count("vocab_size"),
        sliding_window=count("sliding_window"),
        experts=count("num_local_experts", "num_experts", "n_routed_experts"),
        experts_used=count("num_experts_per_tok"),
    )
