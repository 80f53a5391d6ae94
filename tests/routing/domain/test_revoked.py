"""What a node remembers of revocations beside its snapshot."""

from __future__ import annotations

import pytest

from routing.domain import revoked
from routing.domain.revoked import KEPT, Revoked, RevokedFile, needed, told


def held(*names: str, at: float = 0.0) -> RevokedFile:
    return RevokedFile(revoked=tuple(Revoked(sha256=name, at=at) for name in names))


def names(file: RevokedFile) -> list[str]:
    return [item.sha256 for item in file.revoked]


def test_what_is_told_is_added_once_and_what_was_known_keeps_its_time() -> None:
    now = told(held("a"), ["b", "a", "b"], now=5.0)
    assert [(item.sha256, item.at) for item in now.revoked] == [("a", 0.0), ("b", 5.0)]
    assert told(now, ["b"], now=9.0) is now


def test_an_entry_goes_when_it_is_old_and_no_snapshot_has_it() -> None:
    old = held("gone", "there")
    assert names(needed(old, {"there"}, now=KEPT + 1)) == ["there"]
    assert needed(old, set(), now=KEPT - 1) is old, "a snapshot of before may still be on its way"
    assert needed(old, set(), now=-KEPT) is old


def test_the_list_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(revoked, "MOST", 3)
    assert names(told(held("a", "b"), ["c", "d"], now=1.0)) == ["b", "c", "d"]
