"""A case by chance: a fleet of mixed classes, models of all kinds, load, failures. The seed decides everything."""

from __future__ import annotations

from dataclasses import replace

from cluster.domain.simulation.case import Case, Habits, Happening, Load
from cluster.domain.simulation.dice import Dice
from cluster.domain.types import Amount, CardView, Klass, ModelView, NodeView, ProfileView, ScopeView
from llmgw_site.lib.units import GIB

CLASSES = (("H200", 141), ("H100", 80), ("A100", 40), ("L40S", 48), ("L4", 24), ("T4", 16))
"""Name and GiB of cards."""


def random_case(seed: int, *, nodes: int | None = None, models: int | None = None, hours: float = 1.0) -> Case:
    """`nodes`, `models`: how many; a few by chance where not given."""
    dice = Dice(seed)
    count = nodes if nodes is not None else dice.whole(3, 24)
    fleet = _nodes(count, dice)
    scopes = _scopes(fleet, dice) if dice.chance(0.6) else ()
    wanted = models if models is not None else dice.whole(3, max(4, count))
    offers, habits = [], {}
    for number in range(wanted):
        model = _model(number, fleet, scopes, dice)
        offers.append(model)
        habits[model.name] = _habits(model, hours, dice)
    late = frozenset(item.name for item in offers if dice.chance(0.3))
    return Case(
        name=f"seed {seed}",
        seed=seed,
        hours=hours,
        nodes=fleet,
        models=tuple(offers),
        absent=late,
        habits=habits,
        scopes=scopes,
        happenings=_happenings(fleet, offers, late, hours * 3600, dice),
        pack=dice.chance(0.3),
        twice=0.05 if dice.chance(0.5) else 0.0,
    )


def _nodes(count: int, dice: Dice) -> tuple[NodeView, ...]:
    found: list[NodeView] = []
    while len(found) < count:
        like = _kind(dice)
        for _ in range(min(dice.whole(1, max(1, count // 2)), count - len(found))):
            number = len(found)
            cards = tuple(replace(card, uuid=f"GPU-{number}-{place}") for place, card in enumerate(like.cards))
            cards = tuple(
                replace(card, foreign=card.memory_total * 9 // 10) if dice.chance(0.05) else card for card in cards
            )
            name = f"n{number:04d}"
            found.append(replace(like, id=f"node_{number:04d}", name=name, cards=cards))
    return tuple(found)


def _kind(dice: Dice) -> NodeView:
    """Nodes that were bought together: CPU ones, or with one to eight cards of a class."""
    cores, memory = dice.pick((8, 16, 32, 64, 96)), dice.pick((32, 64, 128, 512)) * GIB
    cards: tuple[CardView, ...] = ()
    if not dice.chance(0.3):
        klass, size = dice.pick(CLASSES)
        cards = tuple(
            CardView(uuid="", klass=klass, memory_total=size * GIB) for _ in range(dice.pick((1, 2, 4, 4, 8)))
        )
    return NodeView(
        id="",
        name="",
        engines={"llama.cpp": "", "vllm": ""} if cards else {"llama.cpp": ""},
        cores=cores,
        memory_total=memory,
        memory_available=memory,
        disk_free=dice.pick((None, 200 * GIB, 2000 * GIB)),
        cards=cards,
        labels={"zone": dice.pick(("a", "b")), "tier": dice.pick(("gold", "silver"))},
        fabric=f"ib-{dice.below(2)}" if len(cards) >= 4 and dice.chance(0.6) else "",
    )


def _scopes(nodes: tuple[NodeView, ...], dice: Dice) -> tuple[ScopeView, ...]:
    """Two organisations with two teams each; guarantees within the fleet, some limits."""
    classes: dict[str, int] = {}
    for node in nodes:
        for card in node.cards:
            classes[card.klass] = classes.get(card.klass, 0) + 1
    cores = sum(node.cores for node in nodes)
    found = []
    for org in range(2):
        root = ScopeView(id=f"org_{org}", kind="organisation", name=f"org-{org}")
        share = tuple((klass, number // 3) for klass, number in sorted(classes.items()) if number >= 3)
        if dice.chance(0.7):
            root = replace(root, guarantee=Amount(cards=share, cores=cores // 3))
        found.append(root)
        for team in range(2):
            one = ScopeView(id=f"team_{org}{team}", kind="team", name=f"team-{org}{team}", parent=root.id)
            if root.guarantee.cores and dice.chance(0.5):
                part = tuple((klass, number // 2) for klass, number in share if number >= 2)
                one = replace(one, guarantee=Amount(cards=part, cores=cores // 6))
            if dice.chance(0.3):
                one = replace(one, limit=Amount(cores=cores // 3, cards=tuple((k, n // 2) for k, n in classes.items())))
            found.append(one)
    return tuple(found)


def _model(number: int, nodes: tuple[NodeView, ...], scopes: tuple[ScopeView, ...], dice: Dice) -> ModelView:
    on_demand = dice.chance(0.25)
    base = 0 if on_demand else dice.pick((1, 1, 1, 2, 3))
    most = max(1, base) + dice.pick((0, 0, 1, 2, 4)) if on_demand or dice.chance(0.4) else None
    klass = Klass.OPPORTUNISTIC if on_demand else Klass.STANDARD
    if dice.chance(0.6):
        klass = dice.pick(tuple(Klass))
    return ModelView(
        id=f"mod_{number:03d}",
        name=f"m{number:03d}",
        base=base,
        most=most,
        klass=klass,
        rest_after=dice.pick((300.0, 900.0)),
        owner=dice.pick(scopes).id if scopes and dice.chance(0.8) else "",
        profiles=tuple(_profile(number, place, nodes, dice) for place in range(dice.pick((1, 1, 2, 3)))),
        weights=f"w{number:03d}" if dice.chance(0.7) else "",
        weights_size=dice.whole(1, 60) * GIB,
    )


def _profile(number: int, place: int, nodes: tuple[NodeView, ...], dice: Dice) -> ProfileView:
    """One way, cut to a node of the fleet, so that most of them fit somewhere."""
    like = dice.pick(nodes)
    memory = int(dice.between(0.05, 0.4) * like.memory_total)
    one = ProfileView(
        id=f"prof_{number:03d}_{place}",
        name=f"way{place}",
        engine="llama.cpp",
        digest=f"digest-{number}-{place}-0",
        memory=memory,
        threads=dice.whole(0, max(1, like.cores // 2)),
        priority=-place if dice.chance(0.7) else 0,
        rate=dice.pick((0.0, 0.0, 20.0, 90.0)),
        labels=(("tier", like.labels["tier"]),) if dice.chance(0.15) else (),
    )
    if not like.cards:
        return one
    size, there = like.cards[0].memory_total, len(like.cards)
    classes = (like.cards[0].klass,) if dice.chance(0.3) else ()
    one = replace(one, memory=min(memory, 8 * GIB), threads=min(one.threads, 4), card_classes=classes)
    kind = dice.below(4)
    if kind == 0 or there == 1:  # a part of one card
        return replace(one, cards=1, card_memory=int(size * dice.between(0.15, 0.85)))
    cards = dice.whole(2, there)
    if kind == 1:  # by layers
        return replace(one, cards=cards, card_memory=int(size * cards * dice.between(0.4, 0.8)), layer=size // 40)
    even = replace(one, engine="vllm", cards=cards, card_memory=int(size * cards * dice.between(0.4, 0.9)), even=True)
    alike = sum(node.fabric == like.fabric and len(node.cards) >= cards for node in nodes)
    return replace(even, span=2) if kind == 3 and like.fabric and alike > 1 else even


def _habits(model: ModelView, hours: float, dice: Dice) -> Habits:
    work, slots = dice.between(2, 20), dice.pick((1, 2, 4, 8))
    full = slots / work * model.limit  # requests/s that all its replicas can do
    kind = dice.pick(("none", "steady", "wave", "bursts"))
    load = Load(
        kind=kind,
        rate=full * dice.between(0.2, 1.6),
        low=0.0 if model.on_demand else full * 0.1,
        period=hours * 3600 / dice.pick((1, 2, 3)),
        shift=dice.between(0, 1800),
    )
    breaks = dice.pick((0.0, 0.0, 0.0, 0.0, 0.2, 1.0)) if dice.chance(0.5) else 0.0
    return Habits(
        load=load, fetch=dice.between(0, 120), start=dice.between(10, 240), work=work, slots=slots, breaks=breaks
    )


def _happenings(
    nodes: tuple[NodeView, ...], models: list[ModelView], late: frozenset[str], span: float, dice: Dice
) -> tuple[Happening, ...]:
    """A failure or an order every few minutes, each undone after a while; all over in the last quarter, so that what is
    left then is what the scheduler made of it."""
    found = [Happening(at=dice.between(0, span / 2), kind="model_add", subject=name) for name in sorted(late)]
    moment, calm = dice.wait(span / 12), span * 0.75
    while moment < calm:
        end = min(calm, moment + dice.between(60, 1200))
        node, model = dice.pick(nodes), dice.pick(models)
        found += _one(moment, end, node, model, dice)
        moment += dice.wait(span / 12)
    return tuple(sorted(found, key=lambda item: item.at))


def _one(moment: float, end: float, node: NodeView, model: ModelView, dice: Dice) -> list[Happening]:
    kind = dice.pick(
        ("off", "off", "maintenance", "card", "foreign", "change", "change", "profile", "drop", "retry", "restart")
    )
    if kind == "off":
        return [
            Happening(at=moment, kind="node_off", subject=node.name),
            Happening(at=end, kind="node_on", subject=node.name),
        ]
    if kind == "maintenance":
        what = dice.pick(("node_cordon", "node_drain"))
        return [
            Happening(at=moment, kind=what, subject=node.name),
            Happening(at=end, kind="node_free", subject=node.name),
        ]
    if kind in ("card", "foreign") and node.cards:
        place = dice.below(len(node.cards))
        if kind == "card":
            return [
                Happening(at=moment, kind="card_bad", subject=node.name, card=place),
                Happening(at=end, kind="card_good", subject=node.name, card=place),
            ]
        size = node.cards[place].memory_total
        values = {"bytes": int(size * dice.between(0.2, 0.98))}
        return [
            Happening(at=moment, kind="foreign", subject=node.name, card=place, values=values),
            Happening(at=end, kind="foreign", subject=node.name, card=place, values={"bytes": 0}),
        ]
    if kind == "profile":
        return [Happening(at=moment, kind="profile_change", subject=model.name)]
    if kind == "restart":
        values = {"in_place": dice.chance(0.5)}
        return [Happening(at=moment, kind="model_restart", subject=model.name, values=values)]
    if kind == "retry":
        return [Happening(at=moment, kind="model_retry", subject=model.name)]
    if kind == "drop":
        return [Happening(at=moment, kind="model_drop", subject=model.name)]
    values = {"klass": int(dice.pick(tuple(Klass)))} if dice.chance(0.5) else {"base": dice.whole(0, 3)}
    return [Happening(at=moment, kind="model_change", subject=model.name, values=values)]
