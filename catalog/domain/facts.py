"""A GGUF header to what llmgw wants to know of a model. None: the header does not say, never zero."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from itertools import cycle, islice
from typing import Any

from catalog.domain import caches
from catalog.domain.caches import MAX_LAYERS, Caches
from catalog.domain.columns import known_fields
from catalog.domain.foreign import MOST, plain
from catalog.domain.gguf import Array, BadGguf, Header
from catalog.domain.gguf_types import FILE_TYPES, GGML_TYPES, POOLING

SHARD = re.compile(r"(?P<stem>.+)-(?P<number>[0-9]{5})-of-(?P<count>[0-9]{5})\.gguf")
MAX_FIGURE = 1 << 48
ENCODERS = ("bert", "nomic-bert", "nomic-bert-moe", "jina-bert-v2", "jina-bert-v3", "neo-bert", "modern-bert", "t5encoder",
            "gemma-embedding")  # fmt: skip
"""Architectures that answer with vectors only, whatever their header says of pooling."""
FORWARD_APART = ("nemotron_h", "nemotron_h_moe")
"""Architectures whose feed-forwards are layers of their own."""


@dataclass(frozen=True, kw_only=True)
class Split:
    """A file that is one of several: number (from 1) of count."""

    number: int
    count: int


@dataclass(frozen=True, kw_only=True)
class ModelFacts:
    """Shape of a model. Sizes are bytes, lengths tokens, the rest counts."""

    kind: str  # model | adapter | mmproj | imatrix
    architecture: str = ""
    name: str = ""
    quantization: str = ""
    parameters: int = 0
    bytes: int = 0  # of all tensors
    tensors: int = 0
    layers: int | None = None
    heads: int | None = None  # the most of any layer
    heads_kv: int | None = None  # likewise
    key_length: int | None = None
    value_length: int | None = None
    context: int | None = None  # that it was trained for
    embedding: int | None = None  # width
    feed_forward: int | None = None
    vocabulary: int | None = None
    sliding_window: int | None = None
    kv_lora_rank: int | None = None  # multi-head latent attention
    rope_length: int | None = None
    experts: int | None = None
    experts_used: int | None = None
    experts_feed_forward: int | None = None
    inner: int | None = None  # width of recurrent layers
    caches: tuple[Caches, ...] = ()  # what its layers keep of tokens; (): not known
    state: int = 0  # bytes of one request's recurrent state
    chat_template: bool = False
    pooling: str = ""  # how token vectors become one; empty: not stated
    embeddings: bool = False  # answers with vectors, not with text
    projector: int | None = None  # bytes of the file that lets it see or hear, which is one of its files
    projector_compute: int | None = None  # bytes that it computes with
    split: Split | None = None

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON values, what is not known left out."""
        return {key: value for key, value in asdict(self).items() if value not in (None, "", (), [])}


def facts_from_dict(data: Mapping[str, Any]) -> ModelFacts:
    """What `as_dict` made; unknown fields are ignored."""
    known = known_fields(ModelFacts, data)
    split = known.get("split")
    known["split"] = Split(**known_fields(Split, split)) if split else None
    known["caches"] = tuple(Caches(**known_fields(Caches, item)) for item in known.get("caches", ()))
    return ModelFacts(**{"kind": "model", **known})


def model_facts(header: Header, *, file_name: str = "") -> ModelFacts:
    """Facts of the model whose header this is. Raises BadGguf where the header contradicts itself."""
    reader = _Reader(header)
    layers, heads = reader.figure("block_count"), reader.most("attention.head_count")
    width = reader.figure("embedding_length")
    kv = reader.per_layer("attention.head_count_kv")
    per_head = width // heads if width and heads else None
    pooling = POOLING.get(reader.figure("pooling_type") or 0, "") if reader.stated("pooling_type") else ""
    kind = _kind(reader, file_name)
    return ModelFacts(
        kind=kind,
        architecture=plain(reader.architecture, 64),
        name=plain(reader.text("general.name"), 200),
        quantization=_quantization(reader, header),
        parameters=min(MOST, sum(tensor.elements for tensor in header.tensors)),
        bytes=sum(header.sizes.values()),
        tensors=len(header.tensors),
        layers=layers,
        heads=heads,
        heads_kv=max(kv, default=heads or 0) or None,
        key_length=reader.figure("attention.key_length") or per_head,
        value_length=reader.figure("attention.value_length") or per_head,
        context=reader.figure("context_length"),
        embedding=width,
        feed_forward=reader.most("feed_forward_length"),
        vocabulary=reader.count("tokenizer.ggml.tokens") or reader.figure("vocab_size"),
        sliding_window=reader.figure("attention.sliding_window"),
        experts=reader.figure("expert_count"),
        experts_used=reader.figure("expert_used_count"),
        experts_feed_forward=reader.figure("expert_feed_forward_length"),
        kv_lora_rank=reader.figure("attention.kv_lora_rank"),
        rope_length=reader.figure("rope.dimension_count"),
        inner=reader.figure("ssm.inner_size"),
        caches=_caches(reader, layers, heads, kv, per_head),
        state=_state(reader, layers, kv),
        chat_template=any(key.startswith("tokenizer.chat_template") for key in header.pairs),
        pooling=pooling,
        embeddings=kind == "model" and (pooling in ("mean", "cls", "last", "rank") or reader.architecture in ENCODERS),
        split=_split(reader, file_name),
    )


def _caches(
    reader: _Reader, layers: int | None, heads: int | None, kv: tuple[int, ...], per_head: int | None
) -> tuple[Caches, ...]:
    """What the layers keep of tokens. A model whose recurrent layers the header does not number keeps them all: too much,
    never too little."""
    key, value = reader.figure("attention.key_length") or per_head, reader.figure("attention.value_length") or per_head
    if not layers or layers > MAX_LAYERS:
        return ()
    rank, rope = reader.figure("attention.kv_lora_rank"), reader.figure("rope.dimension_count")
    if rank and reader.figure("attention.key_length_mla"):
        return caches.latent(layers=layers, rank=rank, rope=rope or 0)
    each = kv or ((heads,) if heads else ())
    if not each or not key or not value:
        return ()
    interval = reader.figure("full_attention_interval")
    if interval and len(each) == 1:
        each = tuple(each[0] if at % interval == interval - 1 else 0 for at in range(layers))
    elif len(each) > 1:
        each = tuple(islice(cycle(each), layers))
    window = reader.figure("attention.sliding_window") or 0
    windowed = caches.slides(reader.architecture, layers, reader.pattern()) if window else ()
    shared = reader.figure("attention.shared_kv_layers") or 0  # the last ones use what earlier ones keep
    keeps = max(1, layers - shared)
    return caches.attention(
        layers=keeps, heads_kv=each[:keeps], key=key, value=value, window=window, windowed=windowed[:keeps]
    )


def _state(reader: _Reader, layers: int | None, kv: tuple[int, ...]) -> int:
    """Bytes of one request's recurrent state: of all layers that are not attention's. Of Nemotron-H those with a feed-forward are none
    either (llama.cpp, `models/nemotron-h.cpp`); elsewhere that stands beside the state."""
    conv, inner, size = (reader.figure(f"ssm.{name}") for name in ("conv_kernel", "inner_size", "state_size"))
    if not (layers and layers <= MAX_LAYERS and conv and inner and size):
        return 0
    interval = reader.figure("full_attention_interval")
    attention = layers // interval if interval else sum(1 for heads in kv if heads) if len(kv) > 1 else 0
    forward = reader.per_layer("feed_forward_length") if reader.architecture in FORWARD_APART else ()
    if len(kv) > 1 and len(forward) > 1:
        attention = sum(1 for heads, width in zip(kv, forward, strict=False) if heads or width)
    groups = reader.figure("ssm.group_count") or 0
    return caches.state(layers=layers - min(layers, attention), conv=conv, inner=inner, size=size, groups=groups)


class _Reader:
    """Typed access to pairs; keys without a group are the architecture's own."""

    def __init__(self, header: Header) -> None:
        self._pairs = header.pairs
        self.architecture = self.text("general.architecture")[:64]

    def text(self, key: str) -> str:
        value = self._pairs.get(key)
        return value if isinstance(value, str) else ""

    def stated(self, key: str) -> bool:
        return f"{self.architecture}.{key}" in self._pairs

    def figure(self, key: str) -> int | None:
        """A count of the architecture; None where it is not stated or 0."""
        return self._checked(self._pairs.get(f"{self.architecture}.{key}"), key) or None

    def general(self, key: str) -> int | None:
        value = self._pairs.get(key)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def per_layer(self, key: str) -> tuple[int, ...]:
        """A figure that may differ by layer: all of them, or the one; empty where it is not stated."""
        value = self._pairs.get(f"{self.architecture}.{key}")
        if isinstance(value, tuple):
            return tuple(self._checked(item, key) or 0 for item in value)
        one = self._checked(value, key)
        return () if one is None else (one,)

    def pattern(self) -> tuple[int, ...] | int | None:
        """Which layers see a window only: a mark for each, a period, or None where it is not stated."""
        value = self._pairs.get(f"{self.architecture}.attention.sliding_window_pattern")
        if isinstance(value, tuple):
            return tuple(int(bool(item)) for item in value)
        return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_LAYERS else None

    def most(self, key: str) -> int | None:
        return max(self.per_layer(key), default=0) or None

    def count(self, key: str) -> int | None:
        """Elements of an array."""
        value = self._pairs.get(key)
        return value.count if isinstance(value, Array) else len(value) if isinstance(value, tuple) else None

    def _checked(self, value: Any, key: str) -> int | None:
        if value is None or isinstance(value, (str, Array, tuple)):
            return None
        if isinstance(value, (bool, float)) or not 0 <= value <= MAX_FIGURE:
            raise BadGguf("gguf_bad_value", f"{self.architecture}.{key} is {value!r}: a count is needed.")
        return int(value)


def _kind(reader: _Reader, file_name: str) -> str:
    stated = reader.text("general.type")
    if stated == "imatrix" or reader.architecture == "imatrix" or file_name.endswith(".imatrix"):
        return "imatrix"
    if stated == "adapter" or reader.text("adapter.type"):
        return "adapter"
    if stated == "mmproj" or reader.architecture == "clip" or file_name.startswith("mmproj"):
        return "mmproj"
    return "model"


def _quantization(reader: _Reader, header: Header) -> str:
    """The label of the header, else the type that most bytes have."""
    stated = reader.general("general.file_type")
    if stated is not None and stated & 1023 in FILE_TYPES:
        return FILE_TYPES[stated & 1023]  # bit 10: guessed by the converter
    weight: dict[int, int] = {}
    for tensor in header.tensors:
        weight[tensor.type] = weight.get(tensor.type, 0) + header.sizes[tensor.name]
    heaviest = max(weight, key=lambda kind: weight[kind], default=-1)
    return GGML_TYPES[heaviest].name if heaviest in GGML_TYPES else ""


def _split(reader: _Reader, file_name: str) -> Split | None:
    """From the header; the name of the file only confirms it."""
    count, number = reader.general("split.count"), reader.general("split.no")
    if count is None or count < 2:
        return None
    if number is None or not 0 <= number < count or count > 99_999:
        raise BadGguf("gguf_bad_value", f"The header says that this is part {number} of {count}.")
    named = SHARD.fullmatch(file_name)
    if named and (int(named["number"]), int(named["count"])) != (number + 1, count):
        raise BadGguf(
            "gguf_bad_value", f"{file_name} says that it is part {number + 1} of {count}, which its name contradicts."
        )
    return Split(number=number + 1, count=count)


def shard_names(file_name: str) -> tuple[str, ...]:
    """All files of the set that `file_name` is one of, in order; just itself if its name is no shard's."""
    named = SHARD.fullmatch(file_name)
    if not named or not 1 <= int(named["count"]) <= 1000:
        return (file_name,)
    count = int(named["count"])
    return tuple(f"{named['stem']}-{number:05d}-of-{count:05d}.gguf" for number in range(1, count + 1))
