"""`llmgw up` on a node that joined a cluster: gateway and agent, and web and worker where it is a controller too.

Nothing is made here: identity, models and keys are the cluster's. What runs follows the node's modules.
"""

from __future__ import annotations

from typing import Any

from cluster.domain.modules import ModulesFile, ModuleState
from llmgw_site.lib import files
from llmgw_site.lib.config import Config
from llmgw_site.up.supervisor import Supervisor
from workers.agent import modules


def identity_of(config: Config) -> dict[str, Any] | None:
    """What `llmgw node join` left; None: this folder joined no cluster."""
    found = files.read_json(config.node_file)
    return found if isinstance(found, dict) and found.get("joined") is True else None


class NodeSupervisor(Supervisor):
    """All of llmgw on a node that joined."""

    joined = True

    async def _start(self) -> None:
        self._run_gateway()
        self._run_agent()
        await self._until_ready("gateway", "agent")
        decided = modules.held(self._config) or ModulesFile()
        self._terminal.block(block(self._config, identity_of(self._config) or {}, decided))


def block(config: Config, identity: dict[str, Any], decided: ModulesFile) -> str:
    """What stands on the screen once the node runs."""
    running = [item.name for item in decided.modules if item.state == ModuleState.RUNNING]
    missing = [f"{item.name} ({item.code})" for item in decided.modules if item.state == ModuleState.UNAVAILABLE]
    lines = [
        "llmgw runs as a node of its cluster.",
        "",
        f"  node         {config.node_name} ({identity.get('node_id')})",
        f"  controllers  {', '.join(config.controller_urls)}",
        f"  modules      {', '.join(running) or 'none'}",
        *([f"  unavailable  {', '.join(missing)}"] if missing else []),
        "",
        f"  logs in {config.data / 'logs'}. Ctrl-C stops everything, the engines included.",
    ]
    return "\n".join(lines)
