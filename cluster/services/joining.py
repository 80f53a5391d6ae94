"""Letting machines in: tokens are issued and revoked here, and a machine that proves one becomes a node."""

from __future__ import annotations

import logging
import secrets
import time
from collections import deque
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from threading import Lock

from django.conf import settings
from django.db import transaction
from django.db.models import F, QuerySet
from django.db.models.functions import Now

from catalog.services import events
from cluster import selectors
from cluster.domain import joining
from cluster.domain.joining import ControllerAddress, JoinAnswer, JoinRequest, TokenText
from cluster.models import JoinToken, Node
from cluster.selectors import from_unix
from cluster.services import authority, identity, members, nodes
from llmgw_site.lib import files
from llmgw_site.lib.errors import Kind, Refused
from llmgw_site.lib.logs import event
from llmgw_site.lib.sealing import seal

log = logging.getLogger(__name__)

MAX_USES, MAX_HOURS = 10_000, 8_760.0
ATTEMPTS, SPAN = 20, 1.0
"""Joins that one process looks at within so many seconds: nobody has proved anything before that."""
_recent: deque[float] = deque(maxlen=ATTEMPTS)
_recent_lock = Lock()


@dataclass(frozen=True, kw_only=True)
class Issued:
    """A new token. Its text is known now and never again."""

    token: JoinToken
    text: str
    command: str  # what the new machine runs: it joins and starts llmgw

    def __repr__(self) -> str:
        return f"Issued({self.token.id})"


def tokens() -> QuerySet[JoinToken]:
    return JoinToken.objects.order_by("-created_at", "id")


def issue(*, actor: str, uses: int = 1, hours: float = 24.0) -> Issued:
    """A token that lets `uses` machines in within `hours`. Raises Refused `invalid_value`."""
    if not 1 <= uses <= MAX_USES:
        raise Refused(Kind.INVALID, "invalid_value", f"uses: 1 to {MAX_USES} are possible", param="uses")
    if not 0 < hours <= MAX_HOURS:
        text = f"hours: more than 0 and at most {MAX_HOURS:g} are possible"
        raise Refused(Kind.INVALID, "invalid_value", text, param="hours")
    own, secret = identity.ensure_identity(), secrets.token_hex(32)
    expires = from_unix(selectors.database_now()) + timedelta(hours=hours)
    with transaction.atomic():
        token = JoinToken(uses_allowed=uses, created_by=actor[:200], expires_at=expires)
        token.sealed_secret = seal(secret, secret=settings.SECRET_KEY, about=token.id)
        token.save(force_insert=True)
        _record(token, actor, "join_token_issued", f"a join token for {uses} machine(s) was issued")
    text = joining.format_token(
        TokenText(
            token_id=token.id,
            secret=secret,
            controller_public_key=own.public_key,
            ca_fingerprint=authority.fingerprint(authority.certificate()),
        )
    )
    return Issued(token=token, text=text, command=f"llmgw node join {text} --controller {own_address().address}")


def revoke(*, actor: str, token_id: str) -> JoinToken:
    """From now on the token lets nobody in. A second time changes nothing."""
    with transaction.atomic():
        revoked = JoinToken.objects.filter(id=token_id, revoked_at__isnull=True).update(revoked_at=Now())
        token = JoinToken.objects.filter(id=token_id).first()
        if token is None:
            raise Refused(Kind.NOT_FOUND, "not_found", f"there is no join token {token_id[:40]}")
        if revoked:
            _record(token, actor, "join_token_revoked", "a join token was revoked")
    return token


def prune(*, before: datetime, limit: int) -> int:
    """Forget tokens that expired before this time, at most `limit`. Returns how many."""
    ended = JoinToken.objects.filter(expires_at__lt=before)
    return ended.filter(pk__in=list(ended.values_list("pk", flat=True)[:limit])).delete()[0]


def join(request: JoinRequest, *, now: float) -> JoinAnswer:
    """Take the machine that sent this into the cluster. `now`: Unix time of the database.

    1. too many at once: `joins_too_often`
    2. no such token, it has expired or was revoked, or the proof is not one of its secret: `join_token_invalid`
    3. name, address or nonce make no sense: `invalid_value`
    4. the node that this token and key make is there already: its answer was lost, so it is answered again; where it was
       taken out meanwhile: `node_removed`
    5. the token is spent: `join_token_invalid`; name or key are another node's: `node_exists`, and no use is spent
    """
    _throttle()  # 1
    token = JoinToken.objects.filter(id=request.token_id).first()
    secret = identity.opened(token.sealed_secret, about=token.id) if token else ""
    moment = from_unix(now)
    if (
        token is None
        or token.revoked_at is not None
        or token.expires_at <= moment
        or not joining.proves(joining.proof(secret, request), request.proof)
    ):  # 2
        event(log, "join_refused", level=logging.WARNING, token_id=request.token_id[:40], node_name=request.name[:100])
        raise _invalid()
    joining.vet(request)  # 3
    made_at = round(token.created_at.timestamp() * 1000)
    node_id = joining.node_id(token.id, secret, request.public_key, now_ms=made_at)
    node = _known(node_id) or _admit(token, request, node_id, now)
    certificate = authority.issue(csr=request.csr, node=node, now=now)
    answer = JoinAnswer(
        node_id=node.id,
        certificate=certificate,
        ca_certificate=authority.certificate(),
        controllers=members.controllers(at_least=(own_address(),)),
        server_time=now,
    )
    return replace(answer, proof=joining.answer_proof(secret, request, answer))


def _known(node_id: str) -> Node | None:
    """Case 4."""
    node = Node.objects.filter(id=node_id).first()
    if node is not None and node.removed_at is not None:
        text = f"node {node.name} was removed from this cluster with this key and token: join with a new key and token"
        raise Refused(Kind.UNAUTHORIZED, "node_removed", text)
    return node


def _admit(token: JoinToken, request: JoinRequest, node_id: str, now: float) -> Node:
    """Case 5. Use, node and event are one transaction: of two that race for the last use one gets it."""
    authority.vet(request.csr)
    try:
        with transaction.atomic():
            open_still = JoinToken.objects.filter(
                id=token.id, revoked_at__isnull=True, expires_at__gt=from_unix(now), uses__lt=F("uses_allowed")
            )
            if not open_still.update(uses=F("uses") + 1):
                raise _invalid()
            return nodes.enrol(
                name=request.name,
                public_key=request.public_key,
                address=request.address,
                actor=f"join:{token.id}",
                node_id=node_id,
            )
    except Refused as refused:
        twin = _known(node_id) if refused.code in ("node_exists", "join_token_invalid") else None
        if twin is None:
            raise
        return twin  # the same machine asked twice at once, and the other call was faster


def own_address() -> ControllerAddress:
    """This controller as other machines reach it: as its node last reported, else as settings say."""
    config = settings.CONFIG
    kept = files.read_json(config.node_file)
    node_id = str(kept.get("node_id", "")) if isinstance(kept, dict) else ""
    row = Node.objects.filter(id=node_id, removed_at__isnull=True).only("address").first()
    address = (row.address if row else "") or config.node_address or f"http://{config.node_host}:{config.node_port}"
    return ControllerAddress(node_id=node_id, address=address.rstrip("/"))


def _throttle() -> None:
    with _recent_lock:
        now = time.monotonic()
        if len(_recent) == ATTEMPTS and now - _recent[0] < SPAN:
            text = "too many machines join at once: try again in a second"
            raise Refused(Kind.LIMITED, "joins_too_often", text, retry_after=SPAN)
        _recent.append(now)


def _invalid() -> Refused:
    return Refused(
        Kind.UNAUTHORIZED,
        "join_token_invalid",
        "this join token is unknown, expired, revoked or used up: make a new one on a controller by `llmgw node token`",
    )


def _record(token: JoinToken, actor: str, kind: str, message: str) -> None:
    events.append(
        actor=actor,
        kind=kind,
        subject_kind="join_token",
        subject_id=token.id,
        message=message,
        after={"uses_allowed": token.uses_allowed, "expires_at": token.expires_at},
    )
