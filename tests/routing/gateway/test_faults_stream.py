"""Faults of streams and of engines, named after the list of faults that real gateways had."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from tests.routing.gateway.hops import closed_port
from tests.routing.gateway.rig import KEY, SECOND, TINY, Rig, ask, local_engine, rig, until

CHAT = "/v1/chat/completions"
COMMENT = b": keep-alive\n\n"


async def stream(gw: Rig, script: Any, *, comments: int = 0, **fields: Any) -> tuple[int, bytes, bool]:
    """Status, bytes, and whether the body came to a clean end. What is held goes on after so many comments."""
    body = ask(script, stream=True, **fields)
    parts: list[bytes] = []
    async with gw.client.stream("POST", CHAT, json=body) as answer:
        try:
            async for piece in answer.aiter_raw():
                parts.append(piece)
                if comments and b"".join(parts).count(COMMENT) >= comments:
                    gw.engine.release.set()
        except httpx.RemoteProtocolError:
            return answer.status_code, b"".join(parts), False
    return answer.status_code, b"".join(parts), True


def datas(body: bytes) -> list[Any]:
    """The data of each event, parsed; `[DONE]` as text."""
    found = [event[6:] for event in body.decode().split("\n\n") if event.startswith("data: ")]
    return [item if item == "[DONE]" else json.loads(item) for item in found]


async def test_f01_a_silent_engine_gets_its_time_and_a_streaming_client_sees_comments(tmp_path: Path) -> None:
    async with rig(tmp_path, keepalive_comment=0.1) as gw:
        loop = asyncio.get_running_loop()
        for script in ({"held": True}, {"head_held": True}):
            gw.engine.release.clear()
            began = loop.time()
            status, body, clean = await stream(gw, script, comments=3)
            assert (status, clean) == (200, True)
            assert body.startswith(COMMENT)
            assert 3 <= body.count(COMMENT) <= (loop.time() - began) / 0.1
            assert datas(body)[-1] == "[DONE]"
        whole = await gw.chat({"silent": 0.5})
        assert whole.status_code == 200
        assert b"keep-alive" not in whole.content
        assert [record.outcome for record in gw.records()] == ["ok"] * 3


async def test_f01_comments_stand_between_events_never_within(tmp_path: Path) -> None:
    script = {"tokens": 4, "gap": 0.25, "chop": 40}
    async with rig(tmp_path, keepalive_comment=0.05) as gw:
        for options in ({}, {"stream_options": {"include_usage": True}}):
            _, body, clean = await stream(gw, script, **options)
            assert clean
            for event in body.split(b"\n\n")[:-1]:
                assert event == b": keep-alive" or event.startswith(b"data: ")
            assert datas(body)[-1] == "[DONE]"


async def test_f01_an_engine_that_refuses_after_comments_ends_as_an_error_event(tmp_path: Path) -> None:
    async with rig(tmp_path, keepalive_comment=0.1) as gw:
        script = {"held": True, "status": 400, "body": json.dumps({"error": {"message": "no", "code": 400}})}
        status, body, clean = await stream(gw, script, comments=1)
        assert (status, clean) == (200, False)
        assert datas(body) == [
            {"error": {"message": "no", "type": "invalid_request_error", "code": "engine_error", "param": None}}
        ]
        record = await gw.record()
        assert (record.outcome, record.code) == ("failed", "engine_error")


async def test_f02_the_operators_timeouts_rule(tmp_path: Path) -> None:
    from cluster.wire import to_dict
    from llmgw_site.lib.files import write_json
    from routing.domain.snapshot import ModelEntry
    from tests.routing.gateway.rig import snapshot

    async with rig(tmp_path, first_byte_timeout=0.3, idle_timeout=0.3) as gw:
        slow = {"silent": 0.6, "tokens": 2, "gap": 0.6}
        assert (await gw.chat({"silent": 0.6})).status_code == 504
        patient = ModelEntry(name=TINY, created=1, replicas=("rep_1",), first_byte_timeout=60.0, idle_timeout=60.0)
        write_json(gw.config.snapshot_file, to_dict(snapshot("e1:2", models=(patient,))))
        gw.gateway.table.look()
        status, body, clean = await stream(gw, slow)
        assert (status, clean, datas(body)[-1]) == (200, True, "[DONE]")


async def test_f14_a_stream_without_stream_options_is_counted_and_shows_no_extra_chunk(tmp_path: Path) -> None:
    async with rig(tmp_path) as gw:
        for options in (None, {"include_usage": False}, {"other": 1}, {}):
            fields = {} if options is None else {"stream_options": options}
            _, body, clean = await stream(gw, {"tokens": 5, "cached": 2}, **fields)
            assert clean
            assert b'"usage"' not in body
            assert [len(item["choices"]) for item in datas(body)[:-1]] == [1] * 6
            assert gw.engine.last.json["stream_options"] == {**(options or {}), "include_usage": True}
        for record in gw.records():
            assert (record.prompt_tokens, record.completion_tokens, record.cached_tokens) == (7, 5, 2)
            assert not record.estimated
            assert record.first_token_s is not None


async def test_f14_a_client_that_asked_for_usage_gets_every_byte(tmp_path: Path) -> None:
    async with rig(tmp_path) as gw:
        sent = ask({"tokens": 2}, stream=True, stream_options={"include_usage": True})
        answer = await gw.client.post(CHAT, json=sent)
        assert datas(answer.content)[-2]["usage"]["completion_tokens"] == 2
        assert gw.engine.last.json == sent


@pytest.mark.parametrize(
    "script",
    [
        {"usage_in_last": True},
        {"usage": False, "timings": True},
        {"null_usage": True},
        {"line_end": "\r\n"},
        {"line_end": "\r"},
        {"chop": 7},
        {"ping": True},
    ],
)
async def test_f14_usage_is_found_however_the_engine_tells_it(tmp_path: Path, script: dict[str, Any]) -> None:
    async with rig(tmp_path) as gw:
        _, body, clean = await stream(gw, {**script, "tokens": 4})
        assert clean
        assert b"[DONE]" in body
        assert b'"choices": []' not in body
        record = await gw.record()
        assert (record.prompt_tokens, record.completion_tokens, record.estimated) == (7, 4, False)


async def test_f14_an_engine_that_cannot_count_leaves_an_estimate(tmp_path: Path) -> None:
    async with rig(tmp_path) as gw:
        await stream(gw, {"usage": False, "tokens": 4})
        record = await gw.record()
        assert record.estimated
        assert record.prompt_tokens == 4  # its words: {"usage": false, "tokens": 4}
        assert 4 <= (record.completion_tokens or 0) <= 5


@pytest.mark.parametrize("after", [0, 1, 3])
async def test_f16_an_engine_that_dies_in_mid_stream_ends_the_stream_visibly(tmp_path: Path, after: int) -> None:
    async with rig(tmp_path) as gw:
        status, body, clean = await stream(gw, {"tokens": 5, "die_after": after, "gap": 0.02})
        assert not clean or status == 502
        *tokens, error = datas(body) if status == 200 else [json.loads(body)]
        assert error["error"]["code"] == "engine_broken"
        assert "[DONE]" not in body.decode()
        assert len(tokens) == after
        record = await gw.record()
        assert (record.outcome, record.code) == ("failed", "engine_broken")
        assert record.estimated == (after > 0)
        assert record.completion_tokens == (after or None)
        assert len(gw.engine.requests) == 1
        assert gw.gateway.flights.suspects == {"rep_1"}
        await gw.idle()


@pytest.mark.parametrize("asked", [False, True])
async def test_f16_an_engine_that_dies_within_an_event_leaves_the_error_event_whole(
    tmp_path: Path, asked: bool
) -> None:
    async with rig(tmp_path) as gw:
        script = {"tokens": 5, "die_within": 2, "gap": 0.02}
        _, body, clean = await stream(gw, script, stream_options={"include_usage": asked})
        assert not clean
        events = [event for event in body.split(b"\n\n") if event]
        assert len(events) == 2 + 1  # nothing of the half one
        assert json.loads(events[-1][6:])["error"]["code"] == "engine_broken"


async def test_f16_the_openai_package_raises(tmp_path: Path) -> None:
    async with rig(tmp_path) as gw:
        client = openai.AsyncOpenAI(base_url=gw.url + "/v1", api_key=KEY.text)
        script = json.dumps({"tokens": 5, "die_after": 2, "gap": 0.02})
        chunks = await client.chat.completions.create(
            model=TINY, messages=[{"role": "user", "content": script}], stream=True
        )
        seen: list[Any] = []

        async def read() -> None:
            async for chunk in chunks:
                seen.append(chunk)

        with pytest.raises(openai.APIError):
            await read()
        assert len(seen) == 2


async def test_f16_an_end_without_done_is_no_clean_end(tmp_path: Path) -> None:
    async with rig(tmp_path) as gw:
        _, body, clean = await stream(gw, {"tokens": 5, "cut_after": 2})
        assert not clean
        assert datas(body)[-1]["error"]["code"] == "engine_broken"
        assert (await gw.record()).outcome == "failed"


async def test_f16_an_error_event_of_the_engine_passes_and_is_recorded_as_failed(tmp_path: Path) -> None:
    async with rig(tmp_path) as gw:
        _, body, clean = await stream(gw, {"tokens": 5, "error_after": 2})
        assert clean
        assert datas(body)[-1]["error"]["message"] == "boom"
        record = await gw.record()
        assert (record.outcome, record.code, record.completion_tokens) == ("failed", "engine_error", 2)


async def test_f16_a_whole_answer_that_is_cut_is_a_502_as_long_as_nothing_of_it_was_sent(tmp_path: Path) -> None:
    async with rig(tmp_path) as gw:
        answer = await gw.chat({"die_after": 1, "head_silent": 0.05})
        assert (answer.status_code, answer.json()["error"]["code"]) == (502, "engine_broken")
        record = await gw.record()
        assert (record.outcome, record.code) == ("failed", "engine_broken")


@pytest.mark.parametrize("streamed", [False, True])
async def test_f17_a_reset_before_the_head_is_not_sent_again(tmp_path: Path, streamed: bool) -> None:
    async with rig(tmp_path) as gw:
        gw.publish(tuple(local_engine(f"rep_{n}", TINY, gw.engine.port) for n in ("1", "1b", "1c")))
        gw.gateway.table.look()
        answer = await gw.chat({"reset": True}, stream=streamed)
        assert answer.status_code == 502
        error = answer.json()["error"]
        assert error["code"] == "engine_broken"
        assert "not sent again" in error["message"]
        assert len(gw.engine.requests) == 1
        assert (await gw.record()).outcome == "failed"


@pytest.mark.parametrize("accepts", ["br, zstd", "gzip"])
async def test_f21_a_packed_answer_is_readable_by_everybody_and_counted(tmp_path: Path, accepts: str) -> None:
    """An engine may pack what it was asked for plain: nobody would know its tokens, and not every client could read it."""
    async with rig(tmp_path) as gw:
        headers = {"accept-encoding": accepts}
        async with gw.client.stream("POST", CHAT, json=ask({"gzip": True, "tokens": 4}), headers=headers) as answer:
            raw = b"".join([piece async for piece in answer.aiter_raw()])
        assert "content-encoding" not in answer.headers
        assert int(answer.headers.get("content-length", len(raw))) == len(raw)
        assert json.loads(raw)["choices"]
        record = await gw.record()
        assert (record.prompt_tokens, record.completion_tokens, record.estimated) == (7, 4, False)
        refused = await gw.chat({"gzip": True, "status": 500, "body": json.dumps({"error": {"message": "boom"}})})
        assert (refused.status_code, refused.json()["error"]["message"]) == (500, "boom")
        await gw.idle()


async def test_f22_the_engine_is_never_asked_for_a_coding(tmp_path: Path) -> None:
    async with rig(tmp_path) as gw:
        answer = await gw.client.post(CHAT, json=ask(), headers={"accept-encoding": "br, zstd"})
        assert gw.engine.last.headers["accept-encoding"] == "identity"
        assert "content-encoding" not in answer.headers
        assert answer.json()["choices"]


async def test_f48_an_engine_that_never_answers_harms_no_other(tmp_path: Path) -> None:
    async with rig(tmp_path) as gw:
        other = local_engine("rep_2", SECOND, gw.engine.port, served_name="second-inside")
        gw.publish((local_engine("rep_1", TINY, gw.engine.port, slots=20), other))
        stuck = [asyncio.ensure_future(gw.chat({"never": True})) for _ in range(20)]
        await until(lambda: len(gw.engine.requests) == 20)
        for _ in range(10):
            assert (await gw.chat(model=SECOND)).status_code == 200
        assert not any(task.done() for task in stuck)
        for task in stuck:
            task.cancel()
        await gw.idle()


async def test_f54_each_header_of_the_engine_is_right_at_the_client_and_none_is_doubled(tmp_path: Path) -> None:
    extra = [
        ["Server", "llama.cpp"],
        ["Date", "Thu, 01 Jan 1970 00:00:00 GMT"],
        ["Connection", "x-hop"],
        ["X-Hop", "1"],
        ["Keep-Alive", "timeout=5"],
        ["Access-Control-Allow-Origin", "*"],
        ["Access-Control-Allow-Credentials", "true"],
        ["Set-Cookie", "a=b"],
        ["X-Request-Id", "theirs"],
        ["X-LLMGW-Node", "node_1"],
        ["OpenAI-Processing-Ms", "12"],
    ]
    async with rig(tmp_path) as gw:
        for streamed in (False, True):
            answer = await gw.chat({"headers": extra}, stream=streamed)
            names = [name.lower() for name, _ in answer.headers.raw]
            assert len(names) == len(set(names))
            gone = {b"server", b"x-hop", b"keep-alive", b"access-control-allow-origin", b"set-cookie", b"x-llmgw-node"}
            assert not gone & set(names)
            assert not answer.headers["date"].startswith("Thu, 01 Jan 1970")
            assert answer.headers["openai-processing-ms"] == "12"
            assert answer.headers["x-request-id"].startswith("req_")
            kind = "text/event-stream" if streamed else "application/json"
            assert answer.headers["content-type"] == kind
            assert ("content-length" in answer.headers) != streamed
            assert ("transfer-encoding" in answer.headers) == streamed


async def test_f64_a_slow_engine_is_504_and_an_unreachable_one_502(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from routing.gateway import dispatch

    monkeypatch.setattr(dispatch, "GRACE", 0.2)
    async with rig(tmp_path, first_byte_timeout=0.3) as gw:
        gw.publish((local_engine("rep_1", TINY, gw.engine.port), local_engine("rep_2", SECOND, closed_port())))
        gw.gateway.table.look()
        slow = await gw.chat({"never": True})
        assert (slow.status_code, slow.json()["error"]["code"]) == (504, "engine_timeout")
        away = await gw.chat(model=SECOND)
        assert (away.status_code, away.json()["error"]["code"]) == (502, "engine_unreachable")
        assert away.headers["retry-after"]
        codes = [(record.status, record.code, record.outcome) for record in gw.records()]
        assert codes == [(504, "engine_timeout", "failed"), (502, "engine_unreachable", "failed")]
        assert "127.0.0.1" not in slow.text + away.text
        await gw.idle()


async def test_f64_an_engine_that_falls_silent_in_mid_stream_times_out_there(tmp_path: Path) -> None:
    async with rig(tmp_path, idle_timeout=0.2) as gw:
        _, body, clean = await stream(gw, {"tokens": 3, "gap": 2.0})
        assert not clean
        assert datas(body)[-1]["error"]["code"] == "engine_timeout"
        await until(lambda: gw.engine.last.aborted_at is not None)
