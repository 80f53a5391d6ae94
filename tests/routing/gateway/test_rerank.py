"""Ranking, and cutting texts into tokens: by the real engine, under the model's name, metered."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import tiny
from tests.routing.gateway.real import real_rig
from tests.routing.gateway.rig import TINY, VECTORS, ask, local_engine, rig
from tests.routing.gateway.scripted import until

TEXTS = {"query": "one two", "documents": ["a b c", "b"]}


async def test_f15_a_ranking_is_answered_by_the_engine_and_counted_as_the_engine_counts_it(tmp_path: Path) -> None:
    async with real_rig(tmp_path, tiny.tiny_gguf(pooling="rank"), VECTORS, pooling="rank") as gw:
        answer = await gw.client.post("/v1/rerank", json={"model": VECTORS, **TEXTS, "top_n": 1})
        assert answer.status_code == 200, answer.text
        ranked = answer.json()
        assert [set(item) for item in ranked["results"]] == [{"index", "relevance_score"}]
        record = await gw.record()
        assert (record.endpoint, record.outcome, record.completion_tokens) == ("rerank", "ok", None)
        assert record.prompt_tokens == ranked["usage"]["prompt_tokens"] > 0


async def test_f15_embeddings_are_counted_as_the_engine_counts_them_and_cuts_the_texts(tmp_path: Path) -> None:
    async with real_rig(tmp_path, tiny.tiny_gguf(pooling="mean"), VECTORS, pooling="mean") as gw:
        texts, cut = ["one two", "a b c"], 0
        for text in texts:
            asked = {"model": VECTORS, "content": text, "add_special": True}
            cut += len((await gw.client.post("/tokenize", json=asked)).json()["tokens"])
        answer = await gw.client.post("/v1/embeddings", json={"model": VECTORS, "input": texts})
        assert answer.status_code == 200, answer.text
        record = await gw.record(len(texts) + 1)
        assert (record.endpoint, record.completion_tokens, record.estimated) == ("embeddings", None, False)
        assert record.prompt_tokens == answer.json()["usage"]["prompt_tokens"] == cut > 0


@pytest.mark.parametrize("name", ["prompt", "content"])
async def test_a_text_is_cut_into_tokens_under_either_name_and_comes_back_whole(tmp_path: Path, name: str) -> None:
    async with real_rig(tmp_path, tiny.tiny_gguf(), TINY) as gw:
        cut = await gw.client.post("/tokenize", json={"model": TINY, name: "Hello world"})
        assert cut.status_code == 200
        tokens = cut.json()["tokens"]
        assert len(tokens) > 2
        whole = await gw.client.post("/detokenize", json={"model": TINY, "tokens": tokens})
        assert whole.json()["content"] == "Hello world"
        record = await gw.record(2)
        assert (record.endpoint, record.outcome, record.prompt_tokens) == ("detokenize", "ok", None)


async def test_a_text_to_cut_goes_to_the_engine_under_both_names_and_nothing_else_changes(tmp_path: Path) -> None:
    async with rig(tmp_path) as gw:
        body = b'{"model" : "tiny", "x":1.0,"prompt":"\\u00e9 \xc3\xa9"}'
        assert (await gw.client.post("/tokenize", content=body)).status_code == 200
        assert gw.engine.last.path == "/tokenize"
        assert gw.engine.last.body == b'{"content":"\\u00e9 \xc3\xa9",' + body[1:]


async def test_llama_cpp_is_not_asked_to_cut_messages_and_is_not_suspected_for_it(tmp_path: Path) -> None:
    async with rig(tmp_path) as gw:
        refused = await gw.client.post("/tokenize", json=ask())
        assert (refused.status_code, refused.json()["error"]["code"]) == (400, "not_supported")
        assert not gw.engine.requests
        assert (await gw.record()).outcome == "refused"
        gw.publish((local_engine("rep_1", TINY, gw.engine.port, engine="vllm"),))
        await until(lambda: gw.gateway.table.view.routes[TINY].seats[0].engine == "vllm")
        assert (await gw.client.post("/tokenize", json=ask())).status_code == 200


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/v1/rerank", {"model": VECTORS, "documents": ["a"]}, "query"),
        ("/v1/rerank", {"model": VECTORS, "query": 1, "documents": ["a"]}, "query"),
        ("/v1/rerank", {"model": VECTORS, "query": "x", "documents": []}, "documents"),
        ("/v1/rerank", {"model": VECTORS, **TEXTS, "stream": True}, "stream"),
        ("/v1/rerank", {"model": TINY, **TEXTS}, "model"),
        ("/tokenize", {"model": TINY}, "prompt"),
        ("/tokenize", {"model": TINY, "content": 1}, "content"),
        ("/detokenize", {"model": TINY, "tokens": ["a"]}, "tokens"),
        ("/detokenize", {"model": TINY}, "tokens"),
        ("/v1/rerank", {"model": VECTORS, "query": "x", "documents": [{"image": "http://10.0.0.1/x"}]}, "documents[0].image"),
    ],
)  # fmt: skip
async def test_what_no_engine_could_answer_is_refused(tmp_path: Path, path: str, body: object, param: str) -> None:
    async with rig(tmp_path) as gw:
        refused = await gw.client.post(path, json=body)
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, param)
        assert not gw.engine.requests


@pytest.mark.parametrize("path", ["/rerank", "/v1/tokenize", "/v1/score", "/slots", "/props", "/v1/lora-adapters"])
async def test_no_other_path_of_an_engine_is_reached(tmp_path: Path, path: str) -> None:
    async with rig(tmp_path) as gw:
        answer = await gw.client.post(path, json={"model": TINY, **TEXTS})
        assert answer.status_code in (404, 503)  # 503: the console would answer, and does not run here
        assert not gw.engine.requests
