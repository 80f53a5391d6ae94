"""The best ways to run weights on this fleet, before they are fetched: what `llmgw model plan` shows.

Weights come as variants (one quantisation, or one set of safetensors). For each, the ways that an engine knows are tried on
the board that placement works on, so that a plan and a placement cannot differ.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

from catalog.domain.facts import ModelFacts
from catalog.domain.needs import Needs, needs
from catalog.domain.repository import FileSet, Format, RepoFile, choose_projector
from catalog.domain.ways import divides
from cluster.domain.board import Board
from cluster.domain.feasible import holds, of_class, whole
from cluster.domain.nowhere import NoPlace
from cluster.domain.place import Placement, Placer
from cluster.domain.types import ModelView, ProfileView, Share
from llmgw_site.lib.units import format_bytes

DEFAULT_CONTEXT = 4096
LEAST_CONTEXT = 512
MOST_CARDS = 16
ENGINES = {Format.GGUF: "llama.cpp", Format.SAFETENSORS: "vllm"}


@dataclass(frozen=True, kw_only=True)
class Variant:
    """Weights that make one model. `name`: the file, or set, as people choose it; `size`: bytes, of the projector too, which is a
    file's path or empty."""

    name: str
    format: Format
    size: int
    facts: ModelFacts
    quantization: str = ""
    projector: str = ""


def variant(files: FileSet, facts: ModelFacts, projectors: Sequence[RepoFile] = (), wanted: str = "") -> Variant:
    """Of a repository's files. `facts`: with what the projector takes, as of `wanted` (see `choose_projector`)."""
    found = choose_projector(projectors, files, wanted) if files.format is Format.GGUF else None
    return Variant(
        name=files.first.path, format=files.format, size=sum(file.size for file in files.weights) + (facts.projector or 0),
        facts=facts, quantization=files.quantization, projector=found.path if found else "",
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Speed:
    """What a bench found of a file that is served already. `file`: empty for a folder of safetensors; `cards` of each node; `hardware`
    as `cluster.services.measuring` words it; `tps`: tokens a second of one replica, `at_once`: requests that it serves well then."""

    file: str
    engine: str
    cards: int
    hardware: str
    tps: float
    at_once: int

    def of(self, variant: Variant, way: Way) -> bool:
        """Whether it is of this file, run in this way."""
        if (self.engine, self.cards) != (way.engine, way.cards) or way.nodes > 1:
            return False
        if self.file != variant.name and (self.file or variant.format is not Format.SAFETENSORS):
            return False
        return self.hardware == f"{way.cards} x {way.klass}" if way.cards else self.hardware.startswith("processor")


@dataclass(frozen=True, kw_only=True)
class Way:
    """How an engine would run it. `klass`: of the cards, "" for a processor; `tp`: cards of each node that share every layer;
    `nodes`: of one fabric. As `catalog.domain.needs.Way`."""

    engine: str
    klass: str = ""
    gpus_per_node: int = 0
    tp: int = 0
    nodes: int = 1
    context: int = 0  # tokens of each slot
    slots: int = 1
    memory: int = 0
    card_memory: int = 0

    @property
    def cards(self) -> int:
        """Of each node."""
        return self.tp or self.gpus_per_node

    @property
    def pp(self) -> int:
        """Stages of the pipeline, one on each node."""
        return self.nodes


@dataclass(frozen=True, kw_only=True)
class Offer:
    """One way that fits the hardware. `shares`: what it would take now, () where it would have to wait; `context`: tokens
    of each slot up to which it would still fit the best node when that is empty; `rate`: tokens a second of
    one replica as measured, 0: not; the least of what was; `at_once`: requests at a time that it served well then."""

    variant: Variant
    way: Way
    memory: int  # bytes of each node's own
    card_memory: int  # bytes of the cards of each node together
    shares: tuple[Share, ...]
    context: int
    rate: float = 0.0
    at_once: int = 0

    @property
    def free_now(self) -> bool:
        return bool(self.shares)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The ways of one variant, the best first. `refusal`: why there is none."""

    variant: Variant
    offers: tuple[Offer, ...]
    refusal: NoPlace | None = None


def plan(
    board: Board,
    variants: Iterable[Variant],
    *,
    context: int = 0,
    slots: int = 1,
    threads: int = 0,
    klass: str = "",
    tp: int = 0,
    speeds: Sequence[Speed] = (),
) -> tuple[Plan, ...]:
    """What each variant's best ways are; in the order of variants. `klass` and `tp` leave only ways with these; `speeds`: what was
    measured of them.

    `context` 0: DEFAULT_CONTEXT, or what the model was trained for if that is less.
    """
    placer = Placer(board)
    wanted = Way(engine="", klass=klass, tp=tp, context=context, slots=slots)
    return tuple(_timed(_plan(board, placer, variant, wanted, threads), speeds) for variant in variants)


def _timed(found: Plan, speeds: Sequence[Speed]) -> Plan:
    """With what was measured of each way: among ways with as much hardware the faster one comes first."""
    if not speeds:
        return found
    offers = []
    for offer in found.offers:
        measured = [speed for speed in speeds if speed.of(found.variant, offer.way)]
        least = min(measured, key=lambda speed: speed.tps, default=None)
        offers.append(replace(offer, rate=least.tps, at_once=least.at_once) if least else offer)
    return replace(found, offers=tuple(sorted(offers, key=_rank)))


def _plan(board: Board, placer: Placer, variant: Variant, wanted: Way, threads: int) -> Plan:
    offers: list[Offer] = []
    refusals: list[NoPlace] = []
    for way in ways(board, variant, wanted):
        found = _offer(board, placer, variant, way, threads)
        if isinstance(found, Offer):
            offers.append(found)
        else:
            refusals.append(found)
    offers.sort(key=_rank)
    if offers:
        return Plan(variant=variant, offers=tuple(offers))
    refusals = refusals or [_untried(board, variant, wanted)]
    return Plan(variant=variant, offers=(), refusal=next((item for item in refusals if item.waits), refusals[0]))


def _untried(board: Board, variant: Variant, wanted: Way) -> NoPlace:
    """Why there was no way worth a try: only cards would have done, and those that there are do not hold it."""
    of = f" of the class {wanted.klass}" if wanted.klass else ""
    held = [[card for card in room.node.cards if wanted.klass in ("", card.klass)] for room in board.by_index]
    most = max(map(len, held), default=0)
    if not most:
        why = f"only cards{of} would do for {variant.name}, and no node has any"
    elif wanted.tp > most:
        why = f"no node has {wanted.tp} cards{of} for {variant.name}; the most that one has is {most}"
    else:
        room = max(sum(card.memory_total for card in cards) for cards in held)
        why = (
            f"no node's cards{of} hold {variant.name}, or can share it evenly: its weights are {format_bytes(variant.size)}, "
            f"the most memory that the cards of one node have is {format_bytes(room)}"
        )
    return NoPlace(code="no_suitable_node", message=why)


def ways(board: Board, variant: Variant, wanted: Way) -> list[Way]:
    """What is worth trying, in order of how simple it is.

    1. for each class of cards: the fewest cards of one node that hold it, by layers (llama.cpp) or divided evenly (vLLM,
       where the attention heads can be)
    2. where no node's cards of a class hold it (vLLM): all cards of as few nodes of one fabric as do
    3. the processor (llama.cpp)
    """
    trained = variant.facts.context or DEFAULT_CONTEXT
    engine = ENGINES[variant.format]
    plain = Way(engine=engine, context=min(wanted.context or DEFAULT_CONTEXT, trained), slots=wanted.slots)
    nodes = [room.node for room in board.by_index]
    classes = sorted(
        {card.klass for node in nodes for card in node.cards if not wanted.klass or card.klass == wanted.klass}
    )
    found: list[Way] = []
    for klass in classes:
        profile = ProfileView(id="", name="", engine=engine, digest="", memory=0, card_classes=(klass,))
        best: list[int] = max(
            (whole(of_class(profile, node.cards)) for node in nodes), key=lambda left: (sum(left), left)
        )
        for cards in _counts(variant, len(best), wanted.tp):  # 1
            way = _on_cards(plain, klass, cards)
            if _holds(variant, way, best):
                found.append(way)
                break
        else:
            found += _over_nodes(variant, plain, klass, best, wanted.tp)  # 2
    if variant.format is Format.GGUF and not wanted.klass and not wanted.tp:  # 3
        found.append(plain)
    return found


def _on_cards(plain: Way, klass: str, cards: int, nodes: int = 1) -> Way:
    if plain.engine == "vllm":
        return replace(plain, klass=klass, tp=cards, nodes=nodes)
    return replace(plain, klass=klass, gpus_per_node=cards)


def _counts(variant: Variant, most: int, tp: int) -> Iterable[int]:
    """Numbers of cards to try, up to `most`."""
    if tp:
        return (tp,) if tp <= most and _divides(variant, tp) else ()
    numbers = range(1, min(most, MOST_CARDS) + 1)
    if variant.format is Format.GGUF:
        return numbers
    return [count for count in numbers if count & (count - 1) == 0 and _divides(variant, count)]


def _divides(variant: Variant, cards: int) -> bool:
    """Whether vLLM can share every layer among so many cards."""
    return variant.format is Format.GGUF or divides(variant.facts, cards)


def _over_nodes(variant: Variant, plain: Way, klass: str, best: Sequence[int], tp: int) -> list[Way]:
    """Case 2: with all cards of each node."""
    if variant.format is not Format.SAFETENSORS or not best or (tp and not _divides(variant, tp)):
        return []
    cards = tp or max(
        count for count in takewhile(lambda count: count <= len(best), (1, 2, 4, 8, 16)) if _divides(variant, count)
    )
    for nodes in (count for count in (2, 4, 8) if count <= (variant.facts.layers or count)):
        way = _on_cards(plain, klass, cards, nodes)
        if _holds(variant, way, best):
            return [way]
    return []


def _needs(variant: Variant, way: Way) -> Needs:
    """What each node gives: of several an equal part."""
    return needs(way, variant.facts, variant.size)


def _profile(variant: Variant, way: Way, threads: int = 0) -> ProfileView:
    need = _needs(variant, way)
    return ProfileView(
        id=f"{variant.name} {way}", name="", engine=way.engine, digest="", memory=need.memory, span=way.nodes,
        threads=0 if way.cards else threads, cards=way.cards, card_classes=(way.klass,) if way.klass else (),
        card_memory=need.card_memory, layer=need.layer, layers=need.layers, tail=need.tail,
        card_base=min(need.card_base, need.card_memory // (2 * way.cards)) if way.cards else 0, even=way.engine == "vllm",
    )  # fmt: skip


def _holds(variant: Variant, way: Way, best: Sequence[int]) -> bool:
    return holds(_profile(variant, way), best)


def _offer(board: Board, placer: Placer, variant: Variant, way: Way, threads: int) -> Offer | NoPlace:
    profile = _profile(variant, way, threads)
    model = ModelView(id=profile.id, name=variant.name, profiles=(profile,))
    found = placer.place(model)
    if isinstance(found, NoPlace) and not found.busy:
        return found
    return Offer(
        variant=variant,
        way=way,
        memory=profile.memory,
        card_memory=profile.card_memory,
        shares=found.shares if isinstance(found, Placement) else (),
        context=_most_context(board, placer, variant, way, model),
    )


def _most_context(board: Board, placer: Placer, variant: Variant, way: Way, model: ModelView) -> int:
    """The most tokens of each slot, in steps of LEAST_CONTEXT, with which it would fit a node that is empty."""
    rooms = placer.ranked(model, model.profiles[0]).possible
    trained = variant.facts.context or way.context
    low, high = way.context // LEAST_CONTEXT, max(way.context, trained) // LEAST_CONTEXT
    kinds = {board.kinds[room.index]: room.node for room in rooms}.values()
    while low < high:
        middle = (low + high + 1) // 2
        profile = _profile(variant, replace(way, context=middle * LEAST_CONTEXT))
        fits = any(
            holds(profile, whole(of_class(profile, node.cards))) if way.cards else profile.memory <= node.memory_total
            for node in kinds
        )
        low, high = (middle, high) if fits else (low, middle - 1)
    return max(way.context, low * LEAST_CONTEXT)


def _rank(offer: Offer) -> tuple[object, ...]:
    """Hardware first: cards before a processor; one node before several; the fewest cards; of equals what was measured to be
    faster, then what is free now, then the class by name."""
    way = offer.way
    return (not way.cards, way.nodes, way.cards * way.nodes, -offer.rate, not offer.free_now, way.klass)
