"""A model's config.json to what llmgw wants to know of it, for weights that are a folder. None: it does not say."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from catalog.domain import caches
from catalog.domain.caches import MAX_LAYERS, Caches
from catalog.domain.facts import MAX_FIGURE, ModelFacts
from catalog.domain.foreign import plain

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
    head = count("head_dim", "attention_head_dim") or (width // heads if width and heads else None)
    names = config.get("architectures")
    quantization = config.get("quantization_config")
    method = quantization.get("quant_method") if isinstance(quantization, Mapping) else None
    return ModelFacts(
        kind="model",
        architecture=plain(names[0], 64) if isinstance(names, list) and names else "",
        quantization=plain(method, 40),
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
        kv_lora_rank=count("kv_lora_rank"),
        rope_length=count("qk_rope_head_dim"),
        experts=count("num_local_experts", "num_experts", "n_routed_experts"),
        experts_used=count("num_experts_per_tok"),
        experts_feed_forward=count("moe_intermediate_size"),
        caches=_caches(inner, count, head),
        state=_state(inner, count),
    )


SLIDING, LINEAR, FORWARD = "sliding_attention", ("linear_attention", "mamba", "conv"), ("mlp", "moe")
"""Words of `layer_types` and `layers_block_type`. Of a hybrid layer (Zamba) both the attention and the state count."""
LETTERS: Mapping[str, str] = {"M": "mamba", "*": "attention", "-": "mlp", "E": "moe"}
"""The same in a `hybrid_override_pattern` (Nemotron-H)."""


def _types(config: Mapping[str, Any], layers: int) -> Sequence[Any]:
    """What each layer is, as far as the config says; (): it says nothing that fits."""
    letters = config.get("hybrid_override_pattern")
    spelled = [LETTERS.get(letter, "") for letter in letters] if isinstance(letters, str) else None
    found = (config.get("layer_types"), config.get("layers_block_type"), spelled)
    return next((item for item in found if isinstance(item, list) and len(item) == layers), ())


def _caches(config: Mapping[str, Any], count: Callable[..., int | None], head: int | None) -> tuple[Caches, ...]:
    """What the layers keep of tokens, by what it says of each, else by its pattern of windows."""
    layers, heads = count("num_hidden_layers", "n_layer"), count("num_attention_heads", "n_head")
    rank = count("kv_lora_rank")
    if not layers or layers > MAX_LAYERS or not heads or not head:
        return ()
    if rank:
        return caches.latent(layers=layers, rank=rank, rope=count("qk_rope_head_dim") or 0)
    kv = count("num_key_value_heads") or heads
    types, window = _types(config, layers), count("sliding_window") or 0
    if config.get("use_sliding_window") is False:
        window = 0
    each, windowed = (kv,) * layers, (False,) * layers
    if types:
        each = tuple(0 if kind in (*LINEAR, *FORWARD) else kv for kind in types)
        windowed = tuple(kind == SLIDING for kind in types)
    elif window and (period := count("sliding_window_pattern")):
        windowed = caches.slides("", layers, period)
    elif window and config.get("model_type") == "mistral":
        windowed = (True,) * layers
    return caches.attention(layers=layers, heads_kv=each, key=head, value=head, window=window, windowed=windowed)


def _state(config: Mapping[str, Any], count: Callable[..., int | None]) -> int:
    """Bytes of one request's recurrent state: of the layers that are named as such, else of all: too much, never too little.

    1. a gated delta net (linear attention): its value heads are as wide as an inner layer, its key heads are the groups
    2. Mamba: the inner width is stated, or its heads make it up, or it is the width times `mamba_expand`
    """
    layers = count("num_hidden_layers", "n_layer")
    if not layers or layers > MAX_LAYERS:
        return 0
    if types := _types(config, layers):
        layers = sum(kind in (*LINEAR, "hybrid") for kind in types if isinstance(kind, str))
    conv, size, groups = count("linear_conv_kernel_dim"), count("linear_key_head_dim"), count("linear_num_key_heads")
    inner = (count("linear_num_value_heads") or 0) * (count("linear_value_head_dim") or 0)  # 1
    if not (conv and size and inner):  # 2
        conv, size = count("mamba_d_conv", "conv_kernel"), count("mamba_d_state", "ssm_state_size")
        groups = count("mamba_n_groups", "n_groups", "mamba_ngroups")
        made = (count("mamba_n_heads", "mamba_num_heads", "n_mamba_heads") or 0) * (
            count("mamba_d_head", "mamba_head_dim", "mamba_headdim") or 0
        )
        inner = count("mamba_d_ssm") or made or (count("mamba_expand", "expand") or 2) * (count("hidden_size") or 0)
    if not (conv and size and inner):
        return 0
    return caches.state(layers=layers, conv=conv, inner=inner, size=size, groups=groups or 0)
