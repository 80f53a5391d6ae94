"""This node's modules: decided from the cluster setup, own roles and switches, and kept in `<data>/cluster/modules.json`.

The gateway and the supervisor follow the file. Switches that were made on this node are read from
`<data>/node/switches.json`, which the gateway writes.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from importlib.util import find_spec
from urllib.parse import urlsplit

from cluster.domain import roles
from cluster.domain.modules import Module, ModulesFile, ModuleState, SwitchesFile
from cluster.wire import WireError, from_dict, to_dict
from llmgw_site.lib import files
from llmgw_site.lib.config import Config
from llmgw_site.lib.logs import event
from workers.agent.store import WantedStore

log = logging.getLogger(__name__)


def problems(config: Config, *, joined: bool) -> dict[str, tuple[str, str]]:
    """Module to (code, message) of what keeps it from running on this node, whatever its roles say."""
    controller = _controller_problem(config) if joined else None
    return {Module.CONTROLLER.value: controller} if controller else {}


def _controller_problem(config: Config) -> tuple[str, str] | None:
    """1. no shared stores; 2. not the cluster's secret; 3. not installed."""
    shared = urlsplit(config.database_url).scheme in ("postgres", "postgresql") and bool(config.redis_url)
    if not shared:  # 1
        text = "A further controller needs the cluster's stores: set DATABASE_URL (PostgreSQL) and LLMGW_REDIS_URL."
        return "store_not_shared", text
    if not (config.secret_key or (config.data / "secrets" / "secret-key").exists()):  # 2
        return "secret_not_shared", "A further controller needs the cluster's secret: set LLMGW_SECRET_KEY to it."
    if find_spec("django") is None:  # 3
        return "controller_not_installed", "A controller needs llmgw's extra `controller`: install it on this node."
    return None


class Modules:
    """`before` None: the node has just started, so nothing counts as stopped yet."""

    def __init__(
        self, config: Config, *, joined: bool, assigned: tuple[str, ...] | None, before: ModulesFile | None
    ) -> None:
        self._config, self._problems = config, problems(config, joined=joined)
        self._assigned, self._before = assigned, before
        self._mark: object = None
        self._unkept = False
        self.now = before or ModulesFile()
        self.look()

    def runs(self, module: str) -> bool:
        return running(self.now, module)

    def assign(self, assigned: tuple[str, ...] | None) -> bool:
        """What the cluster setup says of this node now. True if the modules changed."""
        self._assigned = assigned
        return self.look()

    def look(self) -> bool:
        """Decide anew, and keep the outcome if it is new or the file is not as it was left. True if it is new."""
        decided = roles.decide(
            own=self._config.roles,
            assigned=self._assigned,
            switches=self._switches(),
            before=self._before,
            problems=self._problems,
        )
        new, self.now = decided != self.now, decided
        self._before = decided
        if new or self._unkept or self._mark is None or files.mark(self._config.modules_file) != self._mark:
            self._keep()
        return new

    def _switches(self) -> Mapping[str, bool]:
        try:
            data = files.read_json(self._config.switches_file)
            return {} if data is None else from_dict(SwitchesFile, data).modules
        except (WireError, OSError):
            return {}

    def _keep(self) -> None:
        try:
            files.private_folder(self._config.modules_file.parent)
            self._mark = files.write_json(self._config.modules_file, to_dict(self.now))
        except OSError as error:  # tried again with the next look
            if not self._unkept:
                event(log, "modules_not_kept", level=logging.ERROR, reason=str(error))
            self._unkept = True
            return
        self._unkept = False


def held(config: Config) -> ModulesFile | None:
    """What was decided last; None: nothing yet, or it cannot be read."""
    try:
        data = files.read_json(config.modules_file)
        return None if data is None else from_dict(ModulesFile, data)
    except (WireError, OSError):
        return None


def running(decided: ModulesFile, module: str) -> bool:
    return any(item.name == module and item.state == ModuleState.RUNNING for item in decided.modules)


def start(config: Config, *, joined: bool) -> ModulesFile:
    """The node starts: what was stopped is forgotten, and the file says what runs from the first moment on."""
    last = WantedStore(config.wanted_file).read()
    return Modules(config, joined=joined, assigned=last.roles if last else None, before=None).now
