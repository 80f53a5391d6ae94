"""Who is calling: signatures on calls between nodes. Pure; keys, time and counters come in.

Each node, and the controllers together, hold a static X25519 key pair. Caller and callee derive one pairwise key:
HKDF-SHA256(X25519(own private, other public), info = b"llmgw node v1" + the two public keys sorted).
A call carries these headers (all ASCII):

    x-llmgw-node         id of the caller ("controller" for the controllers)
    x-llmgw-time         Unix seconds of *cluster time*, decimal with milliseconds
    x-llmgw-boot         boot id of the calling process, and
    x-llmgw-counter      a counter that rises within it: together unique, so a copy is refused
    x-llmgw-body         hex SHA-256 of the body, or `unsigned-body` for one that streams
    x-llmgw-signature    hex HMAC-SHA256 over method, path and the lines above; and over what marks the call, if it is
                         one that was passed on (see routing/gateway/membership.py)

An answer that commands something carries `x-llmgw-signature` over the request's signature (its nonce) and its own body.
Sources: RFC 7748 (X25519), RFC 5869 (HKDF), RFC 2104 (HMAC).
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

WINDOW = 120.0
"""Seconds of cluster time that a call may be early or late, and that counters are remembered."""
TIME_STEP = 0.001
"""Seconds: what a call's time is rounded to."""
UNSIGNED_BODY = "unsigned-body"
NODE, TIME, BOOT, COUNTER, BODY, SIGNATURE = (
    "x-llmgw-node",
    "x-llmgw-time",
    "x-llmgw-boot",
    "x-llmgw-counter",
    "x-llmgw-body",
    "x-llmgw-signature",
)
HEADERS = (NODE, TIME, BOOT, COUNTER, BODY, SIGNATURE)
"""Dropped from every request on the client listener, so that a client can never pass for a node."""
CONTROLLER = "controller"


@dataclass(frozen=True, kw_only=True)
class Call:
    """What a caller claims: read from headers, not yet believed."""

    node: str
    time: float
    boot: str
    counter: int
    body: str
    signature: str


def public_hex(private_hex: str) -> str:
    """The public half of a private key; both are 64 hex digits."""
    public = X25519PrivateKey.from_private_bytes(bytes.fromhex(private_hex)).public_key()
    return public.public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw).hex()


def pairwise_key(private_hex: str, other_public_hex: str) -> bytes:
    """The 32-byte key that two parties share. Costs about 50 µs: cache it per peer."""
    private = X25519PrivateKey.from_private_bytes(bytes.fromhex(private_hex))
    secret = private.exchange(X25519PublicKey.from_public_bytes(bytes.fromhex(other_public_hex)))
    pair = sorted((bytes.fromhex(public_hex(private_hex)), bytes.fromhex(other_public_hex)))
    info = b"llmgw node v1" + pair[0] + pair[1]
    return HKDF(algorithm=hashes.SHA256(), length=32, salt=None, info=info).derive(secret)


def body_digest(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


def _mac(key: bytes, *lines: str) -> str:
    return hmac.new(key, "\n".join(lines).encode(), hashlib.sha256).hexdigest()


def sign(
    key: bytes,
    *,
    method: str,
    path: str,
    node: str,
    now: float,
    boot: str,
    counter: int,
    body: bytes | None,
    marks: tuple[str, ...] = (),
) -> dict[str, str]:
    """Headers for a call. `path` is the raw request target with its query; `body` None: one that streams, unsigned.

    `marks`: further values that the signature covers; whoever verifies has to know them too.
    """
    digest = UNSIGNED_BODY if body is None else body_digest(body)
    time = f"{now:.3f}"
    signature = _mac(key, "call", method.upper(), path, node, time, boot, str(counter), digest, *marks)
    return dict(zip(HEADERS, (node, time, boot, str(counter), digest, signature), strict=True))


def read(headers: Mapping[str, str]) -> Call | None:
    """The claim in lower-case `headers`; None where one is missing or has no sense."""
    try:
        values = [headers[name] for name in HEADERS]
        call = Call(
            node=values[0],
            time=float(values[1]),
            boot=values[2],
            counter=int(values[3]),
            body=values[4],
            signature=values[5],
        )
    except (KeyError, ValueError):
        return None
    sane = max(map(len, values)) <= 128 and abs(call.time) < 1e12 and 0 <= call.counter < 2**63
    return call if sane else None


def verify(
    key: bytes, call: Call, *, method: str, path: str, body: bytes | None, now: float, allow_unsigned: bool = False
) -> str | None:
    """None if the call is the named node's, else the reason code. Repetition is the caller's to check (`Seen`).

    1. `bad_signature`   the HMAC differs (compared in constant time)
    2. `clock_skew`      made more than WINDOW seconds of cluster time away
    3. `body_unsigned`   the body is unsigned and this path wants it signed
    4. `body_changed`    the body is not the one that was signed
    """
    wrong = verify_head(key, call, method=method, path=path, now=now)
    return wrong or verify_body(call, body, allow_unsigned=allow_unsigned)


def verify_head(
    key: bytes, call: Call, *, method: str, path: str, now: float, marks: tuple[str, ...] = ()
) -> str | None:
    """Cases 1 and 2 of `verify`: all that can be said before the body has come."""
    time = f"{call.time:.3f}"
    expected = _mac(key, "call", method.upper(), path, call.node, time, call.boot, str(call.counter), call.body, *marks)
    if not hmac.compare_digest(expected.encode(), call.signature.encode()):  # 1
        return "bad_signature"
    return None if abs(call.time - now) <= WINDOW else "clock_skew"  # 2


def verify_body(call: Call, body: bytes | None, *, allow_unsigned: bool = False) -> str | None:
    """Cases 3 and 4 of `verify`."""
    if call.body == UNSIGNED_BODY:  # 3
        return None if allow_unsigned else "body_unsigned"
    if body is None or not hmac.compare_digest(body_digest(body).encode(), call.body.encode()):  # 4
        return "body_changed"
    return None


def sign_answer(key: bytes, *, nonce: str, status: int, body: bytes) -> str:
    """The answer's `x-llmgw-signature`; `nonce` is the request's signature, so an answer fits one request only."""
    return _mac(key, "answer", nonce, str(status), body_digest(body))


def verify_answer(key: bytes, signature: str, *, nonce: str, status: int, body: bytes) -> bool:
    return hmac.compare_digest(sign_answer(key, nonce=nonce, status=status, body=body).encode(), signature.encode())


class Seen:
    """Remembers the counters of each (node, boot) for WINDOW seconds on either side; one owner, no lock.

    A node makes thousands of calls a second, and counters rise: so what is kept is the highest one and which of the
    WIDTH below it were met (RFC 4303 §3.4.3). A call that is further behind than that is taken for a copy.
    """

    WIDTH = 1 << 16

    def __init__(self) -> None:
        self._highest: dict[tuple[str, str], int] = {}
        self._met: dict[tuple[str, str], int] = {}  # bit n: the highest less n was met
        self._until: dict[tuple[str, str], float] = {}
        self._swept = 0.0

    def first(self, call: Call, *, now: float) -> bool:
        """Whether this verified call is met for the first time; remembers it."""
        if abs(now - self._swept) > WINDOW:  # also after a clock that was set back
            self._sweep(now)
        name = (call.node, call.boot)
        ahead = call.counter - self._highest.get(name, call.counter - self.WIDTH)
        met = self._met.get(name, 0)
        if ahead > 0:
            met = (met << ahead) & self._ALL | 1 if ahead < self.WIDTH else 1
            self._highest[name] = call.counter
        elif -ahead >= self.WIDTH or met >> -ahead & 1:
            return False
        else:
            met |= 1 << -ahead
        self._met[name] = met
        self._until[name] = max(self._until.get(name, 0.0), call.time + 2 * WINDOW)
        return True

    _ALL = (1 << WIDTH) - 1

    def _sweep(self, now: float) -> None:
        self._swept = now
        for name in [name for name, until in self._until.items() if until <= now]:
            del self._highest[name], self._met[name], self._until[name]
