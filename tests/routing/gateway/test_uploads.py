"""Sounds and pictures: forms pass piece by piece under the model that they name, answers as they are."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from tests import tiny
from tests.fakes.scripted_engine import SOUND
from tests.routing.gateway.clouds import OURS, PROVIDER_KEY, THEIRS, cloud_rig, provider_entry
from tests.routing.gateway.hops import chain
from tests.routing.gateway.real import real_rig
from tests.routing.gateway.rig import ENGINE_KEY, KEY, NARROW, SECOND, TINY, local_engine, rig
from tests.routing.gateway.scripted import Peer, serving, until

HEARD = "/v1/audio/transcriptions"
FORMS = [HEARD, "/v1/audio/translations", "/v1/images/edits", "/v1/images/variations"]
KIND = {"content-type": "multipart/form-data; boundary=XX"}


def part(name: str, value: bytes, file: bool = False) -> bytes:
    more = b'; filename="a.wav"\r\nContent-Type: audio/wav' if file else b""
    return b'--XX\r\nContent-Disposition: form-data; name="%b"%b\r\n\r\n%b\r\n' % (name.encode(), more, value)


def form(*parts: bytes) -> bytes:
    return b"".join(parts) + b"--XX--\r\n"


FILE = part("file", random.Random(1).randbytes(300_000), file=True)


async def pieces(data: bytes, size: int = 40_000) -> AsyncIterator[bytes]:
    for at in range(0, len(data), size):
        yield data[at : at + size]
        await asyncio.sleep(0)


async def whole(peer: Peer) -> bytes:
    """What comes, to the form's end."""
    data = b""
    while b"--XX--\r\n" not in data:
        data += await peer.reader.read(65536)
    return data


@pytest.mark.parametrize("path", FORMS)
@pytest.mark.parametrize("chunked", [False, True])
async def test_f56_a_form_reaches_the_engine_byte_for_byte_with_the_engine_s_key(
    tmp_path: Path, path: str, chunked: bool
) -> None:
    body = form(part("model", TINY.encode()), part("language", b"en"), FILE, part("prompt", b"http://as.text"))
    async with rig(tmp_path) as gw:
        answer = await gw.client.post(path, content=pieces(body) if chunked else body, headers=KIND)
        assert answer.json() == {"text": "heard", "size": len(body)}
        seen = gw.engine.last
        assert (seen.path, seen.body) == (path, body)
        assert seen.headers["authorization"] == f"Bearer {ENGINE_KEY}"
        assert seen.headers["content-type"] == KIND["content-type"]
        assert KEY.text not in str(seen)
        record = await gw.record()
        assert (record.outcome, record.model_asked, record.prompt_tokens) == ("ok", TINY, None)
        assert record.endpoint == path.removeprefix("/v1/").replace("/", ".")
        await gw.idle()


async def test_f56_the_body_streams_and_is_never_held_whole(tmp_path: Path) -> None:
    """The engine has the beginning before the client has sent the end."""
    began, goes_on = asyncio.Event(), asyncio.Event()

    async def engine(peer: Peer) -> None:
        await peer.reader.readexactly(200_000)
        began.set()
        await whole(peer)
        await peer.send(b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 4\r\n\r\nhere")

    async def slowly() -> AsyncIterator[bytes]:
        body = form(part("model", TINY.encode()), FILE)
        yield body[:250_000]
        await goes_on.wait()
        yield body[250_000:]

    async with rig(tmp_path) as gw, serving(engine) as server:
        gw.publish((local_engine("rep_1", TINY, server.target.port),))
        await until(lambda: gw.gateway.table.view.routes[TINY].seats[0].port == server.target.port)
        asked = asyncio.create_task(gw.client.post(HEARD, content=slowly(), headers=KIND))
        await asyncio.wait_for(began.wait(), 30)
        assert not asked.done()
        goes_on.set()
        assert (await asked).content == b"here"


async def test_only_the_name_changes_for_an_engine_that_wants_another(tmp_path: Path) -> None:
    async with rig(tmp_path) as gw:
        answer = await gw.client.post(HEARD, content=form(part("model", SECOND.encode()), FILE), headers=KIND)
        assert answer.status_code == 200
        assert gw.engine.last.body == form(part("model", b"second-inside"), FILE)


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (form(FILE), "missing_field"),
        (form(part("file", b"x" * 1_200_000, file=True), part("model", TINY.encode())), "missing_field"),
        (form(part("model", b"")), "missing_field"),
        (form(part("model", TINY.encode(), file=True)), "missing_field"),
        (form(part("model", b"nobody"), FILE), "model_not_found"),
        (form(part("model", TINY.encode()), part("model", SECOND.encode()), FILE), "duplicate_field"),
        (form(part("model", TINY.encode()), FILE, part("model", SECOND.encode())), "duplicate_field"),
        (form(part("model", TINY.encode()), FILE, part("url", b"http://10.0.0.1/x")), "media_address_refused"),
        (form(part("url", b"http://10.0.0.1/x"), part("model", TINY.encode())), "media_address_refused"),
        (part("model", TINY.encode()) + FILE, "invalid_multipart"),
        (b"x", "invalid_multipart"),
        (form(part("model", TINY.encode()), part("file", b"x" * (3 << 20), file=True)), "body_too_large"),
    ],
    ids=range(12),
)
async def test_what_cannot_be_passed_is_refused_and_the_engine_has_no_whole_form(
    tmp_path: Path, body: bytes, code: str
) -> None:
    async with rig(tmp_path, max_body=2 << 20) as gw:
        answer = await gw.client.post(HEARD, content=pieces(body), headers=KIND)
        assert answer.status_code in (400, 404, 413), answer.text
        assert answer.json()["error"]["code"] == code
        assert not gw.engine.requests
        record = await gw.record()
        assert record.code == code
        answer = await gw.client.post(HEARD, content=form(part("model", TINY.encode()), FILE), headers=KIND)
        assert answer.status_code == 200  # nobody took the engine for a bad one
        await gw.idle()


async def test_a_key_s_list_of_models_holds_for_forms(tmp_path: Path) -> None:
    async with rig(tmp_path) as gw:
        body = form(part("model", SECOND.encode()), FILE)
        headers = {**KIND, "authorization": f"Bearer {NARROW.text}"}
        assert (await gw.client.post(HEARD, content=body, headers=headers)).status_code == 404
        assert (await gw.client.post(HEARD, json={"model": TINY})).json()["error"]["code"] == "invalid_multipart"


async def test_f27_a_client_that_leaves_in_its_upload_is_recorded_and_nothing_is_left(tmp_path: Path) -> None:
    async def leaves() -> AsyncIterator[bytes]:
        yield form(part("model", TINY.encode()), FILE)[:200_000]
        await asyncio.sleep(0.2)
        raise httpx.ReadError("left")

    async with rig(tmp_path) as gw:
        with pytest.raises(httpx.ReadError):
            await gw.client.post(HEARD, content=leaves(), headers=KIND)
        record = await gw.record()
        assert (record.outcome, record.status) == ("client_gone", 499)
        await gw.idle()
        assert not gw.engine.requests


async def test_a_form_crosses_two_nodes(tmp_path: Path) -> None:
    async with chain(tmp_path) as (_, edge, _, worker):
        body = form(part("model", TINY.encode()), FILE)
        for content in (body, pieces(body)):
            answer = await edge.client.post(HEARD, content=content, headers=KIND)
            assert answer.json() == {"text": "heard", "size": len(body)}
            assert worker.engine.last.body == body


async def test_sounds_pass_as_they_are_and_pictures_are_asked_for_in_words(tmp_path: Path) -> None:
    async with (
        rig(tmp_path) as gw,
        openai.AsyncOpenAI(base_url=f"{gw.url}/v1", api_key=KEY.text, max_retries=0) as client,
    ):
        spoken = await client.audio.speech.create(model=TINY, voice="alloy", input="see https://example.org")
        assert spoken.content == SOUND
        assert spoken.response.headers["content-type"] == "audio/wav"
        heard = await client.audio.transcriptions.create(model=TINY, file=("a.wav", SOUND))
        assert heard.text == "heard"
        body: dict[str, Any] = {"model": TINY, "prompt": "http://as.text", "stream": True}
        assert (await gw.client.post("/v1/images/generations", json=body)).status_code == 200
        assert gw.engine.last.json == body
        refused = await gw.client.post("/v1/images/generations", json={**body, "image": ["http://10.0.0.1/x"]})
        assert refused.json()["error"]["param"] == "image[0]"
        silent = await gw.client.post("/v1/audio/speech", json={"model": TINY})
        assert silent.json()["error"]["param"] == "input"
        records = [await gw.record(5)] and gw.records()
        assert [item.endpoint for item in records[:3]] == ["audio.speech", "audio.transcriptions", "images.generations"]
        assert all(item.completion_tokens is None for item in records)


async def test_a_provider_is_sent_the_form_with_its_own_key_and_name(tmp_path: Path) -> None:
    async def engine(peer: Peer) -> None:
        seen.append(await whole(peer))
        await peer.send(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}")

    seen: list[bytes] = []
    async with serving(engine) as server:
        url = f"http://127.0.0.1:{server.target.port}/v1"
        async with cloud_rig(tmp_path, provider_entry(url)) as gw:
            body = form(part("model", OURS.encode()), part("url", b"http://example.org/x"), FILE)
            assert (await gw.client.post(HEARD, content=body, headers={**KIND, "x-mine": "1"})).status_code == 200
    head, _, sent = seen[0].partition(b"\r\n\r\n")
    assert sent == form(part("model", THEIRS.encode()), part("url", b"http://example.org/x"), FILE)
    assert b"authorization: Bearer " + PROVIDER_KEY.encode() in head
    assert b"multipart/form-data; boundary=XX" in head
    assert b"x-mine" not in head


async def test_the_real_engine_is_reached_and_says_that_its_model_does_not_hear(tmp_path: Path) -> None:
    async with real_rig(tmp_path, tiny.tiny_gguf(), TINY) as gw:
        answer = await gw.client.post(HEARD, content=form(part("model", TINY.encode()), FILE), headers=KIND)
        error = answer.json()["error"]
        assert (answer.status_code, error["code"]) == (501, "not_supported"), json.dumps(error)
        assert answer.headers["x-should-retry"] == "false"
        assert "audio" in error["message"]
        assert (await gw.record()).code == "not_supported"
