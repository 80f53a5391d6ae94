"""Texts of keys and admin tokens that a nudge said are revoked: what a node remembers of them beside its snapshot.

A snapshot that was made after the revocation does not have them any more. Until one is here, and while no controller can be
asked, the list stands for it: agents write it to `<data>/cluster/revoked.json`, gateways refuse what it has.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

KEPT = 86_400.0
"""Seconds that an entry is kept in any case: a snapshot of before may still be on its way."""
MOST = 100_000
"""Entries; beyond them the oldest go, which snapshots have forgotten long since."""


@dataclass(frozen=True, kw_only=True)
class Revoked:
    """`sha256`: of the text. `at`: Unix time at which this node heard of it."""

    sha256: str
    at: float


@dataclass(frozen=True, kw_only=True)
class RevokedFile:
    revoked: tuple[Revoked, ...] = ()  # the oldest first


def told(held: RevokedFile, hashes: Iterable[str], *, now: float) -> RevokedFile:
    """With these, too. What is held already stays as it is."""
    known = {item.sha256 for item in held.revoked}
    fresh = tuple(Revoked(sha256=text, at=now) for text in dict.fromkeys(hashes) if text not in known)
    return RevokedFile(revoked=(held.revoked + fresh)[-MOST:]) if fresh else held


def needed(held: RevokedFile, known: Collection[str], *, now: float) -> RevokedFile:
    """Without what needs no mention any more, now that the snapshot at hand knows these texts: an entry goes once it is older
    than KEPT and the snapshot has it not. A clock that was set back keeps it longer."""
    kept = tuple(item for item in held.revoked if item.sha256 in known or now - item.at < KEPT)
    return held if len(kept) == len(held.revoked) else RevokedFile(revoked=kept)
