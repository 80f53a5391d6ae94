"""Which modules a node runs: by the cluster setup where it names the node, else by the node's own roles and switches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cluster.domain.modules import DEFAULT_ROLES, Module, ModuleReport, ModulesFile, ModuleState


def decide(
    *,
    own: Sequence[str],
    assigned: Sequence[str] | None,
    switches: Mapping[str, bool],
    before: ModulesFile | None,
    problems: Mapping[str, tuple[str, str]],
) -> ModulesFile:
    """The modules of a node now.

    own: roles of the node's settings; none: DEFAULT_ROLES. assigned: by the cluster setup; None: it does not name the
    node. before: what was decided last since the node started. problems: module to (code, message) of what keeps it
    from running here. Names that are no module are of another version and are left out.

    1. the cluster setup names the node: its list, and no switch counts
    2. else the node's own roles, then its switches, on and off
    3. asked for, and something keeps it from running: `unavailable`, with code and message
    4. asked for: `running`
    5. not asked for, and it ran since the node started: `stopped`
    6. else it is not listed
    """
    managed = assigned is not None
    if assigned is not None:  # 1
        asked = set(assigned)
    else:  # 2
        asked = set(own or DEFAULT_ROLES)
        asked |= {name for name, on in switches.items() if on}
        asked -= {name for name, on in switches.items() if not on}
    ran = {
        item.name
        for item in (before.modules if before else ())
        if item.state in (ModuleState.RUNNING, ModuleState.STOPPED)
    }
    modules = []
    for name in Module:
        if name in asked and name in problems:  # 3
            code, message = problems[name]
            modules.append(
                ModuleReport(name=name.value, state=ModuleState.UNAVAILABLE.value, code=code, message=message)
            )
        elif name in asked:  # 4
            modules.append(ModuleReport(name=name.value, state=ModuleState.RUNNING.value))
        elif name in ran:  # 5
            modules.append(ModuleReport(name=name.value, state=ModuleState.STOPPED.value))
    return ModulesFile(
        modules=tuple(modules), managed=managed, roles=tuple(name.value for name in Module if name in asked)
    )
