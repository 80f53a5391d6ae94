"""Session affinity: the same conversation goes to the same node and replica, where its prefix is in the engine's cache.

Consistent hashing with bounded loads (Mirrokni, Thorup, Zadimoghaddam: "Consistent Hashing with Bounded Loads", 2016,
arXiv:1608.01350): each session has its own order of all places and takes the first that is not overloaded, which is one
that holds at least LOAD_BOUND times its share. The order is by highest random weight (Thaler, Ravishankar: "A
Name-Based Mapping Scheme for Rendezvous", 1996): a place that goes moves only the sessions that it had, evenly to all
others, and one that comes takes only its share.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, Protocol, TypeVar

import orjson

LOAD_BOUND = (5, 4)
"""The paper's c, 1.25, as a fraction: no place takes more than that times its share of all requests in progress."""
OPENING = 256
"""Characters of a text completion's prompt that tell one conversation from another."""


class Place(Protocol):
    """Something that answers: a node, or a replica."""

    @property
    def name(self) -> str: ...

    @property
    def in_flight(self) -> int: ...

    @property
    def slots(self) -> int: ...


P = TypeVar("P", bound=Place)


def home(session: str, places: Sequence[P]) -> P:
    """The place that the session belongs to, whatever its load. `places` is not empty."""
    return max(places, key=lambda place: _weight(session, place.name))


def overloaded(place: Place, places: Sequence[Place]) -> bool:
    """Whether a further request there would be over the bound. One with a free slot never is."""
    if place.in_flight < place.slots:
        return False
    total = 1 + sum(item.in_flight for item in places)
    slots = sum(max(1, item.slots) for item in places)
    most, least = LOAD_BOUND
    return place.in_flight >= -(-most * total * max(1, place.slots) // (least * slots))  # rounded up


def place(session: str, places: Sequence[P]) -> P:
    """The first place in the session's order that is not overloaded: the bounds add up to more than all requests."""
    for item in sorted(places, key=lambda item: _weight(session, item.name), reverse=True):
        if not overloaded(item, places):
            return item
    raise AssertionError("every place is over its share")


def _weight(session: str, name: str) -> bytes:
    return hashlib.blake2b(f"{session}\0{name}".encode(), digest_size=8).digest()


def session_of(key_id: str, explicit: bytes | None, body: bytes) -> str:
    """What names the conversation of a request of this key, stable over its turns; empty: nothing does.

    1. the header x-session-id   whatever the client calls it
    2. a chat, a response        its messages, or items, up to and with the first of the user
    3. a text completion         the beginning of its prompt
    4. anything else             nothing
    """
    if explicit:  # 1
        return _digest(b"h", key_id, explicit)
    try:
        value: Any = orjson.loads(body)
    except orjson.JSONDecodeError:
        return ""
    messages, prompt = value.get("messages", value.get("input")), value.get("prompt")
    if type(messages) is list and messages and all(type(item) is dict for item in messages):  # 2
        end = next((n for n, item in enumerate(messages, 1) if item.get("role") == "user"), len(messages))
        try:
            opening = orjson.dumps(messages[:end])
        except TypeError:  # nested deeper than it writes
            return ""
        return _digest(b"m", key_id, opening)
    if type(prompt) is str and prompt:  # 3
        return _digest(b"p", key_id, prompt[:OPENING].encode())
    return ""  # 4


def _digest(kind: bytes, key_id: str, data: bytes) -> str:
    return hashlib.blake2b(key_id.encode() + b"\0" + data, digest_size=16, person=kind).hexdigest()
