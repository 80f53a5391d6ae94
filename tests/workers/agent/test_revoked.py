"""What an agent keeps of revocations: on disk before anybody asks, through a restart, a damaged file and a full disk."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from cluster.wire import from_dict
from llmgw_site.lib import files
from routing.domain.revoked import KEPT, RevokedFile
from workers.agent.revoked import RevokedStore


def on_disk(path: Path) -> list[str]:
    return [item.sha256 for item in from_dict(RevokedFile, files.read_json(path)).revoked]


def test_what_a_nudge_says_is_on_disk_and_known_after_a_restart(tmp_path: Path) -> None:
    path, now = tmp_path / "revoked.json", [0.0]
    RevokedStore(path, lambda: now[0]).take(["a", "b"])
    assert on_disk(path) == ["a", "b"]
    again = RevokedStore(path, lambda: now[0])
    again.take(["c"])
    assert on_disk(path) == ["a", "b", "c"]
    now[0] = KEPT + 1
    again.snapshot_has({"b"})
    assert on_disk(path) == ["b"]


def test_a_damaged_file_is_told_and_the_next_revocation_is_kept(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "revoked.json"
    path.write_text('{"revoked": [7]}')
    store = RevokedStore(path, time.time)
    assert "revoked_unreadable" in caplog.text
    store.take(["a"])
    assert on_disk(path) == ["a"]


def test_what_could_not_be_written_is_written_later_and_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "revoked.json"
    store = RevokedStore(path, time.time)

    def full(*_: object) -> None:
        raise OSError("no space left")

    with monkeypatch.context() as patch:
        patch.setattr(files, "write_json", full)
        store.take(["a"])
        store.keep()
    assert caplog.text.count("revoked_not_kept") == 1
    store.keep()
    assert on_disk(path) == ["a"]
