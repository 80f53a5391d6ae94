"""Every refusal of the OpenAI endpoints: status, code, shape (F47), and what it does not tell."""

from __future__ import annotations

import asyncio
import json
import logging
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from cluster.wire import StartingReplica
from routing.domain.endpoints import meant
from routing.gateway import dispatch
from tests.routing.gateway.hops import closed_port
from tests.routing.gateway.rig import (
    COLD,
    EXPIRED,
    KEY,
    NARROW,
    OFF,
    SECOND,
    TINY,
    UNKNOWN,
    VECTORS,
    Rig,
    ask,
    local_engine,
    rig,
    until,
)

CHAT = "/v1/chat/completions"
OBJECT = b'{"model":"tiny","messages":[{"role":"user","content":"x"}]'

BODIES: list[tuple[bytes, str, str | None]] = [
    (b"", "invalid_json", None),
    (b"hello", "invalid_json", None),
    (b'{"model":"tiny"', "invalid_json", None),
    (b'{"model":"ti\xffny"}', "invalid_json", None),
    (b'{"model":"\\ud800"}', "invalid_json", None),
    (b'{"model":NaN}', "invalid_json", None),
    (b"[1]", "not_an_object", None),
    (b'"tiny"', "not_an_object", None),
    (b"null", "not_an_object", None),
    (b"[" * 5000, "json_too_deep", None),
    (b'{"model":"tiny","x":' + b"[" * 70 + b"]" * 70 + b"}", "json_too_deep", None),
    (b"[" + b'"",' * 600_000 + b'""]', "json_too_complex", None),
    (OBJECT + b',"model":"org/second:v1"}', "duplicate_field", None),
    (OBJECT + b',"mod\\u0065l":"org/second:v1"}', "duplicate_field", None),
    (OBJECT + b',"x":{"a":1,"a":2}}', "duplicate_field", None),
    (b'{"messages":[]}', "missing_field", "model"),
    (b'{"model":7,"messages":[{"role":"user"}]}', "invalid_type", "model"),
    (b'{"model":"","messages":[{"role":"user"}]}', "invalid_value", "model"),
    (b'{"model":"tiny"}', "missing_field", "messages"),
    (b'{"model":"tiny","messages":"x"}', "invalid_type", "messages"),
    (b'{"model":"tiny","messages":[]}', "invalid_value", "messages"),
    (b'{"model":"tiny","messages":[1]}', "invalid_type", "messages[0]"),
    (b'{"model":"tiny","messages":[{"role":1}]}', "invalid_type", "messages[0].role"),
    (OBJECT + b',"stream":"yes"}', "invalid_type", "stream"),
    (OBJECT + b',"stream":1}', "invalid_type", "stream"),
    (OBJECT + b',"stream":true,"stream_options":[]}', "invalid_type", "stream_options"),
    (OBJECT + b',"stream_options":{"include_usage":1}}', "invalid_type", "stream_options.include_usage"),
    (OBJECT + b',"max_tokens":"7"}', "invalid_type", "max_tokens"),
    (OBJECT + b',"max_tokens":true}', "invalid_type", "max_tokens"),
    (OBJECT + b',"tools":"x"}', "invalid_type", "tools"),
    (OBJECT + b',"tools":[{},null]}', "missing_field", "tools[1]"),
    (OBJECT + b',"n":0}', "invalid_value", "n"),
    (OBJECT + b',"n":16384}', "invalid_value", "n"),
]


def check(answer: httpx.Response, status: int, code: str, param: str | None = None) -> dict[str, Any]:
    """An OpenAI error object and nothing else, with the right content type and a request id."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-request-id"]
    error: dict[str, Any] = answer.json()["error"]
    assert set(answer.json()) == {"error"}
    assert error["code"] == code
    assert error["param"] == param
    assert isinstance(error["message"], str)
    assert isinstance(error["type"], str)
    assert "Traceback" not in answer.text
    return error


async def test_f47_every_bad_body_is_a_400_that_names_the_field(tmp_path: Path) -> None:
    async with rig(tmp_path) as gw:
        for body, code, param in BODIES:
            check(await gw.client.post(CHAT, content=body), 400, code, param)
        check(await gw.client.post("/v1/completions", json={"model": TINY, "prompt": 1}), 400, "invalid_type", "prompt")
        check(await gw.client.post("/v1/embeddings", json={"model": VECTORS}), 400, "missing_field", "input")
        streamed = {"model": VECTORS, "input": "x", "stream": True}
        check(await gw.client.post("/v1/embeddings", json=streamed), 400, "invalid_value", "stream")
        for name in ("n", "n_cmpl"):  # an engine would make them, and count one
            several = {"model": TINY, "input": "x", name: 2}
            check(await gw.client.post("/v1/responses", json=several), 400, "invalid_value", "n")
        packed = await gw.client.post(CHAT, content=b"x", headers={"content-encoding": "gzip"})
        check(packed, 400, "unsupported_content_encoding")
        assert not gw.engine.requests
        await gw.record(len(BODIES) + 6)


async def test_no_engine_is_sent_an_address_that_it_would_fetch(tmp_path: Path) -> None:
    part = {"type": "image_url", "image_url": {"url": "http://169.254.169.254/latest/meta-data"}}
    messages = [{"role": "user", "content": [{"type": "text", "text": "See http://host."}, part]}]
    async with rig(tmp_path) as gw:
        answer = await gw.client.post(CHAT, json={"model": TINY, "messages": messages})
        error = check(answer, 400, "media_address_refused", "messages[0].content[1].image_url.url")
        assert "base64" in error["message"]
        assert not gw.engine.requests


async def test_f47_every_wrong_key_is_the_same_401(tmp_path: Path) -> None:
    wrong = {"Bearer " + UNKNOWN.text, "Bearer " + EXPIRED.text, "Bearer " + KEY.text[:-1], "Bearer " + "x" * 600}
    none = {"", "Basic abc", KEY.text, "Bearer"}
    async with rig(tmp_path) as gw, httpx.AsyncClient(base_url=gw.url) as client:
        for method, path in (("POST", CHAT), ("GET", "/v1/models"), ("GET", "/v1/models/tiny")):
            texts = set()
            for value in wrong:
                answer = await client.request(method, path, json=ask(), headers={"authorization": value})
                texts.add(check(answer, 401, "invalid_api_key")["message"])
                assert answer.headers["www-authenticate"].startswith("Bearer")
            assert len(texts) == 1
            for value in none:
                answer = await client.request(method, path, json=ask(), headers={"authorization": value})
                check(answer, 401, "missing_api_key")
        assert not gw.records()
        assert not gw.engine.requests


async def test_a_key_that_is_revoked_is_refused_as_soon_as_the_snapshot_says_so(tmp_path: Path) -> None:
    from cluster.wire import to_dict
    from llmgw_site.lib.files import write_json
    from tests.routing.gateway.rig import key_entry, snapshot

    async with rig(tmp_path) as gw:
        assert (await gw.chat()).status_code == 200
        write_json(gw.config.snapshot_file, to_dict(snapshot("e1:2", keys=(key_entry(NARROW, "narrow"),))))
        await until(lambda: gw.gateway.table.view.version == "e1:2")
        check(await gw.chat(), 401, "invalid_api_key")


async def test_a_model_outside_the_allowlist_looks_like_one_that_does_not_exist(tmp_path: Path) -> None:
    narrow = {"authorization": f"Bearer {NARROW.text}"}
    async with rig(tmp_path) as gw:
        for path in (CHAT, None):
            answers = []
            for name in (SECOND, "org/absent:v1"):
                if path:
                    answers.append(await gw.client.post(path, json=ask(model=name), headers=narrow))
                else:
                    answers.append(await gw.client.get(f"/v1/models/{name}", headers=narrow))
            one, two = (check(answer, 404, "model_not_found", "model") for answer in answers)
            assert one["message"].replace(SECOND, "X") == two["message"].replace("org/absent:v1", "X")
            assert one["type"] == two["type"]
            kept = [{n for n in a.headers if n not in ("x-request-id", "date")} for a in answers]
            assert kept[0] == kept[1]
        off = await gw.client.post(CHAT, json=ask(model=OFF), headers=narrow)
        check(off, 404, "model_not_found", "model")


async def test_a_disabled_model_says_why_and_that_asking_again_is_no_use(tmp_path: Path) -> None:
    async with rig(tmp_path) as gw:
        answer = await gw.chat(model=OFF)
        error = check(answer, 503, "model_disabled", "model")
        assert "maintenance until Monday" in error["message"]
        assert error["reason"] == "maintenance"
        assert answer.headers["x-should-retry"] == "false"
        assert "retry-after" not in answer.headers
        client = openai.AsyncOpenAI(base_url=gw.url + "/v1", api_key=KEY.text)
        with pytest.raises(openai.InternalServerError):
            await client.chat.completions.create(model=OFF, messages=[{"role": "user", "content": "x"}])
        await gw.record(2)  # the package asked once


@pytest.mark.parametrize(
    ("state", "message", "words", "seconds"),
    [
        ("starting", "loading 3 of 9 GiB", "starting (loading 3 of 9 GiB)", "3"),
        ("backoff", "the engine ended with code 1", "after a pause (the engine ended with code 1)", "10"),
        ("failed", "no such file", "could not be started (no such file)", "30"),
    ],
)
async def test_a_model_that_is_not_ready_says_why_and_when_to_ask_again(
    tmp_path: Path, state: str, message: str, words: str, seconds: str
) -> None:
    waiting = StartingReplica(replica_id="rep_5", model=COLD, state=state, message=message)
    async with rig(tmp_path) as gw:
        gw.publish((), (waiting,))
        gw.gateway.table.look()
        answer = await gw.chat(model=COLD)
        error = check(answer, 503, "model_not_ready", "model")
        assert words in error["message"]
        assert error["state"] == state
        assert answer.headers["retry-after"] == seconds
        absent = await gw.chat()
        assert "no replica" in check(absent, 503, "model_not_ready", "model")["message"]


async def test_a_draining_engine_gets_nothing_new(tmp_path: Path) -> None:
    async with rig(tmp_path) as gw:
        gw.publish((local_engine("rep_1", TINY, gw.engine.port, state="draining"),))
        gw.gateway.table.look()
        check(await gw.chat(), 503, "model_not_ready", "model")
        assert not gw.engine.requests


async def test_a_body_over_the_bound_is_413_with_and_without_a_length(tmp_path: Path) -> None:
    async def pieces() -> Any:
        for _ in range(15):
            yield b"x" * 1000

    async with rig(tmp_path, max_body=10_000) as gw:
        answer = await gw.client.post(CHAT, content=b"x" * 10_001)
        assert (answer.status_code, answer.json()["error"]["code"]) == (413, "body_too_large")
        check(await gw.client.post(CHAT, content=pieces()), 413, "body_too_large")
        exact = json.dumps(ask()).encode().ljust(10_000)
        assert (await gw.client.post(CHAT, content=exact)).status_code == 200


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("GET", CHAT, "POST"),
        ("PUT", "/v1/completions", "POST"),
        ("HEAD", "/v1/embeddings", "POST"),
        ("OPTIONS", CHAT, "POST"),
        ("POST", "/v1/models", "GET"),
        ("DELETE", "/v1/models/tiny", "GET"),
        ("POST", "/healthz", "GET"),
    ],
)
async def test_another_method_is_405_with_allow(tmp_path: Path, method: str, path: str, allow: str) -> None:
    async with rig(tmp_path) as gw:
        answer = await gw.client.request(method, path)
        assert (answer.status_code, answer.headers["allow"]) == (405, allow)
        if method != "HEAD":
            assert answer.json()["error"]["code"] == "method_not_allowed"


@pytest.mark.parametrize("path", ["/v1", "/v1/", "/v1/nothing", "/v1/models/", "/v1/chat/completions/", "/v1/files"])
async def test_an_unknown_path_is_an_openai_404(tmp_path: Path, path: str) -> None:
    async with rig(tmp_path) as gw:
        error = check(await gw.client.get(path), 404, "unknown_path")
        assert CHAT in error["message"]


@pytest.mark.parametrize(
    ("path", "ours", "do"),
    [
        ("/chat/completions", "/v1/chat/completions", "end in /v1"),
        ("/responses", "/v1/responses", "end in /v1"),
        ("/models", "/v1/models", "end in /v1"),
        ("/v1/v1/messages", "/v1/messages", "leave out the /v1"),
        ("/v1/v1/models", "/v1/models", "leave out the /v1"),
        ("/v1/tokenize", "/tokenize", "leave out the /v1"),
    ],
)
async def test_whose_base_url_is_wrong_hears_what_it_should_be(tmp_path: Path, path: str, ours: str, do: str) -> None:
    async with rig(tmp_path) as gw:
        for method in ("GET", "POST"):
            message = check(await gw.client.request(method, path), 404, "unknown_path")["message"]
            assert f"There is no {path} here, but {ours}:" in message
            assert do in message


@pytest.mark.parametrize("path", ["/v1/v1", "/chat", "/v1/chat", "/v1/v1/v1/models"])
def test_a_path_that_is_near_nothing_is_not_guessed_at(path: str) -> None:
    assert meant(path) is None


async def test_all_other_paths_go_to_web(tmp_path: Path) -> None:
    async with rig(tmp_path) as gw:
        answer = await gw.client.get("/api/v1/models")
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "web_unavailable")


async def test_an_engine_that_cannot_be_reached_is_replaced_by_another_once(tmp_path: Path) -> None:
    async with rig(tmp_path) as gw:
        gw.publish((local_engine("rep_1", TINY, closed_port()), local_engine("rep_1b", TINY, gw.engine.port)))
        gw.gateway.table.look()
        for _ in range(8):
            assert (await gw.chat()).status_code == 200
        assert gw.gateway.flights.suspects == {"rep_1"}
        assert {record.replica_id for record in gw.records()} == {"rep_1b"}


async def test_a_request_waits_for_an_engine_that_is_being_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F45: the engine was killed while idle; the agent starts it again and the first next request works."""
    monkeypatch.setattr(dispatch, "GRACE", 30.0)
    async with rig(tmp_path) as gw:
        gw.publish((local_engine("rep_1", TINY, closed_port()),))
        gw.gateway.table.look()
        answer = asyncio.ensure_future(gw.chat())
        await asyncio.sleep(0.3)
        gw.publish(())
        await asyncio.sleep(0.3)
        gw.publish((local_engine("rep_1", TINY, gw.engine.port),))
        assert (await answer).status_code == 200
        await gw.record()


def _slashes(gw: Rig) -> list[str]:
    return [f"{gw.url}/v1/models/{SECOND}", f"{gw.url}/v1/models/org%2Fsecond%3Av1"]


async def test_models_lists_what_the_key_may_use(tmp_path: Path) -> None:
    async with rig(tmp_path) as gw:
        every = (await gw.client.get("/v1/models")).json()
        assert every["object"] == "list"
        assert [m["id"] for m in every["data"]] == sorted([TINY, SECOND, VECTORS, COLD])
        assert every["data"][1] == {"id": SECOND, "object": "model", "created": 2, "owned_by": "llmgw"}
        narrow = {"authorization": f"Bearer {NARROW.text}"}
        assert [m["id"] for m in (await gw.client.get("/v1/models", headers=narrow)).json()["data"]] == [TINY]
        for url in _slashes(gw):
            assert (await gw.client.get(url)).json()["id"] == SECOND
        check(await gw.client.get("/v1/models/absent"), 404, "model_not_found", "model")
        check(await gw.client.get(f"/v1/models/{OFF}"), 503, "model_disabled", "model")
        client = openai.AsyncOpenAI(base_url=gw.url + "/v1", api_key=KEY.text)
        assert (await client.models.retrieve(TINY)).id == TINY
        assert [m.id async for m in client.models.list()] == sorted([TINY, SECOND, VECTORS, COLD])
        assert not gw.records()


async def test_health_and_readiness(tmp_path: Path) -> None:
    async with rig(tmp_path) as gw, httpx.AsyncClient(base_url=gw.url) as nobody:
        assert (await nobody.get("/healthz")).json() == {"status": "ok"}
        ready = await nobody.get("/readyz")
        assert ready.status_code == 200
        assert ready.json() == {"status": "ready", "snapshot": "e1:1", "models": {"enabled": 4, "ready": 3}}
        assert (await nobody.head("/healthz")).status_code == 200


async def test_a_gateway_without_a_snapshot_is_alive_but_not_ready(tmp_path: Path) -> None:
    async with rig(tmp_path, prepare=lambda config: config.snapshot_file.unlink()) as gw:
        assert (await gw.client.get("/healthz")).status_code == 200
        assert (await gw.client.get("/readyz")).status_code == 503
        refused = await gw.chat()  # no 401: clients take that as the end of their key
        check(refused, 503, "gateway_starting")
        assert refused.headers["retry-after"] == "1"
        assert (await gw.client.get("/v1/models")).status_code == 503
        check(await gw.client.get("/v1/models", headers={"authorization": ""}), 401, "missing_api_key")


async def test_f47_a_websocket_below_v1_is_refused_as_any_request(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with rig(tmp_path) as gw:
        for path in ("/v1/realtime", CHAT):
            with pytest.raises(InvalidStatus) as refused:
                await connect(f"ws://127.0.0.1:{gw.port}{path}", proxy=None)
            answer = refused.value.response
            assert (answer.status_code, answer.headers["content-type"]) == (404, "application/json")
            error = json.loads(answer.body or b"")["error"]
            assert error["code"] == "unknown_path"
            assert path in error["message"]
    logged = [item.name for item in caplog.records if item.levelno >= logging.ERROR]
    assert not [name for name in logged if name.startswith(("uvicorn", "routing"))]  # and not what a test before began
