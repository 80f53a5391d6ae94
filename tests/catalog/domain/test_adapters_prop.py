"""Whatever a header or a configuration says: an adapter is read or refused, and what is read can be kept."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from catalog.domain import gguf, safetensors
from catalog.domain.adapters import AdapterFacts, facts_from_dict, gguf_adapter, peft_adapter, vet
from catalog.domain.facts import ModelFacts
from llmgw_site.lib.errors import Refused
from tests.examples import few

CODES = ("adapter_not_an_adapter", "adapter_not_lora", "adapter_damaged")
SHAPES = st.lists(st.integers(0, 2**40), max_size=4).map(tuple)
NAMES = st.one_of(
    st.text(max_size=30),
    st.sampled_from(
        [
            "blk.0.attn_q.weight.lora_a", "blk.0.attn_q.weight.lora_b", "output.weight.lora_a", "output.weight.lora_b",
            "token_embd.weight.lora_a", "token_embd.weight.lora_b", "model.layers.3.q_proj.lora_A.weight",
            "model.layers.3.q_proj.lora_B.weight", "blk.999999.ffn_up.weight.lora_a", "blk.999999.ffn_up.weight.lora_b",
        ]
    ),
)  # fmt: skip
TENSORS = st.dictionaries(NAMES, SHAPES, max_size=8)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=8,
)
CONFIGS = st.one_of(
    JSON,
    st.fixed_dictionaries({"peft_type": st.just("LORA") | JSON, "lora_alpha": JSON, "base_model_name_or_path": JSON}),
)


def refused(work: Callable[[], object]) -> str:
    """The code that it is refused with; empty: it is not."""
    try:
        work()
    except Refused as error:
        return error.code
    return ""


def keeps(found: AdapterFacts) -> None:
    told = json.dumps(found.as_dict(), allow_nan=False)
    assert "\\u0000" not in told
    assert facts_from_dict(json.loads(told)) == found
    about = ModelFacts(kind="model", layers=2, embedding=64)
    code = refused(lambda: vet(found, about, engines=["vllm"], scale=1.0, what="f", name="m"))
    assert code in ("", "adapter_wrong_format", "adapter_wrong_shape")


@few()
@given(TENSORS, CONFIGS)
def test_any_folder_is_read_or_refused(tensors: dict[str, tuple[int, ...]], config: Any) -> None:
    made = tuple(safetensors.Tensor(name=name, dtype="F16", shape=shape, size=0) for name, shape in tensors.items())
    header = safetensors.Header(tensors=made, metadata={}, data_offset=0, file_size=0)
    code = refused(lambda: keeps(peft_adapter(config, header, what="f")))
    assert code in ("", *CODES)


@few()
@given(TENSORS, JSON, JSON, JSON, st.sampled_from(["adapter", "model"]))
def test_any_header_is_read_or_refused(
    tensors: dict[str, tuple[int, ...]], kind: Any, alpha: Any, base: Any, of: str
) -> None:
    made = tuple(gguf.Tensor(name=name, dimensions=shape, type=1, offset=0) for name, shape in tensors.items())
    pairs = {"adapter.type": kind or "lora", "adapter.lora.alpha": alpha, "general.base_model.0.name": base}
    header = gguf.Header(
        version=3, pairs=pairs, tensors=made, alignment=32, data_offset=0, data_size=0, file_size=0
    )  # fmt: skip
    code = refused(lambda: keeps(gguf_adapter(header, ModelFacts(kind=of, name="a\x00b"), what="f")))
    assert code in ("", *CODES)
