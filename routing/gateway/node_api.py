"""Endpoints that every node's gateway answers by itself, Django or not, for administrators' tokens.

    GET PUT  /api/v1/router/strategy
    GET      /api/v1/cloud/peers?model=
    GET      /api/v1/node/modules
    PUT      /api/v1/node/modules/{name}   {"state": "running" | "stopped"}
    GET      /api/v1/node/map

Errors have the shape of the admin API.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import Any, Protocol
from urllib.parse import parse_qs

import orjson

from catalog.domain.keys import KEY_PREFIX
from cluster.domain.modules import Module, ModulesFile, ModuleState, SwitchesFile
from cluster.wire import WireError, from_dict, to_dict
from llmgw_site.lib.config import Config
from llmgw_site.lib.errors import HTTP_STATUS, Kind, Refused, envelope
from llmgw_site.lib.files import private_folder, read_json, write_json
from llmgw_site.lib.logs import event
from routing.domain.nodes import Strategy
from routing.domain.snapshot import AdminEntry
from routing.gateway.answers import send_whole
from routing.gateway.auth import LONGEST_KEY
from routing.gateway.peers import Cluster, Peers
from routing.gateway.strategy import StoredRule, shown
from routing.gateway.table import View

log = logging.getLogger(__name__)

STRATEGY, PEERS, MODULES, MAP = (
    "/api/v1/router/strategy",
    "/api/v1/cloud/peers",
    "/api/v1/node/modules",
    "/api/v1/node/map",
)
MOST = 64 << 10
"""Bytes of a request's body."""

Work = Callable[[Any, AdminEntry], Awaitable[Any]]


class Own(Cluster, Protocol):
    """What is needed of routing.gateway.membership.Members."""

    @property
    def modules(self) -> ModulesFile: ...


class NodeApi:
    """ASGI application for the paths that `serves` names."""

    def __init__(self, config: Config, cluster: Own, peers: Peers, rule: StoredRule, view: Callable[[], View]) -> None:
        self._config = config
        self._cluster = cluster
        self._peers = peers
        self._rule = rule
        self._view = view
        self._switching = asyncio.Lock()
        self._paths: dict[str, dict[str, Work]] = {
            STRATEGY: {"GET": self._strategy, "PUT": self._put_strategy},
            PEERS: {"GET": self._list_peers},
            MODULES: {"GET": self._modules},
            MAP: {"GET": self._map},
        }

    def serves(self, path: str) -> bool:
        return path in self._paths or path.startswith(MODULES + "/")

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        try:
            works = self._paths.get(scope["path"], {"PUT": self._put_module})
            admin = self._who(scope)
            work = works.get("GET" if scope["method"] == "HEAD" else scope["method"])
            if work is None:
                await self._not_allowed(scope, send, works)
                return
            request = _Request(scope, await _body(receive))
            await send_whole(send, 200, b"application/json", orjson.dumps(await work(request, admin)))
        except Refused as refused:
            await _refuse(send, refused)
        except Exception:
            log.exception("request_failed", extra={"f": {"path": scope["path"]}})
            message = "A defect of llmgw; the log of this node's gateway says more."
            await _refuse(send, Refused(Kind.INTERNAL, "internal_error", message))

    async def _not_allowed(self, scope: Any, send: Any, works: dict[str, Work]) -> None:
        refused = Refused(Kind.INVALID, "method_not_allowed", f"{scope['path'][:200]} does not take {scope['method']}.")
        body = orjson.dumps(envelope(refused))
        await send_whole(send, 405, b"application/json", body, [(b"allow", ", ".join(works).encode())])

    def _who(self, scope: Any) -> AdminEntry:
        """The administrator who calls. Raises Refused, with the codes of the admin API:

        1. no bearer token                  401 `authentication_needed`
        2. this node has no snapshot yet    503 `gateway_starting`
        3. an API key                       401 `admin_token_needed`
        4. not in the snapshot              401 `invalid_admin_token`
        5. expired meanwhile                401 `admin_token_expired`
        """
        given = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
        kind, _, token = given.partition(b" ")
        token = token.strip()
        if kind.lower() != b"bearer" or not token:  # 1
            raise Refused(
                Kind.UNAUTHORIZED,
                "authentication_needed",
                "This needs `Authorization: Bearer at-llmgw-…`, an admin token.",
            )
        view = self._view()
        if not view.version:  # 2
            message = "This node does not know the administrators yet: send the request again."
            raise Refused(Kind.UNAVAILABLE, "gateway_starting", message, retry_after=1)
        if token.startswith(KEY_PREFIX.encode()):  # 3
            message = "An API key opens the OpenAI endpoint only: send an admin token (at-llmgw-…)."
            raise Refused(Kind.UNAUTHORIZED, "admin_token_needed", message)
        admin = view.admins.get(hashlib.sha256(token).hexdigest()) if len(token) <= LONGEST_KEY else None
        if admin is None:  # 4
            message = (
                "This admin token is unknown, was revoked, or may not do this: make one with `llmgw token create`."
            )
            raise Refused(Kind.UNAUTHORIZED, "invalid_admin_token", message)
        if admin.expires_at is not None and admin.expires_at <= self._cluster.now():  # 5
            raise Refused(Kind.UNAUTHORIZED, "admin_token_expired", "This admin token has expired: make a new one.")
        return admin

    # --- the router's strategy ---

    async def _strategy(self, request: _Request, admin: AdminEntry) -> Any:
        return {**shown(self._rule.rule), "strategies": list(Strategy)}

    async def _put_strategy(self, request: _Request, admin: AdminEntry) -> Any:
        await self._rule.put(request.json(), actor=admin.user)
        return await self._strategy(request, admin)

    # --- the other nodes ---

    async def _list_peers(self, request: _Request, admin: AdminEntry) -> Any:
        routes = self._view().routes
        wanted = request.query("model")
        if wanted is not None and wanted not in routes:
            raise Refused(Kind.NOT_FOUND, "model_not_found", f"There is no model {wanted[:200]!r}.", param="model")
        names = [name for name in sorted(routes) if not routes[name].model.parent] if wanted is None else [wanted]
        return [entry for name in names for entry in self._peers.shown(routes[name].model)]

    async def _map(self, request: _Request, admin: AdminEntry) -> Any:
        """The module map as this node has it; ages by what the controllers and this node itself last heard."""
        found, now = self._cluster.map, self._cluster.now()
        if found is None:
            return {"version": "", "age_s": None, "nodes": []}
        nodes = []
        for node in found.nodes:
            entry = asdict(node)
            heard = [at for at in (entry.pop("last_seen_at"), self._peers.heard_at(node.node_id)) if at is not None]
            if node.node_id == self._cluster.node_id:
                heard.append(now)
            nodes.append({**entry, "last_seen_age_s": round(max(0.0, now - max(heard)), 1) if heard else None})
        return {"version": found.version, "age_s": round(max(0.0, now - found.made_at), 1), "nodes": nodes}

    # --- this node's modules ---

    async def _modules(self, request: _Request, admin: AdminEntry) -> Any:
        own = self._cluster.modules
        return {
            "node_id": self._cluster.node_id,
            "managed": own.managed,
            "roles": own.roles,
            "modules": [asdict(item) for item in own.modules],
        }

    async def _put_module(self, request: _Request, admin: AdminEntry) -> Any:
        """Note the switch; the agent follows it within a second. Answered with the module as it stands now.

        1. no such module                        404 `not_found`
        2. the cluster setup names this node     409 `managed_by_cluster_setup`
        3. not `running` or `stopped`            400 `invalid_value`
        """
        name = request.path.removeprefix(MODULES + "/")
        if name not in list(Module):  # 1
            message = f"There is no module {name[:100]!r}: {', '.join(Module)}."
            raise Refused(Kind.NOT_FOUND, "not_found", message)
        if self._cluster.modules.managed:  # 2
            message = "The cluster setup names this node: change its roles there (`llmgw setup`, or Cluster setup in the console)."
            raise Refused(Kind.CONFLICT, "managed_by_cluster_setup", message)
        body = request.json()
        state = body.get("state") if isinstance(body, dict) else None
        if state not in (ModuleState.RUNNING, ModuleState.STOPPED):  # 3
            message = "'state' must be running or stopped."
            raise Refused(Kind.INVALID, "invalid_value", message, param="state")
        async with self._switching:
            try:
                await asyncio.to_thread(_switch, self._config, name, on=state == ModuleState.RUNNING)
            except OSError as error:
                message = (
                    f"The switch could not be stored ({error.strerror}), so nothing changes: look at this node's disk."
                )
                raise Refused(Kind.INTERNAL, "persist_failed", message) from None
        event(log, "module_switched", actor=admin.user, module=name, state=state)
        now = next((item.state for item in self._cluster.modules.modules if item.name == name), ModuleState.STOPPED)
        return {"name": name, "state": now, "wanted": state}


def _switch(config: Config, name: str, *, on: bool) -> None:
    """Set one switch of switches.json and keep the others."""
    try:
        switches = from_dict(SwitchesFile, read_json(config.switches_file) or {}).modules
    except WireError:
        switches = {}
    private_folder(config.switches_file.parent)
    write_json(config.switches_file, to_dict(SwitchesFile(modules={**switches, name: on})))


class _Request:
    """What a handler looks at."""

    def __init__(self, scope: Any, body: bytes) -> None:
        self.path: str = scope["path"]
        self._query: bytes = scope.get("query_string", b"")
        self._body = body

    def query(self, name: str) -> str | None:
        found = parse_qs(self._query.decode("latin-1"), keep_blank_values=True).get(name)
        return found[-1] if found else None

    def json(self) -> Any:
        try:
            return orjson.loads(self._body)
        except orjson.JSONDecodeError as error:
            raise Refused(
                Kind.INVALID, "invalid_json", f"The body is not valid JSON ({str(error)[:200]}): send an object."
            ) from None


async def _body(receive: Any) -> bytes:
    parts, size = [], 0
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return b""
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > MOST:
            raise Refused(Kind.TOO_LARGE, "body_too_large", f"The body is larger than {MOST} bytes: send less.")
        if not message.get("more_body"):
            return b"".join(parts)


async def _refuse(send: Any, refused: Refused) -> None:
    headers = []
    if refused.retry_after is not None:
        headers.append((b"retry-after", b"%d" % max(1, round(refused.retry_after))))
    if refused.kind is Kind.UNAUTHORIZED:
        headers.append((b"www-authenticate", b'Bearer realm="llmgw admin API"'))
    await send_whole(send, HTTP_STATUS[refused.kind], b"application/json", orjson.dumps(envelope(refused)), headers)
