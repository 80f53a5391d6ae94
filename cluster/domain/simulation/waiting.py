"""Whether a model that waits has room: free room, or room of those who have to give way for it in any case."""

from __future__ import annotations

from collections.abc import Iterable

from cluster.domain.amounts import CARDS, of_amount
from cluster.domain.board import Board
from cluster.domain.place import ranks
from cluster.domain.simulation.placing import may_run
from cluster.domain.simulation.sums import Free, chain, fits, free_of, held
from cluster.domain.states import ReplicaState
from cluster.domain.types import ModelView, NodeView, ProfileView, ReplicaView


class Looker:
    """Looks at one board, as long as it is not changed."""

    def __init__(self, board: Board) -> None:
        self.board = board
        self._free: dict[str, Free] = {}
        self._held: dict[str, dict[str, int]] = {}
        self._scopes = {item.id: item for item in board.world.scopes}

    def free_place(self, model: ModelView) -> str:
        """A node where the best way to run a model fits as it is; empty where there is none, or its limits may forbid it."""
        for profile in self._best(model):
            there: dict[str, int] = {}
            for node in self._nodes(model, profile):
                if node.id not in self._free:
                    self._free[node.id] = free_of(self.board, node)
                if fits(profile, node, self._free[node.id]) and self._allowed(model, profile, node):
                    place = node.fabric if profile.span > 1 else node.id
                    there[place] = there.get(place, 0) + 1
                    if there[place] >= profile.span:
                        return node.name
        return ""

    def room_below(self, model: ModelView) -> str:
        """A node where it would fit if those of lower classes were gone whom no guarantee protects."""
        for profile in self._best(model):
            if profile.span > 1:
                continue
            for node in self._nodes(model, profile):
                lower = [item for item in self.board.on_node(node.id) if self._gives_way(item, model)]
                if not any(item.run for item in lower):
                    continue
                free = free_of(self.board, node, without=lower)
                if fits(profile, node, free) and self._allowed(model, profile, node):
                    return node.name
        return ""

    def _best(self, model: ModelView) -> Iterable[ProfileView]:
        return ranks(model.profiles)[0] if model.profiles else ()

    def _nodes(self, model: ModelView, profile: ProfileView) -> Iterable[NodeView]:
        failed = {(r.node_id, r.digest) for r in self.board.of_model(model.id) if r.state is ReplicaState.FAILED}
        for room in self.board.by_index:
            node = room.node
            if (node.id, profile.digest) in failed or not may_run(node, profile, model):
                continue
            if (profile.span == 1 or node.fabric) and self._disk(model, node):
                yield node

    def _disk(self, model: ModelView, node: NodeView) -> bool:
        """Whether the weights lie there, or fit beside all others that may still be fetched."""
        if node.disk_free is None or not model.weights or model.weights in node.weights:
            return True
        others = {item.model_id for item in self.board.on_node(node.id)}
        others |= {claim.model_id for claim in self.board.claims}
        coming = [
            item for key in others if (item := self.board.model(key)) is not None and item.weights not in node.weights
        ]
        return node.disk_free >= model.weights_size + sum(item.weights_size for item in coming)

    def _gives_way(self, item: ReplicaView, model: ModelView) -> bool:
        other = self.board.model(item.model_id)
        if not item.run:
            return True
        if other is None or other.klass >= model.klass or len(item.shares) > 1:
            return False
        mine = chain(self._scopes, model.owner)
        return not any(
            of_amount(self._scopes[key].guarantee) for key in chain(self._scopes, other.owner) if key not in mine
        )

    def _allowed(self, model: ModelView, profile: ProfileView, node: NodeView) -> bool:
        """Whether certainly no limit forbids it, whichever cards it would get."""
        wanted = {"cores": profile.threads, "memory": profile.memory}
        wanted.update({CARDS + card.klass: profile.cards * 1_000_000 for card in node.cards if profile.cards})
        for scope in chain(self._scopes, model.owner):
            limit = of_amount(self._scopes[scope].limit)
            if not limit:
                continue
            if scope not in self._held:
                self._held[scope] = held(self.board, scope, going=False)
            if self.board.claims:
                return False  # what is kept counts, too
            if any(
                key in limit and self._held[scope].get(key, 0) + size * profile.span > limit[key]
                for key, size in wanted.items()
            ):
                return False
        return True
