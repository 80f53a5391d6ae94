"""Every endpoint, streamed and not, in every way to end: status, envelope, one record, counters, and nothing left over.

Messages and responses once more by an engine that has only chats, where both ways are translated.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from cluster.domain.leasing import PARALLEL, REQUESTS, TOKENS
from routing.domain.endpoints import ENDPOINTS, MESSAGES, RESPONSES, Endpoint, Shape
from routing.domain.snapshot import LimitEntry
from tests.routing.gateway.rig import ENGINE_KEY, TINY, VECTORS, Rig, rig
from tests.routing.gateway.scripted import until
from tests.routing.gateway.test_limits import limit, recorded, taken
from tests.routing.gateway.test_uploads import FILE, KIND, form, part

TRANSLATED = (MESSAGES, RESPONSES)
CELLS = [
    (item, stream, translated)
    for item in ENDPOINTS.values()
    for stream in (False, True)
    for translated in (False, True)
    if (not stream or (item.streams and not item.opaque)) and (not translated or item.name in TRANSLATED)
]
BOOM = json.dumps({"error": {"message": "boom", "code": 500, "type": "server_error"}})


def request(endpoint: Endpoint, script: dict[str, Any], stream: bool) -> dict[str, Any]:
    """What is sent; what the engine shall do stands where each endpoint has its text."""
    text, model = json.dumps(script), VECTORS if endpoint.embeddings else TINY
    if endpoint.form:
        return {"content": form(part("model", model.encode()), part("prompt", text.encode()), FILE), "headers": KIND}
    body: dict[str, Any] = {"model": model, "prompt": text, **({"stream": True} if stream else {})}
    if "messages" in endpoint.name or endpoint.name.startswith("chat"):
        body["messages"] = [{"role": "user", "content": body.pop("prompt")}]
    elif endpoint.name in ("embeddings", "audio.speech", RESPONSES):
        body["input"] = body.pop("prompt")
    return {"json": {**body, "query": "q", "documents": ["d"], "tokens": [1]}}


async def sent(
    gw: Rig, endpoint: Endpoint, script: dict[str, Any], stream: bool, **options: Any
) -> tuple[int, str, bool]:
    """Status, what came of the body, and whether it ended cleanly."""
    text = b""
    async with gw.client.stream("POST", endpoint.path, **request(endpoint, script, stream), **options) as answer:
        try:
            async for piece in answer.aiter_raw():
                text += piece
        except httpx.RemoteProtocolError:
            return answer.status_code, text.decode("latin-1"), False
        return answer.status_code, text.decode("latin-1"), True


def code_of(endpoint: Endpoint, text: str) -> str:
    """The code of an error in the envelope of this endpoint, alone or as a stream's last event."""
    last = text.rstrip().rpartition("\n")[2]
    body = json.loads(last.removeprefix("data: "))
    named = endpoint.shape is Shape.ANTHROPIC or (endpoint.shape is Shape.RESPONSES and last.startswith("data: "))
    assert body.get("type") == ("error" if named else None)
    assert {"message", "type", "code", "param"} <= set(body["error"])
    assert ENGINE_KEY not in text
    return str(body["error"]["code"])


async def settled(gw: Rig, ended: int) -> None:
    """Whatever has ended so far left one record each, counters that say what the records say, and nothing else."""
    await gw.idle()
    await gw.record(ended)
    for scope in ("key_all", "proj_1"):
        assert (taken(gw, scope, REQUESTS), taken(gw, scope, TOKENS), taken(gw, scope, PARALLEL)) == (*recorded(gw), 0)
    gateway = gw.gateway
    families = gateway.metrics.registry.collect()
    samples = [item for family in families for item in family.samples if item.name == "llmgw_requests_total"]
    assert sum(item.value for item in samples) == ended
    assert not gateway.queues._waits
    assert not any(line.running or line.waiting for line in gateway.queues.lines.values())
    pools = gateway.upstream._pools.values()
    await until(lambda: all(len(pool.open) == len(pool.idle) and not pool.connecting for pool in pools))


@pytest.mark.parametrize(
    ("endpoint", "stream", "translated"),
    CELLS,
    ids=lambda item: getattr(item, "name", item),
)
async def test_an_endpoint_ends_in_every_way_and_is_recorded_once_each_time(
    tmp_path: Path, endpoint: Endpoint, stream: bool, translated: bool
) -> None:
    async with rig(tmp_path) as gw:
        if translated:
            gw.engine.unknown = {endpoint.path}
        much = LimitEntry(requests_per_minute=1000, tokens_per_minute=10**6, parallel=9)
        await limit(
            gw, key=LimitEntry(requests_per_minute=6 + stream, tokens_per_minute=10**6, parallel=1), project=much
        )
        ended: list[tuple[str, int, str]] = []

        async def over(outcome: str, status: int, code: str) -> None:
            ended.append((outcome, status, code))
            await settled(gw, len(ended))

        status, text, whole = await sent(gw, endpoint, {}, stream)
        assert (status, whole) == (200, True), text
        await over("ok", 200, "")

        status, text, whole = await sent(gw, endpoint, {"status": 500, "body": BOOM}, stream)
        assert (status, whole, code_of(endpoint, text)) == (500, True, "engine_error")
        await over("failed", 500, "engine_error")

        status, text, whole = await sent(gw, endpoint, {"reset": True}, stream)
        assert (status, whole, code_of(endpoint, text)) == (502, True, "engine_broken")
        await over("failed", 502, "engine_broken")

        status, text, whole = await sent(gw, endpoint, {"die_after": 1}, stream)
        if stream or not whole:  # the status was out
            assert (status, whole) == (200, False)
        else:
            assert status == 502
        if stream or whole:
            assert code_of(endpoint, text) == "engine_broken"
            assert "[DONE]" not in text
        await over("failed", status, "engine_broken")

        asked = len(gw.engine.requests)
        with pytest.raises(httpx.ReadTimeout):
            await sent(gw, endpoint, {"silent": 30.0}, stream, timeout=httpx.Timeout(5, read=0.4))
        await until(lambda: gw.engine.requests[asked].aborted_at is not None)
        await over("client_gone", 499, "client_gone")
        if stream:
            body = request(endpoint, {"tokens": 1000, "gap": 0.02}, stream)
            async with gw.client.stream("POST", endpoint.path, **body) as answer:
                pieces = answer.aiter_raw()
                while b"t1 " not in await anext(pieces):
                    pass
            await until(lambda: gw.engine.last.aborted_at is not None)
            await over("client_gone", 499, "client_gone")
            record = gw.records()[-1]
            assert record.estimated
            assert 1 <= (record.completion_tokens or 0) <= gw.engine.last.sent

        assert (await sent(gw, endpoint, {}, stream))[0] == 200
        await over("ok", 200, "")
        status, text, _ = await sent(gw, endpoint, {}, stream)
        assert (status, code_of(endpoint, text)) == (429, "requests_limit_reached")
        await over("refused", 429, "requests_limit_reached")

        records = gw.records()
        assert [(record.outcome, record.status, record.code) for record in records] == ended
        assert {(record.endpoint, record.stream) for record in records[:-1]} == {(endpoint.name, stream)}
        assert len({record.record_id for record in records}) == len(ended)
        assert len(gw.engine.requests) == len(ended) - 1 + translated  # it was asked once what it does not have
