"""What a request costs, as its record and its client are told."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest

from cluster.wire import to_dict
from llmgw_site.lib.config import Config
from routing.domain.snapshot import PriceEntry
from tests.routing.gateway.rig import KEY as TEXT
from tests.routing.gateway.rig import SECOND, TINY, VECTORS, key_entry, local_engine, rig, snapshot
from tests.routing.gateway.scripted import Peer, serving, until

PRICE = PriceEntry(input=2_000_000, output=8_000_000, cached=500_000, currency="EUR")


def priced(config: Config) -> None:
    models = tuple(replace(item, price=PRICE) if item.name == TINY else item for item in snapshot().models)
    told = snapshot(models=models, keys=(key_entry(TEXT, "all", user="7"),))
    config.snapshot_file.write_bytes(orjson.dumps(to_dict(told)))


async def test_an_answer_and_its_record_say_what_it_cost(tmp_path: Path) -> None:
    async with rig(tmp_path, prepare=priced) as gw:
        answer = await gw.chat({"tokens": 3, "cached": 4})
        counts = answer.json()["usage"]
        fresh = counts["prompt_tokens"] - 4
        micro = 2 * fresh + 2 + 8 * counts["completion_tokens"]
        assert answer.headers["x-llmgw-cost"] == f"0.{micro:06d} EUR"
        record = await gw.record()
        assert (record.cost, record.user) == (micro, "7")


async def test_a_stream_costs_as_much_and_one_that_broke_what_passed(tmp_path: Path) -> None:
    async with rig(tmp_path, prepare=priced) as gw:
        whole = await gw.chat({"tokens": 3}, stream=True)
        assert "x-llmgw-cost" not in whole.headers  # it is not known yet
        first = await gw.record()
        assert first.prompt_tokens is not None
        assert first.cost == 2 * first.prompt_tokens + 8 * 3
        with pytest.raises(httpx.RemoteProtocolError):
            await gw.chat({"tokens": 9, "cut_after": 2}, stream=True)
        cut = await gw.record(2)
        assert (cut.outcome, cut.completion_tokens, cut.estimated) == ("failed", 2, True)
        assert (cut.prompt_tokens, cut.cost) == (4, 2 * 4 + 8 * 2)  # of what it asked, the words


async def test_without_a_price_or_an_answer_there_is_no_cost(tmp_path: Path) -> None:
    async with rig(tmp_path, prepare=priced) as gw:
        assert "x-llmgw-cost" not in (await gw.chat(model=SECOND)).headers
        assert (await gw.record()).cost is None
        assert (await gw.chat({"status": 500})).status_code == 500
        assert (await gw.record(2)).cost is None


async def test_a_longer_answer_than_is_held_has_its_cost_in_the_record_only(tmp_path: Path) -> None:
    long = '{"choices":[{"text":"' + "x" * 70_000 + '"}],"usage":{"prompt_tokens":10,"completion_tokens":5}}'
    async with rig(tmp_path, prepare=priced) as gw:
        await gw.chat({"body": long})
        assert (await gw.record()).cost == 60


DURATION = {"text": "heard", "usage": {"type": "duration", "seconds": 12.2}}
HEARD = b'data: {"type":"transcript.text.done","text":"","usage":{"type":"duration","seconds":0}}\n\n'
TOKENS = {"input_tokens": 20, "output_tokens": 5, "total_tokens": 25}
DONE = b'data: {"type":"image_generation.completed","b64_json":"AA","usage":%b}\n\n' % orjson.dumps(TOKENS)
COUNTED: dict[str, tuple[str, Any, str, bytes, tuple[Any, ...]]] = {
    # path, fields of the request, kind and body of the answer: tokens in, out, cost; of sound its seconds behind them
    "embeddings": ("embeddings", {"input": "x"}, "application/json", orjson.dumps({"data": [], "usage": {"prompt_tokens": 7, "total_tokens": 7}}), (7, None, 14)),
    "embeddings without counts": ("embeddings", {"input": "x"}, "application/json", b'{"data":[]}', (None, None, None)),
    "a ranking with a sum only": ("rerank", {"query": "q", "documents": ["d"]}, "application/json", b'{"results":[],"usage":{"total_tokens":9}}', (9, None, 18)),
    "a chat without counts": ("chat/completions", {"messages": [{"role": "user", "content": "x"}]}, "application/json", b'{"choices":[]}', (None, None, None)),
    "pictures": ("images/generations", {"prompt": "a cat"}, "application/json", orjson.dumps({"data": [], "usage": TOKENS}), (20, 5, 80)),
    "pictures as events": ("images/generations", {"prompt": "a cat", "stream": True}, "text/event-stream", DONE, (20, 5, 80)),
    "pictures without counts": ("images/generations", {"prompt": "a cat"}, "application/json", b'{"data":[]}', (None, None, None)),
    "speech": ("audio/speech", {"input": "say", "voice": "a"}, "audio/mpeg", bytes(range(256)) * 50, (None, None, None)),
    "heard, by tokens": ("audio/transcriptions", None, "application/json", orjson.dumps({"text": "heard", "usage": {"type": "tokens", **TOKENS}}), (20, 5, 80)),
    "heard, by seconds": ("audio/transcriptions", None, "application/json", orjson.dumps(DURATION), (None, None, None, 13)),
    "heard, as events": ("audio/transcriptions", None, "text/event-stream", HEARD, (None, None, None, 0)),
    "heard, by a wrong time": ("audio/transcriptions", None, "application/json", b'{"text":"","usage":{"type":"duration","seconds":-1}}', (None, None, None)),
}  # fmt: skip


@pytest.mark.parametrize("what", COUNTED)
async def test_of_every_endpoint_what_the_engine_counts_is_counted_and_nothing_made_up(
    tmp_path: Path, what: str
) -> None:
    path, fields, kind, body, (sent, came, micro, *heard) = COUNTED[what]
    model = VECTORS if path in ("embeddings", "rerank") else TINY

    async def engine(peer: Peer) -> None:
        while await peer.request():
            head = f"HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n\r\n"
            await peer.send(head.encode() + body)

    def prepare(config: Config) -> None:
        models = tuple(replace(item, price=PRICE) for item in snapshot().models)
        config.snapshot_file.write_bytes(orjson.dumps(to_dict(snapshot(models=models))))

    async with rig(tmp_path, prepare=prepare) as gw, serving(engine) as server:
        gw.publish(
            tuple(local_engine(name, of, server.target.port) for name, of in (("rep_1", TINY), ("rep_3", VECTORS)))
        )
        await until(lambda: gw.gateway.table.view.routes[model].seats[0].port == server.target.port)
        if fields is None:
            answer = await gw.client.post(f"/v1/{path}", data={"model": model}, files={"file": ("a.wav", b"RIFF")})
        else:
            answer = await gw.client.post(f"/v1/{path}", json={"model": model, **fields})
        assert (answer.status_code, answer.content) == (200, body)
        record = await gw.record()
        assert (record.prompt_tokens, record.completion_tokens, record.cost) == (sent, came, micro)
        assert (record.outcome, record.estimated, record.audio_seconds) == ("ok", False, heard[0] if heard else None)
        told = answer.headers.get("x-llmgw-cost")
        assert told == (None if micro is None else f"0.{micro:06d} EUR")
