"""The client listener's ASGI application: `/v1/*`, the health paths and the node endpoints are ours, all else is `web`'s.

Every request under `/v1/`, a client's or one that another node passed on (`passed_on`), runs in one frame, which turns
what goes wrong into an OpenAI error, notices a client that leaves, and settles it once: usage record, metrics, access
log line.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import orjson

from cluster.domain.modules import Module
from llmgw_site.lib.errors import Kind, Refused
from routing.domain.cors import Cors
from routing.domain.endpoints import MODELS, OTHER, PATHS, meant
from routing.domain.lines import fields_of
from routing.domain.records import Outcome
from routing.domain.tenancy import Holder
from routing.domain.way import stopped
from routing.gateway import listing
from routing.gateway.access import AccessLog
from routing.gateway.answers import refuse_socket, send_refusal
from routing.gateway.auth import authorization, identify
from routing.gateway.callers import Caller
from routing.gateway.chat import Generate, Parts
from routing.gateway.edge import Redactor
from routing.gateway.errors import JSON, Headers, internal, render, stopping
from routing.gateway.exchange import CLIENT_GONE, ClientGone, Exchange, Receive, Scope, Send
from routing.gateway.metrics import UNKNOWN
from routing.gateway.node_api import NodeApi
from routing.gateway.recording import record_of
from routing.gateway.tracing import Tracing

log = logging.getLogger(__name__)

Work = Callable[[Exchange], Awaitable[None]]


class App:
    """Made by lifespan.build; `web` answers what is not ours, on nodes that run the controller."""

    def __init__(
        self, parts: Parts, access: AccessLog, web: Any, node_api: NodeApi, tracing: Tracing | None = None
    ) -> None:
        self._tracing = tracing
        self.active: set[Exchange] = set()
        self._members = parts.members
        self._redact = Redactor(lambda: parts.members.map, lambda: parts.table.view)
        self._parts = parts
        self._access = access
        self._web = web
        self._node_api = node_api
        self._generate = Generate(parts)
        self._cors = Cors(parts.config.cors_origins) if parts.config.cors_origins else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope.get("path", "")
        if scope["type"] == "http":
            endpoint = PATHS.get(path)
            if self._cors is not None and (endpoint is not None or path.startswith("/v1/")):
                answered, send = await self._for_browsers(self._cors, scope, send)
                if answered:
                    return
            if endpoint is not None:
                work: Work = self._generate if scope["method"] == "POST" else _not_allowed("POST")
                await self._run(scope, receive, send, endpoint, work)
                return
            if path.startswith("/v1/") or path == "/v1" or meant(path):
                await self._run(scope, receive, send, *self._other(path, scope["method"]))
                return
            if path in ("/healthz", "/readyz"):
                await self._health(path, scope["method"], send)
                return
            if self._node_api.serves(path):
                await self._node_api(scope, receive, send)
                return
        elif path.startswith("/v1/"):  # a websocket
            await receive()
            await refuse_socket(send, _unknown(path))
            return
        if self._members.runs(Module.CONTROLLER):
            await self._web(scope, receive, send)
        else:
            await self._no_web(scope, receive, send)

    async def _for_browsers(self, cors: Cors, scope: Scope, send: Send) -> tuple[bool, Send]:
        """Answer a browser that asks whether it may; else the way to send that tells it so with whatever is answered."""
        asked = scope["headers"]
        if scope["method"] == "OPTIONS":
            told = cors.before(asked, b"POST" if scope["path"] in PATHS else b"GET")
            if told is not None:
                await send({"type": "http.response.start", "status": 204, "headers": told})
                await send({"type": "http.response.body", "body": b""})
                return True, send
        more = cors.headers(asked)

        async def told_too(message: dict[str, Any]) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *more]
            await send(message)

        return False, told_too if more else send

    async def passed_on(self, scope: Scope, receive: Receive, send: Send, caller: Caller) -> None:
        """A request that another node passed on; its signature holds, its body is not proved yet."""
        endpoint = PATHS.get(scope["path"], OTHER)
        work: Work = _unknown_path if endpoint == OTHER else self._generate
        if scope["method"] != "POST":
            work = _not_allowed("POST")
        await self._run(scope, receive, send, endpoint, work, caller)

    async def _no_web(self, scope: Scope, receive: Receive, send: Send) -> None:
        """1. a websocket is refused; 2. the controller was switched off here: 503 `module_stopped`; 3. it never ran: 404."""
        if scope["type"] != "http":  # 1
            await receive()
            await send({"type": "websocket.close", "code": 1008})
        elif self._members.stopped(Module.CONTROLLER):  # 2
            await send_refusal(send, stopped(Module.CONTROLLER))
        else:  # 3
            text = f"There is no {scope['path'][:200]} on this node: console and admin API are on the controllers."
            await send_refusal(send, Refused(Kind.NOT_FOUND, "not_found", text))

    def _other(self, path: str, method: str) -> tuple[str, Work]:
        if path == listing.PATH or (path.startswith(listing.PATH + "/") and len(path) > len(listing.PATH) + 1):
            return MODELS, self._models if method == "GET" else _not_allowed("GET")
        return OTHER, _unknown_path

    async def _models(self, exchange: Exchange) -> None:
        view = self._parts.table.view
        exchange.key = identify(authorization(exchange), view.keys, known=bool(view.version), now=exchange.started_at)
        await listing.answer(exchange, view, exchange.key, self._parts.peers)

    # --- the frame ---

    async def _run(
        self, scope: Scope, receive: Receive, send: Send, endpoint: str, work: Work, caller: Caller | None = None
    ) -> None:
        parts = self._parts
        loop = asyncio.get_running_loop()
        exchange = Exchange(scope, receive, send, endpoint=endpoint, now=parts.clock.now(), loop=loop)
        exchange.task = task = asyncio.current_task()
        if caller is None:
            exchange.redact = self._redact
        else:
            exchange.caller = caller
            marks = caller.marks
            exchange.key = Holder(key_id=marks.key, prefix="", project_id=marks.project)  # it was checked
        if self._tracing is not None:
            exchange.trace = self._tracing.begin(exchange)
        self.active.add(exchange)
        try:
            if caller is None and not self._members.runs(Module.EDGE):
                raise stopped(Module.EDGE)
            await work(exchange)
        except Refused as error:
            await self._refuse(exchange, error)
            _let_go(error)
        except ClientGone:
            exchange.gone = True
        except asyncio.CancelledError:
            if task is not None:
                task.uncancel()
            if not exchange.gone:  # the process stops, and the time for running requests is over
                await self._refuse(exchange, stopping())
        except Exception as error:
            log.exception("request_failed", extra={"f": {"request_id": exchange.request_id}})
            await self._refuse(exchange, internal())
            _let_go(error)
        finally:
            self.active.discard(exchange)
            exchange.over = True
            if exchange.watcher is not None:
                exchange.watcher.cancel()
                exchange.watcher = None
            self._settle(exchange, loop.time())

    async def end(self) -> None:
        """End what is still under way, so that everything is accounted for before the spool is closed."""
        tasks = [exchange.task for exchange in self.active if exchange.task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=1.0)

    async def _refuse(self, exchange: Exchange, error: Refused) -> None:
        if exchange.over:  # it failed in its very last step
            return
        await exchange.refuse(error, forwarded=exchange.forwarded_at is not None)

    def _settle(self, exchange: Exchange, now: float) -> None:
        """Account for a request that is over. The only place, and passed once."""
        parts = self._parts
        if exchange.gone:
            exchange.outcome, exchange.status, exchange.code = Outcome.CLIENT_GONE, CLIENT_GONE, "client_gone"
        total = round(now - exchange.began, 6)
        model = exchange.model or UNKNOWN
        key, caller = exchange.key, exchange.caller
        record = record_of(exchange, total)
        if exchange.reserved is not None:
            exchange.reserved.settle(now, record)
        if exchange.record_id:
            parts.ledger.close(record)
        if caller is None:
            parts.metrics.answered(
                exchange.endpoint,
                model,
                exchange.status,
                total,
                prompt=record.prompt_tokens,
                completion=record.completion_tokens,
                first_token=record.first_token_s,
            )
        else:
            parts.metrics.passed_on(caller.marks.hop, model, exchange.status)
        line = fields_of(
            record,
            method=exchange.scope["method"],
            model=exchange.model,
            key=key.prefix if key is not None else "",
            adapter=self._adapter(record.alias_target or record.model_asked, exchange.model),
        )
        if caller is not None:
            line |= {"hop": caller.marks.hop, "from_node": caller.node_id, "key": caller.marks.key or None}
        self._access.write(parts.clock.now(), line)
        if exchange.trace is not None:
            exchange.trace.end(exchange, record, key=key.prefix if key is not None else "")

    def _adapter(self, asked: str, model: str) -> str:
        """The name that was asked for, if it is an adapter's of the model that answered; else nothing."""
        route = self._parts.table.view.routes.get(asked) if asked != model else None
        return asked if route is not None and route.model.parent and model in (UNKNOWN, route.model.parent) else ""

    # --- health ---

    async def _health(self, path: str, method: str, send: Send) -> None:
        """`/healthz`: the event loop turns. `/readyz`: keys and models are known.

        Ready does not wait for an engine: with a snapshot in hand every request gets its right answer, also the 503
        that says why a model is not ready. How many models could answer now is told beside it.
        """
        if method not in ("GET", "HEAD"):
            error = Refused(Kind.INVALID, "method_not_allowed", f"{path} is read with GET.")
            await _plain(send, 405, render(error)[2], [(b"allow", b"GET")])
            return
        if path == "/healthz":
            await _plain(send, 200, b'{"status":"ok"}', [])
            return
        view = self._parts.table.view
        ready, cloud = bool(view.version), self._parts.cloud
        enabled = [route for route in view.routes.values() if route.model.enabled and not route.model.parent]
        body = orjson.dumps(
            {
                "status": "ready" if ready else "no snapshot yet",
                "snapshot": view.version,
                "models": {
                    "enabled": len(enabled),
                    "ready": sum(1 for route in enabled if route.seats or cloud.serves(route)),
                },
            }
        )
        await _plain(send, 200 if ready else 503, body, [] if ready else [(b"retry-after", b"1")])


def _let_go(error: BaseException) -> None:
    """Take the frames from an error that was answered, and from what led to it: they hold the request and, in turn, the
    error. Such a ring would lie in memory until the collector's rarest round, which comes after millions of objects."""
    told: BaseException | None = error
    while told is not None and told.__traceback__ is not None:
        told.__traceback__ = None
        told = told.__cause__ or told.__context__


async def _plain(send: Send, status: int, body: bytes, headers: Headers) -> None:
    head = [JSON, (b"content-length", b"%d" % len(body)), *headers]
    await send({"type": "http.response.start", "status": status, "headers": head})
    await send({"type": "http.response.body", "body": body})


def _not_allowed(method: str) -> Work:
    async def work(exchange: Exchange) -> None:
        used, path = exchange.scope["method"], exchange.scope["path"]
        exchange.code, exchange.outcome = "method_not_allowed", Outcome.REFUSED
        error = Refused(Kind.INVALID, "method_not_allowed", f"{path[:200]} does not take {used}: use {method}.")
        _, headers, body = render(error, exchange.shape)
        await exchange.answer(405, [*headers, (b"allow", method.encode())], body)

    return work


async def _unknown_path(exchange: Exchange) -> None:
    raise _unknown(exchange.scope["path"])


def _unknown(path: str) -> Refused:
    ours = meant(path)
    if ours is None:
        text = f"There is no {path[:200]} here. Served are {', '.join(PATHS)} and {listing.PATH}."
    elif path.startswith("/v1/"):
        text = f"There is no {path} here, but {ours}: leave out the /v1 that the client's base URL ends in."
    else:
        text = f"There is no {path} here, but {ours}: have the client's base URL end in /v1."
    return Refused(Kind.NOT_FOUND, "unknown_path", text)
