"""Chat, completions and embeddings through the whole gateway: what passes, what changes, what is recorded."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import httpx
import pytest

from tests.routing.gateway.rig import ENGINE_KEY, KEY, SECOND, TINY, VECTORS, Rig, ask, rig, until


async def test_a_chat_is_answered_by_the_engine_byte_for_byte_and_recorded(tmp_path: Path) -> None:
    async with rig(tmp_path) as gw:
        answer = await gw.chat("hello", temperature=0.5, unknown_field={"kept": [1, 2.0]})
        assert answer.status_code == 200
        assert answer.json()["choices"][0]["message"]["content"] == "t0 t1 t2 "
        record = await gw.record()
        assert (record.outcome, record.status, record.code, record.endpoint) == ("ok", 200, "", "chat.completions")
        assert (record.prompt_tokens, record.completion_tokens, record.estimated) == (7, 3, False)
        assert (record.key_id, record.project_id, record.replica_id) == ("key_all", "proj_1", "rep_1")
        assert (record.model_asked, record.model_served) == (TINY, TINY)
        assert record.total_s is not None
        assert record.queue_s is not None
        assert record.request_id == answer.headers["x-request-id"]
        assert [r.record_id for r in gw.records("open")] == [record.record_id]
        await gw.idle()


async def test_the_original_bytes_reach_the_engine(tmp_path: Path) -> None:
    body = b'{ "model" : "tiny", "temperature":1.0, "big":123456789012345678901234567890,\n "messages":[{"role":"user","content":"\\u00e9\xc3\xa9"}] }'
    async with rig(tmp_path) as gw:
        answer = await gw.client.post("/v1/chat/completions", content=body)
        assert answer.status_code == 200
        assert gw.engine.last.body == body


async def test_only_the_name_changes_for_an_engine_that_wants_another(tmp_path: Path) -> None:
    body = b'{"stream":false,"model" : "org/second:v1","x":1.0,"messages":[{"role":"user","content":"\\"model\\":1"}]}'
    async with rig(tmp_path) as gw:
        answer = await gw.client.post("/v1/chat/completions", content=body)
        assert answer.status_code == 200
        assert gw.engine.last.body == body.replace(b'"org/second:v1"', b'"second-inside"')
        record = await gw.record()
        assert (record.model_asked, record.replica_id) == (SECOND, "rep_2")


async def test_a_stream_passes_piece_by_piece(tmp_path: Path) -> None:
    async with (
        rig(tmp_path) as gw,
        gw.client.stream("POST", "/v1/chat/completions", json=ask({"tokens": 6, "gap": 0.05}, stream=True)) as answer,
    ):
        assert answer.headers["content-type"] == "text/event-stream"
        assert answer.headers["x-accel-buffering"] == "no"
        pieces = [piece async for piece in answer.aiter_raw()]
        assert len(pieces) >= 4
        assert all(piece.endswith(b"\n\n") for piece in pieces)
        assert pieces[-1].endswith(b"data: [DONE]\n\n")


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
@pytest.mark.parametrize("stream", [False, True])
async def test_usage_is_recorded_streamed_or_not(tmp_path: Path, path: str, stream: bool) -> None:
    body = {**ask({"cached": 3}), "prompt": json.dumps({"cached": 3}), "stream": stream}
    async with rig(tmp_path) as gw:
        assert (await gw.client.post(path, json=body)).status_code == 200
        record = await gw.record()
        assert (record.stream, record.prompt_tokens, record.completion_tokens) == (stream, 7, 3)
        assert record.cached_tokens == 3
        assert (record.first_token_s is not None) == stream


async def test_embeddings_have_prompt_tokens_only(tmp_path: Path) -> None:
    async with rig(tmp_path) as gw:
        answer = await gw.client.post("/v1/embeddings", json={"model": VECTORS, "input": "text"})
        assert answer.json()["data"][0]["embedding"] == [0.5, -0.25]
        record = await gw.record()
        assert (record.endpoint, record.prompt_tokens, record.completion_tokens) == ("embeddings", 7, None)


@pytest.mark.parametrize(
    ("path", "model", "word"),
    [("/v1/embeddings", TINY, "/v1/chat/completions"), ("/v1/chat/completions", VECTORS, "/v1/embeddings")],
)
async def test_a_model_of_the_other_kind_is_refused_with_the_right_path(
    tmp_path: Path, path: str, model: str, word: str
) -> None:
    async with rig(tmp_path) as gw:
        answer = await gw.client.post(path, json={**ask(model=model), "input": "x"})
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "wrong_endpoint")
        assert word in answer.json()["error"]["message"]
        assert not gw.engine.requests


async def test_nothing_of_the_client_but_its_question_reaches_the_engine(tmp_path: Path) -> None:
    sent = {
        "cookie": "session=1",
        "x-api-key": "other",
        "x-llmgw-node": "node_1",
        "x-forwarded-for": "1.2.3.4",
        "accept-encoding": "br, zstd",
        "origin": "https://example.org",
        "connection": "keep-alive, x-hop",
        "x-hop": "1",
        "x-kept": "yes",
        "x-request-id": "mine-1",
    }
    async with rig(tmp_path) as gw:
        answer = await gw.client.post("/v1/chat/completions", json=ask(), headers=sent)
        got = gw.engine.last.headers
        assert got["authorization"] == f"Bearer {ENGINE_KEY}"
        assert (got["accept-encoding"], got["x-request-id"], got["x-kept"]) == ("identity", "mine-1", "yes")
        assert got["content-type"] == "application/json"
        gone = {"cookie", "x-api-key", "x-llmgw-node", "x-forwarded-for", "origin", "x-hop", "transfer-encoding"}
        assert not gone & set(got)
        assert KEY.text not in str(gw.engine.last)
        names = [name for name, _ in gw.engine.last.raw_headers]
        assert len(names) == len(set(names))
        assert answer.headers["x-request-id"] == "mine-1"


@pytest.mark.parametrize("wish", ["", "a b", "x" * 129, "kept:1.2-3_4", "ü"])
async def test_a_request_id_is_taken_when_plain_else_made(tmp_path: Path, wish: str) -> None:
    async with rig(tmp_path) as gw:
        answer = await gw.client.post("/v1/chat/completions", json=ask(), headers=[(b"x-request-id", wish.encode())])
        given = answer.headers["x-request-id"]
        assert given == wish if wish.startswith("kept") else given.startswith("req_")


async def test_an_engine_that_refuses_is_answered_in_openais_shape(tmp_path: Path) -> None:
    error = {"error": {"code": 400, "message": "too long", "type": "exceed_context_size_error", "n_ctx": 8}}
    async with rig(tmp_path) as gw:
        for stream in (False, True):
            answer = await gw.chat({"status": 400, "body": json.dumps(error)}, stream=stream)
            assert answer.status_code == 400
            assert answer.headers["content-type"] == "application/json"
            wanted = {"message": "too long", "type": "exceed_context_size_error", "param": None}
            assert answer.json() == {"error": {**wanted, "code": "context_length_exceeded"}}
        record = await gw.record(2)
        assert (record.outcome, record.status, record.code) == ("failed", 400, "context_length_exceeded")


@pytest.mark.parametrize(
    ("status", "code"),
    [(401, "engine_refused_key"), (403, "engine_refused_key"), (302, "engine_broken"), (999, "engine_broken")],
)
async def test_an_engines_quarrel_with_the_gateway_is_no_fault_of_the_client(
    tmp_path: Path, status: int, code: str
) -> None:
    async with rig(tmp_path) as gw:
        answer = await gw.chat({"status": status, "body": "{}"})
        assert (answer.status_code, answer.json()["error"]["code"]) == (502, code)
        assert (await gw.record()).code == code


async def test_a_refusal_after_the_key_is_one_close_line(tmp_path: Path) -> None:
    async with rig(tmp_path) as gw:
        assert (await gw.chat(model="nothing")).status_code == 404
        record = await gw.record()
        assert (record.outcome, record.status, record.code) == ("refused", 404, "model_not_found")
        assert not gw.records("open")
        async with httpx.AsyncClient(timeout=60) as nobody:
            assert (await nobody.post(gw.url + "/v1/chat/completions", json=ask())).status_code == 401
        await gw.idle()
        assert len(gw.records()) == 1


async def test_whatever_the_engine_answers_passes_byte_for_byte(tmp_path: Path) -> None:
    odd = (
        '{ "choices":[{"message":{"content":null,"reasoning_content":"hm","tool_calls":[{"id":"1","function":'
        '{"name":"f","arguments":"{\\"a\\": 1.0}"}}]},"logprobs":{"content":[{"token":"\\u00e9","logprob":-0.10}]}}],\n'
        ' "usage":{"prompt_tokens":3,"completion_tokens":2},"big":12345678901234567890123, "é":1e-7 }'
    )
    async with rig(tmp_path) as gw:
        answer = await gw.chat({"body": odd})
        assert answer.content == odd.encode()
        assert (await gw.record()).completion_tokens == 2
        body = ask({"tokens": 5, "timings": True, "ping": True}, stream=True, stream_options={"include_usage": True})
        through = await gw.client.post("/v1/chat/completions", json=body)
        async with httpx.AsyncClient(timeout=60) as client:
            straight = await client.post(f"http://127.0.0.1:{gw.engine.port}/v1/chat/completions", json=body)
        assert through.content == straight.content


async def test_a_gateway_that_stops_ends_its_streams_visibly_and_records_them(tmp_path: Path) -> None:
    got: list[bytes] = []

    async def read(gw: Rig) -> None:
        body = ask({"tokens": 99, "gap": 0.05}, stream=True)
        async with gw.client.stream("POST", "/v1/chat/completions", json=body) as answer:
            async for piece in answer.aiter_raw():
                got.append(piece)

    async with rig(tmp_path) as gw:
        reading = asyncio.ensure_future(read(gw))
        await until(lambda: got)
        await gw.gateway.stop()
        with pytest.raises(httpx.RemoteProtocolError):
            await reading
        assert b"gateway_stopping" in got[-1]
        assert b"[DONE]" not in b"".join(got)
        record = gw.records()[-1]
        assert (record.outcome, record.code, record.estimated) == ("failed", "gateway_stopping", True)


async def test_a_request_is_one_log_line_in_the_format_of_all_logs(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    async with rig(tmp_path) as gw:
        await gw.chat(stream=True)
        await gw.chat(model="absent")
        await gw.idle()
    lines = [json.loads(line) for line in capfd.readouterr().err.splitlines() if '"event":"request"' in line]
    assert len(lines) == 2
    one, two = lines
    head = {"level": "info", "process": "gateway", "logger": "access", "event": "request"}
    assert {name: one[name] for name in head} == head
    wanted = {"key": KEY.prefix, "model": TINY, "replica": "rep_1", "status": 200, "outcome": "ok", "stream": True}
    assert {name: one[name] for name in wanted} == wanted
    assert (one["tokens_in"], one["tokens_out"], one["endpoint"]) == (7, 3, "chat.completions")
    assert {"ts", "request_id", "queue_s", "first_token_s", "total_s"} <= set(one)
    assert (two["status"], two["code"], two["outcome"]) == (404, "model_not_found", "refused")
    assert "replica" not in two
