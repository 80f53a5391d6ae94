"""A model's state in words that somebody can act on."""

from __future__ import annotations

from dataclasses import dataclass

from cluster.domain.limit_words import without_names
from cluster.domain.modules import Module
from cluster.domain.plan import Plan, Renew, Start
from cluster.domain.states import NodeState, ReplicaState
from cluster.domain.types import NOTHING_STARTED, ModelView, World
from cluster.domain.waits import TAKEN, TO_MOVE, WAITING_FOR_TURN, parked_words


@dataclass(frozen=True, kw_only=True)
class ModelStatus:
    """`ready` of `wanted` replicas answer. `code` and `reason` say why it is short, empty if it is not.

    `external`: a provider answers for it, so no replica is wanted.
    """

    model_id: str
    name: str
    enabled: bool
    wanted: int
    ready: int
    code: str = ""
    reason: str = ""
    external: bool = False

    @property
    def short(self) -> bool:
        return self.ready < self.wanted

    @property
    def public(self) -> str:
        return public_words(self.code, self.reason)


def public_words(code: str, reason: str) -> str:
    """A reason for who asks for the model: `reason` is for who runs the cluster, and may name models of others.

    1. its room was given to another model: to which, and what else gave way, is left out
    2. a limit of its owner: the sums stay, without the models that they are of
    3. else the reason
    """
    if code == "gave_way" or (code == WAITING_FOR_TURN and reason.startswith(TAKEN)):  # 1
        return "its room was given to another model, and it comes back when there is some"
    return without_names(reason)  # 2, 3


def model_status(world: World, plan: Plan, model: ModelView) -> ModelStatus:
    """How a model stands, given the plan for this moment.

    1. disabled: code `model_disabled`
    2. a provider answers for it: `provider_disabled`, or `no_cloud_node` while no node runs the cloud module, else
       nothing to say; or it wants no replica: `model_at_rest` until somebody asks for it, `model_parked`, or
       `model_not_wanted`
    3. enough ready: nothing to say
    4. the plan waits for something: its first reason; of a replica that does not start, and that has no other place either, its
       own one first
    5. a replica is on its way: `replica_starting` with where and how far
    6. nothing yet: `replica_planned`
    """
    mine = [item for item in world.of_model(model.id) if item.run]
    ready = sum(world.state(item) is ReplicaState.READY for item in mine)

    def status(code: str = "", reason: str = "") -> ModelStatus:
        return ModelStatus(
            model_id=model.id,
            name=model.name,
            enabled=model.enabled,
            wanted=model.target,
            ready=min(ready, model.target) if model.target else 0,
            code=code,
            reason=reason,
            external=model.external,
        )

    if not model.enabled:  # 1
        return status("model_disabled", f"the model {model.name} is disabled: an administrator can enable it")
    if model.external:  # 2
        if not model.provider_enabled:
            text = f"the provider of {model.name} is disabled: an administrator can enable it"
            return status("provider_disabled", text)
        if any(node.runs(Module.CLOUD) and node.state is not NodeState.OFFLINE for node in world.nodes):
            return status()
        text = f"no node runs the module cloud, which asks the provider of {model.name}: give a node the role cloud"
        return status("no_cloud_node", text)
    if not model.target and model.standing.parked_at is not None:
        return status("model_parked", parked_words(model))
    if not model.target and model.on_demand:
        return status("model_at_rest", f"the model {model.name} runs on demand and is at rest: a request starts it")
    if not model.target:
        return status("model_not_wanted", f"the model {model.name} is set to 0 replicas: an administrator can raise it")
    if ready >= model.target:  # 3
        return status()
    waits = [wait for wait in plan.waits if wait.model_id == model.id]
    if waits:  # 4
        told = waits[0]
        own = next((item for item in mine if item.id == told.replica_id), None)
        if told.code == TO_MOVE and own is not None and (own.failures or own.code in NOTHING_STARTED):
            why = own.message.rstrip(".") or "its node gives no reason"
            return status(own.code or "engine_failed", f"{own.id} does not start: {why}; {told.message}")
        return status(told.code, told.message)
    for replica in mine:  # 5
        if world.state(replica) is not ReplicaState.READY:
            node = world.node(replica.node_id)
            where = f"on node {node.name}" if node else ""
            words = {
                ReplicaState.PENDING: "is placed and waits for its node",
                ReplicaState.FETCHING: f"fetches its weights{': ' if replica.message else ''}{replica.message}",
                ReplicaState.STARTING: "loads its weights",
                ReplicaState.BACKOFF: "failed and is tried again",
                ReplicaState.DRAINING: "finishes its requests before it starts anew",
            }
            doing = words.get(replica.state, f"is {replica.state.value}")
            return status("replica_starting", f"{replica.id} {where} {doing}".replace("  ", " "))
    ids = {item.id for item in mine}
    planned = any(
        (isinstance(op, Start) and op.model_id == model.id) or (isinstance(op, Renew) and op.replica_id in ids)
        for op in plan.ops
    )
    return status("replica_planned", "a replica is being placed" if planned else "no replica runs yet")  # 6
