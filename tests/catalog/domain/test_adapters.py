"""What an adapter's file says, which models it fits, and how engines are told to load it."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from catalog.domain import safetensors
from catalog.domain.adapters import AdapterFacts, facts_from_dict, gguf_adapter, peft_adapter, vet
from catalog.domain.engine_command import Lora, Run, command
from catalog.domain.facts import ModelFacts, model_facts
from catalog.domain.gguf import read_header
from catalog.domain.repository import Format
from llmgw_site.lib.errors import Refused
from tests.tiny import finish, make_tiny_gguf

GGUF = AdapterFacts(format=Format.GGUF, architecture="llama", rank=8, pairs=2, layers=2, width=64)
PEFT = AdapterFacts(format=Format.SAFETENSORS, rank=8, pairs=2, layers=2, width=64)
MODEL = ModelFacts(kind="model", architecture="llama", layers=2, embedding=64)


class Bytes:
    def __init__(self, data: bytes) -> None:
        self._data, self.size = data, len(data)

    def read(self, offset: int, count: int) -> bytes:
        return self._data[offset : offset + count]


def lora(
    path: Path, tensors: Mapping[str, Sequence[int]], *, kind: str = "lora", type: str = "adapter"
) -> AdapterFacts:
    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_type(type)
    writer.add_name("small talk")
    writer.add_string("adapter.type", kind)
    writer.add_float32("adapter.lora.alpha", 16.0)
    for name, shape in tensors.items():
        writer.add_tensor(name, np.zeros(shape, np.float32))
    finish(writer)
    header = read_header(Bytes(path.read_bytes()))
    return gguf_adapter(header, model_facts(header), what="f.gguf")


def packed(tensors: Mapping[str, Sequence[int]]) -> safetensors.Header:
    head, at = {}, 0
    for name, shape in tensors.items():
        size = 2 * int(np.prod(shape))
        head[name] = {"dtype": "F16", "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(head).encode()
    return safetensors.read_header(Bytes(struct.pack("<Q", len(text)) + text + bytes(at)))


PAIR = {"blk.1.attn_q.weight.lora_a": (8, 64), "blk.1.attn_q.weight.lora_b": (64, 8)}
PEFT_PAIR = {
    "base_model.model.model.layers.1.self_attn.q_proj.lora_A.weight": (8, 64),
    "base_model.model.model.layers.1.self_attn.q_proj.lora_B.weight": (64, 8),
}


def test_a_gguf_adapter_says_what_it_is(tmp_path: Path) -> None:
    found = lora(
        tmp_path / "a.gguf", {**PAIR, "blk.0.ffn_down.weight.lora_a": (4, 128), "blk.0.ffn_down.weight.lora_b": (64, 4)}
    )
    assert found == AdapterFacts(
        format=Format.GGUF, architecture="llama", name="small talk", rank=8, alpha=16.0, pairs=2, layers=2, width=64
    )
    assert facts_from_dict({**json.loads(json.dumps(found.as_dict())), "later": 1}) == found


def test_a_peft_folder_says_what_it_is() -> None:
    config = {"peft_type": "LORA", "lora_alpha": 16, "base_model_name_or_path": "org/base", "r": 8}
    found = peft_adapter(config, packed(PEFT_PAIR), what="folder")
    assert found == AdapterFacts(
        format=Format.SAFETENSORS, base="org/base", rank=8, alpha=16.0, pairs=1, layers=2, width=64
    )


@pytest.mark.parametrize("alpha", [float("nan"), float("inf"), 10**400, True, "16", None])
def test_what_is_no_figure_and_no_text_is_left_out(alpha: Any) -> None:
    config = {"peft_type": "LORA", "lora_alpha": alpha, "base_model_name_or_path": "a\x00b\n" + "x" * 500}
    found = peft_adapter(config, packed(PEFT_PAIR), what="folder")
    assert found.alpha is None
    assert found.base == "ab" + "x" * 196
    json.dumps(found.as_dict(), allow_nan=False)


@pytest.mark.parametrize(
    ("tensors", "more", "code"),
    [
        ({"x": (4, 4)}, {"type": "model", "kind": ""}, "adapter_not_an_adapter"),
        ({"x": (4, 4)}, {}, "adapter_not_an_adapter"),
        (PAIR, {"kind": "control_vector"}, "adapter_not_lora"),
        ({"blk.1.attn_q.weight.lora_a": (8, 64)}, {}, "adapter_damaged"),
        ({**PAIR, "blk.1.attn_q.weight.lora_b": (64, 4)}, {}, "adapter_damaged"),
        ({"a.lora_a": (5000, 2), "a.lora_b": (2, 5000)}, {}, "adapter_damaged"),
    ],
)
def test_a_file_that_is_no_whole_lora_adapter_is_refused(
    tmp_path: Path, tensors: Any, more: dict[str, str], code: str
) -> None:
    with pytest.raises(Refused) as refused:
        lora(tmp_path / "a.gguf", tensors, **more)
    assert refused.value.code == code
    assert "f.gguf" in refused.value.message


@pytest.mark.parametrize(
    ("config", "tensors", "code"),
    [
        (None, PEFT_PAIR, "adapter_not_an_adapter"),
        ([], PEFT_PAIR, "adapter_not_an_adapter"),
        ({"peft_type": "IA3"}, PEFT_PAIR, "adapter_not_lora"),
        ({"peft_type": "LORA"}, {"model.weight": (2, 2)}, "adapter_not_an_adapter"),
        ({"peft_type": "LORA"}, dict(list(PEFT_PAIR.items())[:1]), "adapter_damaged"),
    ],
)
def test_a_folder_that_is_no_lora_adapter_is_refused(config: Any, tensors: Any, code: str) -> None:
    with pytest.raises(Refused) as refused:
        peft_adapter(config, packed(tensors), what="folder")
    assert refused.value.code == code


@pytest.mark.parametrize(
    ("adapter", "model", "engines", "scale", "code"),
    [
        (GGUF, MODEL, ["llama.cpp"], 0.5, ""),
        (PEFT, MODEL, ["vllm"], 1.0, ""),
        (GGUF, ModelFacts(kind="model"), ["llama.cpp"], 1.0, ""),
        (GGUF, MODEL, ["vllm"], 1.0, "adapter_wrong_format"),
        (PEFT, MODEL, ["llama.cpp", "vllm"], 1.0, "adapter_wrong_format"),
        (GGUF, ModelFacts(kind="model", architecture="qwen3"), ["llama.cpp"], 1.0, "adapter_wrong_architecture"),
        (
            GGUF,
            ModelFacts(kind="model", architecture="llama", embedding=128),
            ["llama.cpp"],
            1.0,
            "adapter_wrong_shape",
        ),
        (GGUF, ModelFacts(kind="model", architecture="llama", layers=1), ["llama.cpp"], 1.0, "adapter_wrong_shape"),
        (PEFT, MODEL, ["vllm"], 0.5, "adapter_scale"),
    ],
)
def test_which_adapter_fits_which_model(
    adapter: AdapterFacts, model: ModelFacts, engines: list[str], scale: float, code: str
) -> None:
    if not code:
        vet(adapter, model, engines=engines, scale=scale, what="f", name="base")
        return
    with pytest.raises(Refused) as refused:
        vet(adapter, model, engines=engines, scale=scale, what="f", name="base")
    assert refused.value.code == code
    assert "base" in refused.value.message


def test_the_adapters_of_the_tiny_model_fit_it(tmp_path: Path) -> None:
    made = make_tiny_gguf(tmp_path / "base.gguf", loras=[(tmp_path / "a.gguf", "Something else.")])
    about = model_facts(read_header(Bytes(made.read_bytes())))
    header = read_header(Bytes((tmp_path / "a.gguf").read_bytes()))
    facts = gguf_adapter(header, model_facts(header), what="a")
    vet(facts, about, engines=["llama.cpp"], scale=1.0, what="a", name="tiny")
    assert (facts.width, facts.pairs) == (about.embedding, 1)


def test_engines_load_adapters_and_apply_none() -> None:
    run = Run(
        model="m", weights="/w/m", port=1, threads=1,
        adapters=(Lora("a", "/w/a.gguf", 8), Lora("b", "/w/b.gguf", 40)),
    )  # fmt: skip
    argv = command("llama.cpp", ("p",), run, launcher=True).argv
    assert argv[-5:] == ("--lora", "/w/a.gguf", "--lora", "/w/b.gguf", "--lora-init-without-apply")
    argv = command("vllm", ("p",), run).argv
    told = (
        "--enable-lora",
        "--max-loras",
        "2",
        "--max-lora-rank",
        "64",
        "--lora-modules",
        "a=/w/a.gguf",
        "b=/w/b.gguf",
    )
    assert argv[-8:] == told


@pytest.mark.parametrize("path", ["a.gguf", "/w/a,/etc/b.gguf", "/w/a\n.gguf", "--model", ""])
def test_a_path_that_an_engine_would_read_as_something_else_is_refused(path: str) -> None:
    run = Run(model="m", weights="/w/m", port=1, threads=1, adapters=(Lora("a", path),))
    with pytest.raises(Refused) as refused:
        command("llama.cpp", ("p",), run)
    assert refused.value.code == "weights_path"
