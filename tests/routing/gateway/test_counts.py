"""What is recorded of a vLLM is what it counted. Of llama.cpp see test_adapters.py and test_rerank.py."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx
import orjson

from cluster.wire import LocalAdapter, to_dict
from routing.domain.snapshot import AdapterEntry, ModelEntry
from tests.routing.gateway.process import answers
from tests.routing.gateway.rig import ENGINE_KEY, KEY, TINY, VECTORS, key_entry, local_engine, rig, snapshot
from tests.routing.gateway.scripted import until
from tests.routing.gateway.vllm import vllm_engine

AHOY = AdapterEntry(name="ahoy", created=7, weights="/srv/ahoy")


async def counted(port: int) -> tuple[int, int]:
    """Tokens that it read and made, by its own metrics."""
    async with httpx.AsyncClient(headers={"authorization": f"Bearer {ENGINE_KEY}"}, timeout=60) as client:
        text = (await client.get(f"http://127.0.0.1:{port}/metrics")).text
    read, made = (
        next(float(line.rpartition(" ")[2]) for line in text.splitlines() if line.startswith(f"vllm:{name}_tokens_total"))
        for name in ("prompt", "generation")
    )  # fmt: skip
    return int(read), int(made)


async def test_f15_one_call_each_of_a_vllm_is_recorded_as_it_counted_them(tmp_path: Path) -> None:
    async with vllm_engine(tmp_path, "ahoy") as port, rig(tmp_path) as gw:
        models = (
            ModelEntry(name=TINY, created=1, replicas=("rep_1",), adapters=(AHOY,)),
            ModelEntry(name=VECTORS, created=2, replicas=("rep_3",), embeddings=True),
        )
        told = snapshot("e1:2", models=models, keys=(key_entry(KEY, "all"),))
        gw.config.snapshot_file.write_bytes(orjson.dumps(to_dict(told)))
        held = (LocalAdapter(name="ahoy", weights=AHOY.weights),)
        gw.publish(
            (
                local_engine("rep_1", TINY, port, engine="vllm", served_name="m", adapters=held),
                local_engine("rep_3", VECTORS, port, engine="vllm", served_name="m"),
            )
        )
        await until(lambda: gw.gateway.table.view.version == "e1:2" and gw.gateway.table.view.routes["ahoy"].seats)
        async with asyncio.timeout(60):
            while await answers(port, b"/health") != 200:
                await asyncio.sleep(0.02)
        calls = (
            *(("/v1/chat/completions", {"model": name, "messages": [{"role": "user", "content": "a b c"}], **stream})
              for name in (TINY, "ahoy") for stream in ({}, {"stream": True})),
            *(("/v1/completions", {"model": TINY, "prompt": "a b", **stream}) for stream in ({}, {"stream": True})),
            ("/v1/embeddings", {"model": VECTORS, "input": "a b c d"}),
            ("/v1/rerank", {"model": VECTORS, "query": "a", "documents": ["a", "b c"]}),
        )  # fmt: skip
        for ended, (path, body) in enumerate(calls, start=1):
            before = await counted(port)
            answer = await gw.client.post(path, json=body)
            assert answer.status_code == 200, answer.text
            record = await gw.record(ended)
            after = await counted(port)
            assert (record.prompt_tokens, record.completion_tokens or 0) == (
                after[0] - before[0],
                after[1] - before[1],
            ), path
            assert record.prompt_tokens, path
            assert not record.estimated
        records = gw.records()
        assert {(item.model_asked, item.model_served) for item in records} == {
            (TINY, TINY), ("ahoy", TINY), (VECTORS, VECTORS)
        }  # fmt: skip
        sums = (
            sum(item.prompt_tokens or 0 for item in records),
            sum(item.completion_tokens or 0 for item in records),
        )
        assert sums == await counted(port)
