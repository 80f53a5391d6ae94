"""A case as people write it: JSON with sizes and spans in words. What is wrong is said with the place where it stands."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from cluster.domain.simulation.case import KINDS, Case, Habits, Happening, Load
from cluster.domain.types import Amount, CardView, Klass, ModelView, NodeView, ProfileView, ScopeView
from llmgw_site.lib.units import GIB, parse_bytes

_SPAN = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(s|min|m|h|d)?\s*")
_SECONDS = {None: 1.0, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


class BadCase(ValueError):
    """A description that says something that cannot be; its words name the place."""


MOST, MOST_CARDS, MOST_LOOKS = 100_000, 64, 1_000_000
"""Nodes or models of a kind, cards of a kind in one node, looks of the reconciler: a slip of a finger fills no machine."""


class Part:
    """An object of the description, which knows where it stands and which of its keys were read."""

    def __init__(self, values: object, where: str) -> None:
        if not isinstance(values, Mapping):
            raise BadCase(f"{where or 'the description'} has to be an object")
        self.values, self.where, self._read = values, where, set[str]()

    def at(self, key: str) -> str:
        return f"{self.where}.{key}" if self.where else key

    def raw(self, key: str, default: Any = None) -> Any:
        self._read.add(key)
        return self.values.get(key, default)

    def has(self, key: str) -> bool:
        return key in self.values

    def text(self, key: str, default: str | None = None) -> str:
        found = self.raw(key, default)
        if not isinstance(found, str):
            raise BadCase(f"{self.at(key)} has to be a text")
        return found

    def flag(self, key: str) -> bool:
        found = self.raw(key, False)
        if not isinstance(found, bool):
            raise BadCase(f"{self.at(key)} has to be true or false")
        return found

    def number(self, key: str, default: float, *, least: float = 0.0, most: float = 1e18) -> float:
        found = self.raw(key, default)
        if not isinstance(found, (int, float)) or isinstance(found, bool) or not least <= found <= most:
            bound = f"from {least:g} to {most:g}" if most < 1e18 else f"of at least {least:g}"
            raise BadCase(f"{self.at(key)} has to be a number {bound}, and it is {found!r}")
        return float(found)

    def whole(self, key: str, default: int, *, least: int = 0, most: float = 1e18) -> int:
        found = self.number(key, default, least=least, most=most)
        if found != int(found):
            raise BadCase(f"{self.at(key)} has to be a whole number")
        return int(found)

    def size(self, key: str, default: int | str) -> int:
        found = self.raw(key, default)
        try:
            return parse_bytes(str(found))
        except ValueError as error:
            raise BadCase(f"{self.at(key)}: {error}") from None

    def span(self, key: str, default: float | str) -> float:
        """Seconds: `90`, `"90 s"`, `"15 min"`, `"2 h"`."""
        found = self.raw(key, default)
        match = _SPAN.fullmatch(str(found))
        if match is None or isinstance(found, bool):
            raise BadCase(f"{self.at(key)}: {found!r} is no span; write for example 90, 15 min or 2 h")
        return float(match[1]) * _SECONDS[match[2]]

    def one_of(self, key: str, choices: Iterable[str], default: str | None = None) -> str:
        found, known = self.text(key, default), list(choices)
        if found not in known:
            raise BadCase(f"{self.at(key)} is {found!r}: write one of {', '.join(known)}")
        return found

    def texts(self, key: str) -> tuple[str, ...]:
        found = self.raw(key, [])
        if not isinstance(found, list) or not all(isinstance(item, str) for item in found):
            raise BadCase(f"{self.at(key)} has to be a list of texts")
        return tuple(found)

    def pairs(self, key: str) -> dict[str, str]:
        found = self.raw(key, {})
        if not isinstance(found, Mapping) or not all(isinstance(item, str) for item in found.values()):
            raise BadCase(f"{self.at(key)} has to be an object of texts")
        return dict(found)

    def part(self, key: str) -> Part:
        return Part(self.raw(key, {}), self.at(key))

    def parts(self, key: str) -> list[Part]:
        found = self.raw(key, [])
        if not isinstance(found, list):
            raise BadCase(f"{self.at(key)} has to be a list")
        return [Part(item, f"{self.at(key)}[{place}]") for place, item in enumerate(found)]

    def done(self) -> None:
        """Refuse keys that nobody has read: a word that is spelled wrongly would be silently nothing."""
        unknown = sorted(set(self.values) - self._read)
        if unknown:
            known = ", ".join(sorted(self._read))
            raise BadCase(f"{self.at(unknown[0])} is not known here; known are {known}")


def described(values: object, *, name: str = "described") -> Case:
    """The case that a description says. Raises BadCase."""
    top = Part(values, "")
    nodes = _nodes(top.parts("nodes"))
    if not nodes:
        raise BadCase("nodes: there is none")
    scopes = _scopes(top.parts("scopes"))
    models, habits, arrivals = _models(top.parts("models"), {item.name: item.id for item in scopes})
    happenings = [_happening(item, nodes, models) for item in top.parts("happenings")]
    case = Case(
        name=top.text("name", name),
        seed=top.whole("seed", 0),
        hours=top.span("for", "1 h") / 3600,
        tick=top.span("tick", 20.0) or 20.0,
        nodes=tuple(nodes.values()),
        models=tuple(models.values()),
        absent=frozenset(item.subject for item in arrivals),
        habits=habits,
        scopes=scopes,
        happenings=tuple(sorted([*arrivals, *happenings], key=lambda item: item.at)),
        pack=top.one_of("placement", ("spread", "pack"), "spread") == "pack",
        twice=top.number("twice", 0.0, most=1.0),
    )
    top.done()
    looks = case.hours * 3600 / case.tick
    if looks > MOST_LOOKS:
        raise BadCase(f"for and tick: that is {looks:.3g} looks, and at most {MOST_LOOKS:,} are tried")
    return case


def _nodes(parts: list[Part]) -> dict[str, NodeView]:
    found: dict[str, NodeView] = {}
    for part in parts:
        count, name = part.whole("count", 1, least=1, most=MOST), part.text("name")
        memory = part.size("memory", 64 * GIB)
        system = NodeView(
            id="",
            name="",
            engines=dict.fromkeys(part.texts("engines") or ("llama.cpp", "vllm"), ""),
            cores=part.whole("cores", 16),
            memory_total=memory,
            memory_available=memory,
            disk_free=part.size("disk", 0) if part.has("disk") else None,
            labels=part.pairs("labels"),
            fabric=part.text("fabric", ""),
        )
        cards = part.parts("cards")
        part.done()
        for number in range(count):
            one = f"{name}{number}" if count > 1 else name
            if one in found:
                raise BadCase(f"{part.where}: there is a node {one} already")
            found[one] = replace(system, id=f"node_{one}", name=one, cards=_cards(cards, one))
    return found


def _cards(parts: list[Part], node: str) -> tuple[CardView, ...]:
    found: list[CardView] = []
    for part in parts:
        klass, memory, foreign = part.text("class"), part.size("memory", "24 GiB"), part.size("foreign", 0)
        for _ in range(part.whole("count", 1, least=1, most=MOST_CARDS)):
            uuid = f"GPU-{node}-{len(found)}"
            found.append(CardView(uuid=uuid, klass=klass, memory_total=memory, foreign=foreign))
        part.done()
    return tuple(found)


def _scopes(parts: list[Part]) -> tuple[ScopeView, ...]:
    found: dict[str, ScopeView] = {}
    for part in parts:
        name, parent = part.text("name"), part.text("parent", "")
        if parent and parent not in found:
            raise BadCase(f"{part.at('parent')}: there is no scope {parent} before it")
        kind = part.one_of("kind", ("organisation", "team", "project"), "team" if parent else "organisation")
        found[name] = ScopeView(
            id=f"scope_{name}",
            kind=kind,
            name=name,
            parent=f"scope_{parent}" if parent else "",
            guarantee=_amount(part.part("guarantee")),
            limit=_amount(part.part("limit")),
        )
        part.done()
    return tuple(found.values())


def _amount(part: Part) -> Amount:
    cards = part.part("cards")
    amount = Amount(
        cards=tuple((klass, cards.whole(klass, 0)) for klass in sorted(cards.values)),
        cores=part.whole("cores", 0) if part.has("cores") else None,
        memory=part.size("memory", 0) if part.has("memory") else None,
    )
    part.done()
    return amount


def _models(
    parts: list[Part], owners: Mapping[str, str]
) -> tuple[dict[str, ModelView], dict[str, Habits], list[Happening]]:
    found: dict[str, ModelView] = {}
    habits: dict[str, Habits] = {}
    arrivals: list[Happening] = []
    for part in parts:
        count, name = part.whole("count", 1, least=1, most=MOST), part.text("name")
        owner = part.text("owner", "")
        if owner and owner not in owners:
            raise BadCase(f"{part.at('owner')}: there is no scope {owner}")
        base = part.whole("base", 1)
        klass = part.one_of("class", [item.name.lower() for item in Klass], "standard" if base else "opportunistic")
        most = part.whole("max", base) if part.has("max") else None
        ways = part.parts("profiles")
        weights = part.size("weights", 0)
        habit, arrives, rest = _habits(part), part.span("arrives", 0.0), part.span("rest_after", "15 min")
        for number in range(count):
            one = f"{name}{number}" if count > 1 else name
            if one in found:
                raise BadCase(f"{part.where}: there is a model {one} already")
            profiles = tuple(_profile(way, one, place) for place, way in enumerate(ways))
            found[one] = ModelView(
                id=f"mod_{one}", name=one, base=base, most=most, klass=Klass[klass.upper()], rest_after=rest,
                owner=owners.get(owner, ""), profiles=profiles, weights=one if weights else "", weights_size=weights,
            )  # fmt: skip
            habits[one] = habit
            if arrives:
                arrivals.append(Happening(at=arrives, kind="model_add", subject=one))
        part.done()
    return found, habits, arrivals


def _profile(part: Part, model: str, place: int) -> ProfileView:
    cards = part.whole("cards", 0)
    one = ProfileView(
        id=f"prof_{model}_{place}",
        name=part.text("name", f"way{place}"),
        engine=part.text("engine", "llama.cpp"),
        digest=f"digest-{model}-{place}",
        memory=part.size("memory", "1 GiB"),
        threads=part.whole("cores", 0),
        priority=part.whole("priority", 0, least=-1000),
        nodes=part.texts("nodes"),
        labels=tuple(sorted(part.pairs("labels").items())),
        cards=cards,
        card_classes=part.texts("card_classes"),
        card_memory=part.size("card_memory", 0),
        layer=part.size("layer", 0),
        even=part.flag("even"),
        span=part.whole("nodes_each", 1, least=1),
        rate=part.number("rate", 0.0),
    )
    part.done()
    return one


def _habits(part: Part) -> Habits:
    load, plain = part.part("load"), Habits()
    curve = Load(
        kind=load.one_of("kind", ("none", "steady", "wave", "bursts"), "steady" if load.has("rate") else "none"),
        rate=load.number("rate", 0.0),
        low=load.number("low", 0.0),
        period=load.span("period", "1 h") or 3600.0,
        share=load.number("share", 0.25, most=1.0),
        shift=load.span("shift", 0.0),
    )
    load.done()
    return Habits(
        load=curve,
        fetch=part.span("fetch", plain.fetch),
        start=part.span("start", plain.start),
        work=part.span("work", plain.work) or plain.work,
        slots=part.whole("slots", plain.slots, least=1),
        breaks=part.number("breaks", 0.0, most=1.0),
    )


def _happening(part: Part, nodes: Mapping[str, NodeView], models: Mapping[str, ModelView]) -> Happening:
    kind, at = part.one_of("what", KINDS), part.span("at", 0.0)
    if kind.startswith(("model", "profile")):
        subject = part.text("model")
        if subject not in models:
            raise BadCase(f"{part.at('model')}: there is no model {subject}")
    else:
        subject = part.text("node")
        if subject not in nodes:
            raise BadCase(f"{part.at('node')}: there is no node {subject}")
    card = part.whole("card", 0)
    if kind in ("card_bad", "card_good", "foreign") and card >= len(nodes[subject].cards):
        raise BadCase(f"{part.at('card')}: node {subject} has {len(nodes[subject].cards)} cards, and they count from 0")
    values: dict[str, Any] = {}
    if kind == "foreign":
        values["bytes"] = part.size("bytes", 0)
    if kind == "model_change":
        if part.has("class"):
            values["klass"] = Klass[part.one_of("class", [item.name.lower() for item in Klass]).upper()].value
        if part.has("base"):
            values["base"] = part.whole("base", 1)
    if kind == "model_restart":
        values["in_place"] = part.flag("in_place")
    part.done()
    return Happening(at=at, kind=kind, subject=subject, card=card, values=values)
