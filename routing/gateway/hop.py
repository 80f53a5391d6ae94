"""One hop: a request to another node's node listener, signed and marked, and its answer back.

The node that answers says in `x-llmgw-node`, `-replica`, `-queue-s` and `-schedule-s` who ran it and how long it waited; that is for the
usage record of the gateway that the client asked and goes no further. Before that it says each BEAT seconds that it is at
it, by an interim answer (102): so a request that waits there is told from a node that is dead. One that says these, too, says
that an engine has the request. See docs/decisions/0023.
"""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass
from functools import partial

import orjson

from cluster.domain.modules import MapNode
from llmgw_site.lib.config import Config
from llmgw_site.lib.errors import HTTP_STATUS, Kind, Refused
from llmgw_site.lib.logs import event
from routing.domain.fallbacks import NOT_ACCEPTED, TRIED
from routing.domain.way import HANDED
from routing.gateway.callers import Marks
from routing.gateway.exchange import Exchange
from routing.gateway.forward import carry, read_error, send_error
from routing.gateway.headers import Headers, to_client, to_node
from routing.gateway.membership import Members
from routing.gateway.peers import Peers
from routing.gateway.upload import payload
from routing.gateway.upstream import Response, TooSlow, Upstream, UpstreamError

ADDED_HEAD, ADDED_BODY = 4096, 1024
"""Bytes that head and body of a request may grow by on its way: signature and marks, the wish for usage."""
BEAT = 2.0
"""Seconds between two interim answers to a request that another node passed on."""
SILENCE = 5 * BEAT
"""Seconds after which a node that sends them is dead, and has not merely much to do."""
_HOPES = b"x-llmgw-hopes"
"""Whether the gateway that the client asked has another model to ask, so that the request shall not wait for long."""
_QUEUED = b"x-llmgw-queued-s"
"""Seconds that it has waited for its turn before it was passed on: how long it may wait is for all nodes together."""
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Via:
    """Another node, what the request is marked as on its way there, and what names its conversation."""

    node: MapNode
    hop: str
    session: str = ""


def patience(config: Config, hop: str) -> float:
    """Seconds that a node is given beyond the model's own timeouts, so that its answer of having waited in vain comes first.

    It may fail to connect twice before its wait begins; a router behind this hop grants the same to the next node. That a
    request may wait for its turn there comes on top.
    """
    return (2 * config.connect_timeout + 5.0) * (2 if hop == HANDED else 1)


async def send(
    exchange: Exchange,
    via: Via,
    body: bytes,
    *,
    members: Members,
    peers: Peers,
    upstream: Upstream,
    first_byte_timeout: float,
    idle_timeout: float,
) -> None:
    """Send `body` to the node and its answer to the client. Raises UpstreamError, also after a part was passed on."""
    node_id, model, loop = via.node.node_id, exchange.model, exchange.loop
    key, path = exchange.key, exchange.scope["path"]
    marks = Marks(
        hop=via.hop,
        key=key.key_id if key is not None else "",
        project=key.project_id if key is not None else "",
        session=via.session,
    )
    exchange.node_id, exchange.replica_id = node_id, ""
    sent = loop.time()
    seconds: float | None = None
    peers.enter(node_id, model)
    try:
        try:
            response = await upstream.request(
                members.target(via.node),
                method=b"POST",
                path=path.encode(),
                headers=to_node(
                    exchange.scope["headers"],
                    request_id=exchange.request_id,
                    signed=members.sign(
                        via.node, method="POST", path=path, body=None if exchange.upload else body, marks=marks
                    ),
                    form=exchange.upload is not None,
                )
                + _told(exchange),
                **payload(exchange, body),
                first_byte_timeout=first_byte_timeout,
                idle_timeout=idle_timeout,
                silence=SILENCE if peers.beats(node_id) else math.inf,
                interim=partial(_learn, exchange),
            )
        except UpstreamError as error:
            if not error.reached:
                peers.unreachable(node_id)
            elif isinstance(error, TooSlow) and error.stage == "silent":
                peers.suspects.add(node_id)
            raise
        seconds = loop.time() - sent
        peers.reached(node_id, seconds=seconds)
        if (beats := _learn(exchange, response.headers)) is not None:
            peers.note_beats(node_id, beats)
        await carry(exchange, response, partial(_unchanged, node=via.node))
    finally:
        first = exchange.first_token_at
        peers.leave(node_id, model, seconds=first - sent if first is not None else seconds)


def told_of(headers: Headers) -> tuple[bool | None, float]:
    """Of a request that another node passed on: whether another model is left for it (None: it does not say so), and the
    seconds that it has waited for its turn."""
    told = dict(headers)
    hopes = told.get(_HOPES)
    return None if hopes is None else hopes == b"1", _seconds(told.get(_QUEUED, b"0")) or 0.0


def _told(exchange: Exchange) -> Headers:
    told = [] if exchange.hopes is None else [(_HOPES, b"1" if exchange.hopes else b"0")]
    if exchange.queued_s:
        told.append((_QUEUED, b"%.3f" % exchange.queued_s))
    return told


def _learn(exchange: Exchange, headers: Headers) -> bool | None:
    """Who really answers, and how long the request waited there. Returns whether that node sends interim answers; None: it
    says nothing of itself."""
    said = beats = False
    for name, value in headers:
        if name == b"x-llmgw-node":
            exchange.node_id, said = value.decode("latin-1")[:64], True
        elif name == b"x-llmgw-beats":
            beats = True
        elif name == b"x-llmgw-replica":
            exchange.replica_id = value.decode("latin-1")[:64]
        elif name == b"x-llmgw-queue-s":
            exchange.inner_queue_s, exchange.working = _seconds(value), True
        elif name == b"x-llmgw-schedule-s":
            exchange.inner_schedule_s = _seconds(value)
    return True if beats else False if said else None


def _seconds(value: bytes) -> float | None:
    """A span that another node told; None: it is none."""
    try:
        seconds = float(value)
    except ValueError:
        return None
    return seconds if math.isfinite(seconds) and seconds >= 0 else None


async def _unchanged(exchange: Exchange, response: Response, *, node: MapNode) -> None:
    """A node's answer that is no 200 is the client's as it stands, but for three:

    1. nobody accepted the request: another model may be asked; and where it was not even tried, it was never forwarded
    2. 401: keys of clients are an edge's business, so it is this node that was refused, and not the client
    3. an error that is no error object is no node's: something between the nodes said it
    """
    body = await read_error(response, whole=True)
    code = _code(body)
    if exchange.caller is None and not exchange.started and code in NOT_ACCEPTED:  # 1
        if not exchange.hopes and code not in TRIED:
            exchange.forwarded_at = None
        raise _declined(response, body, code)
    if response.status == 401:  # 2
        event(log, "node_refused", level=logging.ERROR, node=node.name, node_id=node.node_id, code=code)
        why = f" ({code})" if code else ""
        text = f"A node of the cluster does not accept the call of another{why}: tell an administrator."
        raise Refused(Kind.UPSTREAM, "node_refused", text)
    if code is None and (response.status >= 400 or exchange.started):  # 3
        status = response.status
        event(log, "node_answered_oddly", level=logging.WARNING, node=node.name, node_id=node.node_id, status=status)
        text = f"A node of the cluster answered with status {status} and no error object: tell an administrator."
        raise Refused(Kind.UPSTREAM, "upstream_error", text)
    headers, *_ = to_client(response.headers, request_id=exchange.request_id)
    headers = [item for item in headers if item[0] != b"x-request-id"]  # `answer` adds it
    headers.append((b"content-length", b"%d" % len(body)))
    await send_error(exchange, response.status, headers, body, code=code or "upstream_error")


def _declined(response: Response, body: bytes, code: str) -> Refused:
    """A node's own refusal, as it said it: another model may be asked."""
    status = response.status
    later = next((_seconds(value) for name, value in response.headers if name == b"retry-after"), None)
    error = orjson.loads(body)["error"]
    extra = {name: value for name, value in error.items() if name not in ("message", "type", "code", "param")}
    kind = next((kind for kind, number in HTTP_STATUS.items() if number == status), Kind.UNAVAILABLE)
    return Refused(kind, code, str(error.get("message", "")), param=error.get("param"), retry_after=later, extra=extra)


def _code(body: bytes) -> str | None:
    """The code of an OpenAI error object; None for anything else."""
    try:
        code = orjson.loads(body)["error"]["code"]
    except (orjson.JSONDecodeError, LookupError, TypeError):
        return None
    return code[:100] if isinstance(code, str) and code else None
