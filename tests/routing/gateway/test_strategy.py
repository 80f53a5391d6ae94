"""The router's strategy on the disk: kept, refused, and unchanged where it cannot be stored."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from llmgw_site.lib.errors import Kind, Refused
from routing.domain.nodes import Rule, Strategy
from routing.gateway import strategy
from routing.gateway.strategy import StoredRule


async def test_f03_a_strategy_is_kept_across_restarts(tmp_path: Path) -> None:
    path = tmp_path / "router.json"
    await StoredRule(path).put({"strategy": "round_robin", "affinity": True}, actor="ann")
    again = StoredRule(path)
    again.load()
    assert again.rule == Rule(strategy=Strategy.ROUND_ROBIN, affinity=True)


async def test_what_is_not_in_the_table_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    stored = StoredRule(tmp_path / "router.json")
    await stored.put({"strategy": "random"}, actor="ann")
    with pytest.raises(Refused) as caught:
        await stored.put({"strategy": "fastest"}, actor="ann")
    assert (caught.value.kind, caught.value.code) == (Kind.INVALID, "invalid_strategy")
    assert stored.rule == Rule(strategy=Strategy.RANDOM)


async def test_a_strategy_that_cannot_be_stored_is_persist_failed_and_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = StoredRule(tmp_path / "router.json")
    await stored.put({"strategy": "random"}, actor="ann")

    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(strategy, "write_json", full)
    with pytest.raises(Refused) as caught:
        await stored.put({"strategy": "least_latency"}, actor="ann")
    assert (caught.value.kind, caught.value.code) == (Kind.INTERNAL, "persist_failed")
    assert "No space left" in caught.value.message
    assert stored.rule == Rule(strategy=Strategy.RANDOM)
    again = StoredRule(tmp_path / "router.json")
    again.load()
    assert again.rule == Rule(strategy=Strategy.RANDOM)


async def test_a_folder_that_is_not_there_is_persist_failed_too(tmp_path: Path) -> None:
    stored = StoredRule(tmp_path / "absent" / "router.json")
    with pytest.raises(Refused) as caught:
        await stored.put({"strategy": "random"}, actor="ann")
    assert caught.value.code == "persist_failed"


@pytest.mark.parametrize("content", [b"", b"nonsense", b'{"strategy":"of a newer version"}', b"[1]"])
def test_a_damaged_file_is_logged_and_the_default_counts(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "router.json").write_bytes(content)
    stored = StoredRule(tmp_path / "router.json")
    stored.load()
    assert stored.rule == Rule()
