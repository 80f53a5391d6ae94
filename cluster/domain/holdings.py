"""Which weights lie on a node, by what it reports: names of those that it has and of those that it lacks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

ASKED_FOR = 30.0
"""Seconds after a change of a model in which a node that tells what it has is waited for, before nothing counts as known."""


ALL_ASKED_FOR = 5.0
"""The same, until all of them have said: one that has the weights and is quick is not to get all replicas of a model."""


def asked_for(heard_every: float) -> float:
    """ASKED_FOR, or what it takes until a node that no nudge reaches has been told of new weights and has looked: a heartbeat
    comes each `heard_every` seconds, and the next at once with what it found."""
    return max(ASKED_FOR, heard_every + ALL_ASKED_FOR)


@dataclass(frozen=True, kw_only=True)
class Lie:
    """What lies at a path. `size`: bytes; None: nothing that could be used."""

    size: int | None = None
    folder: bool = False


@dataclass(frozen=True, kw_only=True)
class Sought:
    """Weights of a model. `size`: bytes, 0: any will do. `changed_at`: when the model last changed, Unix seconds.
    `fetched`: `path` is the id of a version, which nodes fetch: none lacks it, and none is waited for."""

    path: str
    size: int = 0
    changed_at: float = 0.0
    fetched: bool = False

    def fresh(self, now: float, most: float = ASKED_FOR) -> bool:
        """Whether nodes are about to be asked. A change of the future was noted by a clock that goes wrong: it must hold
        nobody up until then."""
        return not self.fetched and abs(now - self.changed_at) < most

    @property
    def name(self) -> str:
        """Names the very weights, for machines and for people: another size is another file."""
        return f"{self.path} of {self.size} bytes" if self.size else self.path


@dataclass(frozen=True, kw_only=True)
class Holding:
    """Names of weights that a node has, and that it has not. What stands in neither is not known."""

    has: frozenset[str] = frozenset()
    lacks: frozenset[str] = frozenset()


def holding(told: Mapping[str, Lie], sought: Iterable[Sought], now: float, most: float = ASKED_FOR) -> Holding:
    """What a node that tells what it has (`told`, by path) has of the weights that are sought. `now` infinite: nobody is
    waited for; `most`: as long as nobody is waited for longer (`asked_for`).

    1. at the path lies a folder, or a file of the right size: it has it. What is in a folder is not looked at
    2. something else lies there, or nothing: it lacks it, unless it is to fetch it
    3. it has not said yet: it lacks it until it does, so that a new model goes at once to where its weights lie; not
       longer than `most`, after which nothing is known
    """
    has, lacks = set(), set()
    for item in sought:
        found = told.get(item.path)
        if found is None:  # 3
            if item.fresh(now, most):
                lacks.add(item.name)
        elif found.size is not None and (found.folder or found.size == item.size or not item.size):  # 1
            has.add(item.name)
        elif not item.fetched:  # 2
            lacks.add(item.name)
    return Holding(has=frozenset(has), lacks=frozenset(lacks))
