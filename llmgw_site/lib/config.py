"""The one settings object: every variable of `llmgw_site.lib.variables`, and what follows from them.

Each process reads it once at start through `load(os.environ)`; a wrong value is refused with all other wrong
values in one `ConfigError`, which `llmgw check` prints. A secret may also come from a file: `NAME_FILE=/path`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from llmgw_site.lib import files
from llmgw_site.lib.variables import Variables


class ConfigError(Exception):
    """One or more settings cannot be used; `problems` has a sentence for each, with what to write instead."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


@dataclass(frozen=True, kw_only=True)
class Config(Variables):
    """All settings of one process, and where things lie that follow from them."""

    @property
    def run(self) -> Path:
        """Folder of sockets and locks. Short-lived things only."""
        return self.data / "run"

    @property
    def web_socket(self) -> Path:
        """Unix socket on which `web` serves the gateway's other paths."""
        return self.run / "web.sock"

    @property
    def agent_socket(self) -> Path:
        """Unix socket on which the agent hears load figures from the gateway."""
        return self.run / "agent.sock"

    @property
    def snapshot_file(self) -> Path:
        return self.data / "cluster" / "snapshot.json"

    @property
    def revoked_file(self) -> Path:
        """Keys that were revoked since the snapshot, as nudges said."""
        return self.data / "cluster" / "revoked.json"

    @property
    def engines_file(self) -> Path:
        return self.data / "cluster" / "engines.json"

    @property
    def node_file(self) -> Path:
        """This node's identity: id, private key, the controllers' public key."""
        return self.data / "node" / "identity.json"

    @property
    def map_file(self) -> Path:
        """The module map as this node last heard it."""
        return self.data / "cluster" / "module-map.json"

    @property
    def modules_file(self) -> Path:
        """This node's modules: the agent decides, gateway and supervisor follow."""
        return self.data / "cluster" / "modules.json"

    @property
    def wanted_file(self) -> Path:
        """What the controllers wanted of this node last."""
        return self.data / "cluster" / "wanted.json"

    @property
    def switches_file(self) -> Path:
        """Modules that were switched on this node itself."""
        return self.data / "node" / "switches.json"

    @property
    def router_file(self) -> Path:
        """The router's strategy."""
        return self.data / "router.json"

    @property
    def tls_folder(self) -> Path:
        """`ca.pem`, `node.pem` and `node.key`: the cluster's CA, this node's certificate and its key."""
        return self.data / "node"

    @property
    def store(self) -> Path:
        """Folder of fetched weights (`catalog.mirror.store`)."""
        return self.data / "weights"

    @property
    def usage(self) -> Path:
        """Folder of the usage spool."""
        return self.data / "usage"

    @property
    def controller_urls(self) -> tuple[str, ...]:
        """Where the agent reports, first choice first."""
        return self.controllers or (self.node_listener,)

    @property
    def node_listener(self) -> str:
        """Base URL of the node listener, from this machine. It speaks TLS where this node advertises an https address."""
        return _from_here(urlsplit(self.node_address).scheme or "http", self.node_host, self.node_port)

    @property
    def client_listener(self) -> str:
        """Base URL of the client listener, from this machine."""
        return _from_here("http", self.host, self.port)

    @property
    def client_url(self) -> str:
        """Where people reach the client listener."""
        return (self.public_url or self.client_listener).rstrip("/")


def _from_here(scheme: str, bound: str, port: int) -> str:
    """The base URL of a listener of this machine that binds `bound`."""
    host = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}.get(bound, bound)  # noqa: S104 - asks, binds nothing
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def _value(environ: Mapping[str, str], env: str, default: str, secret: bool) -> str:
    path = environ.get(f"{env}_FILE") if secret else None
    if path and env not in environ:
        try:
            return Path(path).read_text().strip()
        except OSError as error:
            raise ValueError(f"{env}_FILE cannot be read ({error.strerror}): name a readable file") from None
    return environ.get(env, default)


def load(environ: Mapping[str, str] | None = None) -> Config:
    """The settings of this process from `environ` (default: the process's own). Raises ConfigError."""
    environ = os.environ if environ is None else environ
    values: dict[str, Any] = {}
    problems: list[str] = []
    for item in fields(Config):
        meta = item.metadata
        try:
            values[item.name] = meta["read"](_value(environ, meta["env"], meta["default"], meta["secret"]))
        except ValueError as error:
            shown = "" if meta["secret"] else f"={environ.get(meta['env'])!r}"
            problems.append(f"{meta['env']}{shown} was refused: {error}")
    ports = [values.get(name) for name in ("port", "node_port", "metrics_port")]
    if not problems and len(set(ports)) < 3:
        problems.append(
            "LLMGW_PORT, LLMGW_NODE_PORT and LLMGW_METRICS_PORT must differ: choose another for one of them"
        )
    if not problems and values["oidc_issuer"] and not values["oidc_client_id"]:
        problems.append(
            "LLMGW_OIDC_ISSUER is set without LLMGW_OIDC_CLIENT_ID: set the name that the provider knows you by"
        )
    if problems:
        raise ConfigError(problems)
    return _with_join(Config(**values))


def _with_join(config: Config) -> Config:
    """What `llmgw node join` left in the identity file stands in for settings that are not given."""
    try:
        kept = files.read_json(config.node_file)
    except OSError:
        kept = None
    if not isinstance(kept, dict) or kept.get("joined") is not True:
        kept = {}
    return replace(
        config,
        node_host=config.node_host or str(kept.get("host") or "127.0.0.1"),
        node_address=config.node_address or str(kept.get("address") or ""),
        node_name=config.node_name or str(kept.get("name") or ""),
        controllers=config.controllers or tuple(map(str, kept.get("controllers") or ())),
    )
