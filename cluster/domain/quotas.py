"""What parts of the tenancy tree hold of the fleet, are guaranteed of it, and may have of it at most."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

from cluster.domain.amounts import CARDS, Cards, cards_of, of_amount, of_shares
from cluster.domain.board import Board
from cluster.domain.limit_words import over_words
from cluster.domain.room import holds_room
from cluster.domain.states import ReplicaState
from cluster.domain.types import Claim, ModelView, ReplicaView, ScopeView, Share

_NOTHING: Mapping[str, int] = {}
_OUT = frozenset({ReplicaState.LOST, ReplicaState.FAILED})


class Ledger:
    """Who holds what on a board, kept true while the board changes.

    What a scope holds is summed from the replicas of its models and of the scopes beneath. Lost and failed replicas count
    for nothing, one that is told to stop counts until it is gone. `of` one model: what its replicas hold.
    """

    def __init__(self, board: Board) -> None:
        self.version = 0  # rises with each change
        self.board = board
        self._scopes = {item.id: item for item in board.world.scopes}
        self._limits = _set(self._scopes, "limit")
        self._guarantees = _set(self._scopes, "guarantee")
        self._chains: dict[str, tuple[str, ...]] = {"": ()}
        self._protected: dict[tuple[tuple[str, ...], int], bool] = {}  # as the board is: by guards and kind of amount
        self._alike: dict[tuple[tuple[str, int], ...], dict[str, int]] = {}  # one amount for all that are equal
        self._guards: dict[tuple[str, str], tuple[str, ...]] = {}  # whose, and for whom
        self._cards: dict[str, Cards] = {}
        self._amounts: dict[str, tuple[tuple[Share, ...], dict[str, int]]] = {}
        self._held: dict[str, dict[str, int]] = {}  # by id of a scope or a model
        self._serving: dict[str, dict[str, int]] = {}  # the part of it that is meant to go on
        self._kept: dict[str, dict[str, int]] = {}  # room that is kept for models of a scope
        if self._scopes:
            self._sum()
            for claim in board.claims:
                self.kept(None, claim)
            board.watchers.append(self)

    # --- asking

    def held(self, scope_or_model_id: str) -> Mapping[str, int]:
        """What a scope, or an owned model, holds."""
        return self._held.get(scope_or_model_id, _NOTHING)

    def borrowed(self, scope_id: str) -> dict[str, int]:
        """What a scope holds beyond its guarantee: of what this names, and of classes of cards that it does not name.
        Nothing where it has none: then nothing is said of it."""
        guarantee = self._guarantees.get(scope_id)
        if guarantee is None:
            return {}
        return {
            key: value - guarantee.get(key, 0)
            for key, value in self.held(scope_id).items()
            if value > guarantee.get(key, 0) and (key in guarantee or key.startswith(CARDS))
        }

    def over_limit(self, model: ModelView, shares: Sequence[Share], *, instead: ReplicaView | None = None) -> str:
        """Which limit forbids a model to take these shares too, with the sums; empty if none does.

        `instead`: the replica that gives back what it holds for them; what is not more than that is never refused.
        """
        for scope_id, key, more in self._exceeded(model, shares, instead):
            return self._over(model, self._scopes[scope_id], key, more)
        return ""

    def classes_over(self, model: ModelView, shares: Sequence[Share]) -> set[str]:
        """The classes of cards of which these shares are more than limits allow; none where anything else is."""
        keys = {key for _, key, _ in self._exceeded(model, shares, None)}
        plain = any(not key.startswith(CARDS) for key in keys)
        return set() if plain else {key.removeprefix(CARDS) for key in keys}

    def barred(self, model: ModelView) -> frozenset[str]:
        """The classes of cards of which limits let a model's owner have none."""
        limits = [self._limits.get(scope_id, _NOTHING) for scope_id in self._chain(model.owner)]
        named = (key for limit in limits for key, most in limit.items() if not most and key.startswith(CARDS))
        return frozenset(key.removeprefix(CARDS) for key in named)

    def never(self, model: ModelView, shares: Sequence[Share]) -> bool:
        """Whether these shares are more than limits allow though nothing else were held."""
        limits = [self._limits.get(scope_id, _NOTHING) for scope_id in self._chain(model.owner)]
        if not any(limits):
            return False
        amount = of_shares(shares, self._cards_of(shares))
        return any(size > limit[key] for key, size in amount.items() for limit in limits if key in limit)

    @cached_property
    def classes(self) -> frozenset[str]:
        """The classes of cards that the fleet has."""
        return frozenset(card.klass for node in self.board.world.nodes for card in node.cards)

    def guards(self, other: ModelView, model: ModelView) -> tuple[str, ...]:
        """The scopes that are guaranteed something and lose if a replica of another model gives way for this one: those of
        the other that are not of this one, too. Of scopes that both belong to nothing is taken."""
        if not self._guarantees:
            return ()
        found = self._guards.get((other.owner, model.owner))
        if found is None:
            both = set(self._chain(model.owner))
            found = tuple(key for key in self._chain(other.owner) if key not in both and key in self._guarantees)
            self._guards[other.owner, model.owner] = found
        return found

    def protects(self, guards: tuple[str, ...], victim: ReplicaView) -> bool:
        """Whether one of these scopes is guaranteed what a serving replica holds.

        Its guarantee has to name that (of a replica with cards, the classes of all of them), and the scope would be left
        with less than it is guaranteed of each such thing.
        """
        amount = self._amount(victim)
        known = self._protected.get((guards, id(amount)))
        if known is None:
            known = any(self._short_without(scope_id, amount) for scope_id in guards)
            self._protected[guards, id(amount)] = known
        return known

    def within_guarantee(self, model: ModelView, shares: Sequence[Share], *, apart_from: str) -> bool:
        """Whether these shares would be within what a scope of a model is guaranteed, to which `apart_from` does not belong:
        then what that one has borrowed is taken back, though the model is of no higher class.

        The guarantee has to name what the shares are (of those with cards, the classes of all), and to have room for each
        beside what goes on serving there and what is kept for others.
        """
        theirs = set(self._chain(apart_from))
        amount = of_shares(shares, self._cards_of(shares))
        return any(
            self._has_left(scope_id, amount)
            for scope_id in self._chain(model.owner)
            if scope_id not in theirs and scope_id in self._guarantees
        )

    @cached_property
    def _models(self) -> dict[str, list[ModelView]]:
        """The models of each scope and of those beneath it."""
        found: dict[str, list[ModelView]] = {}
        for model in self.board.world.models:
            for scope_id in self._chain(model.owner):
                found.setdefault(scope_id, []).append(model)
        return found

    # --- what the board tells

    def changed(self, before: ReplicaView | None, after: ReplicaView | None) -> None:
        """A replica has changed, is new, or is gone."""
        self.version += 1
        self._protected.clear()
        for replica, sign in ((before, -1), (after, 1)):
            if replica is None:
                continue
            chain = self._chain(self._owner(replica))
            if not chain or not self._counts(replica):
                continue
            amount = self._amount(replica)
            for owner in (*chain, replica.model_id):
                _add(self._held.setdefault(owner, {}), amount, sign)
                if replica.run:
                    _add(self._serving.setdefault(owner, {}), amount, sign)

    def kept(self, before: Claim | None, after: Claim | None) -> None:
        """Room is kept for a model, or is no longer."""
        self.version += 1
        for claim, sign in ((before, -1), (after, 1)):
            model = self.board.model(claim.model_id) if claim is not None else None
            if claim is not None and model is not None:
                amount = of_shares(claim.shares, self._cards_of(claim.shares))
                for scope_id in self._chain(model.owner):
                    _add(self._kept.setdefault(scope_id, {}), amount, sign)

    # --- parts

    def _sum(self) -> None:
        """Everything once: by model first, for there are far fewer of them."""
        for model in self.board.world.models:
            chain = self._chain(model.owner)
            replicas = [item for item in self.board.of_model(model.id) if self._counts(item)] if chain else ()
            if not replicas:
                continue
            held: dict[str, int] = {}
            serving: dict[str, int] = {}
            alike: dict[tuple[int, bool], list[dict[str, int]]] = {}
            for replica in replicas:
                amount = self._amount(replica)
                alike.setdefault((id(amount), replica.run), []).append(amount)
            for (_, run), group in alike.items():
                _add(held, group[0], len(group))
                if run:
                    _add(serving, group[0], len(group))
            for owner in (*chain, model.id):
                _add(self._held.setdefault(owner, {}), held, 1)
                _add(self._serving.setdefault(owner, {}), serving, 1)

    def _exceeded(
        self, model: ModelView, shares: Sequence[Share], instead: ReplicaView | None
    ) -> Iterator[tuple[str, str, int]]:
        """Limits that are in the way: of which scope, of what, and how much more is asked for."""
        chain = [scope_id for scope_id in self._chain(model.owner) if scope_id in self._limits]
        if not chain:
            return
        before = self._amount(instead) if instead is not None and self._counts(instead) else _NOTHING
        for key, size in sorted(of_shares(shares, self._cards_of(shares)).items()):
            more = size - before.get(key, 0)
            for scope_id in chain:
                limit = self._limits[scope_id].get(key)
                if limit is not None and more > 0 and self._taken(scope_id, key) + more > limit:
                    yield scope_id, key, more

    def _taken(self, scope_id: str, key: str) -> int:
        return self.held(scope_id).get(key, 0) + self._kept.get(scope_id, _NOTHING).get(key, 0)

    def _short_without(self, scope_id: str, amount: Mapping[str, int]) -> bool:
        guarantee = self._guarantees.get(scope_id, _NOTHING)
        serving = self._serving.get(scope_id, _NOTHING)
        named = _named(guarantee, amount)
        return bool(named) and all(serving.get(key, 0) - amount[key] < guarantee[key] for key in named)

    def _has_left(self, scope_id: str, amount: Mapping[str, int]) -> bool:
        guarantee, kept = self._guarantees[scope_id], self._kept.get(scope_id, _NOTHING)
        serving = self._serving.get(scope_id, _NOTHING)
        named = _named(guarantee, amount)
        return bool(named) and all(
            serving.get(key, 0) + kept.get(key, 0) + amount[key] <= guarantee[key] for key in named
        )

    def _counts(self, replica: ReplicaView) -> bool:
        return holds_room(replica) and self.board.state(replica) not in _OUT

    def _owner(self, replica: ReplicaView) -> str:
        model = self.board.model(replica.model_id)
        return model.owner if model is not None else ""

    def _chain(self, owner: str) -> tuple[str, ...]:
        """A scope and those above it."""
        found = self._chains.get(owner)
        if found is None:
            scope = self._scopes.get(owner)
            found = self._chains[owner] = () if scope is None else (owner, *self._chain(scope.parent))
        return found

    def _amount(self, replica: ReplicaView) -> dict[str, int]:
        """What a replica holds: one and the same for all that hold as much."""
        known = self._amounts.get(replica.id)
        if known is None or known[0] is not replica.shares:
            amount = of_shares(replica.shares, self._cards_of(replica.shares))
            amount = self._alike.setdefault(tuple(amount.items()), amount)
            known = self._amounts[replica.id] = (replica.shares, amount)
        return known[1]

    def _cards_of(self, shares: Sequence[Share]) -> Mapping[str, Cards]:
        """The cards of these nodes, looked up once for each."""
        for share in shares:
            if share.cards and share.node_id not in self._cards:
                node = self.board.node(share.node_id)
                self._cards[share.node_id] = cards_of(node) if node is not None else {}
        return self._cards

    def _over(self, model: ModelView, scope: ScopeView, key: str, more: int) -> str:
        held, kept = self.held(scope.id).get(key, 0), self._kept.get(scope.id, _NOTHING).get(key, 0)
        models = [(item.name, self.held(item.id).get(key, 0)) for item in self._models.get(scope.id, ())]
        limit = self._limits[scope.id][key]
        return over_words(scope, key, limit=limit, held=held, kept=kept, models=models, name=model.name, more=more)


def ledger_of(board: Board) -> Ledger:
    """The ledger that is kept for a board; a new one where nobody has made one."""
    return next((item for item in board.watchers if isinstance(item, Ledger)), None) or Ledger(board)


def _set(scopes: Mapping[str, ScopeView], name: str) -> dict[str, dict[str, int]]:
    amounts = {scope.id: of_amount(getattr(scope, name)) for scope in scopes.values()}
    return {scope_id: amount for scope_id, amount in amounts.items() if amount}


def _named(guarantee: Mapping[str, int], amount: Mapping[str, int]) -> list[str]:
    """What of an amount a guarantee names; nothing where the amount has cards of a class that it does not."""
    if any(key.startswith(CARDS) and key not in guarantee for key in amount):
        return []
    return [key for key in amount if key in guarantee]


def _add(total: dict[str, int], amount: Mapping[str, int], sign: int) -> None:
    for key, size in amount.items():
        total[key] = total.get(key, 0) + sign * size
