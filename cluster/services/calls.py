"""Calls from nodes: who is calling is proved here, and what is answered is signed. See cluster/domain/signing.py."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, wraps
from threading import Lock
from typing import Any

import orjson
from django.http import HttpRequest, HttpResponse
from django.views.decorators.csrf import csrf_exempt

from cluster import selectors
from cluster.domain import signing
from cluster.models import ClusterIdentity, Node
from cluster.services import identity
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

    node: Node
    key: bytes
    nonce: str
    body: bytes
    now: float  # Unix time of the database


class _ProvedRefused(Refused):
    """A refusal of a call whose signature holds: signed, so that the node can act on it."""

    def __init__(self, caller: Caller, code: str, message: str) -> None:
        super().__init__(Kind.UNAUTHORIZED, code, message)
        self.caller = caller


View = Callable[[Caller, HttpRequest], "bytes | None"]


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
                return _signed(refused.caller, HTTP_STATUS[refused.kind], envelope(refused, now=refused.caller.now))
            except Refused as refused:
                return _signed(caller, HTTP_STATUS[refused.kind], envelope(refused))
            except WireError as error:
                return _signed(caller, 400, envelope(_unreadable(error)))
            return _signed(caller, 304 if answer is None else 200, answer or b"")

        return view

    return wrap


def authenticate(request: HttpRequest) -> Caller:
    """The node behind a call. Raises Refused.

    1. it came over the client listener: 404, as if the path did not exist
    2. no signature headers: `node_signature_required`
    3. the node is not in the table, or was taken out of it: `node_unknown`, `node_removed`
    4. the signature does not hold (`bad_signature`, `clock_skew`, `body_unsigned`, `body_changed`)
    5. a copy of a call that was answered: `call_repeated`
    """
    if request.headers.get(LISTENER) != "node":  # 1
        raise Refused(Kind.NOT_FOUND, "not_found", f"there is nothing at {request.path}")
    body = read_body(request)
    call = signing.read({name.lower(): value for name, value in request.headers.items()})
    if call is None:  # 2
        raise Refused(
            Kind.UNAUTHORIZED,
            "node_signature_required",
            "only nodes of this cluster are answered here, and this call carries no node's signature",
        )
    node = Node.objects.filter(id=call.node).first()
    if node is None:  # 3
        text = f"node {call.node[:40]} is not in this cluster: enrol it"
        raise Refused(Kind.UNAUTHORIZED, "node_unknown", text)
    if node.removed_at is not None:
        raise Refused(
            Kind.UNAUTHORIZED, "node_removed", f"node {node.name} was removed from this cluster: enrol it again"
        )
    own = ClusterIdentity.objects.get(id=ClusterIdentity.ONLY)
    key = pairwise(identity.private_key(own), node.public_key)
    now = selectors.database_now()
    path = request.get_full_path()
    wrong = signing.verify(key, call, method=request.method or "", path=path, body=body, now=now)
    caller = Caller(node=node, key=key, nonce=call.signature, body=body, now=now)
    if wrong is not None:  # 4
        event(log, "node_call_refused", level=logging.WARNING, node_id=node.id, code=wrong)
        text = f"the call of node {node.name} was refused: {wrong.replace('_', ' ')}"
        if wrong == "bad_signature":  # whoever that was gets nothing signed
            raise Refused(Kind.UNAUTHORIZED, wrong, text)
        raise _ProvedRefused(caller, wrong, text)
    with _seen_lock:
        if not _seen.first(call, now=now):  # 5
            raise _ProvedRefused(caller, "call_repeated", "this very call was answered before")
    return caller


def read_body(request: HttpRequest) -> bytes:
    """The body, at most MAX_BODY of it. Raises Refused `body_too_large`."""
    body = request.read(MAX_BODY + 1)
    if len(body) > MAX_BODY:
        raise Refused(
            Kind.TOO_LARGE, "body_too_large", f"a node's message has at most {MAX_BODY} bytes: send less at once"
        )
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


def _signed(caller: Caller | None, status: int, body: bytes) -> HttpResponse:
    response = HttpResponse(body, status=status, content_type="application/json")
    if caller is not None:
        response[signing.SIGNATURE] = signing.sign_answer(caller.key, nonce=caller.nonce, status=status, body=body)
    return response
