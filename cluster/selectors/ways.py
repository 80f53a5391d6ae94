"""Profiles of the catalogue as nodes are told them, and as decisions are made from them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace

import orjson

from catalog.domain.facts import facts_from_dict
from catalog.domain.needs import Needs, cards_of, needs
from catalog.domain.repository import Format
from catalog.domain.types import AdapterView
from catalog.domain.types import ModelView as CatalogModel
from catalog.domain.types import ProfileView as CatalogProfile
from cluster.domain.types import ProfileView
from cluster.models import Measurement
from cluster.wire import AdapterFile, Serve, Weights, to_dict

_PLACED = (
    "memory",
    "v",
    "cards",
    "card_memory",
    "card_base",
    "card_layers",
    "rank",
    "master",
    "master_port",
    "address",
)
"""What a node is told that is no part of the digest."""
SPARE = 10
"""What is reserved beyond what was measured: one part in so many."""


def needs_of(model: CatalogModel, profile: CatalogProfile) -> Needs:
    """What a replica needs. Where that is estimated, with the model's adapters: each is loaded beside it, on the cards where it
    runs on cards. vLLM keeps room for them in what it is given."""
    need, size = needs(profile, facts_from_dict(model.facts), model.weights_size or 0), 0
    if profile.engine != "vllm":
        size = sum(item.size for item in loaded(model, profile))
    if not cards_of(profile):
        return need if profile.memory else replace(need, memory=need.memory + size)
    return need if profile.card_memory else replace(need, card_memory=need.card_memory + size)


def serve_of(model: CatalogModel, profile: CatalogProfile) -> Serve:
    """What a node is told: the profile, resolved for its model."""
    facts, need = facts_from_dict(model.facts), needs_of(model, profile)
    return Serve(
        engine=profile.engine,
        model=model.name,
        weights=Weights(
            path=model.first if model.version_id else model.weights_path,
            size=model.weights_size or 0,
            sha256=model.weights_sha256,
            version=model.version_id,
        ),
        projector=model.projector,
        adapters=tuple(adapter_file(item) for item in loaded(model, profile)),
        context=profile.context,
        slots=profile.slots,
        threads=profile.threads,
        embeddings=model.embeddings,
        pooling=facts.pooling if model.embeddings else "",
        args=profile.args,
        env=dict(profile.env),
        start_timeout=profile.start_timeout,
        drain_timeout=profile.drain_timeout,
        memory=need.memory,
        card_base=need.card_base,
        nodes=profile.pp,
    )


def loaded(model: CatalogModel, profile: CatalogProfile) -> tuple[AdapterView, ...]:
    """The model's adapters that the profile's engine can read."""
    reads = Format.SAFETENSORS if profile.engine == "vllm" else Format.GGUF
    return tuple(item for item in model.adapters if item.format == reads)


def adapter_file(adapter: AdapterView) -> AdapterFile:
    return AdapterFile(
        name=adapter.name,
        weights=Weights(path=adapter.path, size=adapter.size, version=adapter.version_id),
        rank=adapter.rank,
    )


def digest_of(serve: Serve, profile: CatalogProfile) -> str:
    """Names all that an engine is started with. Its memory is none of it: a better estimate restarts nobody. Nor are
    the very cards that it uses: they are its node's matter (`domain.moving`), nor where the parts of one over several nodes
    meet. How many they are, of which classes, and how much of them was declared is."""
    told = to_dict(serve)
    for name in _PLACED:
        del told[name]
    if told["nodes"] == 1:  # as with the cards below
        del told["nodes"]
    for holder, name in ((told["weights"], "version"), (told, "projector"), (told, "adapters")):
        if not holder[name]:  # as with the cards below
            del holder[name]
    if cards_of(profile):  # else nothing of it, so that who uses no card goes by the digest that it always had
        told["cards"] = [cards_of(profile), profile.card_memory, sorted(profile.card_classes)]
    return hashlib.sha256(orjson.dumps(told, option=orjson.OPT_SORT_KEYS)).hexdigest()


Measured = tuple[int, int | None]
"""Bytes of a node's own memory and of its cards together that replicas were seen to take."""


def measured() -> dict[str, Measured]:
    """By the digest of what they run. One query."""
    rows = Measurement.objects.values_list("digest", "memory", "card_memory")
    return {digest: (memory, of_cards) for digest, memory, of_cards in rows}


def profile_view(
    model: CatalogModel, profile: CatalogProfile, serve: Serve, measurements: Mapping[str, Measured] | None = None
) -> ProfileView:
    """What decisions need of a profile. Its memory is what was measured and a tenth, where it was measured; else what was
    declared; else what is estimated. vLLM takes of its cards all that it is given, so that measuring it says nothing."""
    cards, digest, need = cards_of(profile), digest_of(serve, profile), needs_of(model, profile)
    memory, of_cards = (measurements or {}).get(digest, (None, None))
    even = profile.engine == "vllm"
    card_memory = need.card_memory if even or not cards or of_cards is None else of_cards + of_cards // SPARE
    return ProfileView(
        id=profile.profile_id,
        name=profile.name,
        engine=profile.engine,
        digest=digest,
        memory=serve.memory if memory is None else memory + memory // SPARE,
        threads=profile.threads,
        priority=profile.priority,
        nodes=profile.nodes,
        labels=tuple(sorted(profile.labels.items())),
        cards=cards,
        card_classes=profile.card_classes,
        card_memory=card_memory,
        layer=need.layer,
        layers=need.layers,
        tail=need.tail,
        card_base=min(need.card_base, card_memory // (2 * cards)) if cards else 0,
        even=even,
        rate=profile.measured_tps / (cards * profile.pp or profile.threads or 1),
        concurrency=profile.measured_concurrency,
        span=profile.pp,
    )
