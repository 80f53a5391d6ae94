"""External models: what the provider is sent, what comes back, and what becomes of every way it can fail."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import ssl
from pathlib import Path
from typing import Any

import httpx
import pytest

from cluster.domain.modules import Module
from llmgw_site.lib.config import Config
from routing.domain.endpoints import ENDPOINTS, Shape
from tests.fakes.provider import HEADERS, Provider
from tests.routing.gateway.certificates import a_certificate
from tests.routing.gateway.clouds import (
    NODE,
    OURS,
    PROVIDER_KEY,
    THEIRS,
    VECTORS_OURS,
    cloud_rig,
    provider_entry,
    write_modules,
    write_snapshot,
)
from tests.routing.gateway.hops import closed_port
from tests.routing.gateway.matrix import request
from tests.routing.gateway.rig import KEY, TINY, Rig, ask, until

CLIENTS_HEADERS = {
    "cookie": "session=1", "x-api-key": "sk-client", "api-key": "sk-client", "openai-organization": "org-client",
    "openai-project": "proj-client", "openai-beta": "assistants=v2", "x-llmgw-hop": "forwarded", "x-llmgw-node": "n",
    "x-session-id": "s1", "x-request-id": "req-client", "x-forwarded-for": "10.0.0.1", "forwarded": "for=10.0.0.1",
    "traceparent": "00-1-2-01", "accept-encoding": "br, zstd", "user-agent": "client/1", "origin": "https://x",
    "x-stainless-os": "Linux", "anthropic-version": "1",
}  # fmt: skip


async def chat(gw: Rig, script: Any = "hello", **fields: Any) -> Any:
    return await gw.chat(script, model=OURS, **fields)


async def until_cut(gw: Rig, script: Any) -> bytes:
    """What came of a stream whose connection was cut, as it is where an answer is not whole."""
    text = b""
    try:
        async with gw.client.stream(
            "POST", "/v1/chat/completions", json=ask(script, model=OURS, stream=True)
        ) as answer:
            async for piece in answer.aiter_raw():
                text += piece
    except httpx.RemoteProtocolError:
        return text
    raise AssertionError("the stream ended as if it were whole")


def logged(caplog: pytest.LogCaptureFixture) -> str:
    """Everything that was logged, fields included."""
    return str([vars(record) for record in caplog.records])


# --- what the provider is sent


@pytest.mark.parametrize("stream", [False, True])
async def test_f20_a_provider_sees_its_own_key_and_name_and_nothing_of_the_client(tmp_path: Path, stream: bool) -> None:
    async with (
        Provider(key=PROVIDER_KEY, model=THEIRS) as provider,
        cloud_rig(tmp_path, provider_entry(provider.url)) as gw,
    ):
        answer = await gw.client.post(
            "/v1/chat/completions", json=ask(model=OURS, stream=stream, temperature=0.5), headers=CLIENTS_HEADERS
        )
        assert (answer.status_code, provider.wrong) == (200, [])
        seen = provider.last
        assert seen.path == "/v1/chat/completions"
        assert set(seen.headers) == HEADERS
        assert seen.headers["authorization"] == f"Bearer {PROVIDER_KEY}"
        assert (seen.json["model"], seen.json["temperature"]) == (THEIRS, 0.5)
        assert "client" not in json.dumps(seen.raw_headers)


@pytest.mark.parametrize(
    ("name", "header"),
    [(name, "authorization") for name in ENDPOINTS]
    + [(item.name, "x-api-key") for item in ENDPOINTS.values() if item.shape is Shape.ANTHROPIC],
)
async def test_f20_by_no_endpoint_the_provider_sees_the_clients_key_or_headers(
    tmp_path: Path, name: str, header: str
) -> None:
    endpoint = ENDPOINTS[name]
    ours = VECTORS_OURS if endpoint.embeddings else OURS
    sent = request(endpoint, {}, endpoint.streams)
    if "json" in sent:
        sent["json"]["model"] = ours
    else:
        sent["content"] = sent["content"].replace(TINY.encode(), ours.encode(), 1)
    key = {"authorization": f"Bearer {KEY.text}"} if header == "authorization" else {"x-api-key": KEY.text}
    async with (
        Provider(key=PROVIDER_KEY, model=THEIRS) as provider,
        cloud_rig(tmp_path, provider_entry(provider.url)) as gw,
    ):
        del gw.client.headers["authorization"]
        headers = {**CLIENTS_HEADERS, **sent.pop("headers", {}), **key}
        answer = await gw.client.post(endpoint.path, headers=headers, **sent)
        assert (answer.status_code, provider.wrong) == (200, [])
        for seen in provider.requests:
            assert seen.headers["authorization"] == f"Bearer {PROVIDER_KEY}"
            assert not {"x-api-key", "api-key", "cookie"} & set(seen.headers)
            told = json.dumps(seen.raw_headers)
            assert "client" not in told
            assert KEY.text not in told
            assert KEY.text.encode() not in seen.body


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/completions", {"model": OURS, "prompt": "x"}),
        ("/v1/embeddings", {"model": VECTORS_OURS, "input": "x"}),
        ("/v1/chat/completions", ask(model=OURS)),
    ],
)
@pytest.mark.parametrize("base", ["", "/openai/v1"])
async def test_the_path_is_joined_to_the_base_url(tmp_path: Path, path: str, body: Any, base: str) -> None:
    async with Provider(key=PROVIDER_KEY) as provider:
        url = provider.url.removesuffix("/v1") + base
        async with cloud_rig(tmp_path, provider_entry(url)) as gw:
            assert (await gw.client.post(path, json=body)).status_code == 200
            assert provider.last.path == base + path.removeprefix("/v1")


async def test_a_provider_is_sent_the_addresses_of_pictures_which_it_fetches_itself(tmp_path: Path) -> None:
    part = {"type": "image_url", "image_url": {"url": "https://example.com/cat.png"}}
    async with (
        Provider(key=PROVIDER_KEY) as provider,
        cloud_rig(tmp_path, provider_entry(provider.url)) as gw,
    ):
        messages = [{"role": "user", "content": [part]}]
        assert (
            await gw.client.post("/v1/chat/completions", json={"model": OURS, "messages": messages})
        ).status_code == 200
        assert provider.last.json["messages"] == messages


async def test_a_provider_without_a_key_is_sent_none(tmp_path: Path) -> None:
    async with Provider() as provider, cloud_rig(tmp_path, provider_entry(provider.url, key="")) as gw:
        assert (await chat(gw)).status_code == 200
        assert "authorization" not in provider.last.headers


# --- what comes back


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("packed", [False, True])
async def test_f21_answers_are_metered_and_readable_packed_or_not(tmp_path: Path, stream: bool, packed: bool) -> None:
    async with Provider(key=PROVIDER_KEY) as provider, cloud_rig(tmp_path, provider_entry(provider.url)) as gw:
        answer = await chat(gw, {"gzip": packed, "tokens": 4, "cached": 2}, stream=stream)
        assert "content-encoding" not in answer.headers
        assert '"t3 "' in answer.text if stream else "t3 " in answer.json()["choices"][0]["message"]["content"]
        assert answer.text.endswith("data: [DONE]\n\n") is stream
        assert '"usage"' not in answer.text if stream else answer.json()["usage"]["total_tokens"] == 11
        record = await gw.record()
        assert (record.outcome, record.status, record.code) == ("ok", 200, "")
        assert (record.prompt_tokens, record.completion_tokens, record.cached_tokens, record.estimated) == (
            7,
            4,
            2,
            False,
        )
        assert (record.node_id, record.replica_id, record.model_asked, record.model_served) == (NODE, "", OURS, OURS)
        assert record.queue_s is not None
        await gw.idle()


async def test_a_client_that_wants_the_usage_chunk_gets_it(tmp_path: Path) -> None:
    async with Provider(key=PROVIDER_KEY) as provider, cloud_rig(tmp_path, provider_entry(provider.url)) as gw:
        answer = await chat(gw, stream=True, stream_options={"include_usage": True})
        assert '"total_tokens": 10' in answer.text


async def test_headers_of_the_provider_stay_here(tmp_path: Path) -> None:
    theirs = [
        ["openai-organization", "our-account"], ["x-ratelimit-remaining-requests", "9"], ["set-cookie", "a=b"],
        ["x-request-id", "theirs"], ["cf-ray", "1"], ["server", "cloudflare"], ["location", "https://inside"],
    ]  # fmt: skip
    async with Provider(key=PROVIDER_KEY) as provider, cloud_rig(tmp_path, provider_entry(provider.url)) as gw:
        for stream in (False, True):
            answer = await chat(gw, {"headers": theirs}, stream=stream)
            assert answer.status_code == 200
            told = json.dumps(dict(answer.headers))
            assert not any(value in told for _, value in theirs if len(value) > 1)
            assert "openai-organization" not in told


async def test_an_external_model_is_listed(tmp_path: Path) -> None:
    async with Provider(key=PROVIDER_KEY) as provider, cloud_rig(tmp_path, provider_entry(provider.url)) as gw:
        answer = await gw.client.get("/v1/models")
        assert [item["id"] for item in answer.json()["data"]] == [OURS, VECTORS_OURS]
        assert (await gw.client.get("/readyz")).json()["models"] == {"enabled": 2, "ready": 2}


# --- its own errors


@pytest.mark.parametrize("stream", [False, True])
async def test_a_providers_refusal_passes_with_its_status_in_openais_shape(tmp_path: Path, stream: bool) -> None:
    body = {"error": {"message": f"slow down, {PROVIDER_KEY}", "type": "rate_limit_error", "code": "rate_limited"}}
    async with Provider(key=PROVIDER_KEY) as provider, cloud_rig(tmp_path, provider_entry(provider.url)) as gw:
        answer = await chat(
            gw, {"status": 429, "body": json.dumps(body), "headers": [["retry-after", "7"]]}, stream=stream
        )
        assert (answer.status_code, answer.headers["retry-after"]) == (429, "7")
        error = answer.json()["error"]
        assert error["code"] == "rate_limited"
        assert error["message"] == "slow down, [provider key]"
        record = await gw.record()
        assert (record.outcome, record.status, record.code) == ("failed", 429, "rate_limited")
        assert len(provider.requests) == 1


@pytest.mark.parametrize(
    ("status", "body", "code"),
    [
        (400, '{"error":{"message":"too long","code":"context_length_exceeded"}}', "context_length_exceeded"),
        (404, '{"error":{"message":"no such model","code":null}}', "provider_error"),
        (500, "<html>oops</html>", "provider_error"),
        (503, "", "provider_error"),
    ],
)
async def test_other_errors_pass_with_their_status(tmp_path: Path, status: int, body: str, code: str) -> None:
    async with Provider(key=PROVIDER_KEY) as provider, cloud_rig(tmp_path, provider_entry(provider.url)) as gw:
        answer = await chat(gw, {"status": status, "body": body or " "})
        assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)
        assert "html" not in answer.text


@pytest.mark.parametrize("status", [401, 403])
async def test_a_refused_key_is_our_fault_and_shows_nothing_of_it(
    tmp_path: Path, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with (
        Provider(key=PROVIDER_KEY) as provider,
        cloud_rig(tmp_path, provider_entry(provider.url, key="sk-wrong-77aa")) as gw,
    ):
        provider.key = provider.key if status == 401 else "sk-wrong-77aa"
        answer = await chat(gw, {"status": status, "body": '{"error":{"message":"sk-wrong-77aa is bad"}}'})
        assert (answer.status_code, answer.json()["error"]["code"]) == (502, "provider_refused_key")
        record = await gw.record()
        assert (record.outcome, record.code) == ("failed", "provider_refused_key")
        spool = "".join(path.read_text() for path in gw.config.usage.glob("*"))
        assert "sk-wrong-77aa" not in answer.text + logged(caplog) + spool
        assert provider.url.removeprefix("http://").split("/")[0] not in answer.text


@pytest.mark.parametrize("status", [204, 301, 302, 307, 308])
async def test_a_redirect_is_not_followed(tmp_path: Path, status: int) -> None:
    async with (
        Provider(key=PROVIDER_KEY) as elsewhere,
        Provider(key=PROVIDER_KEY) as provider,
        cloud_rig(tmp_path, provider_entry(provider.url)) as gw,
    ):
        script = {"status": status, "body": "{}", "headers": [["location", f"{elsewhere.url}/chat/completions"]]}
        answer = await chat(gw, script)
        assert (answer.status_code, answer.json()["error"]["code"]) == (502, "provider_broken")
        assert elsewhere.requests == []
        assert str(elsewhere.port) not in answer.text


# --- when it fails


async def test_a_provider_that_breaks_off_is_never_asked_twice(tmp_path: Path) -> None:
    async with Provider(key=PROVIDER_KEY) as provider, cloud_rig(tmp_path, provider_entry(provider.url)) as gw:
        answer = await chat(gw, {"reset": True})
        assert (answer.status_code, answer.json()["error"]["code"]) == (502, "provider_broken")
        assert len(provider.requests) == 1
        await gw.idle()


@pytest.mark.parametrize("how", ["die_after", "cut_after"])
async def test_a_stream_that_dies_ends_with_an_error_event_and_no_done(tmp_path: Path, how: str) -> None:
    async with Provider(key=PROVIDER_KEY) as provider, cloud_rig(tmp_path, provider_entry(provider.url)) as gw:
        text = await until_cut(gw, {how: 1})
        assert b"provider_broken" in text
        assert b"[DONE]" not in text
        record = await gw.record()
        assert (record.outcome, record.code) == ("failed", "provider_broken")
        assert len(provider.requests) == 1


async def test_a_damaged_packed_answer_is_broken_not_passed_on(tmp_path: Path) -> None:
    async with Provider(key=PROVIDER_KEY) as provider, cloud_rig(tmp_path, provider_entry(provider.url)) as gw:
        answer = await chat(gw, {"body": "this is not gzip", "headers": [["content-encoding", "gzip"]]})
        assert (answer.status_code, answer.json()["error"]["code"]) == (502, "provider_broken")


async def test_a_document_where_comments_were_sent_already_is_broken(tmp_path: Path) -> None:
    async with (
        Provider(key=PROVIDER_KEY) as provider,
        cloud_rig(tmp_path, provider_entry(provider.url), keepalive_comment=0.2) as gw,
    ):
        text = await until_cut(gw, {"silent": 1.0, "body": "{}"})
        assert text.startswith(b":")
        assert b"provider_broken" in text
        assert (await gw.record()).code == "provider_broken"


async def test_the_models_own_timeouts_rule(tmp_path: Path) -> None:
    async with (
        Provider(key=PROVIDER_KEY) as provider,
        cloud_rig(tmp_path, provider_entry(provider.url), model={"first_byte_timeout": 0.2}) as gw,
    ):
        answer = await chat(gw, {"never": True})
        assert (answer.status_code, answer.json()["error"]["code"]) == (504, "provider_timeout")
        assert "0.2 s" in answer.json()["error"]["message"]
        write_snapshot(gw.config, provider_entry(provider.url), version="e1:2.c", idle_timeout=0.3)
        await until(lambda: gw.gateway.table.view.version == "e1:2.c")
        text = await until_cut(gw, {"gap": 30.0})
        assert b"provider_timeout" in text
        await gw.idle()


async def test_a_provider_that_cannot_be_reached_was_sent_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    port = closed_port()
    async with cloud_rig(tmp_path, provider_entry(f"http://127.0.0.1:{port}/v1")) as gw:
        answer = await chat(gw)
        assert (answer.status_code, answer.json()["error"]["code"]) == (502, "provider_unreachable")
        assert str(port) not in answer.text
        assert str(port) in logged(caplog)  # the operator learns which


async def test_f27_a_client_that_leaves_ends_the_providers_work(tmp_path: Path) -> None:
    async with Provider(key=PROVIDER_KEY) as provider, cloud_rig(tmp_path, provider_entry(provider.url)) as gw:
        async with gw.client.stream(
            "POST", "/v1/chat/completions", json=ask({"gap": 0.2, "tokens": 50}, model=OURS, stream=True)
        ) as answer:
            async for _ in answer.aiter_raw():
                break
        await until(lambda: provider.last.aborted_at is not None)
        assert (await gw.record()).outcome == "client_gone"
        await gw.idle()


# --- keys


async def test_a_key_file_is_read_afresh_for_each_use(tmp_path: Path) -> None:
    file = tmp_path / "acme.key"
    async with (
        Provider() as provider,
        cloud_rig(tmp_path, provider_entry(provider.url, key="", key_file=str(file))) as gw,
    ):
        for key in ("sk-one", "sk-two"):
            file.write_text(f"{key}\n")
            provider.key = key
            assert (await chat(gw)).status_code == 200
        file.unlink()
        assert (await chat(gw)).json()["error"]["code"] == "provider_key_missing"
        file.write_text("sk-two")
        assert (await chat(gw)).status_code == 200


@pytest.mark.parametrize("content", [None, b"", b" \n", b"two\nlines", b"\xff\xfe", b"x" * 9000, "folder", "pipe"])
async def test_a_key_file_that_holds_no_key_is_503_and_only_the_log_names_it(
    tmp_path: Path, content: Any, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "very-secret-place.key"
    if content == "folder":
        file.mkdir()
    elif content == "pipe":
        os.mkfifo(file)
    elif content is not None:
        file.write_bytes(content)
    async with (
        Provider() as provider,
        cloud_rig(tmp_path, provider_entry(provider.url, key="", key_file=str(file))) as gw,
    ):
        answer = await chat(gw)
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "provider_key_missing")
        assert "very-secret-place" not in answer.text
        assert "very-secret-place" in logged(caplog)
        assert provider.requests == []
        assert (await gw.record()).code == "provider_key_missing"


async def test_a_key_file_among_our_own_secrets_is_not_read(tmp_path: Path) -> None:
    def prepare(config: Config) -> None:
        (config.data / "inside.key").write_text("sk-inside")
        (tmp_path / "link.key").symlink_to(config.data / "inside.key")

    async with Provider() as provider:
        for path in ("data/inside.key", "link.key", "data/../data/inside.key"):
            entry = provider_entry(provider.url, key="", key_file=str(tmp_path / path))
            async with cloud_rig(tmp_path, entry, prepare=prepare) as gw:
                assert (await chat(gw)).json()["error"]["code"] == "provider_key_missing"
            (tmp_path / "link.key").unlink()
        assert provider.requests == []


@pytest.mark.parametrize("entry", [{"sealed_to": b"another node's pairwise key 32 b."}, {"sealed_key": ""}])
async def test_a_key_that_this_node_cannot_unseal_is_503(tmp_path: Path, entry: dict[str, Any]) -> None:
    async with Provider() as provider, cloud_rig(tmp_path, provider_entry(provider.url, **entry)) as gw:
        answer = await chat(gw)
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "provider_key_missing")
        assert provider.requests == []


async def test_a_new_key_counts_from_the_next_request_on(tmp_path: Path) -> None:
    async with (
        Provider(key="sk-one") as provider,
        cloud_rig(tmp_path, provider_entry(provider.url, key="sk-one")) as gw,
    ):
        assert (await chat(gw)).status_code == 200
        provider.key = "sk-two"
        write_snapshot(gw.config, provider_entry(provider.url, key="sk-two"), version="e1:2.c")
        await until(lambda: gw.gateway.table.view.version == "e1:2.c")
        assert (await chat(gw)).status_code == 200


# --- the module


async def test_without_the_module_or_the_provider_the_model_is_not_ready(tmp_path: Path) -> None:
    async with Provider(key=PROVIDER_KEY) as provider:
        async with cloud_rig(tmp_path / "a", provider_entry(provider.url), modules=(Module.EDGE, Module.ROUTER)) as gw:
            assert (await chat(gw)).status_code == 503
        async with cloud_rig(tmp_path / "b") as gw:
            assert (await chat(gw)).status_code == 503
        assert provider.requests == []


async def test_the_module_is_switched_while_the_gateway_runs(tmp_path: Path) -> None:
    async with Provider(key=PROVIDER_KEY) as provider, cloud_rig(tmp_path, provider_entry(provider.url)) as gw:
        assert (await chat(gw)).status_code == 200
        write_modules(gw.config, Module.EDGE, Module.ROUTER)
        await until(lambda: not gw.gateway.members.runs(Module.CLOUD))
        assert (await chat(gw)).status_code == 503
        write_modules(gw.config, Module.EDGE, Module.ROUTER, Module.CLOUD)
        await until(lambda: gw.gateway.members.runs(Module.CLOUD))
        assert (await chat(gw)).status_code == 200


async def test_many_streams_to_one_provider_run_at_once(tmp_path: Path) -> None:
    async with Provider(key=PROVIDER_KEY) as provider, cloud_rig(tmp_path, provider_entry(provider.url)) as gw:
        calls = [asyncio.create_task(chat(gw, {"held": True, "tokens": 1}, stream=True)) for _ in range(90)]
        await until(lambda: len(provider.requests) == 90)
        provider.release.set()
        assert {answer.status_code for answer in await asyncio.gather(*calls)} == {200}


# --- TLS


async def test_https_is_spoken_with_certificates_that_this_machine_trusts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trusted, certificate, key = a_certificate(tmp_path, "127.0.0.1")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate, key)
    async with Provider(key=PROVIDER_KEY, tls=tls) as provider:
        async with cloud_rig(tmp_path / "a", provider_entry(provider.url)) as gw:
            answer = await chat(gw)
            assert (answer.status_code, answer.json()["error"]["code"]) == (502, "provider_unreachable")
            assert provider.requests == []
        monkeypatch.setenv("SSL_CERT_FILE", str(trusted))
        async with cloud_rig(tmp_path / "b", provider_entry(provider.url)) as gw:
            assert (await chat(gw)).status_code == 200
            assert (await chat(gw, stream=True)).text.endswith("data: [DONE]\n\n")
            assert provider.wrong == []
        async with cloud_rig(tmp_path / "c", provider_entry(provider.url.replace("127.0.0.1", "localhost"))) as gw:
            assert (await chat(gw)).json()["error"]["code"] == "provider_unreachable"  # the name is another
