"""Joining: the one word that an administrator carries to a machine, and how it proves itself without travelling.

A join token is `llmgw-join.<token id>.<base64url>`; the last part holds 32 bytes each of the secret, of the controllers'
public key and of the CA certificate's SHA-256, and 4 bytes of the SHA-256 of all that stands before them.
The machine sends the token's id and an HMAC-SHA256 under the secret; the answer carries one over the request and itself.
So who listens in learns nothing, and who answers in the controllers' place is found out. Source: RFC 2104 (HMAC).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import re
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from llmgw_site.lib.errors import Kind, Refused
from llmgw_site.lib.ids import make_id

PREFIX = "llmgw-join"
MAX_TOKEN = 400
"""Characters; a token has about 180."""
_PART, _CHECK = 32, 4  # bytes
_ID = re.compile(r"[A-Za-z0-9_-]{1,40}")
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,98}[A-Za-z0-9])?")
_NONCE = re.compile(r"[\x21-\x7e]{1,128}")
MAX_ADDRESS = 300


@dataclass(frozen=True, kw_only=True)
class TokenText:
    """What a join token says."""

    token_id: str
    secret: str  # 64 hex digits
    controller_public_key: str  # X25519, 64 hex digits
    ca_fingerprint: str  # SHA-256 of the CA certificate's DER, 64 hex digits

    def __repr__(self) -> str:
        return f"TokenText({self.token_id})"


@dataclass(frozen=True, kw_only=True)
class JoinRequest:
    """machine -> controller, POST /api/v1/agent/join: the only call that no node has signed; `proof` stands for that."""

    token_id: str
    name: str
    public_key: str  # X25519, hex
    csr: str  # PEM, of the key that the certificate shall be for
    address: str  # base URL of its node listener
    nonce: str  # fresh for each request, so that an answer fits one request only
    proof: str = ""


@dataclass(frozen=True, kw_only=True)
class ControllerAddress:
    node_id: str
    address: str  # base URL of its node listener


@dataclass(frozen=True, kw_only=True)
class JoinAnswer:
    """controller -> machine: who it is from now on. Believe it only if `proof` holds and the CA is the token's."""

    node_id: str
    certificate: str  # PEM
    ca_certificate: str  # PEM
    controllers: tuple[ControllerAddress, ...] = ()
    server_time: float = 0.0  # Unix time of the database
    proof: str = ""


def tls_name(node_id: str) -> str:
    """The DNS name in a node's certificate: what a caller expects of a node, whatever its address."""
    return f"{node_id.lower().replace('_', '-')}.node.llmgw"


def format_token(token: TokenText) -> str:
    """The token as one word."""
    parts = bytes.fromhex(token.secret + token.controller_public_key + token.ca_fingerprint)
    head = f"{PREFIX}.{token.token_id}"
    return f"{head}.{_pack(parts + _check(head, parts))}"


def parse_token(text: str) -> TokenText:
    """What `format_token` made. Raises Refused `join_token_damaged` where a character is wrong or missing."""
    text = text.strip()
    head, _, packed = text.rpartition(".")
    prefix, _, token_id = head.partition(".")
    try:
        raw = base64.b64decode(packed + "=" * (-len(packed) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raw = b""
    parts, check = raw[: 3 * _PART], raw[3 * _PART :]
    if (
        len(text) > MAX_TOKEN
        or prefix != PREFIX
        or not _ID.fullmatch(token_id)
        or len(parts) != 3 * _PART
        or check != _check(head, parts)
        or _pack(raw) != packed  # another spelling of the same bytes is a typing error too
    ):
        raise Refused(
            Kind.INVALID,
            "join_token_damaged",
            f"this is no join token, or a part of it is missing: copy the whole word that begins with {PREFIX}. "
            "from `llmgw node token`",
            param="token",
        )
    secret, public, fingerprint = (parts[at : at + _PART].hex() for at in range(0, 3 * _PART, _PART))
    return TokenText(token_id=token_id, secret=secret, controller_public_key=public, ca_fingerprint=fingerprint)


def _pack(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def _check(head: str, parts: bytes) -> bytes:
    return hashlib.sha256(head.encode() + parts).digest()[:_CHECK]


def vet(request: JoinRequest) -> None:
    """Raises Refused `invalid_value` where a name, an address or the nonce is none."""
    if not _NAME.fullmatch(request.name):
        wanted = "a node's name has letters, digits, `.`, `_` and `-`, at most 100 of them: give it another by --name"
        raise Refused(Kind.INVALID, "invalid_value", f"name: {wanted}", param="name")
    if request.address and not is_address(request.address):
        wanted = "the base URL of the node listener was expected, such as http://10.0.0.5:8880: set it by --address"
        raise Refused(Kind.INVALID, "invalid_value", f"address: {wanted}", param="address")
    if not _NONCE.fullmatch(request.nonce):
        raise Refused(
            Kind.INVALID, "invalid_value", "nonce: 1 to 128 characters were expected, fresh each time", param="nonce"
        )


def is_address(text: str) -> bool:
    """Whether this is a base URL of a node listener: http or https, a host, perhaps a port, nothing else."""
    try:
        url = urlsplit(text)
        port = url.port
    except ValueError:
        return False
    whole = url.scheme in ("http", "https") and bool(url.hostname) and port != 0
    return (
        whole
        and len(text) <= MAX_ADDRESS
        and text.isprintable()
        and not (url.path.strip("/") or url.query or url.fragment or "@" in url.netloc or " " in text)
    )


def node_id(token_id: str, secret: str, public_key: str, *, now_ms: int) -> str:
    """The id of the node that joins with this token and this key: the same however often it asks.

    So a machine that did not get its answer asks again without spending another use. `now_ms`: when the token was made.
    """
    drawn = hmac.new(
        bytes.fromhex(secret), f"llmgw node id v1 {token_id} {public_key.lower()}".encode(), hashlib.sha256
    )
    return make_id("node", now_ms=now_ms, entropy=drawn.digest())


def proof(secret: str, message: JoinRequest) -> str:
    """The request's `proof` (hex): it was made by somebody who holds the token of this secret (hex)."""
    said = [message.token_id, message.name, message.public_key, message.csr, message.address, message.nonce]
    return _mac(secret, "llmgw join v1", said)


def answer_proof(secret: str, request: JoinRequest, answer: JoinAnswer) -> str:
    """The answer's `proof` (hex): the controllers that made the token answered this very request like this."""
    controllers = [[item.node_id, item.address] for item in answer.controllers]
    said = [answer.node_id, answer.certificate, answer.ca_certificate, controllers, answer.server_time]
    return _mac(secret, "llmgw joined v1", [proof(secret, request), *said])


def proves(expected: str, given: str) -> bool:
    """Compare two proofs in constant time."""
    return hmac.compare_digest(expected.encode(), given.encode())


def _mac(secret: str, purpose: str, said: list[Any]) -> str:
    text = json.dumps([purpose, *said], ensure_ascii=True, separators=(",", ":"))
    return hmac.new(bytes.fromhex(secret), text.encode(), hashlib.sha256).hexdigest()
