"""Tiny models of other kinds than `tests.tiny`: random weights, real graphs. What they answer is noise; what they take is not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np

from tests.tiny import finish, vocabulary

LAYERS, WIDTH, HEADS, KV_HEADS, LENGTH, FEED_FORWARD = 12, 128, 4, 2, 32, 512
WINDOW = 1024
RANK, ROPE, QUERY_RANK, PLAIN, VALUE = 64, 16, 96, 32, 32
"""Of multi-head latent attention: rows that are kept, with rope, of queries; lengths without rope, of values."""
EXPERTS, USED, EXPERT_FEED_FORWARD = 8, 2, 256
CONV, INNER, STATE, STEP = 4, 256, 16, 8


class _Writer:
    """A GGUF file of an architecture, with a vocabulary and the tensors that are written into it."""

    def __init__(self, path: Path, architecture: str, layers: int, feed_forward: int) -> None:
        self._dice = np.random.default_rng(1)
        self.gguf = writer = gguf.GGUFWriter(str(path), architecture)
        writer.add_type("model")
        writer.add_context_length(8192)
        writer.add_embedding_length(WIDTH)
        writer.add_block_count(layers)
        writer.add_feed_forward_length(feed_forward)
        writer.add_layer_norm_rms_eps(1e-5)
        self.size = vocabulary(writer)
        self.layers = layers
        self.matrix("token_embd", self.size, WIDTH)
        self.ones("output_norm", WIDTH)

    def matrix(self, name: str, *shape: int, kind: Any = np.float16) -> None:
        self.gguf.add_tensor(f"{name}.weight", (self._dice.standard_normal(shape) * 0.02).astype(kind))

    def ones(self, name: str, count: int, suffix: str = ".weight") -> None:
        self.gguf.add_tensor(name + suffix, np.ones(count, np.float32))

    def blocks(self) -> list[str]:
        return [f"blk.{number}." for number in range(self.layers)]

    def feed_forward(self, block: str) -> None:
        self.ones(block + "ffn_norm", WIDTH)
        for name in ("gate", "up"):
            self.matrix(f"{block}ffn_{name}", FEED_FORWARD, WIDTH)
        self.matrix(block + "ffn_down", WIDTH, FEED_FORWARD)

    def attention(self, block: str) -> None:
        self.ones(block + "attn_norm", WIDTH)
        self.matrix(block + "attn_q", HEADS * LENGTH, WIDTH)
        for name in ("k", "v"):
            self.matrix(f"{block}attn_{name}", KV_HEADS * LENGTH, WIDTH)
        self.matrix(block + "attn_output", WIDTH, HEADS * LENGTH)
        for name in ("q", "k"):
            self.ones(f"{block}attn_{name}_norm", LENGTH)

    def heads(self) -> None:
        self.gguf.add_head_count(HEADS)
        self.gguf.add_head_count_kv(KV_HEADS)
        self.gguf.add_key_length(LENGTH)
        self.gguf.add_value_length(LENGTH)


def sliding(path: Path) -> None:
    """Gemma 3: of six layers five see a window only."""
    made = _Writer(path, "gemma3", LAYERS, FEED_FORWARD)
    made.heads()
    made.gguf.add_sliding_window(WINDOW)
    for block in made.blocks():
        made.attention(block)
        made.feed_forward(block)
        made.ones(block + "post_attention_norm", WIDTH)
        made.ones(block + "post_ffw_norm", WIDTH)
    finish(made.gguf)


def latent(path: Path) -> None:
    """DeepSeek 2 and 3: multi-head latent attention."""
    made = _Writer(path, "deepseek2", 4, FEED_FORWARD)
    writer = made.gguf
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(1)
    writer.add_key_length(RANK + ROPE)
    writer.add_value_length(RANK)
    writer.add_key_length_mla(PLAIN + ROPE)
    writer.add_value_length_mla(VALUE)
    writer.add_q_lora_rank(QUERY_RANK)
    writer.add_kv_lora_rank(RANK)
    writer.add_rope_dimension_count(ROPE)
    writer.add_leading_dense_block_count(made.layers)
    writer.add_expert_feed_forward_length(64)
    for add in (writer.add_expert_count, writer.add_expert_used_count, writer.add_expert_shared_count):
        add(0)
    writer.add_expert_weights_scale(1.0)
    made.matrix("output", made.size, WIDTH)
    for block in made.blocks():
        made.ones(block + "attn_norm", WIDTH)
        made.matrix(block + "attn_q_a", QUERY_RANK, WIDTH)
        made.ones(block + "attn_q_a_norm", QUERY_RANK)
        made.matrix(block + "attn_q_b", HEADS * (PLAIN + ROPE), QUERY_RANK)
        made.matrix(block + "attn_kv_a_mqa", RANK + ROPE, WIDTH)
        made.ones(block + "attn_kv_a_norm", RANK)
        made.matrix(block + "attn_k_b", HEADS, RANK, PLAIN)
        made.matrix(block + "attn_v_b", HEADS, VALUE, RANK)
        made.matrix(block + "attn_output", WIDTH, HEADS * VALUE)
        made.feed_forward(block)
    finish(writer)


def mixture(path: Path) -> None:
    """Qwen 3 mixture of experts."""
    made = _Writer(path, "qwen3moe", 4, FEED_FORWARD)
    made.heads()
    made.gguf.add_expert_count(EXPERTS)
    made.gguf.add_expert_used_count(USED)
    made.gguf.add_expert_feed_forward_length(EXPERT_FEED_FORWARD)
    made.matrix("output", made.size, WIDTH)
    for block in made.blocks():
        made.attention(block)
        made.ones(block + "ffn_norm", WIDTH)
        made.matrix(block + "ffn_gate_inp", EXPERTS, WIDTH)
        for name in ("gate", "up"):
            made.matrix(f"{block}ffn_{name}_exps", EXPERTS, EXPERT_FEED_FORWARD, WIDTH)
        made.matrix(block + "ffn_down_exps", EXPERTS, WIDTH, EXPERT_FEED_FORWARD)
    finish(made.gguf)


def recurrent(path: Path) -> None:
    """Mamba: no attention, a state of fixed size."""
    made = _Writer(path, "mamba", 4, 0)
    writer = made.gguf
    writer.add_head_count(0)
    writer.add_ssm_conv_kernel(CONV)
    writer.add_ssm_inner_size(INNER)
    writer.add_ssm_state_size(STATE)
    writer.add_ssm_time_step_rank(STEP)
    for block in made.blocks():
        made.ones(block + "attn_norm", WIDTH)
        made.matrix(block + "ssm_in", 2 * INNER, WIDTH)
        made.matrix(block + "ssm_conv1d", INNER, CONV, kind=np.float32)
        made.matrix(block + "ssm_x", STEP + 2 * STATE, INNER)
        made.matrix(block + "ssm_dt", INNER, STEP)
        for name in ("ssm_conv1d", "ssm_dt"):
            made.ones(block + name, INNER, ".bias")
        made.gguf.add_tensor(block + "ssm_a", -np.ones((INNER, STATE), np.float32))
        made.ones(block + "ssm_d", INNER, "")
        made.matrix(block + "ssm_out", WIDTH, INNER)
    finish(writer)


KINDS = {"sliding": sliding, "latent": latent, "mixture": mixture, "recurrent": recurrent}
