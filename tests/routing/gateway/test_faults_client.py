"""Faults on the client's side: leaving at any stage, being counted once, memory over many streams, secrets."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import logging
import tracemalloc
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import httpx
import pytest

from cluster.domain.leasing import TOKENS
from llmgw_site.lib.logs import setup
from routing.domain.endpoints import CHAT as CHATS
from routing.domain.endpoints import COMPLETIONS, EMBEDDINGS, ENDPOINTS, MESSAGES, RESPONSES
from routing.domain.snapshot import LimitEntry
from tests.routing.gateway.matrix import request
from tests.routing.gateway.rig import ENGINE_KEY, KEY, NARROW, TINY, UNKNOWN, Rig, ask, local_engine, rig, until
from tests.routing.gateway.test_limits import limit, recorded, taken

CHAT = "/v1/chat/completions"


PROMPTED = (CHATS, COMPLETIONS, MESSAGES, RESPONSES)


async def leave(gw: Rig, body: dict[str, Any], *, after: int = 0, path: str = CHAT) -> None:
    """Send a request, leave once `after` pieces came (0: before the head)."""
    begun = len(gw.engine.requests)

    async def read() -> None:
        async with gw.client.stream("POST", path, json=body) as answer:
            seen = 0
            async for _ in answer.aiter_raw():
                seen += 1
                if seen == after:
                    return

    task = asyncio.ensure_future(read())
    await until(lambda: len(gw.engine.requests) > begun)
    if after:
        await task
    else:
        await asyncio.sleep(0.05)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


@pytest.mark.parametrize(
    ("script", "streamed", "after"),
    [
        ({"never": True}, False, 0),
        ({"never": True}, True, 0),
        ({"head_silent": 30}, True, 0),
        ({"tokens": 1000, "gap": 0.02}, True, 3),
        ({"head_silent": 30}, False, 0),
    ],
    ids=["not-streamed", "in-prefill", "after-the-head", "mid-stream", "not-streamed-after-the-head"],
)
async def test_f27_the_engine_sees_a_client_leave_at_once(
    tmp_path: Path, script: dict[str, Any], streamed: bool, after: int
) -> None:
    async with rig(tmp_path) as gw:
        await leave(gw, ask(script, stream=streamed), after=after)
        await until(lambda: gw.engine.last.aborted_at is not None, seconds=5.0)
        record = await gw.record()
        assert (record.outcome, record.status, record.code) == ("client_gone", 499, "client_gone")
        if after:
            assert record.estimated
            assert (record.completion_tokens or 0) >= after
        await gw.idle()
        assert gw.gateway.flights.report(0.0).suspects == ()


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("when", ["never", "head_silent"])
async def test_a_prompt_that_an_engine_was_sent_counts_though_its_client_left_before_a_token(
    tmp_path: Path, when: str, streamed: bool
) -> None:
    async with rig(tmp_path) as gw:
        await limit(gw, key=LimitEntry(tokens_per_minute=10_000))
        for number, name in enumerate(PROMPTED if streamed else (*PROMPTED, EMBEDDINGS), start=1):
            asked = request(ENDPOINTS[name], {when: 30}, streamed)
            await leave(gw, asked["json"], path=ENDPOINTS[name].path)
            record = await gw.record(number)
            told = (None, False) if name == EMBEDDINGS else (2, True)  # the words: {"never": 30}
            assert (record.prompt_tokens, record.estimated) == told, name
            assert (record.outcome, record.completion_tokens) == ("client_gone", None)
        await gw.idle()
        assert taken(gw, "key_all", TOKENS) == recorded(gw)[1] == 2 * 4


async def test_a_prompt_that_waited_for_an_engine_in_vain_counts_nothing(tmp_path: Path) -> None:
    async with rig(tmp_path) as gw:
        gw.publish((local_engine("rep_1", TINY, gw.engine.port, slots=1),))
        gw.gateway.table.look()
        first = asyncio.ensure_future(gw.chat({"never": True}))
        await until(lambda: gw.engine.requests)
        second = asyncio.ensure_future(gw.chat("a b c", stream=True))
        await until(lambda: gw.gateway.queues.lines[TINY].waiting)
        second.cancel()
        waited = await gw.record()
        assert (waited.outcome, waited.prompt_tokens, waited.estimated) == ("client_gone", None, False)
        first.cancel()
        await asyncio.gather(first, second, return_exceptions=True)
        assert (await gw.record(2)).prompt_tokens == 2


async def test_f27_a_client_that_leaves_within_its_body_is_recorded_and_forwards_nothing(tmp_path: Path) -> None:
    async with rig(tmp_path) as gw:
        _, writer = await asyncio.open_connection("127.0.0.1", gw.port)
        head = f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY.text}\r\nContent-Length: 100\r\n\r\n"
        writer.write(head.encode() + b'{"model":')
        await writer.drain()
        await until(lambda: len(gw.gateway.app.active) == 1)
        writer.close()
        record = await gw.record()
        assert (record.outcome, record.status) == ("client_gone", 499)
        assert not gw.engine.requests


async def test_f61_a_request_that_ends_twice_is_counted_once(tmp_path: Path) -> None:
    """The engine dies at the moment the client leaves, again and again, at moments around each other."""
    async with rig(tmp_path) as gw:
        for round_ in range(12):
            script = {"tokens": 50, "gap": 0.01, "die_after": 3 + round_ % 4}
            with contextlib.suppress(httpx.RemoteProtocolError):
                await leave(gw, ask(script, stream=True), after=2 + round_ % 5)
        await gw.idle()
        await until(lambda: len(gw.records()) == 12)
        ids = [record.record_id for record in gw.records()]
        assert len(set(ids)) == 12
        assert {record.outcome for record in gw.records()} <= {"client_gone", "failed"}
        total = sum(
            sample.value
            for family in gw.gateway.metrics.registry.collect()
            for sample in family.samples
            if sample.name == "llmgw_requests_total"
        )
        assert total == 12


async def _many(gw: Rig, count: int, *, at_once: int = 50) -> None:
    """`count` streams; each third is left in its middle."""
    turns = iter(range(count))

    async def worker() -> None:
        for number in turns:
            body = ask({"tokens": 6}, stream=True)
            with contextlib.suppress(httpx.HTTPError):
                async with gw.client.stream("POST", CHAT, json=body) as answer:
                    async for _ in answer.aiter_raw():
                        if number % 3 == 0:
                            break

    await asyncio.gather(*(worker() for _ in range(at_once)))
    await gw.idle()


def _growth(before: tracemalloc.Snapshot, after: tracemalloc.Snapshot) -> int:
    only = [tracemalloc.Filter(True, "*/routing/*"), tracemalloc.Filter(True, "*/uvicorn/*")]
    one, two = before.filter_traces(only), after.filter_traces(only)
    return sum(item.size_diff for item in two.compare_to(one, "lineno"))


async def test_f30_memory_is_flat_over_streams_of_which_a_third_is_aborted(tmp_path: Path) -> None:
    """What lines of ours hold, to the byte; test_soak.py measures a process over many more."""
    warm, count = 200, 300
    async with rig(tmp_path, access_log=False) as gw:
        await _many(gw, warm)
        gw.engine.requests.clear()
        gc.collect()
        tracemalloc.start()
        try:
            before = tracemalloc.take_snapshot()
            await _many(gw, count)
            gw.engine.requests.clear()
            await until(lambda: len(gw.gateway.app.active) == 0)
            gc.collect()
            grown = _growth(before, tracemalloc.take_snapshot())
        finally:
            tracemalloc.stop()
        assert grown < 256 * 1024, f"{grown} bytes more after {count} streams"
        assert len(gw.records()) == warm + count
        assert not gw.gateway.flights.counts
        assert gw.gateway.upstream.connections < 256


async def test_f30_no_ending_of_a_request_leaves_objects_that_only_the_collector_finds(tmp_path: Path) -> None:
    """Its rarest round comes after millions of objects: what waits for it grows until then, by all that a stream had."""
    ends: list[tuple[Any, dict[str, Any]]] = [
        ("hello", {}), ({"tokens": 4}, {"stream": True}), ({"die_after": 1}, {"stream": True}), ({"reset": True}, {}),
        ({"status": 500, "body": "{}"}, {}), ("hello", {"model": "none"}), ({"gzip": True}, {}),
    ]  # fmt: skip
    async with rig(tmp_path) as gw:

        async def every() -> None:
            for script, fields in ends:
                with contextlib.suppress(httpx.HTTPError):
                    await gw.chat(script, **fields)
            await leave(gw, ask({"tokens": 1000, "gap": 0.02}, stream=True), after=3)
            await leave(gw, ask({"never": True}))
            await gw.idle()
            await until(lambda: gw.engine.last.aborted_at is not None)

        await every()
        gc.collect()
        gc.freeze()  # what tests before left may go at any moment: an exporter's thread, which tries again for seconds
        gc.disable()
        try:
            await every()
            gc.set_debug(gc.DEBUG_SAVEALL)
            gc.collect()
            found = {f"{type(item).__module__}.{type(item).__qualname__}" for item in gc.garbage}
        finally:
            gc.set_debug(0)
            gc.garbage.clear()
            gc.unfreeze()
            gc.enable()
    assert {name for name in found if name.startswith(("routing.", "uvicorn.", "httptools."))} == set()


SECRETS = [
    KEY.text,
    NARROW.text,
    UNKNOWN.text,
    ENGINE_KEY,
    "sk-other-vendor-5521",
    "hunter2-cookie",
    "my-private-prompt",
]


@pytest.fixture
def everything_logged(capfd: pytest.CaptureFixture[str]) -> Iterator[None]:
    """As the gateway logs, all of it, to what `capfd` reads; other tests of this process get their own handlers and level back."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    setup(process="gateway", level="debug")
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.mark.usefixtures("everything_logged")
async def test_f31_no_secret_is_in_any_log_answer_spool_or_metric(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    said: list[str] = []
    error = json.dumps({"error": {"message": f"bad key {ENGINE_KEY}", "code": 500, "type": "server_error"}})
    scripts: list[Any] = [
        "my-private-prompt",
        {"reset": True, "x": "my-private-prompt"},
        {"status": 500, "body": error},
        {"status": 401, "body": error},
        {"tokens": 3, "die_after": 1},
    ]
    async with rig(tmp_path) as gw:
        for secret in (KEY.text, NARROW.text, UNKNOWN.text, "sk-other-vendor-5521"):
            headers = {"authorization": f"Bearer {secret}", "cookie": "hunter2-cookie", "x-api-key": secret}
            for script in scripts:
                for streamed in (False, True):
                    body = ask(script, stream=streamed)
                    with contextlib.suppress(httpx.HTTPError):
                        said.append((await gw.client.post(CHAT, json=body, headers=headers)).text)
            for path in ("/v1/models", f"/v1/models/{TINY}", "/v1/nothing", "/readyz", "/healthz"):
                said.append((await gw.client.get(path, headers=headers)).text)
            bad = await gw.client.post(CHAT, content=b'{"my-private-prompt', headers=headers)
            said.append(bad.text)
        for gw.engine.unknown in (set(), {"/v1/messages", "/v1/responses"}):  # by each API, forms too, and translated
            for endpoint, script in product(ENDPOINTS.values(), ({"x": "my-private-prompt"}, *scripts[1:])):
                asked = request(endpoint, script, endpoint.streams and not endpoint.opaque)
                headers = {"cookie": "hunter2-cookie", "x-api-key": KEY.text, **asked.pop("headers", {})}
                with contextlib.suppress(httpx.HTTPError):
                    said.append((await gw.client.post(endpoint.path, headers=headers, **asked)).text)
        await gw.idle()
        from prometheus_client import generate_latest

        said.append(generate_latest(gw.gateway.metrics.registry).decode())
        said += [path.read_text() for path in gw.config.usage.glob("*")]
    said += capfd.readouterr()
    assert any('"event":"request"' in text for text in said)
    assert any(KEY.prefix in text for text in said)
    for text in said:
        for secret in SECRETS:
            assert secret not in text
