"""F47: every code that the data path can answer with is answered over HTTP, in the envelope of the API that was asked, with the
right status and content type. A code of docs/errors.md that no case provokes stands in ELSEWHERE with the reason, so that a new
one without a case fails here."""

from __future__ import annotations

import ast
import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from routing.domain.endpoints import PATHS, Shape, shape_of
from routing.domain.snapshot import LimitEntry, ModelEntry
from routing.gateway import dispatch, hop
from tests.fakes.provider import Provider
from tests.routing.gateway.clouds import OURS, PROVIDER_KEY, cloud_rig, provider_entry
from tests.routing.gateway.controllers import Controller
from tests.routing.gateway.hops import chain, closed_port, many
from tests.routing.gateway.rig import COLD, KEY, OFF, TINY, VECTORS, Rig, ask, local_engine, rig
from tests.routing.gateway.scripted import Peer, connected, until
from tests.routing.gateway.test_budgets import with_budget
from tests.routing.gateway.test_limits import limit
from tests.routing.gateway.test_uploads import FILE, HEARD, KIND, form, part

CHAT, MESSAGES = "/v1/chat/completions", "/v1/messages"
PAGE = (Path(__file__).resolve().parents[3] / "docs/errors.md").read_text()
ROUTING = Path(__file__).resolve().parents[3] / "routing"
Told = AsyncIterator[tuple[str, httpx.Response]]
"""A code that was provoked, and the answer."""
CASES: dict[Callable[..., Told], set[str]] = {}


def provokes(*codes: str) -> Callable[[Callable[..., Told]], Callable[..., Told]]:
    def noted(case: Callable[..., Told]) -> Callable[..., Told]:
        CASES[case] = set(codes)
        return case

    return noted


ENGINES = {
    "engine_error": (500, {"message": "boom", "type": "server_error"}),
    "context_length_exceeded": (400, {"message": "too long", "type": "exceed_context_size_error"}),
    "not_supported": (501, {"message": "no such thing", "type": "not_supported_error"}),
    "engine_unavailable": (503, {"message": "loading", "type": "unavailable_error"}),
    "media_not_supported": (500, {"message": "image input is not supported", "type": "server_error"}),
    "media_unreadable": (400, {"message": "Failed to load image or audio file", "type": "server_error"}),
    "engine_refused_key": (401, {"message": "wrong key", "type": "authentication_error"}),
}
HELLO = b'{"model":"tiny","messages":[{"role":"user","content":"x"}]'
BODIES = {
    "invalid_json": b"{",
    "not_an_object": b"[1]",
    "duplicate_field": HELLO + b',"x":{"a":1,"a":2}}',
    "json_too_deep": b"[" * 5000,
    "json_too_complex": b"[" + b'"",' * 600_000 + b'""]',
    "missing_field": b'{"model":"tiny"}',
    "invalid_type": HELLO + b',"stream":1}',
    "invalid_value": HELLO + b',"n":0}',
}
PICTURE = [{"type": "image_url", "image_url": {"url": "http://169.254.169.254/x"}}]
MODELS = {"model_not_found": "nobody", "model_disabled": OFF, "model_not_ready": COLD, "wrong_endpoint": VECTORS}


@provokes(*ENGINES, *BODIES, *MODELS, "missing_api_key", "invalid_api_key", "unknown_path", "method_not_allowed")
async def _one_gateway(folder: Path, path: str) -> Told:
    async with rig(folder) as gw:
        for code, (status, error) in ENGINES.items():
            body = json.dumps({"error": {"code": status, **error}})
            yield code, await gw.client.post(path, json=ask({"status": status, "body": body}))
        for code, content in BODIES.items():
            yield code, await gw.client.post(path, content=content)
        for code, model in MODELS.items():
            yield code, await gw.client.post(path, json=ask(model=model))
        yield "missing_api_key", await gw.client.post(path, json=ask(), headers={"authorization": ""})
        yield "invalid_api_key", await gw.client.post(path, json=ask(), headers={"authorization": "Bearer x"})
        sent = {"anthropic-version": "2023-06-01"} if path == MESSAGES else {}
        yield "unknown_path", await gw.client.post(f"{path}/batches", json=ask(), headers=sent)
        yield "method_not_allowed", await gw.client.put(path, json=ask())


@provokes("media_address_refused", "unsupported_content_encoding", "engine_broken", "internal_error")
async def _more_of_it(folder: Path, path: str) -> Told:
    async with rig(folder) as gw:
        asked = {"model": TINY, "messages": [{"role": "user", "content": PICTURE}]}
        yield "media_address_refused", await gw.client.post(path, json=asked)
        packed = await gw.client.post(path, content=b"x", headers={"content-encoding": "gzip"})
        yield "unsupported_content_encoding", packed
        yield "engine_broken", await gw.client.post(path, json=ask({"reset": True}))
        gw.gateway.app._parts.dispatch.first = None  # type: ignore[method-assign, assignment]
        yield "internal_error", await gw.client.post(path, json=ask())


@provokes("invalid_multipart")
async def _form(folder: Path, path: str) -> Told:
    """Of sounds and pictures alone."""
    async with rig(folder) as gw:
        yield "invalid_multipart", await gw.client.post(HEARD, content=b"x", headers=KIND)
        cut = part("model", TINY.encode()) + FILE
        yield "invalid_multipart", await gw.client.post(HEARD, content=cut, headers=KIND)
        assert (
            await gw.client.post(HEARD, content=form(part("model", b"tiny"), FILE), headers=KIND)
        ).status_code == 200


@provokes("engine_timeout", "engine_unreachable", "gateway_stopping")
async def _engine(folder: Path, path: str) -> Told:
    async with rig(folder, first_byte_timeout=0.3) as gw:
        yield "engine_timeout", await gw.client.post(path, json=ask({"never": True}))
    async with rig(folder / "second") as gw:
        asking = asyncio.ensure_future(gw.client.post(path, json=ask({"never": True})))
        await until(lambda: gw.engine.requests)
        await gw.gateway.app.end()
        yield "gateway_stopping", await asking
        gw.publish((local_engine("rep_1", TINY, closed_port()),))
        gw.gateway.table.look()
        yield "engine_unreachable", await gw.client.post(path, json=ask())


@provokes("gateway_starting")
async def _no_snapshot(folder: Path, path: str) -> Told:
    async with rig(folder, prepare=lambda config: config.snapshot_file.unlink()) as gw:
        yield "gateway_starting", await gw.client.post(path, json=ask())


@provokes("requests_limit_reached", "tokens_limit_reached", "parallel_limit_reached", "request_over_limit")
async def _limits(folder: Path, path: str) -> Told:
    async with rig(folder) as gw:
        await limit(gw, key=LimitEntry(tokens_per_minute=150, parallel=1))
        yield "request_over_limit", await gw.client.post(path, json=ask(max_tokens=5000))
        held = asyncio.ensure_future(gw.client.post(path, json=ask({"never": True}, max_tokens=50)))
        await until(lambda: gw.engine.requests)
        yield "parallel_limit_reached", await gw.client.post(path, json=ask(max_tokens=9))
        await limit(gw, key=LimitEntry(tokens_per_minute=150))
        yield "tokens_limit_reached", await gw.client.post(path, json=ask(max_tokens=110))
        held.cancel()
        await limit(gw, key=LimitEntry(requests_per_minute=1))
        assert (await gw.client.post(path, json=ask())).status_code == 200
        yield "requests_limit_reached", await gw.client.post(path, json=ask())


@provokes("budget_spent")
async def _budget(folder: Path, path: str) -> Told:
    async with rig(folder, prepare=with_budget()) as gw:
        yield "budget_spent", await gw.client.post(path, json=ask())


@provokes("queue_full", "queue_timeout")
async def _queue(folder: Path, path: str) -> Told:
    for code, bounds in {"queue_full": {"queue_length": 0}, "queue_timeout": {"queue_wait": 0.2}}.items():
        async with rig(folder / code, **bounds) as gw:
            held = [asyncio.ensure_future(gw.client.post(path, json=ask({"never": True}))) for _ in range(2)]
            await until(lambda gw=gw: len(gw.engine.requests) == 2)  # type: ignore[misc]
            yield code, await gw.client.post(path, json=ask())
            for task in held:
                task.cancel()
            await gw.idle()


@provokes("model_parked", "activation_unavailable", "activation_timeout")
async def _at_rest(folder: Path, path: str) -> Told:
    rests = ModelEntry(name=TINY, created=1, on_demand=True, code="model_at_rest", reason="tiny is at rest")
    for code, models in {
        "activation_unavailable": [rests],
        "activation_timeout": [rests],
        "model_parked": [replace(rests, code="model_parked", reason="tiny is parked: bad magic")],
    }.items():
        async with many(folder / code) as town:
            town.models = models
            bounds = {"activation_timeout": 0.5} if code == "activation_timeout" else {}
            front = await town.start("front", "edge", "router", **bounds)
            await town.start("worker", "inference")
            if code == "activation_timeout":
                await town.scripted("brain", "controller", handler=Controller(town))
            await town.settle()
            yield code, await front.client.post(path, json=ask())


@provokes("provider_broken", "provider_refused_key", "provider_error", "provider_timeout", "provider_unreachable",
          "provider_key_missing", "provider_unknown")  # fmt: skip
async def _provider(folder: Path, path: str) -> Told:
    async with AsyncExitStack() as stack:
        provider = await stack.enter_async_context(Provider(key=PROVIDER_KEY))
        told = provider_entry(provider.url)
        gw = await stack.enter_async_context(cloud_rig(folder / "1", told))
        boom = json.dumps({"error": {"message": "boom", "code": 500}})
        for code, script in {
            "provider_broken": {"reset": True},
            "provider_error": {"status": 500, "body": boom},
        }.items():
            yield code, await gw.client.post(path, json=ask(script, model=OURS))
        short = {"first_byte_timeout": 0.2}
        hurried = await stack.enter_async_context(cloud_rig(folder / "2", told, model=short))
        yield "provider_timeout", await hurried.client.post(path, json=ask({"never": True}, model=OURS))
        for code, entry in {
            "provider_unreachable": provider_entry(f"http://127.0.0.1:{closed_port()}/v1"),
            "provider_refused_key": provider_entry(provider.url, key="sk-another"),
            "provider_key_missing": provider_entry(provider.url, sealed_to=b"another node's pairwise key 32 b."),
        }.items():
            other = await stack.enter_async_context(cloud_rig(folder / code, entry))
            yield code, await other.client.post(path, json=ask(model=OURS))
        gone = await stack.enter_async_context(cloud_rig(folder / "gone"))
        gone.gateway.app._parts.cloud.serves = lambda route: True  # type: ignore[method-assign]
        yield "provider_unknown", await gone.client.post(path, json=ask(model=OURS))  # removed at this moment


@provokes("no_chat_upstream", "upstream_unreachable", "already_forwarded", "module_stopped", "node_refused")
async def _nodes(folder: Path, path: str) -> Told:
    async with many(folder / "1") as town:
        alone = await town.start("alone", "edge")
        await town.settle()
        yield "no_chat_upstream", await alone.client.post(path, json=ask())
    async with many(folder / "2") as town:
        edge = await town.start("edge", "edge", "router")
        for name in ("a", "b"):
            town.ghost(name, "inference", serves=(TINY,))
        await town.settle()
        yield "upstream_unreachable", await edge.client.post(path, json=ask())
    async with many(folder / "3") as town:
        edge = await town.start("edge", "edge", "router")
        late = await town.start("late", "router", "inference", serves=(TINY,))
        worker = await town.start("worker", "inference", serves=(TINY,))
        edge.busy(worker)
        town.serve(late)
        await town.settle()
        yield "already_forwarded", await edge.client.post(path, json=ask())
        yield "module_stopped", await worker.client.post(path, json=ask())
    async with chain(folder / "4") as (town, edge, _, _):
        town.cluster.nodes.pop("edge")
        town.sites.pop("edge")
        town.publish()
        yield "node_refused", await edge.client.post(path, json=ask())


@provokes("upstream_lost", "upstream_error", "upstream_timeout")
async def _behind(folder: Path, path: str) -> Told:
    async def breaks(peer: Peer) -> None:
        await peer.request()

    async def proxy(peer: Peer) -> None:
        await peer.request()
        await peer.send(b"HTTP/1.1 503 X\r\ncontent-type: text/html\r\ncontent-length: 3\r\n\r\n<p>")

    async def silent(peer: Peer) -> None:
        await peer.request()
        await peer.closed()

    handlers = {"upstream_lost": breaks, "upstream_error": proxy, "upstream_timeout": silent}
    for code, handler in handlers.items():
        async with many(folder / code) as town:
            if handler is silent:
                town.change(TINY, first_byte_timeout=0.3)
            edge = await town.start("edge", "edge", "router", queue_wait=0.1)
            await town.scripted("node", "inference", handler=handler, serves=(TINY,))
            await town.settle()
            yield code, await edge.client.post(path, json=ask())


@provokes("body_too_large", "body_too_slow", "headers_too_large", "headers_too_slow", "invalid_http",
          "too_many_connections")  # fmt: skip
async def _listener(folder: Path, path: str) -> Told:
    """Below HTTP's requests: what is no request, and what is too much or too slow."""
    head = f"POST {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {KEY.text}\r\n".encode()
    async with rig(folder, max_body=1000, max_header_bytes=2000) as gw:
        yield "body_too_large", await gw.client.post(path, content=_pieces(2000))
        for code, sent in (
            ("body_too_large", head + b"content-length: 1001\r\n\r\n"),
            ("headers_too_large", head + b"x: " + b"v" * 3000 + b"\r\n\r\n"),
            ("invalid_http", b"what?\r\n\r\n"),
        ):
            yield code, await _raw(gw, sent)
    async with rig(folder / "slow", body_timeout=0.2, header_timeout=0.2) as gw:
        yield "body_too_slow", await _raw(gw, head + b"content-length: 100\r\n\r\nabc")
        yield "headers_too_slow", await _raw(gw, head)
    async with rig(folder / "full", max_connections=1) as gw, connected(gw.port):
        yield "too_many_connections", await _raw(gw, b"")


async def _pieces(size: int) -> AsyncIterator[bytes]:
    for _ in range(size // 100):
        yield b"x" * 100


async def _raw(gw: Rig, sent: bytes) -> httpx.Response:
    async with connected(gw.port) as client:
        await client.send(sent)
        status, headers, body = await client.response()
        return httpx.Response(status, headers=headers, content=body)


ELSEWHERE = {
    "too_many_pipelined": "only in the log: the connection is closed",
    "client_gone": "in records: there is nobody to answer",
    "gateway_restarted": "in records: whoever could have answered died",
    "engine_died": "why a replica does not run, which requests wait for",
    "no_cloud_node": "why a model is not ready: `reason` of model_not_ready",
    "model_not_wanted": "what a controller says of a demand: answered as model_not_ready, or as the model then is",
    "limits_not_counted": "what a controller tells an edge, which then works on its share",
    **dict.fromkeys(("bad_message", "bad_signature", "body_changed", "body_unsigned", "call_repeated", "clock_skew",
                     "node_certificate_required", "node_certificate_wrong", "node_removed", "node_signature_required",
                     "node_unknown", "weights_not_for_node", "weights_not_here"),
                    "for nodes, by the node listener; clients hear node_refused of it"),
    **dict.fromkeys(("admin_token_expired", "admin_token_needed", "authentication_needed", "invalid_admin_token",
                     "invalid_strategy", "managed_by_cluster_setup", "persist_failed", "unknown_field"),
                    "for administrators, by the node endpoints of /api/v1"),
    **dict.fromkeys(("not_found", "web_broken", "web_too_slow", "web_unavailable"),
                    "of paths that are the console's and the admin API's"),
}  # fmt: skip


def codes_of_the_page(text: str) -> set[str]:
    cells = re.findall(r"^\| (`[^|]+) \|", text, re.M)
    return {code for cell in cells for code in re.findall(r"`([a-z0-9_]+)`", cell)}


def codes_of_the_data_path() -> set[str]:
    """The page's section on it, its prose included; and whatever of the page's codes stands in the data path's source."""
    section = PAGE.split("## OpenAI endpoint")[1].split("\n## ")[0]
    prose = "\n".join(line for line in section.split("\n") if not line.startswith("|"))
    found = codes_of_the_page(section) | set(re.findall(r"`([a-z]+(?:_[a-z]+)+)`", prose))
    listed = codes_of_the_page(PAGE)
    for path in (*(ROUTING / "gateway").rglob("*.py"), *(ROUTING / "domain").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in listed:
                found.add(node.value)
    return found


def statuses() -> dict[str, str]:
    rows = re.findall(r"^\| (`[^|]+) \| ([^|]+) \|", PAGE, re.M)
    return {code: status for cell, status in reversed(rows) for code in re.findall(r"`([a-z0-9_]+)`", cell)}


def test_f47_every_code_of_the_data_path_is_provoked_here_or_said_why_not() -> None:
    provoked = set[str]().union(*CASES.values())
    assert provoked.isdisjoint(ELSEWHERE)
    assert sorted(provoked | set(ELSEWHERE)) == sorted(codes_of_the_data_path())


@pytest.mark.parametrize("path", [CHAT, MESSAGES], ids=["openai", "anthropic"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__.strip("_"))
async def test_f47_every_refusal_is_an_error_object_of_the_api_that_was_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: Callable[..., Told], path: str
) -> None:
    monkeypatch.setattr(dispatch, "GRACE", 0.2)
    monkeypatch.setattr(hop, "patience", lambda config, mark: 0.1)
    listed, met = statuses(), set()
    async for code, answer in case(tmp_path, path):
        met.add(code)
        check(code, answer, path, listed.get(code, ""))
    assert met == CASES[case]


def check(code: str, answer: httpx.Response, path: str, status: str) -> None:
    body: dict[str, Any] = answer.json()
    error = body["error"]
    assert error["code"] == code, answer.text
    assert answer.headers["content-type"] == "application/json"
    assert int(answer.headers["content-length"]) == len(answer.content)
    assert not status or str(answer.status_code) in status.split(", "), (code, answer.status_code)
    shape = shape_of(PATHS[path])
    if code in ("invalid_multipart", "invalid_http", "too_many_connections"):
        shape = Shape.OPENAI  # of no path, or not of this one
    assert {name: value for name, value in body.items() if name != "error"} == (
        {"type": "error"} if shape is Shape.ANTHROPIC else {}
    )
    assert {"message", "type", "code", "param"} <= set(error)
    assert error["message"]
    assert isinstance(error["type"], str)
    assert error["param"] is None or isinstance(error["param"], str)
    assert "Traceback" not in answer.text
    assert code == "too_many_connections" or answer.headers["x-request-id"]
    if answer.status_code == 401:
        assert answer.headers["www-authenticate"].startswith("Bearer")
