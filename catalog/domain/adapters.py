"""LoRA adapters: what a file says of itself, and whether it fits a model. Pure.

GGUF: `general.type` is adapter, `adapter.type` lora, each changed tensor a pair `NAME.lora_a`, `NAME.lora_b`. Folders of PEFT:
adapter_config.json and adapter_model.safetensors with pairs `….lora_A.weight`, `….lora_B.weight`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from catalog.domain import gguf, safetensors
from catalog.domain.columns import known_fields
from catalog.domain.facts import ModelFacts
from catalog.domain.foreign import plain
from catalog.domain.repository import Format
from llmgw_site.lib.errors import Kind, Refused

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
"""The files of a PEFT folder."""
MAX_RANK, MAX_ALPHA = 4096, 1e9
LEAST_SCALE, MOST_SCALE = 0.01, 10.0
_GGUF_PAIR = re.compile(r"(?P<of>.+)\.lora_(?P<half>[ab])")
_PEFT_PAIR = re.compile(r"(?P<of>.+)\.lora_(?P<half>A|B)(?:\.default)?\.weight")
_BLOCK = re.compile(r"(?:^blk|\blayers|\bh)\.(\d{1,6})\.")
_READS_WIDTH = re.compile(
    r"(?:^output|attn_(?:q|k|v|qkv)|ffn_(?:gate|up)|lm_head|(?:q|k|v|qkv|gate|up)_proj)(?:\.weight)?$"
)
"""Matrices that read the model's own width."""


@dataclass(frozen=True, kw_only=True)
class AdapterFacts:
    """`rank`: the largest of its pairs; `layers`: one more than the last layer that it changes; `width`: of the model that it
    was made for. None and "": it does not say."""

    format: Format
    architecture: str = ""
    name: str = ""
    base: str = ""  # what it calls the model that it was made of
    rank: int | None = None
    alpha: float | None = None
    pairs: int = 0  # matrices that it changes
    layers: int | None = None
    width: int | None = None

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON values, what is not known left out."""
        return {key: value for key, value in asdict(self).items() if value not in (None, "")}


_KINDS = {"model": "a model's file", "mmproj": "a projector's file", "imatrix": "an importance matrix"}


def facts_from_dict(data: Mapping[str, Any]) -> AdapterFacts:
    """What `as_dict` made; unknown fields are ignored."""
    known = known_fields(AdapterFacts, data)
    return AdapterFacts(**{**known, "format": Format(known.get("format", Format.GGUF))})


def gguf_adapter(header: gguf.Header, facts: ModelFacts, *, what: str) -> AdapterFacts:
    """The adapter whose header this is; `facts`: the same header's, `what`: how people name the file. Raises Refused.

    1. `adapter_not_an_adapter`   a file of another kind, or one without a pair of matrices
    2. `adapter_not_lora`         an adapter of another kind than LoRA
    3. `adapter_damaged`          pairs that are not whole, or whose ranks differ
    """
    if facts.kind != "adapter":  # 1
        text = f"{what} is {_KINDS.get(facts.kind, f'a file of kind {facts.kind}')}, no adapter: name a LoRA adapter's file"
        raise _refused("adapter_not_an_adapter", text)
    kind = header.pairs.get("adapter.type")
    if kind != "lora":  # 2
        raise _refused("adapter_not_lora", f"{what} is an adapter of type {str(kind)[:40]!r}: only lora is taken")
    alpha = header.pairs.get("adapter.lora.alpha")
    found = _pairs(((tensor.name, tensor.dimensions[::-1]) for tensor in header.tensors), _GGUF_PAIR, what)
    return AdapterFacts(
        format=Format.GGUF,
        architecture=facts.architecture,
        name=plain(facts.name, 200),
        base=plain(header.pairs.get("general.base_model.0.name"), 200),
        alpha=_figure(alpha),
        **found,
    )


def peft_adapter(config: Any, header: safetensors.Header, *, what: str) -> AdapterFacts:
    """The adapter of a PEFT folder. Raises Refused, with the codes of `gguf_adapter`."""
    kind = config.get("peft_type") if isinstance(config, dict) else None
    if not isinstance(kind, str):
        text = f"{what} has no {CONFIG} of an adapter: name the folder of a PEFT adapter"
        raise _refused("adapter_not_an_adapter", text)
    if kind != "LORA":
        raise _refused("adapter_not_lora", f"{what} is an adapter of type {kind[:40]!r}: only LORA is taken")
    alpha, base = config.get("lora_alpha"), config.get("base_model_name_or_path")
    found = _pairs(((tensor.name, tensor.shape) for tensor in header.tensors), _PEFT_PAIR, what)
    return AdapterFacts(
        format=Format.SAFETENSORS,
        base=plain(base, 200),
        alpha=_figure(alpha),
        **found,
    )


def _figure(value: Any) -> float | None:
    """A number that can be told in JSON."""
    good = isinstance(value, (int, float)) and not isinstance(value, bool) and -MAX_ALPHA < value < MAX_ALPHA
    return float(value) if good else None


def _pairs(tensors: Iterable[tuple[str, tuple[int, ...]]], pattern: re.Pattern[str], what: str) -> dict[str, Any]:
    """What the pairs of matrices tell. A half A has the shape (rank, in), a half B (out, rank)."""
    halves: dict[str, dict[str, tuple[int, ...]]] = {}
    for name, shape in tensors:
        if (found := pattern.fullmatch(name)) is not None:
            halves.setdefault(found["of"], {})[found["half"].lower()] = shape
    if not halves:
        raise _refused("adapter_not_an_adapter", f"{what} holds no LoRA matrices: name an adapter")
    ranks, widths, blocks = [0], set(), [-1]
    for name, pair in halves.items():
        a, b = pair.get("a"), pair.get("b")
        if a is None or b is None:
            raise _refused("adapter_damaged", f"{what} lacks the other half of {name[:100]}: fetch it anew")
        if name.endswith(("token_embd.weight", "embed_tokens")):  # transposed there: read by rows
            ranks.append(min(*a, *b) if a and b else 0)
            continue
        if len(a) < 2 or len(b) < 2 or a[-2] != b[-1]:
            text = f"{what} has halves of {name[:100]} that do not fit each other ({list(a)[:4]} and {list(b)[:4]}): fetch it anew"
            raise _refused("adapter_damaged", text)
        ranks.append(a[-2])
        if _READS_WIDTH.search(name):
            widths.add(a[-1])
        blocks += [int(number) for number in _BLOCK.findall(name)]
    if max(ranks) > MAX_RANK:
        raise _refused("adapter_damaged", f"{what} has a rank of {max(ranks)}: at most {MAX_RANK} is taken")
    return {
        "rank": max(ranks) or None,
        "pairs": len(halves),
        "layers": max(blocks) + 1 or None,
        "width": widths.pop() if len(widths) == 1 else None,
    }


def vet(
    adapter: AdapterFacts, model: ModelFacts, *, engines: Iterable[str], scale: float, what: str, name: str
) -> None:
    """Whether this adapter can be applied to this model. Raises Refused.

    1. `adapter_wrong_format`        an engine that runs the model reads adapters of another format
    2. `adapter_wrong_architecture`  it was made for another architecture
    3. `adapter_wrong_shape`         for one of other width, or of more layers
    4. `adapter_scale`               vLLM applies adapters as they are
    What a header or the catalogue does not say is not compared.
    """
    kinds = set(engines)
    needs = {"llama.cpp": Format.GGUF, "vllm": Format.SAFETENSORS}
    for engine in sorted(kinds & needs.keys()):  # 1
        if needs[engine] is not adapter.format:
            has = "a GGUF file" if adapter.format is Format.GGUF else "a PEFT folder"
            wants = "one converted to GGUF" if engine == "llama.cpp" else "the folder with adapter_config.json"
            raise _refused("adapter_wrong_format", f"{what} is {has} and {name} runs on {engine}: name {wants}")
    if adapter.architecture and model.architecture and adapter.architecture != model.architecture:  # 2
        text = f"{what} is an adapter for the architecture {adapter.architecture} and {name} is {model.architecture}: choose one that was made for it"
        raise _refused("adapter_wrong_architecture", text)
    if adapter.width and model.embedding and adapter.width != model.embedding:  # 3
        text = f"{what} was made for a model of width {adapter.width} and {name} has {model.embedding}: choose one that was made for it"
        raise _refused("adapter_wrong_shape", text)
    if adapter.layers and model.layers and adapter.layers > model.layers:
        text = f"{what} changes layer {adapter.layers} and {name} has {model.layers}: choose one that was made for it"
        raise _refused("adapter_wrong_shape", text)
    if "vllm" in kinds and scale != 1.0:  # 4
        raise _refused("adapter_scale", f"{name} runs on vLLM, which applies an adapter as it is: leave the scale at 1")


def _refused(code: str, text: str) -> Refused:
    return Refused(Kind.INVALID, code, plain(text, 2000), param="scale" if code == "adapter_scale" else "path")
