"""The cluster setup: which node runs what, said once for the whole cluster.

It has a list of roles per node, and a controller tier: roles that every controller runs beside its own. A node is named
by the setup if it has a list, or if it is a controller and there is a tier; any other goes by its own roles.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from cluster.domain.modules import DEFAULT_ROLES, Module, ModuleReport, ModuleState
from llmgw_site.lib.errors import Kind, Refused

STORE_NOT_SHARED = "store_not_shared"
"""Code of a controller module on a node that has no way to the cluster's database and broker."""
_KNOWN = tuple(item.value for item in Module)
_ANSWERS = frozenset({Module.ROUTER.value, Module.INFERENCE.value, Module.CLOUD.value})


@dataclass(frozen=True, kw_only=True)
class Setup:
    """`nodes`: node id -> its roles."""

    controller_tier: tuple[str, ...] = ()
    nodes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def empty(self) -> bool:
        return not self.controller_tier and not self.nodes


@dataclass(frozen=True, kw_only=True)
class SetupNode:
    """A node as the setup sees it. `own`: roles of its own settings, empty if none were set there."""

    id: str
    name: str
    own: tuple[str, ...] = ()
    modules: tuple[ModuleReport, ...] = ()
    offline: bool = False

    @property
    def own_roles(self) -> tuple[str, ...]:
        return self.own or tuple(item.value for item in DEFAULT_ROLES)

    def module(self, name: str) -> ModuleReport | None:
        return next((item for item in self.modules if item.name == name), None)


def roles_of(setup: Setup, node: SetupNode) -> tuple[str, ...] | None:
    """The roles that the setup gives a node; None: it does not name this node.

    1. a controller (by its list, else by its own roles) where there is a tier: the tier and its list or own roles.
       One whose controller module cannot run is no controller: a joined node without shared stores has no tier
    2. a node with a list: that list
    3. any other: not named
    """
    listed = setup.nodes.get(node.id)
    roles = node.own_roles if listed is None else listed
    if setup.controller_tier and Module.CONTROLLER.value in roles and not _unavailable(node):  # 1
        return in_order((*setup.controller_tier, *roles))
    return None if listed is None else in_order(listed)  # 2, 3


def roles_after(setup: Setup, node: SetupNode) -> tuple[str, ...]:
    """What a node runs under this setup, named or not."""
    given = roles_of(setup, node)
    return node.own_roles if given is None else given


def in_order(roles: Iterable[str]) -> tuple[str, ...]:
    """Each role once, in the order in which modules are always named."""
    asked = set(roles)
    return tuple(name for name in _KNOWN if name in asked)


def check(setup: Setup, nodes: Sequence[SetupNode]) -> None:
    """Refuse a setup that names what is not there, or that would leave the cluster unable to work. Raises Refused.

    1. a role that does not exist: `unknown_role`
    2. a node that is not in the cluster: `unknown_node`
    3. no controller would be left that is known to work: `setup_without_controller`. Known to work is one that runs
       the module now; a node that has not shown it yet gets the role beside the present controller first
    4. an edge with nothing behind it: no router anywhere, and neither inference nor cloud beside it:
       `edge_without_upstream`
    An empty setup is always fine: every node goes back to its own roles.
    """
    for where, roles in (("controller_tier", setup.controller_tier), *setup.nodes.items()):  # 1
        for role in roles:
            if role not in _KNOWN:
                text = f"there is no role {role[:40]!r}: the roles are {', '.join(_KNOWN)}"
                param = where if where == "controller_tier" else "nodes"
                raise Refused(Kind.INVALID, "unknown_role", text, param=param)
    known = {node.id for node in nodes}
    for node_id in setup.nodes:  # 2
        if node_id not in known:
            raise unknown_node(node_id)
    if setup.empty:
        return
    after = [(node, roles_after(setup, node)) for node in nodes]
    controllers = [node for node, roles in after if Module.CONTROLLER.value in roles]
    reasons = {node.name: _why_no_controller(node, named=roles_of(setup, node) is not None) for node in controllers}
    if all(reasons.values()):  # 3
        why = "; ".join(f"{name} {reason}" for name, reason in reasons.items()) or "no node has the role"
        raise Refused(
            Kind.CONFLICT,
            "setup_without_controller",
            f"this setup would leave the cluster without a controller that works ({why}): keep the role controller on a "
            "node that runs it now",
        )
    router = any(Module.ROUTER.value in roles for _, roles in after)
    for node, roles in after:  # 4
        if Module.EDGE.value in roles and not router and not _ANSWERS & set(roles):
            raise Refused(
                Kind.CONFLICT,
                "edge_without_upstream",
                f"this setup would leave the edge on node {node.name} with nothing behind it: give some node the role "
                f"router, or {node.name} itself inference or cloud",
            )


def check_removal(node_id: str, nodes: Sequence[SetupNode]) -> None:
    """Refuse to take out the only node that runs the controller now: `last_controller`."""
    running = [
        node
        for node in nodes
        if (module := node.module(Module.CONTROLLER.value)) and module.state == ModuleState.RUNNING
    ]
    if any(node.id == node_id for node in running) and all(node.id == node_id or node.offline for node in running):
        name = next(node.name for node in running if node.id == node_id)
        text = f"{name} is the only controller that works, and a cluster without one cannot be changed any more: "
        text += "have another node run the controller first, or stop llmgw there if the cluster shall end"
        raise Refused(Kind.CONFLICT, "last_controller", text)


def unknown_node(ref: str) -> Refused:
    text = f"there is no node {ref[:100]!r} in the cluster: join it first, or correct its name"
    return Refused(Kind.INVALID, "unknown_node", text, param="nodes")


def _unavailable(node: SetupNode) -> bool:
    module = node.module(Module.CONTROLLER.value)
    return module is not None and module.state == ModuleState.UNAVAILABLE


def _why_no_controller(node: SetupNode, *, named: bool) -> str:
    """Why this node would be no working controller; empty if it would. One that is named starts what was switched off."""
    module = node.module(Module.CONTROLLER.value)
    if node.offline:
        return "is offline"
    if not node.modules and not node.own:  # of a version that does not report them: nothing speaks against it
        return ""
    if module is None:
        return "does not run it yet"
    if module.state == ModuleState.UNAVAILABLE:
        return "has no way to the cluster's stores" if module.code == STORE_NOT_SHARED else f"cannot: {module.message}"
    return "has switched it off" if module.state == ModuleState.STOPPED and not named else ""
