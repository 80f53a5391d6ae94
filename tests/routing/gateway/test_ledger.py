"""The usage spool: one line a write, recovery after a death, and a disk that refuses."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest

from cluster.wire import Load, from_dict
from routing.domain.records import UsageRecord
from routing.gateway import ledger as module
from routing.gateway.ledger import Ledger, SpoolHeldError
from tests.routing.gateway.rig import rig, until
from workers.agent.load_socket import LoadSocket
from workers.agent.usage import Spool as Agent


def record(name: str, **other: Any) -> UsageRecord:
    return UsageRecord(record_id=name, request_id="r", started_at=1.5, endpoint="completions", **other)


def opened(name: str) -> dict[str, Any]:
    return {"record_id": name, "request_id": "r", "started_at": 1.5, "endpoint": "completions", "key_id": "key_1"}


class Spool:
    """A folder, and ledgers one after another in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.failures = 0

    def ledger(self, boot: str = "b1") -> Ledger:
        def failed() -> None:
            self.failures += 1

        return Ledger(self.folder, boot_id=boot, on_failure=failed)

    @staticmethod
    def dies(ledger: Ledger) -> None:
        """As the kernel does for a gateway that is killed: its lock goes, and nothing else is done."""
        os.close(ledger._lock)

    def lines(self) -> list[dict[str, Any]]:
        found = []
        for path in sorted(self.folder.glob("spool-*.jsonl")):
            for line in path.read_bytes().splitlines():
                try:
                    found.append(json.loads(line))
                except json.JSONDecodeError:
                    found.append({"op": "torn"})
        return found


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    return Spool(tmp_path / "usage")


def test_open_and_close_are_lines_that_anyone_can_read(spool: Spool) -> None:
    ledger = spool.ledger()
    ledger.start()
    ledger.open(opened("rec_1"))
    ledger.close(record("rec_1", status=200, outcome="ok", prompt_tokens=3))
    ledger.stop()
    (path,) = spool.folder.iterdir()
    assert path.name.startswith("spool-")
    assert path.name.endswith("-b1.jsonl")
    assert len(path.name.split("-")[1]) == 20
    assert path.stat().st_mode & 0o777 == 0o600
    first, last = spool.lines()
    assert (first["op"], last["op"]) == ("open", "close")
    assert from_dict(UsageRecord, last["record"]) == record("rec_1", status=200, outcome="ok", prompt_tokens=3)
    assert from_dict(UsageRecord, first["record"]).key_id == "key_1"


def test_the_next_gateway_closes_what_the_last_one_left_open(spool: Spool) -> None:
    ledger = spool.ledger("b1")
    ledger.start()
    for name in ("rec_1", "rec_2", "rec_3"):
        ledger.open(opened(name))
    ledger.close(record("rec_2"))
    with next(spool.folder.iterdir()).open("ab") as file:
        file.write(b'{"op":"open","record":{"record_')  # the machine went down within this write
    spool.dies(ledger)
    second = spool.ledger("b2")
    found = second.start()
    assert (found.segments, found.closed, found.torn) == (1, 2, 1)
    closed = [line["record"] for line in spool.lines() if line["op"] == "close"]
    ends = {r["record_id"]: (r["outcome"], r["code"]) for r in closed}
    assert ends == {
        "rec_1": ("failed", "gateway_restarted"),
        "rec_2": ("failed", ""),
        "rec_3": ("failed", "gateway_restarted"),
    }
    assert closed[-1]["key_id"] == "key_1"
    spool.dies(second)
    assert spool.ledger("b3").start().closed == 0  # and only once


def test_a_second_gateway_on_the_same_folder_is_refused_and_closes_nothing(spool: Spool) -> None:
    first = spool.ledger("b1")
    first.start()
    first.open(opened("rec_1"))
    with pytest.raises(SpoolHeldError, match="another gateway"):
        spool.ledger("b2").start()
    assert [line["op"] for line in spool.lines()] == ["open"]
    first.stop()
    spool.ledger("b3").start()


def test_a_close_line_that_lost_only_its_newline_is_kept_as_it_was(spool: Spool) -> None:
    ledger = spool.ledger("b1")
    ledger.start()
    ledger.open(opened("rec_1"))
    ledger.close(record("rec_1", status=200, outcome="ok"))
    path = next(spool.folder.iterdir())
    os.truncate(path, path.stat().st_size - 1)  # a power cut in the middle of the write
    spool.dies(ledger)
    spool.ledger("b2").start()
    agent = Agent(spool.folder)
    batch = agent.next_batch()
    assert batch is not None
    assert [(r["record_id"], r["outcome"]) for r in batch.records] == [("rec_1", "ok")]
    assert agent.committed(batch, {"rec_1"})
    assert agent.next_batch() is None
    assert not path.exists()


def test_a_new_segment_is_the_newest_although_the_clock_went_back(
    spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = spool.ledger("b1")
    ledger.start()
    spool.dies(ledger)
    (old,) = spool.folder.iterdir()
    monkeypatch.setattr(module.time, "time_ns", lambda: 1_000_000_000)
    spool.ledger("b2").start()
    names = sorted(path.name for path in spool.folder.iterdir())
    assert names[0] == old.name
    assert names[1].endswith("-b2.jsonl")


def test_a_full_segment_is_followed_by_a_new_one(spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SEGMENT", 300)
    ledger = spool.ledger()
    ledger.start()
    for number in range(10):
        ledger.open(opened(f"rec_{number}"))
    ledger.stop()
    assert len(list(spool.folder.iterdir())) > 1
    assert [line["record"]["record_id"] for line in spool.lines()] == [f"rec_{n}" for n in range(10)]


def test_f24_lines_that_the_disk_refuses_wait_and_are_written_later(
    spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = spool.ledger()
    ledger.start()
    real = os.write
    left = [60]  # bytes that the disk still takes

    def full(file: int, data: bytes) -> int:
        if not left[0]:
            raise OSError(errno.ENOSPC, "No space left on device")
        taken = real(file, data[: left[0]])
        left[0] -= taken
        return taken

    monkeypatch.setattr(os, "write", full)
    for number in range(5):
        ledger.open(opened(f"rec_{number}"))
    assert ledger.waiting == 5
    assert spool.failures == 1  # tried once; the rest waits its turn
    (problem,) = ledger.problems
    assert f"cannot be written to {spool.folder} (the disk took a part of a line only)" in problem
    ledger.flush()
    assert ledger.waiting == 5
    assert "(No space left on device): make room" in ledger.problems[0]
    left[0] = 10**9
    ledger.flush()
    assert (ledger.waiting, ledger.problems) == (0, ())
    good = [line["record"]["record_id"] for line in spool.lines() if line["op"] == "open"]
    assert good == [f"rec_{n}" for n in range(5)]
    assert [line["op"] for line in spool.lines()].count("torn") == 1


def test_what_waits_is_bounded(spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BACKLOG", 3)
    spool.folder.write_bytes(b"")  # no folder can be made here
    ledger = spool.ledger()
    ledger.start()
    for number in range(10):
        ledger.open(opened(f"rec_{number}"))
    assert ledger.waiting == 3
    assert spool.failures > 7  # each line that was given up is counted
    ledger.stop()


def test_f24_a_record_that_cannot_be_written_whole_is_written_without_what_stands_in_the_way(spool: Spool) -> None:
    ledger = spool.ledger()
    ledger.start()
    ledger.open({**opened("rec_1"), "user": object()})
    ledger.close(record("rec_1", status=200, outcome="ok", prompt_tokens=1 << 70, completion_tokens=3))
    first, last = (line["record"] for line in spool.lines())
    assert first == opened("rec_1")
    kept = from_dict(UsageRecord, last)
    assert (kept.outcome, kept.prompt_tokens, kept.completion_tokens) == ("ok", None, 3)


async def test_f24_chat_goes_on_while_the_spool_cannot_be_written_and_people_are_told(tmp_path: Path) -> None:
    def no_folder(config: Any) -> None:
        config.usage.write_bytes(b"")

    loads: list[Load] = []
    async with rig(tmp_path, prepare=no_folder) as gw:
        agent = LoadSocket(gw.config.agent_socket, heard=loads.append, gone=lambda: None)
        await agent.start()
        assert (await gw.chat()).status_code == 200
        assert gw.gateway.ledger.waiting == 2
        value = gw.gateway.metrics.registry.get_sample_value
        assert (value("llmgw_usage_write_failures_total") or 0) > 0
        await until(lambda: value("llmgw_usage_lines_waiting") == 2)
        await until(lambda: bool(loads and loads[-1].problems))
        assert f"cannot be written to {gw.config.usage} (" in loads[-1].problems[0]
        gw.config.usage.unlink()
        gw.config.usage.mkdir()
        assert (await gw.record()).outcome == "ok"
        await until(lambda: loads[-1].problems == () and value("llmgw_usage_lines_waiting") == 0)
        await agent.stop()
