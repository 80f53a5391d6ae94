"""Limits through a whole gateway: what is refused and when it passes, and counters that say what the records say."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import openai
import orjson
import pytest

from cluster.domain import leasing
from cluster.wire import to_dict
from routing.domain import limits
from routing.domain.leases import Parallel
from routing.domain.snapshot import KeyEntry, LimitEntry, ModelEntry, ScopeEntry
from routing.gateway import limiter
from tests.routing.gateway.hops import chain, closed_port
from tests.routing.gateway.rig import KEY, NARROW, TINY, Rig, ask, key_entry, local_engine, rig, snapshot
from tests.routing.gateway.scripted import until

CHAT = "/v1/chat/completions"
_version = iter(range(2, 10_000))


async def limit(it: Rig, *, key: LimitEntry | None = None, **scopes: LimitEntry) -> None:
    """Limits of KEY, and of its `project`, `team`, `organisation`, in which NARROW is too."""
    above = ("organisation", "team", "project")
    entries = tuple(
        ScopeEntry(scope_id="proj_1" if kind == "project" else kind, kind=kind, name=f"the {kind}", parent=parent,
                   limit=scopes.get(kind))
        for kind, parent in zip(above, ("", *above), strict=False)
    )  # fmt: skip
    keys: tuple[KeyEntry, ...] = (replace(key_entry(KEY, "all", limit=key), name="ci"), key_entry(NARROW, "narrow"))
    version = f"e1:{next(_version)}"
    models = (ModelEntry(name=TINY, created=1, replicas=("rep_1", "rep_1b")), *snapshot().models[1:])
    told = to_dict(snapshot(version, keys=keys, scopes=entries, models=models))
    it.config.snapshot_file.write_bytes(orjson.dumps(told))
    await until(lambda: it.gateway.table.view.version == version)


def taken(it: Any, scope: str, kind: str) -> int:
    """What the counter of this limit has."""
    counter = it.gateway.limiter.counter(scope, kind)
    return counter.running if isinstance(counter, Parallel) else counter.window.total(asyncio.get_running_loop().time())


def recorded(it: Any) -> tuple[int, int]:
    """Requests that were passed on, and tokens, by the records."""
    records = it.records()
    tokens = sum((record.prompt_tokens or 0) + (record.completion_tokens or 0) for record in records)
    return sum(bool(record.model_served) for record in records), tokens


def error(answer: httpx.Response) -> Any:
    return answer.json()["error"]


async def test_a_request_over_a_limit_is_told_which_where_and_when(tmp_path: Path) -> None:
    async with rig(tmp_path) as it:
        await limit(it, team=LimitEntry(requests_per_minute=2))
        for left in (1, 0):
            answer = await it.chat()
            assert answer.status_code == 200
            assert answer.headers["x-ratelimit-limit-requests"] == "2"
            assert answer.headers["x-ratelimit-remaining-requests"] == str(left)
            assert answer.headers["x-ratelimit-reset-requests"].startswith(("1m", "59", "60"))
            assert "x-ratelimit-limit-tokens" not in answer.headers
        refused = await it.chat()
        assert refused.status_code == 429
        assert error(refused)["code"] == "requests_limit_reached"
        assert error(refused)["type"] == "rate_limit_error"
        assert error(refused)["limit"] == {
            "name": "requests_per_minute",
            "value": 2,
            "set_at": "team",
            "id": "team",
            "of": "the team",
        }
        assert "2 requests a minute of the team 'the team'" in error(refused)["message"]
        assert 30 <= int(refused.headers["retry-after"]) <= 61
        assert refused.headers["x-ratelimit-remaining-requests"] == "0"
        other = await it.client.post(CHAT, json=ask(), headers={"authorization": f"Bearer {NARROW.text}"})
        assert other.status_code == 429  # a key of the same team
        record = it.records()[2]
        assert (record.outcome, record.status, record.code, record.model_served) == (
            "refused",
            429,
            "requests_limit_reached",
            "",
        )
        assert len(it.engine.requests) == 2
        await limit(it)
        assert (await it.chat()).status_code == 200
        assert "x-ratelimit-limit-requests" not in (await it.chat()).headers


async def test_anthropics_clients_are_told_in_their_own_shape(tmp_path: Path) -> None:
    async with rig(tmp_path) as it:
        await limit(it, key=LimitEntry(requests_per_minute=0))
        body = {"model": TINY, "max_tokens": 5, "messages": [{"role": "user", "content": "hello"}]}
        answer = await it.client.post("/v1/messages", json=body)
        assert answer.status_code == 429
        assert answer.json()["type"] == "error"
        assert (error(answer)["type"], error(answer)["code"]) == ("rate_limit_error", "request_over_limit")


class Standing:
    """asyncio, in which it stays the same time as long as `at` says so."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.at: float | None = self._loop.time()

    def __getattr__(self, name: str) -> Any:
        return getattr(asyncio, name)

    def get_running_loop(self) -> Standing:
        return self

    def time(self) -> float:
        return self._loop.time() if self.at is None else self.at


async def test_f34_the_limit_that_has_room_last_is_told_and_it_passes_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "SPAN", 1.0)
    both = LimitEntry(requests_per_minute=2, tokens_per_minute=10_000)
    async with rig(tmp_path) as it:
        await limit(it, key=both)
        clock, loop = Standing(), asyncio.get_running_loop()
        monkeypatch.setattr(limiter, "asyncio", clock)
        assert (await it.chat(max_tokens=5)).status_code == 200
        big = await it.chat(max_tokens=9_970)
        assert (big.status_code, error(big)["code"]) == (429, "tokens_limit_reached")
        assert "of this key ('ci')" in error(big)["message"]
        assert (await it.chat(max_tokens=5)).status_code == 200
        refused = await it.chat(max_tokens=5)
        assert (refused.status_code, error(refused)["code"]) == (429, "requests_limit_reached")
        wait = int(refused.headers["retry-after"])
        assert wait <= 2
        assert clock.at is not None
        await asyncio.sleep(max(0.0, clock.at + wait - loop.time()))
        clock.at = None
        assert (await it.chat(max_tokens=5)).status_code == 200
        await asyncio.sleep(2.1)
        assert (await it.chat(max_tokens=9_900)).status_code == 200


async def test_a_request_that_is_over_a_limit_by_itself_is_not_to_be_sent_again(tmp_path: Path) -> None:
    async with rig(tmp_path) as it:
        await limit(it, organisation=LimitEntry(tokens_per_minute=1000))
        answer = await it.chat(max_tokens=2000)
        assert (answer.status_code, error(answer)["code"], error(answer)["param"]) == (
            429,
            "request_over_limit",
            "max_tokens",
        )
        assert answer.headers["x-should-retry"] == "false"
        assert "retry-after" not in answer.headers
        assert "may use 20" in error(answer)["message"]
        client = openai.AsyncOpenAI(base_url=f"{it.url}/v1", api_key=KEY.text, max_retries=2)
        with pytest.raises(openai.RateLimitError):
            await client.chat.completions.create(
                model=TINY, messages=[{"role": "user", "content": "x"}], max_tokens=2000
            )
        await client.close()
        await until(lambda: len(it.records()) == 2)
        assert taken(it, "organisation", leasing.TOKENS) == 0


async def test_f44_a_limit_of_parallel_requests_names_itself_and_where_it_is_set(tmp_path: Path) -> None:
    async with rig(tmp_path) as it:
        await limit(it, key=LimitEntry(parallel=2), project=LimitEntry(parallel=3))
        running = [asyncio.ensure_future(it.chat({"held": True})) for _ in range(2)]
        await until(lambda: taken(it, "key_all", leasing.PARALLEL) == 2)
        refused = await it.chat()
        assert (refused.status_code, error(refused)["code"]) == (429, "parallel_limit_reached")
        assert error(refused)["message"] == (
            "The limit of 2 requests at a time of this key ('ci') is reached: try again when one is over."
        )
        assert (error(refused)["limit"]["set_at"], error(refused)["limit"]["id"]) == ("key", "key_all")
        assert refused.headers["retry-after"] == "1"
        narrow = {"authorization": f"Bearer {NARROW.text}"}
        third = asyncio.ensure_future(it.client.post(CHAT, json=ask({"held": True}), headers=narrow))
        await until(lambda: taken(it, "proj_1", leasing.PARALLEL) == 3)
        fourth = await it.client.post(CHAT, json=ask(), headers=narrow)
        assert error(fourth)["limit"]["set_at"] == "project"
        assert "of the project 'the project'" in error(fourth)["message"]
        it.engine.release.set()
        assert {answer.status_code for answer in await asyncio.gather(*running, third)} == {200}
        assert (await it.chat()).status_code == 200
        await it.idle()
        assert (taken(it, "key_all", leasing.PARALLEL), taken(it, "proj_1", leasing.PARALLEL)) == (0, 0)


ENDS: dict[str, dict[str, Any]] = {
    "ok": {"tokens": 4},
    "uncounted": {"tokens": 4, "usage": False},
    "more than was reserved": {"tokens": 60},
    "engine error": {"status": 500, "body": json.dumps({"error": {"message": "no", "code": 500}})},
    "context": {"status": 400, "body": json.dumps({"error": {"message": "long", "type": "exceed_context_size_error"}})},
    "reset": {"reset": True},
    "death": {"tokens": 9, "die_after": 3},
    "cut": {"tokens": 9, "cut_after": 3},
    "error event": {"tokens": 9, "error_after": 3},
    "timeout": {"never": True},
}
EVERY = LimitEntry(requests_per_minute=1000, tokens_per_minute=1_000_000, parallel=50)


async def send(it: Rig, script: Any, *, stream: bool, leave: bool = False, **fields: Any) -> None:
    body = ask(script, stream=stream, **fields)
    async with httpx.AsyncClient(base_url=it.url, headers={"authorization": f"Bearer {KEY.text}"}) as client:
        try:
            async with client.stream("POST", CHAT, json=body) as answer:
                async for _ in answer.aiter_raw():
                    if leave:
                        return
        except httpx.HTTPError:
            pass


@pytest.mark.parametrize("stream", [False, True])
async def test_f51_whatever_ends_a_request_the_counters_say_what_the_records_say(tmp_path: Path, stream: bool) -> None:
    async with rig(tmp_path, first_byte_timeout=0.3) as it:
        await limit(it, key=EVERY, project=EVERY, organisation=EVERY)
        for number, (name, script) in enumerate(ENDS.items()):
            await send(it, script, stream=stream, max_tokens=10)
            await until(lambda count=number + 1: len(it.records()) == count)  # type: ignore[misc]
            await it.idle()
            for scope in ("key_all", "proj_1", "organisation"):
                found = (taken(it, scope, leasing.REQUESTS), taken(it, scope, leasing.TOKENS))
                assert found == recorded(it), (name, scope)
                assert taken(it, scope, leasing.PARALLEL) == 0, (name, scope)


async def test_f51_requests_that_reach_no_engine_count_for_nothing(tmp_path: Path) -> None:
    async with rig(tmp_path) as it:
        await limit(it, key=EVERY)
        for model in ("absent", "cold", "switched-off", "vectors"):
            assert (await it.chat(model=model)).status_code >= 400
        assert (await it.client.post(CHAT, content=b"{")).status_code == 400
        await until(lambda: len(it.records()) == 5)
        assert recorded(it) == (0, 0)
        assert [taken(it, "key_all", kind) for kind in (leasing.REQUESTS, leasing.TOKENS, leasing.PARALLEL)] == [
            0,
            0,
            0,
        ]


async def test_f51_a_client_that_leaves_gives_its_place_back(tmp_path: Path) -> None:
    async with rig(tmp_path) as it:
        await limit(it, key=EVERY)
        await asyncio.gather(
            *(send(it, {"tokens": 50, "gap": 0.05}, stream=True, leave=True, max_tokens=50) for _ in range(5))
        )
        await until(lambda: len(it.records()) == 5)
        assert {record.outcome for record in it.records()} == {"client_gone"}
        assert (taken(it, "key_all", leasing.REQUESTS), taken(it, "key_all", leasing.TOKENS)) == recorded(it)
        assert taken(it, "key_all", leasing.PARALLEL) == 0


async def test_f51_a_second_try_counts_once(tmp_path: Path) -> None:
    async with rig(tmp_path) as it:
        await limit(it, key=EVERY)
        dead = local_engine("rep_1", TINY, closed_port(), slots=9)
        it.publish((dead, local_engine("rep_1b", TINY, it.engine.port, slots=1)))
        await until(lambda: len(it.gateway.table.view.routes[TINY].seats) == 2)
        for _ in range(3):
            assert (await it.chat(max_tokens=10)).status_code == 200
        await it.idle()
        assert recorded(it)[0] == 3
        assert (taken(it, "key_all", leasing.REQUESTS), taken(it, "key_all", leasing.TOKENS)) == recorded(it)


async def test_f61_a_request_that_fails_and_whose_client_leaves_is_settled_once(tmp_path: Path) -> None:
    async with rig(tmp_path) as it:
        await limit(it, key=EVERY)
        await asyncio.gather(
            *(send(it, {"tokens": 9, "error_after": 2, "gap": 0.02}, stream=True, leave=True) for _ in range(4))
        )
        await until(lambda: len(it.records()) == 4)
        await it.idle()
        assert (taken(it, "key_all", leasing.REQUESTS), taken(it, "key_all", leasing.TOKENS)) == recorded(it)
        assert taken(it, "key_all", leasing.PARALLEL) == 0


async def test_only_the_edge_that_knows_the_client_counts(tmp_path: Path) -> None:
    async with chain(tmp_path) as (town, edge, router, worker):
        town.keys = (key_entry(KEY, "all", limit=LimitEntry(requests_per_minute=1, parallel=1)),)
        await town.settle()
        first = await edge.chat()
        assert (first.status_code, first.headers["x-ratelimit-remaining-requests"]) == (200, "0")
        assert (await edge.chat()).status_code == 429
        assert edge.gateway.limiter._counters
        assert not router.gateway.limiter._counters
        assert not worker.gateway.limiter._counters
        await town.idle()


async def test_a_key_without_a_limit_costs_nothing(tmp_path: Path) -> None:
    async with rig(tmp_path) as it:
        assert (await it.chat()).status_code == 200
        assert it.gateway.table.view.keys[KEY.sha256].bounds is None
        assert not it.gateway.limiter._counters


async def test_counters_that_hold_nothing_are_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with rig(tmp_path) as it:
        await limit(it, key=EVERY)
        assert (await it.chat()).status_code == 200
        assert len(it.gateway.limiter._counters) == 3
        monkeypatch.setattr(limits, "SPAN", 0.2)
        await until(lambda: not it.gateway.limiter._counters)


@pytest.mark.parametrize(
    "entry", [LimitEntry(requests_per_minute=0), LimitEntry(parallel=0), LimitEntry(tokens_per_minute=0)]
)
async def test_a_limit_of_nothing_sends_nobody_to_try_again(tmp_path: Path, entry: LimitEntry) -> None:
    async with rig(tmp_path) as it:
        await limit(it, project=entry)
        refused = await it.chat()
        assert (refused.status_code, error(refused)["code"]) == (429, "request_over_limit")
        assert "retry-after" not in refused.headers
        assert refused.headers["x-should-retry"] == "false"


async def test_a_file_is_not_reckoned_by_the_bytes_of_it_that_came_with_the_form_s_beginning(tmp_path: Path) -> None:
    async with rig(tmp_path) as it:
        await limit(it, key=LimitEntry(tokens_per_minute=2000))
        answer = await it.client.post(
            "/v1/audio/transcriptions", data={"model": TINY}, files={"file": ("a.wav", b"RIFF" * 50_000, "audio/wav")}
        )
        assert answer.status_code == 200, answer.text
        await it.idle()
        await until(lambda: taken(it, "key_all", leasing.TOKENS) == recorded(it)[1] == 0)
