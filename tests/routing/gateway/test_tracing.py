"""Traces: what a real OTLP/HTTP receiver gets of real requests, what engines and nodes are told, and that off is off."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from routing.gateway import tracing
from tests.fakes.otlp import Heard, Receiver, receiver
from tests.fakes.scripted_engine import Seen
from tests.processes import fair
from tests.routing.gateway.hops import closed_port, many
from tests.routing.gateway.rig import ENGINE_KEY, KEY, TINY, ask, rig
from tests.routing.gateway.scripted import until

CHAT = "/v1/chat/completions"
TRACE, CALLER = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SAMPLED = {"traceparent": f"00-{TRACE}-{CALLER}-01", "tracestate": "vendor=1"}


@pytest.fixture
def on(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A receiver that gateways made from now on send to."""
    with receiver() as there:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", there.url)
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
        yield there


async def heard(there: Receiver, count: int) -> dict[str, Heard]:
    """So many spans, the steps by name; a call of an engine by its kind."""
    await until(lambda: len(there.spans) >= count)
    return {span.kind if span.kind != "internal" else span.name: span for span in there.spans}


def carried(seen: Seen) -> tuple[str, str, bool]:
    """Of the traceparent that an engine got: trace, span, and whether they are recorded (W3C Trace Context)."""
    version, trace, span, flags = seen.headers["traceparent"].split("-")
    assert version == "00"
    return trace, span, bool(int(flags, 16) & 1)


@pytest.mark.parametrize(
    ("environ", "found"),
    [
        ({}, False),
        ({"OTEL_SERVICE_NAME": "x", "OTEL_TRACES_SAMPLER": "always_on"}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c:4318/v1/traces"}, True),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, True),  # to the default address
        ({"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}, False),
        ({"OTEL_TRACES_EXPORTER": "console, otlp"}, True),
        ({"OTEL_SDK_DISABLED": "TRUE", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}, True),
    ],
)
def test_variables_that_ask_for_traces(environ: dict[str, str], found: bool) -> None:
    assert tracing.wanted(environ) is found


def test_a_protocol_that_is_not_spoken_is_said_and_costs_no_request(caplog: pytest.LogCaptureFixture) -> None:
    environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4317", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}
    assert "grpc" in str(tracing.wanted(environ))
    assert tracing.make(environ) is None
    assert "tracing_not_possible" in caplog.text


def test_off_imports_nothing() -> None:
    code = "import sys; from routing.gateway import lifespan; print([n for n in sys.modules if n.startswith('opentelemetry')])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


async def test_off_a_clients_traceparent_passes_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OTEL_EXPORTER_OTLP_ENDPOINT", raising=False)
    async with rig(tmp_path) as gw:
        assert gw.gateway.tracing is None
        assert (await gw.client.post(CHAT, json=ask(), headers=SAMPLED)).status_code == 200
        assert gw.engine.last.headers["traceparent"] == SAMPLED["traceparent"]


async def test_a_streamed_chat_is_one_trace_by_the_conventions(tmp_path: Path, on: Receiver) -> None:
    async with rig(tmp_path) as gw:
        body = ask({"tokens": 4, "cached": 2}, stream=True)
        answer = await gw.client.post(CHAT, json=body, headers={"x-request-id": "mine"})
        assert answer.status_code == 200
        spans = await heard(on, 4)
        record = await gw.record()
    root, upstream = spans["server"], spans["client"]
    assert (root.name, root.parent, root.error) == (f"POST {CHAT}", "", False)
    assert root.attributes == {
        "http.request.method": "POST", "http.route": CHAT, "url.path": CHAT, "http.response.status_code": 200,
        "llmgw.request_id": "mine", "llmgw.key": KEY.prefix, "llmgw.project": "proj_1", "llmgw.outcome": "ok",
        "llmgw.queue_s": record.queue_s, "llmgw.schedule_s": record.schedule_s, "llmgw.replica": "rep_1", **({"llmgw.node": record.node_id} if record.node_id else {}),
    }  # fmt: skip
    assert {spans[name].parent for name in ("admission", "schedule", "client")} == {root.id}
    assert {span.trace for span in on.spans} == {root.trace}
    assert (upstream.name, upstream.events) == (f"chat {TINY}", ["first_token"])
    first = upstream.attributes.pop("gen_ai.response.time_to_first_chunk")
    assert 0 <= first <= record.first_token_s  # by the clock of the loop, which has milliseconds
    assert upstream.attributes == {
        "gen_ai.operation.name": "chat", "gen_ai.provider.name": "llama.cpp", "gen_ai.request.model": TINY,
        "gen_ai.request.stream": True, "gen_ai.response.model": TINY, "gen_ai.usage.input_tokens": 7,
        "gen_ai.usage.output_tokens": 4, "gen_ai.usage.cache_read.input_tokens": 2,
        "gen_ai.response.finish_reasons": ["stop"], "llmgw.replica": "rep_1",
        **({"llmgw.node": record.node_id} if record.node_id else {}),
    }  # fmt: skip
    steps = [spans["admission"], spans["schedule"], upstream]
    for before, after in itertools.pairwise(steps):
        assert root.start <= before.start <= before.end <= after.start <= after.end <= root.end
    assert carried(gw.engine.last) == (root.trace, upstream.id, True)
    assert on.services == {tracing.SERVICE}


async def test_a_callers_trace_is_continued(tmp_path: Path, on: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", "our-models")
    async with rig(tmp_path) as gw:
        assert (await gw.client.post(CHAT, json=ask(), headers=SAMPLED)).status_code == 200
        spans = await heard(on, 4)
        assert (spans["server"].trace, spans["server"].parent) == (TRACE, CALLER)
        seen = gw.engine.last
        assert carried(seen) == (TRACE, spans["client"].id, True)
        assert seen.headers["tracestate"] == "vendor=1"
        assert [name for name, _ in seen.raw_headers].count("traceparent") == 1
        # one that the caller does not record is not sent, and the engine is told so
        assert (
            await gw.client.post(CHAT, json=ask(), headers={"traceparent": f"00-{TRACE}-{CALLER}-00"})
        ).status_code == 200
        assert (carried(gw.engine.last)[0], carried(gw.engine.last)[2]) == (TRACE, False)
        # and what is no traceparent begins a trace of its own
        assert (await gw.client.post(CHAT, json=ask(), headers={"traceparent": "no-such-thing"})).status_code == 200
        await until(lambda: len(on.spans) >= 8)
        assert len({span.trace for span in on.spans}) == 2
    assert len(on.spans) == 8
    assert on.services == {"our-models"}


async def test_what_fails_says_so_where_it_failed(tmp_path: Path, on: Receiver) -> None:
    async with rig(tmp_path) as gw:
        await gw.chat(model="absent")
        spans = await heard(on, 3)
        assert "client" not in spans
        assert (spans["schedule"].error, spans["schedule"].attributes["error.type"]) == (True, "model_not_found")
        assert (spans["server"].error, spans["server"].attributes["http.response.status_code"]) == (
            False,
            404,
        )  # the client's fault
        on.spans.clear()
        await gw.client.post(CHAT, json=ask(), headers={"authorization": "Bearer wrong"})
        spans = await heard(on, 2)
        assert set(spans) == {"server", "admission"}
        assert spans["admission"].attributes["error.type"] == "invalid_api_key"
        on.spans.clear()
        with contextlib.suppress(httpx.HTTPError):
            await gw.chat({"tokens": 9, "die_after": 3}, stream=True)
        spans = await heard(on, 4)
        assert (spans["client"].error, spans["client"].attributes["error.type"]) == (True, "engine_broken")
        assert spans["client"].attributes["llmgw.tokens_estimated"] is True
        assert spans["server"].error


async def test_the_wait_for_a_turn_is_a_span_of_its_own_and_so_is_each_model_that_is_asked(
    tmp_path: Path, on: Receiver
) -> None:
    async with rig(tmp_path) as gw:
        asking = [asyncio.ensure_future(gw.chat({"held": True})) for _ in range(2)]
        await until(lambda: len(gw.engine.requests) == 2)
        asking.append(asyncio.ensure_future(gw.client.post(CHAT, json=ask(), headers=SAMPLED)))
        await until(lambda: gw.gateway.queues.lines[TINY].waiting == 1)
        gw.engine.release.set()
        assert {answer.status_code for answer in await asyncio.gather(*asking)} == {200}
        await until(lambda: len(on.spans) == 14)
        mine = sorted((span for span in on.spans if span.trace == TRACE), key=lambda span: span.start)
        assert [span.name for span in mine[1:]] == ["admission", "schedule", "queue", "schedule", f"chat {TINY}"]
        assert all(before.end <= after.start for before, after in itertools.pairwise(mine[1:]))


async def test_hops_between_nodes_are_one_trace(tmp_path: Path, on: Receiver) -> None:
    async with many(tmp_path) as town:
        edge = await town.start("edge", "edge")
        await town.start("router", "router")
        worker = await town.start("worker", "inference", serves=(TINY,))
        await town.settle()
        assert (await edge.client.post(CHAT, json=ask(), headers=SAMPLED)).status_code == 200
        await until(lambda: len(on.of(TRACE)) == 12)
        spans = on.of(TRACE)
        told = carried(worker.engine.last)[1]
    servers = sorted((span for span in spans if span.kind == "server"), key=lambda span: span.start)
    clients = sorted((span for span in spans if span.kind == "client"), key=lambda span: span.start)
    assert [span.attributes.get("llmgw.hop", "") for span in servers] == ["", "handed", "forwarded"]
    assert [span.parent for span in servers] == [CALLER, clients[0].id, clients[1].id]
    assert [span.attributes["gen_ai.provider.name"] for span in clients] == [tracing.NODE, tracing.NODE, "llama.cpp"]
    assert told == clients[2].id


async def test_the_operators_sampler_rules(tmp_path: Path, on: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "parentbased_traceidratio")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", "0")
    async with rig(tmp_path) as gw:
        for _ in range(3):
            assert (await gw.chat()).status_code == 200
        assert not carried(gw.engine.last)[2]
        assert (await gw.client.post(CHAT, json=ask(), headers=SAMPLED)).status_code == 200
        await until(lambda: len(on.of(TRACE)) == 4)
    assert {span.trace for span in on.spans} == {TRACE}


async def test_f31_no_secret_and_no_prompt_is_in_a_trace(
    tmp_path: Path, on: Receiver, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "api-key=collector-secret-77")
    error = json.dumps({"error": {"message": f"bad key {ENGINE_KEY}", "code": 500, "type": "server_error"}})
    async with rig(tmp_path) as gw:
        for script in ("my-private-prompt", {"status": 500, "body": error}, {"reset": True, "x": "my-private-prompt"}):
            await gw.client.post(CHAT, json=ask(script, user="jane@example.org"), headers={"cookie": "hunter2-cookie"})
        await gw.client.post("/v1/secret-path-5521", headers={"x-api-key": KEY.text})
        await until(lambda: len(on.spans) >= 12)
    assert {item["api-key"] for item in on.headers} == {"collector-secret-77"}
    said = on.raw.decode("latin-1") + "".join(capfd.readouterr())
    secrets = (KEY.text, ENGINE_KEY, "my-private-prompt", "hunter2-cookie", "jane@example.org", "secret-path-5521")
    for secret in (*secrets, "collector-secret-77"):
        assert secret not in said


@pytest.mark.parametrize("how", ["refuses", "absent"])
async def test_a_collector_that_fails_costs_no_request_and_holds_up_no_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    with receiver(status=503) as there:
        url = there.url if how == "refuses" else f"http://127.0.0.1:{closed_port()}"
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
        async with contextlib.AsyncExitStack() as stack:
            gw = await stack.enter_async_context(rig(tmp_path))
            for _ in range(5):
                assert (await gw.chat(stream=True)).status_code == 200
            ending = asyncio.ensure_future(stack.aclose())
            await until(ending.done, seconds=fair(tracing.FLUSH + 2))
            await ending
