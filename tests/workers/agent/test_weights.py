"""Weights on a node: what is refused before a start, and what the node tells of the files that models need."""

from __future__ import annotations

import asyncio
import os
import threading
from dataclasses import replace
from pathlib import Path

import orjson
import pytest

from catalog.mirror.store import Store
from cluster.services.calls import MAX_BODY
from cluster.wire import Heartbeat, Serve, Wanted, Weights, WeightsReport, to_dict
from tests.routing.gateway.stored import VERSION, put
from workers.agent import patience
from workers.agent import weights as module
from workers.agent.weights import MOST, Holdings, problem


def serve(path: Path, **changes: object) -> Serve:
    base = Serve(engine="llama.cpp", model="m", weights=Weights(path=str(path), size=4))
    return replace(base, **changes)  # type: ignore[arg-type]


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    path = tmp_path / "w.gguf"
    path.write_bytes(b"GGUF")
    return path


def shards(folder: Path, *sizes: int) -> list[Path]:
    files = [folder / f"m-{n + 1:05d}-of-{len(sizes):05d}.gguf" for n in range(len(sizes))]
    for file, size in zip(files, sizes, strict=True):
        file.write_bytes(b"x" * size)
    return files


def test_right_weights_have_no_problem(weights: Path) -> None:
    assert problem(serve(weights)) is None


@pytest.mark.parametrize(("size", "code"), [(5, "weights_changed"), (0, None)])
def test_another_size_is_changed_weights_and_an_unknown_size_is_not_checked(
    weights: Path, size: int, code: str | None
) -> None:
    found = problem(serve(weights, weights=Weights(path=str(weights), size=size)))
    assert (found[0] if found else None) == code


def test_missing_weights_and_folders_are_named_with_their_path(tmp_path: Path) -> None:
    code, message = problem(serve(tmp_path / "gone.gguf")) or ("", "")
    assert code == "weights_missing"
    assert str(tmp_path / "gone.gguf") in message
    assert (problem(serve(tmp_path)) or ("",))[0] == "weights_changed"
    assert problem(serve(tmp_path, engine="vllm")) is None
    assert (problem(serve(Path("/a\0b"))) or ("",))[0] == "weights_missing"


def test_a_pipe_is_no_weights_file_and_does_not_hang(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert (problem(serve(tmp_path / "pipe")) or ("",))[0] == "weights_changed"


def test_the_parts_of_a_model_are_counted_together_and_a_missing_one_is_named(tmp_path: Path) -> None:
    files = shards(tmp_path, 4, 3, 5)
    whole = Weights(path=str(files[0]), size=12)  # as the catalogue counts it
    assert problem(serve(files[0], weights=whole)) is None
    assert (problem(serve(files[0])) or ("",))[0] == "weights_changed"
    files[1].unlink()
    code, message = problem(serve(files[0], weights=whole)) or ("", "")
    assert code == "weights_missing"
    assert str(files[1]) in message


def report_of(holdings: Holdings) -> dict[str, tuple[int | None, bool]]:
    holdings.look()
    holdings._kept = "another"
    return {item.path: (item.size, item.folder) for item in holdings.to_tell or ()}


def test_of_each_path_it_is_told_what_lies_there(tmp_path: Path, weights: Path) -> None:
    first = shards(tmp_path, 4, 3)[0]
    (tmp_path / "torn").mkdir()
    torn = shards(tmp_path / "torn", 1, 1)
    torn[1].unlink()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    holdings = Holdings(news=lambda: None)
    names = [weights, first, torn[0], tmp_path, tmp_path / "pipe", tmp_path / "loop", tmp_path / "gone"]
    holdings.ask(map(str, names))
    assert report_of(holdings) == {
        str(weights): (4, False),
        str(first): (7, False),
        str(torn[0]): (None, False),
        str(tmp_path): (0, True),
        str(tmp_path / "pipe"): (None, False),
        str(tmp_path / "loop"): (None, False),
        str(tmp_path / "gone"): (None, False),
    }


def test_what_is_no_plain_path_is_not_looked_for_and_there_is_a_most(tmp_path: Path) -> None:
    holdings = Holdings(news=lambda: None)
    holdings.ask(["relative.gguf", "/nul\0", "/long" + "x" * 1024, "", "/good"])
    assert report_of(holdings) == {"/good": (None, False)}
    holdings.ask(f"/none/{n}" for n in range(2 * MOST))
    assert len(report_of(holdings)) == MOST


def test_the_largest_report_fits_into_a_heartbeat() -> None:
    holdings = Holdings(news=lambda: None)
    holdings.ask(f"/{n:04d}" + '"\\ü' * 330 for n in range(2 * MOST))
    holdings.look()
    holdings.answered(Wanted(server_time=0, weights_mark="another"), beat(holdings))
    assert len(holdings.to_tell or ()) > 100
    assert len(orjson.dumps(to_dict(beat(holdings)))) < MAX_BODY * 0.9


def test_a_mark_names_what_lies_there_and_changes_with_it(weights: Path) -> None:
    holdings = Holdings(news=lambda: None)
    assert (holdings.mark, holdings.to_tell) == ("", None)
    assert (
        holdings.look() is True
    )  # that nothing is looked for is known, too: the first model waits for this node's word
    nothing = holdings.mark
    assert nothing
    holdings.ask([str(weights)])
    assert holdings.look() is True
    first = holdings.mark
    assert first
    assert holdings.look() is False
    weights.write_bytes(b"GGUF!")
    assert holdings.look() is True
    weights.write_bytes(b"GGUF")
    assert holdings.look() is True
    assert holdings.mark == first
    holdings.ask([])
    assert holdings.look() is True
    assert holdings.mark == nothing


def beat(holdings: Holdings) -> Heartbeat:
    return Heartbeat(node_id="n", boot_id="b", sent_at=0, weights_mark=holdings.mark, weights=holdings.to_tell)


def test_the_whole_of_it_is_told_once_to_who_holds_something_else(weights: Path) -> None:
    news: list[int] = []
    holdings = Holdings(news=lambda: news.append(1))
    holdings.ask([str(weights)])
    holdings.look()
    first = beat(holdings)
    assert (first.weights_mark, first.weights) == (holdings.mark, None)
    holdings.answered(Wanted(server_time=0, weights_mark=""), first)
    assert news == [1]
    second = beat(holdings)
    assert second.weights == (WeightsReport(path=str(weights), size=4),)
    holdings.answered(Wanted(server_time=0, weights_mark=""), second)
    assert news == [1]  # controllers that do not take it are told again with each heartbeat, not without end
    assert beat(holdings).weights == second.weights
    holdings.answered(Wanted(server_time=0, weights_mark=holdings.mark), second)
    assert beat(holdings).weights is None


def test_controllers_that_keep_nothing_of_it_are_never_told(weights: Path) -> None:
    holdings = Holdings(news=lambda: pytest.fail("no news"))
    holdings.ask([str(weights)])
    holdings.look()
    holdings.answered(Wanted(server_time=0), beat(holdings))
    assert beat(holdings).weights is None


def test_a_disk_that_hangs_leaves_what_was_told_and_heals(weights: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    holdings = Holdings(news=lambda: None)
    holdings.ask([str(weights)])
    holdings.look()
    before, go, find = holdings.mark, threading.Event(), module.find
    monkeypatch.setattr(patience, "TIMEOUT", 0.05)
    monkeypatch.setattr(module, "find", lambda path: (go.wait(), find(path))[1])
    weights.unlink()
    assert (holdings.look(), holdings.mark) == (False, before)
    assert "does not answer" in holdings.problem
    go.set()
    monkeypatch.setattr(patience, "TIMEOUT", 60.0)
    assert holdings.look() is True
    assert holdings.problem == ""


async def test_other_paths_are_looked_for_soon_and_the_same_ones_again(
    weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard = asyncio.Event()
    monkeypatch.setattr(module, "SOON", 0.01)
    holdings = Holdings(news=heard.set)
    running = asyncio.ensure_future(holdings.run())
    holdings.ask([str(weights)])
    async with asyncio.timeout(60):
        await heard.wait()
        heard.clear()
        holdings.ask([str(weights), str(tmp_path / "new.gguf")])  # long before EVERY
        await heard.wait()
        heard.clear()
        monkeypatch.setattr(module, "EVERY", 0.01)
        holdings.ask([str(weights)])
        await heard.wait()
        heard.clear()
        weights.write_bytes(b"another")
        await heard.wait()
    assert heard.is_set()
    running.cancel()


def test_every_whole_version_of_the_store_is_told_asked_for_or_not(tmp_path: Path) -> None:
    seen: list[object] = []
    holdings = Holdings(news=lambda: None, store=Store(tmp_path / "store"), seen=lambda: seen.append(holdings.whole))
    assert holdings.whole is None
    assert holdings.look()
    assert holdings.whole == frozenset()
    empty = holdings.mark
    whole = put(tmp_path / "store", {"m.gguf": b"x" * 100, "config.json": b"{}"})
    put(tmp_path / "store", {"m.gguf": b"y"}, version="ver_0000000002", whole=False)
    assert holdings.look()
    assert holdings.whole == {VERSION}
    assert holdings.mark != empty
    holdings.answered(Wanted(server_time=0.0, weights_mark=""), Heartbeat(node_id="n", boot_id="b", sent_at=0.0))
    assert holdings.to_tell == (WeightsReport(path=VERSION, size=whole.size),)
    assert not holdings.look()


async def test_what_was_fetched_is_seen_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "EVERY", 3600.0)
    seen = asyncio.Event()
    holdings = Holdings(news=lambda: None, store=Store(tmp_path / "store"), seen=seen.set)
    task = asyncio.ensure_future(holdings.run())
    try:
        async with asyncio.timeout(60):
            await seen.wait()
            seen.clear()
            put(tmp_path / "store", {"m.gguf": b"x"})
            holdings.hurry()
            await seen.wait()
        assert holdings.whole == {VERSION}
    finally:
        task.cancel()
