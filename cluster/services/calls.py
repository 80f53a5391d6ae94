"""Calls from nodes: who is calling is proved here, and what is answered is signed. See cluster/domain/signing.py."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC
from functools import lru_cache, wraps
from threading import Lock
from typing import Any

import orjson
from django.db import connection
from django.http import HttpRequest, HttpResponse
from django.utils.dateparse import parse_datetime
from django.views.decorators.csrf import csrf_exempt

from cluster import selectors
from cluster.domain import signing
from cluster.models import Node
from cluster.selectors import mirror
from cluster.services import identity, nodes
from cluster.wire import WireError
from llmgw_site.lib.errors import HTTP_STATUS, Kind, Refused
from llmgw_site.lib.logs import event

log = logging.getLogger(__name__)

MAX_BODY = 2 * 1024 * 1024
"""Bytes of a node's message; a heartbeat has some kilobytes, a batch of 500 usage records about 300 KB."""
LISTENER = "x-llmgw-listener"
_seen = signing.Seen()
_seen_lock = Lock()


@dataclass(frozen=True)
class Caller:
    """A node that has proved who it is."""

    node: Node  # with the columns that `_CALLER` reads; others are read where somebody asks for them
    key: bytes
    call: signing.Call
    body: bytes
    now: float  # Unix time of the database
    heard_at: float | None  # when controllers last noted that they hear nodes
    map_version: str  # published now; empty: none yet
    setup_mark: str  # changes with the cluster setup; empty: there is none
    versions_mark: str  # changes with the versions of weights

    @property
    def nonce(self) -> str:
        """What the answer is signed over, so that it fits this call only."""
        return self.call.signature


class _ProvedRefused(Refused):
    """A refusal of a call whose signature holds: signed, so that the node can act on it."""

    def __init__(self, caller: Caller, code: str, message: str) -> None:
        super().__init__(Kind.UNAUTHORIZED, code, message)
        self.caller = caller


View = Callable[[Caller, HttpRequest], "bytes | None"]
OpenView = Callable[[bytes], bytes]


def node_call(method: str) -> Callable[[View], Callable[..., HttpResponse]]:
    """Make a view of a function from a proved caller to the bytes of a JSON answer (None: 304, nothing new).

    Answers are signed over the request's signature, refusals too where that signature holds; these tell the cluster's
    time, from which a node whose clock is far off learns it. A message that cannot be read is a 400 `bad_message`.
    """

    def wrap(function: View) -> Callable[..., HttpResponse]:
        @csrf_exempt
        @wraps(function)
        def view(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
            caller: Caller | None = None
            try:
                if request.method != method:
                    raise Refused(Kind.NOT_FOUND, "not_found", f"{request.method} is not answered here: use {method}")
                caller = authenticate(request)
                answer = function(caller, request)
            except _ProvedRefused as refused:
                return _refusal(refused.caller, refused, now=refused.caller.now)
            except Refused as refused:
                return _refusal(caller, refused, now=caller.now if caller else None)
            except WireError as error:
                return _refusal(caller, _unreadable(error))
            return _signed(caller, 304 if answer is None else 200, answer or b"")

        return view

    return wrap


def open_call(method: str, *, max_body: int) -> Callable[[OpenView], Callable[..., HttpResponse]]:
    """The same for a call that no node has signed: from its body to the bytes of a JSON answer."""

    def wrap(function: OpenView) -> Callable[..., HttpResponse]:
        @csrf_exempt
        @wraps(function)
        def view(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
            try:
                on_node_listener(request.headers, request.path)
                if request.method != method:
                    raise Refused(Kind.NOT_FOUND, "not_found", f"{request.method} is not answered here: use {method}")
                return _signed(None, 200, function(read_body(request, max_body)))
            except WireError as error:
                return _refusal(None, _unreadable(error))
            except Refused as refused:
                return _refusal(None, refused)

        return view

    return wrap


def authenticate(request: HttpRequest) -> Caller:
    """The node behind a call over HTTP; see `prove`. Raises Refused."""
    on_node_listener(request.headers, request.path)
    body = read_body(request, MAX_BODY)
    return prove(request.headers, method=request.method or "", path=request.get_full_path(), body=body)


def on_node_listener(headers: Mapping[str, str], path: str) -> None:
    """Raises Refused where a call came over another listener: there it is as if the path did not exist."""
    if headers.get(LISTENER) != "node":
        raise Refused(Kind.NOT_FOUND, "not_found", f"there is nothing at {path}")


def prove(headers: Mapping[str, str], *, method: str, path: str, body: bytes) -> Caller:
    """The node behind a call with these headers to `path`, the raw request target. Raises Refused.

    1. no signature headers: `node_signature_required`
    2. the node is not in the table: `node_unknown`; it was taken out of it: `node_removed`, signed where the call is its
       own, so that the node can believe it
    3. the signature does not hold (`bad_signature`, `clock_skew`, `body_unsigned`, `body_changed`)
    4. a copy of a call that was answered: `call_repeated`
    """
    call = signing.read({name.lower(): value for name, value in headers.items()})
    if call is None:  # 1
        raise Refused(
            Kind.UNAUTHORIZED,
            "node_signature_required",
            "only nodes of this cluster are answered here, and this call carries no node's signature",
        )
    node = _read(call.node)
    if node is None:  # 2
        text = f"node {call.node[:40]} is not in this cluster: let it join with a token (`llmgw node token`)"
        raise Refused(Kind.UNAUTHORIZED, "node_unknown", text)
    key = pairwise(identity.opened(node.own_sealed_key), node.public_key)
    now = float(node.database_now)
    wrong = signing.verify(key, call, method=method, path=path, body=body, now=now)
    caller = Caller(
        node=node,
        key=key,
        call=call,
        body=body,
        now=now,
        heard_at=_moment(node.own_listening_at),
        map_version=node.published_map or "",
        setup_mark=node.setup_mark or "",
        versions_mark=node.versions_mark,
    )
    if node.removed_at is not None:
        refused = nodes.removed(node)
        raise refused if wrong == "bad_signature" else _ProvedRefused(caller, refused.code, refused.message)
    if wrong is not None:  # 3
        event(log, "node_call_refused", level=logging.WARNING, node_id=node.id, code=wrong)
        text = f"the call of node {node.name} was refused: {wrong.replace('_', ' ')}"
        if wrong == "bad_signature":  # whoever that was gets nothing signed
            raise Refused(Kind.UNAUTHORIZED, wrong, text)
        raise _ProvedRefused(caller, wrong, text)
    with _seen_lock:
        if not _seen.first(call, now=now):  # 4
            raise _ProvedRefused(caller, "call_repeated", "this very call was answered before")
    return caller


_CALLER = """
SELECT n.id, n.name, n.address, n.public_key, n.removed_at, n.last_seen_at, n.boot_id, n.modules, n.roles, n.fabric, n.weights_mark, n.fetches,
       c.sealed_private_key AS own_sealed_key, c.listening_at AS own_listening_at, {now} AS database_now,
       (SELECT m.epoch || ':' || CAST(m.counter AS varchar) FROM cluster_publishedmap m WHERE m.id = 'map')
           AS published_map,
       (SELECT CAST(s.version AS varchar) || ' ' || CAST(s.updated_at AS varchar) FROM cluster_clustersetup s
           WHERE s.id = 'setup') AS setup_mark,
       {versions} AS versions_mark
FROM cluster_node n CROSS JOIN cluster_clusteridentity c
WHERE n.id = %s AND c.id = 'cluster'
"""
"""All that answering a call takes, in one query: a thousand nodes call every half minute."""


def _read(node_id: str) -> Any:
    rows = Node.objects.raw(_CALLER.format(now=selectors.NOW[connection.vendor], versions=mirror.MARK), [node_id])
    return next(iter(rows), None)


def _moment(value: Any) -> float | None:
    """A time as the driver gives it where no model's field stands between."""
    found = parse_datetime(value) if isinstance(value, str) else value
    if found is None:
        return None
    return float((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp())


def read_body(request: HttpRequest, most: int) -> bytes:
    """The body, at most so many bytes of it. Raises Refused `body_too_large`."""
    body = request.read(most + 1)
    if len(body) > most:
        text = f"this message may have at most {most} bytes: send less at once"
        raise Refused(Kind.TOO_LARGE, "body_too_large", text)
    return bytes(body)


@lru_cache(maxsize=10_000)
def pairwise(private: str, public: str) -> bytes:
    return signing.pairwise_key(private, public)


def decode(body: bytes) -> Any:
    """JSON of a node's message. Raises WireError.

    The character NUL, which clients can put into a model's name and PostgreSQL cannot store, becomes U+FFFD.
    """
    try:
        return orjson.loads(body.replace(b"\\u0000", b"\\ufffd"))
    except orjson.JSONDecodeError as error:
        raise WireError(f"the body is no JSON: {error}") from None


def envelope(refused: Refused, *, now: float | None = None) -> bytes:
    """The body of a refusal; `now`: the cluster's time, told as `server_time`."""
    error = {"message": refused.message, "type": refused.kind.value, "code": refused.code, "param": refused.param}
    return orjson.dumps({"error": error} if now is None else {"error": error, "server_time": now})


def _unreadable(error: WireError) -> Refused:
    return Refused(Kind.INVALID, "bad_message", f"the message cannot be read: {error}")


def _refusal(caller: Caller | None, refused: Refused, *, now: float | None = None) -> HttpResponse:
    response = _signed(caller, HTTP_STATUS[refused.kind], envelope(refused, now=now))
    if refused.retry_after is not None:
        response["Retry-After"] = str(max(1, round(refused.retry_after)))
    return response


def _signed(caller: Caller | None, status: int, body: bytes) -> HttpResponse:
    response = HttpResponse(body, status=status, content_type="application/json")
    if caller is not None:
        response[signing.SIGNATURE] = signing.sign_answer(caller.key, nonce=caller.nonce, status=status, body=body)
    return response
