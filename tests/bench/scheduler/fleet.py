"""Fleets to measure on: eight cards a node, eight classes, 30 % of the cards held by foreign processes."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

from cluster.domain import plan as plans
from cluster.domain.board import Board
from cluster.domain.plan import Plan
from cluster.domain.states import ReplicaState
from cluster.domain.types import (
    Amount,
    CardView,
    Klass,
    ModelView,
    NodeView,
    ProfileView,
    ReplicaView,
    ScopeView,
    Share,
    World,
)
from llmgw_site.lib.units import GIB

CARDS = 8
CLASSES = (
    ("H200", 141), ("H100", 80), ("A100-80", 80), ("A100-40", 40), ("L40S", 48), ("L4", 24), ("MI300X", 192), ("T4", 16),
)  # fmt: skip
FOREIGN = 0.30
FABRIC = 16
"""Nodes of one fast network."""
PER_NODE = 0.1
"""Replicas for each node: 1,000 on 10,000."""
MODELS, SCOPES = 50, 12
NOW = 1_800_000_000.0


def fleet(count: int, *, seed: int = 1, models: int = MODELS) -> World:
    """`count` nodes with nothing on them, and models that want a tenth as many replicas."""
    dice = Random(seed)
    nodes = tuple(_node(number, dice) for number in range(count))
    scopes = _scopes(count)
    return World(nodes=nodes, models=_models(count, models, scopes, dice), scopes=scopes)


def _node(number: int, dice: Random) -> NodeView:
    klass, size = CLASSES[number % len(CLASSES)]
    name = f"n{number:05d}"
    memory = 1024 * GIB
    cards = tuple(
        CardView(
            uuid=f"GPU-{number:05d}-{place}",
            klass=klass,
            memory_total=size * GIB,
            foreign=int(size * GIB * dice.uniform(0.3, 0.95)) if dice.random() < FOREIGN else 0,
        )
        for place in range(CARDS)
    )
    return NodeView(
        id=f"node_{number:05d}",
        name=name,
        engines={"llama.cpp": "", "vllm": ""},
        cores=96,
        memory_total=memory,
        memory_available=int(memory * dice.uniform(0.6, 0.95)),
        disk_free=4096 * GIB,
        cards=cards,
        labels={"zone": f"z{number % 3}", "rack": f"r{number // 32}", "tier": ("gold", "silver")[number % 2]},
        fabric=f"ib-{number // FABRIC}" if size >= 80 else "",
    )


def _scopes(count: int) -> tuple[ScopeView, ...]:
    found = []
    for number in range(SCOPES):
        parent = f"org_{number // 4}"
        if number % 4 == 0:
            found.append(ScopeView(id=parent, kind="organisation", name=parent, limit=Amount(cores=count * 96)))
        guarantee = Amount(cards=(("H100", max(1, count // 40)),), cores=count)
        found.append(
            ScopeView(id=f"team_{number}", kind="team", name=f"team-{number}", parent=parent, guarantee=guarantee)
        )
    return tuple(found)


def _models(count: int, models: int, scopes: tuple[ScopeView, ...], dice: Random) -> tuple[ModelView, ...]:
    teams = [item for item in scopes if item.kind == "team"]
    wanted = max(models, int(count * PER_NODE))
    found = []
    for number in range(models):
        base = wanted // models + (number < wanted % models)
        found.append(
            ModelView(
                id=f"mod_{number:02d}",
                name=f"model-{number:02d}",
                base=base,
                klass=Klass(number % 3),
                owner=teams[number % len(teams)].id if number % 5 else "",
                profiles=_profiles(number, dice),
                weights=f"weights-{number}",
                weights_size=20 * GIB,
            )
        )
    return tuple(found)


def _profiles(number: int, dice: Random) -> tuple[ProfileView, ...]:
    """Six kinds of ways: one card, a part of one, layers over four, tensor parallel, two nodes of a fabric, cores."""
    kind, first = number % 6, f"prof_{number:02d}"
    common: dict[str, Any] = {"digest": f"digest-{number}", "memory": 8 * GIB, "threads": 4}
    if kind == 0:
        one = ProfileView(id=first, name="card", engine="llama.cpp", cards=1, card_memory=20 * GIB, **common)
    elif kind == 1:
        one = ProfileView(
            id=first,
            name="part",
            engine="llama.cpp",
            cards=1,
            card_memory=6 * GIB,
            labels=(("tier", "gold"),),
            **common,
        )
    elif kind == 2:
        one = ProfileView(
            id=first, name="layers", engine="llama.cpp", cards=4, card_memory=130 * GIB, layer=2 * GIB, **common
        )
    elif kind == 3:
        one = ProfileView(
            id=first, name="tp4", engine="vllm", cards=4, card_memory=280 * GIB, even=True,
            card_classes=("H100", "A100-80", "H200"), **common,
        )  # fmt: skip
    elif kind == 4:
        one = ProfileView(
            id=first, name="tp8x2", engine="vllm", cards=8, card_memory=8 * 60 * GIB, even=True, span=2, **common
        )
    else:
        one = ProfileView(
            id=first, name="cpu", engine="llama.cpp", digest=f"digest-{number}", memory=48 * GIB, threads=16
        )
    spare = ProfileView(
        id=f"{first}b",
        name="cpu",
        engine="llama.cpp",
        digest=f"digest-{number}b",
        memory=64 * GIB,
        threads=32,
        priority=-1,
    )
    return (one, spare) if dice.random() < 0.5 else (one,)


def done(world: World, plan: Plan) -> World:
    """The world after a plan, once everything it started is ready."""
    board = Board(world)
    for number, op in enumerate(plan.ops):
        plans.do(op, board, new_id=f"rep_{number:05d}")
    after = board.as_world()
    return replace(after, replicas=tuple(replace(item, state=ReplicaState.READY) for item in after.replicas))


def full(world: World) -> World:
    """The same fleet with nothing left: every card that can be used is an opportunistic model's, one replica a card, and
    so is every core."""
    profile = ProfileView(
        id="prof_filler", name="filler", engine="llama.cpp", digest="digest-filler", memory=GIB, threads=12, cards=1,
        card_memory=GIB,
    )  # fmt: skip
    board = Board(replace(world, replicas=(), claims=()))
    made: list[ReplicaView] = []
    for room in board.by_index:
        for place, free in enumerate(room.cards):
            if free <= 0:
                continue
            made.append(
                ReplicaView(
                    id=f"rep_{room.index:05d}_{place}",
                    model_id="mod_filler",
                    profile_id=profile.id,
                    node_id=room.node.id,
                    slot=len(made),
                    digest=profile.digest,
                    shares=(Share(node_id=room.node.id, memory=8 * GIB, cores=96 // CARDS, cards=((room.node.cards[place].uuid, free),)),),
                    state=ReplicaState.READY,
                    in_flight=(room.index * CARDS + place) % 3,
                )
            )  # fmt: skip
    filler = ModelView(id="mod_filler", name="filler", base=len(made), klass=Klass.OPPORTUNISTIC, profiles=(profile,))
    return replace(world, models=(filler,), replicas=tuple(made), claims=())


def crowded(packed: World) -> dict[str, World]:
    """A full fleet and, as its last model, a critical one that wants four cards of a node, or all eight; whose replicas are
    in its way: nobody's, a team's that holds far more than it is guaranteed, or a team's whose critical models have borrowed
    what an opportunistic one is guaranteed."""
    new, filler = newcomer(packed), packed.models[-1]
    (way,) = new.profiles
    wide = replace(new, profiles=(replace(way, cards=8, card_memory=2 * way.card_memory),))
    lent, back = replace(filler, owner="team_1"), replace(new, owner="team_6")
    many = Amount(cards=tuple((klass, 100) for klass in way.card_classes))
    scopes = tuple(replace(item, guarantee=many) if item.id == "team_6" else item for item in packed.scopes)
    return {
        "nobody's": replace(packed, models=(filler, new)),
        "a team's": replace(packed, models=(lent, new)),
        "eight of nobody": replace(packed, models=(filler, wide)),
        "eight of a team": replace(packed, models=(lent, wide)),
        "borrowed": replace(
            packed,
            models=(replace(lent, klass=Klass.CRITICAL), replace(back, klass=Klass.OPPORTUNISTIC)),
            scopes=scopes,
        ),
    }


def newcomer(world: World, number: int = 0) -> ModelView:
    """A critical model that wants one replica: four cards of one node, of the larger classes."""
    profile = ProfileView(
        id=f"prof_new{number}", name="tp4", engine="vllm", digest=f"digest-new{number}", memory=16 * GIB, threads=8,
        cards=4, card_memory=200 * GIB, even=True, card_classes=("H100", "A100-80", "H200"),
    )  # fmt: skip
    return ModelView(id=f"mod_new{number}", name=f"new-{number}", base=1, klass=Klass.CRITICAL, profiles=(profile,))
