"""Random faults against a cluster, and what must hold when all of them are over."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from cluster.domain import invariants
from cluster.domain.board import Board
from cluster.domain.plan import old, running
from cluster.domain.reconcile import reconcile
from cluster.domain.states import NodeState, ReplicaState
from cluster.domain.types import ModelView, ProfileView
from llmgw_site.lib.units import GIB
from tests.sim.clock import Clock
from tests.sim.cluster import READY, Cluster, Link
from tests.sim.node import Node

FAULTS, REST = 300.0, 330.0
"""Seconds of virtual time with faults, and without any until it is looked whether all came to rest."""


def a_cluster(seed: int) -> Cluster:
    """Four to six nodes, half of them with cards, three models, one of them for cards; room for all of them on any three
    nodes or so."""
    clock = Clock(seed)
    cluster = Cluster(clock)
    for number in range(clock.dice.randint(4, 6)):
        cluster.add_node(f"n{number}", cards=(f"n{number}a", f"n{number}b") if number % 2 else ())
    for name, wanted in (("one", 1), ("two", 2), ("three", 3)):
        profile = ProfileView(id=f"prof_{name}", name=name, engine="llama.cpp", digest=f"{name}-1", memory=GIB)
        cluster.models[name] = ModelView(id=name, name=name, base=wanted, profiles=(profile,))
    cards = replace(profile, id="prof_cards", name="cards", priority=1, digest="cards-1", cards=1, card_memory=10 * GIB)
    cluster.models["two"] = replace(cluster.models["two"], profiles=(cards, *cluster.models["two"].profiles))
    return cluster


class Schedule:
    """One run: `play` lets things happen for a while, `rest` heals what can be healed and checks the end."""

    def __init__(self, seed: int) -> None:
        self.cluster = a_cluster(seed)
        self.clock, self.dice = self.cluster.clock, self.cluster.clock.dice
        self.happenings: tuple[tuple[int, Callable[[], None]], ...] = (
            (4, self.partition), (3, self.lose_messages), (2, self.power_cut), (3, self.restart_agent),
            (3, self.crash_engine), (1, self.hang_engine), (1, self.deafen_engine), (2, self.stall_one),
            (2, self.stall_all), (1, self.database_clock), (1, self.wall_clock), (3, self.maintain), (2, self.card), (2, self.foreign),
            (3, self.scale), (1, self.toggle), (2, self.change_profile), (2, self.bad_starts), (1, self.slow_loads),
            (1, self.switch), (1, self.pin), (1, self.remove),
        )  # fmt: skip

    def play(self) -> None:
        self.clock.run(self.dice.choice((0.0, 30.0)))
        end = self.clock.now + FAULTS
        weights, acts = zip(*self.happenings, strict=True)
        while self.clock.now < end:
            self.clock.run(self.dice.expovariate(1 / 11.0))
            act = self.dice.choices(acts, weights)[0]
            act()
            self.look()

    def look(self) -> None:
        broken = invariants.check(self.cluster.world())
        broken = tuple(text for text in broken if "is not in the cluster" not in text)  # gone with the next tick
        assert not broken, broken

    # --- faults ---------------------------------------------------------------------------------------------------

    def node(self) -> Node:
        name = self.dice.choice(sorted(self.cluster.rows))
        return self.cluster.nodes[name]

    def for_a_while(self, undo: Callable[[], None], *, most: float = 110.0) -> None:
        self.clock.after(self.dice.uniform(1.0, most), undo)

    def partition(self) -> None:
        """A node from all controllers, or from one of them."""
        node = self.node()
        names = self.cluster.names if self.dice.random() < 0.7 else (self.dice.choice(self.cluster.names),)
        links = [self.cluster.links[node.id, name] for name in names]
        self.cluster.say(f"{node.id} cut from {', '.join(names)}")

        def cut(how: bool) -> None:
            for link in links:
                link.cut = how

        cut(True)
        self.for_a_while(lambda: cut(False))

    def lose_messages(self) -> None:
        node = self.node()
        share, slow = self.dice.choice((0.1, 0.3, 0.6)), self.dice.choice((0.05, 2.0, 12.0))
        self.cluster.say(f"{node.id} loses {share:.0%}, up to {slow} s late")
        for name in self.cluster.names:
            link = self.cluster.links[node.id, name]
            link.lossy, link.slow = share, slow
            self.for_a_while(lambda link=link: _mend(link))  # type: ignore[misc]

    def power_cut(self) -> None:
        node = self.node()
        self.cluster.say(f"{node.id} loses power")
        node.power_off()
        self.for_a_while(node.power_on)

    def restart_agent(self) -> None:
        node = self.node()
        self.cluster.say(f"{node.id} agent killed")
        node.kill_agent()
        self.for_a_while(node.start_agent, most=self.dice.choice((3.0, 100.0)))

    def crash_engine(self) -> None:
        node = self.node()
        for engine in list(node.engines.values())[:1]:
            self.cluster.say(f"{node.id} {engine.replica_id} crashes")
            node.crash(engine)

    def hang_engine(self) -> None:
        node = self.node()
        for engine in list(node.engines.values())[:1]:
            self.cluster.say(f"{node.id} {engine.replica_id} hangs")
            engine.hung = engine.deaf = True

    def deafen_engine(self) -> None:
        for engine in self.node().engines.values():
            engine.deaf = True

    def stall_one(self) -> None:
        name = self.dice.choice(self.cluster.names)
        self.cluster.say(f"{name} stalls")
        self.cluster.stall(name, self.dice.uniform(2.0, 120.0))

    def stall_all(self) -> None:
        """The database stands still."""
        seconds = self.dice.uniform(5.0, 200.0)
        self.cluster.say(f"all controllers stall for {seconds:.0f} s")
        for name in self.cluster.names:
            self.cluster.stall(name, seconds)

    def database_clock(self) -> None:
        step = self.dice.choice((-3600.0, -300.0, 300.0, 3600.0))
        self.cluster.say(f"the database's clock jumps by {step:.0f} s")
        self.cluster.set_database_clock(step)

    def wall_clock(self) -> None:
        self.node().wall_off += self.dice.choice((-86_400.0, -600.0, 600.0, 86_400.0))

    def maintain(self) -> None:
        node, state = self.node(), self.dice.choice(("", "", "cordoned", "drained"))
        self.cluster.say(f"{node.id} maintenance: {state or 'ended'}")
        self.cluster.change_node(node.id, maintenance=state)

    def card(self) -> None:
        node = self.node()
        for card in self.cluster.rows[node.id].view.cards:
            state = self.dice.choice(("", "cordoned", "drained"))
            self.cluster.say(f"{node.id} card {card.uuid}: {state or 'ended'}")
            self.cluster.change_card(node.id, card.uuid, maintenance=state)

    def foreign(self) -> None:
        """Another program takes a card's memory, and gives it back."""
        node = self.node()
        for card in self.cluster.rows[node.id].view.cards[:1]:
            taken = self.dice.choice((4, 12, 23)) * GIB
            self.cluster.say(f"{node.id} card {card.uuid}: {taken // GIB} GiB taken by another program")
            self.cluster.change_card(node.id, card.uuid, foreign=taken)
            self.for_a_while(lambda node=node, uuid=card.uuid: self.give_back(node, uuid))  # type: ignore[misc]

    def give_back(self, node: Node, uuid: str) -> None:
        if node.id in self.cluster.rows:
            self.cluster.change_card(node.id, uuid, foreign=0)

    def model(self) -> ModelView:
        return self.cluster.models[self.dice.choice(sorted(self.cluster.models))]

    def change_model(self, model: ModelView, **fields: object) -> None:
        self.cluster.say(f"model {model.name}: {fields}")
        self.cluster.models[model.id] = replace(model, **fields)  # type: ignore[arg-type]

    def scale(self) -> None:
        self.change_model(self.model(), base=self.dice.randint(0, 4))

    def toggle(self) -> None:
        model = self.model()
        self.change_model(model, enabled=not model.enabled)

    def change_profile(self) -> None:
        model = self.model()
        profile = replace(model.profiles[0], digest=f"{model.name}-{self.clock.now:.0f}")
        self.change_model(model, profiles=(profile, *model.profiles[1:]))

    def pin(self) -> None:
        model = self.model()
        names = self.dice.sample(sorted(self.cluster.rows), 2) if self.dice.random() < 0.5 else []
        self.change_model(model, profiles=(replace(model.profiles[0], nodes=tuple(names)), *model.profiles[1:]))

    def bad_starts(self) -> None:
        """A model does not start on a node, for good or for a while."""
        node, model, final = self.node(), self.model(), self.dice.random() < 0.5
        self.cluster.say(f"{node.id} cannot start {model.name}{', for good' if final else ''}")
        node.refuses[model.id] = final
        self.for_a_while(lambda: self.mend_starts(node, model))

    def mend_starts(self, node: Node, model: ModelView) -> None:
        node.refuses.pop(model.id, None)

    def slow_loads(self) -> None:
        self.node().slow_load = self.dice.choice((1.0, 10.0, 30.0))

    def switch(self) -> None:
        node = self.node()
        self.cluster.say(f"{node.id} inference {'off' if node.inference else 'on'}")
        node.switch_inference(not node.inference)

    def remove(self) -> None:
        if len(self.cluster.rows) > 3:
            self.cluster.remove_node(self.node().id)

    # --- the end --------------------------------------------------------------------------------------------------

    def heal(self) -> None:
        """The net, the controllers and the machines are fine again; what administrators said stays said."""
        self.cluster.say("healed")
        for link in self.cluster.links.values():
            link.cut = False
            _mend(link)
        self.cluster.stalled_until.clear()
        self.cluster.stall(self.cluster.names[0], 0.0)
        for node in self.cluster.nodes.values():
            node.refuses.clear()
            node.slow_load = 1.0
            node.power_on()

    def rest(self) -> None:
        self.clock.run(120.0)  # so that nothing of before comes undone afterwards
        self.heal()
        self.clock.run(REST)
        world = self.cluster.world()
        assert invariants.check(world) == ()
        plan = reconcile(world, self.cluster.now)
        assert plan.ops == (), plan.ops
        assert all(node.state is NodeState.ONLINE for node in world.nodes)
        waits = {wait.model_id for wait in plan.waits}
        for model in world.models:
            ready = [r for r in running(Board(world), model.id) if r.state is READY]
            if model.id not in waits:
                assert len(ready) == model.target, f"{model.name}: {len(ready)} of {model.target} and no reason given"
                assert {r.digest for r in ready} <= {p.digest for p in model.profiles}
            if len(ready) >= model.target:
                board = Board(world)
                replaced = any(old(board, model, item) for item in ready)  # then failed successors are kept in mind
                left = [r for r in world.of_model(model.id) if not (replaced and world.state(r) is ReplicaState.FAILED)]
                assert len(left) == model.target, f"{model.name}: something useless is left"
        stuck = {wait.replica_id for wait in plan.waits if wait.code == "waiting_to_move"}
        board = Board(world)
        for replica in world.replicas:
            assert replica.run, f"{replica.id} stays for ever"
            serves = world.state(replica) not in (ReplicaState.LOST, ReplicaState.FAILED)
            assert not (serves and board.to_move(replica)) or replica.id in stuck, replica
        for node in self.cluster.nodes.values():
            here = {
                (r.id, r.generation) for r in world.on_node(node.id) if world.state(r) is READY
            }  # empty for a node that was removed
            assert node.running() == here, f"{node.id} runs {node.running()}, wanted are {here}"


def _mend(link: Link) -> None:
    link.lossy, link.slow = 0.0, 0.05
