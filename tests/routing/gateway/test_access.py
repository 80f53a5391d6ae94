"""The access log: one line per request with all that its usage record knows."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest

from cluster.wire import LocalAdapter, to_dict
from llmgw_site.lib.files import private_folder, write_json
from llmgw_site.lib.unblocked import PIPE_BUF, Unblocked
from routing.domain.snapshot import AdapterEntry, ModelEntry
from routing.gateway.access import AccessLog
from tests.routing.gateway.process import Process, ready
from tests.routing.gateway.rig import KEY, TINY, Rig, ask, config_for, local_engine, rig, snapshot
from tests.routing.gateway.scripted import until


def lines(capfd: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capfd.readouterr().err.splitlines() if '"event":"request"' in line]


async def one(gw: Rig, capfd: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """The only line since the last look."""
    await gw.idle()
    found: list[dict[str, Any]] = []

    def come() -> bool:
        found.extend(lines(capfd))
        return bool(found)

    await until(come)
    (line,) = found
    return line


async def test_a_line_has_all_that_the_record_has(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    async with rig(tmp_path) as gw:
        for streamed in (True, False):
            script = {"tokens": 4, "cached": 2}
            answer = await gw.client.post(
                "/v1/chat/completions", json=ask(script, stream=streamed), headers={"x-request-id": f"mine-{streamed}"}
            )
            assert answer.status_code == 200
            line = await one(gw, capfd)
            record = gw.records()[-1]
            assert (record.finish_reason, record.client_gone) == ("stop", False)
            assert {name: line.get(name) for name in line if name not in ("ts", "queue_s", "schedule_s", "first_token_s", "total_s")} == {
                "level": "info", "process": "gateway", "logger": "access", "event": "request", "method": "POST",
                "request_id": f"mine-{streamed}", "key": KEY.prefix, "project": "proj_1", "endpoint": "chat.completions",
                "model": TINY, "replica": "rep_1", "status": 200, "outcome": "ok", "finish_reason": "stop",
                "stream": streamed, "tokens_in": 7, "tokens_out": 4, "tokens_cached": 2,
                **({"node": record.node_id} if record.node_id else {}),
            }  # fmt: skip
            assert (line["queue_s"], line["total_s"]) == (record.queue_s, record.total_s)
            assert line.get("first_token_s") == record.first_token_s


async def test_a_client_that_left_an_estimate_and_a_refusal_are_told(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    async with rig(tmp_path) as gw:
        body = ask({"tokens": 1000, "gap": 0.02}, stream=True)
        async with gw.client.stream("POST", "/v1/chat/completions", json=body) as answer:
            async for _ in answer.aiter_raw():
                break
        await until(lambda: bool(gw.records()))
        line = await one(gw, capfd)
        assert (line["status"], line["outcome"], line["client_gone"], line["estimated"]) == (
            499,
            "client_gone",
            True,
            True,
        )
        assert "finish_reason" not in line
        record = gw.records()[-1]
        assert (record.client_gone, record.finish_reason, record.outcome) == (True, "", "client_gone")
        await gw.chat(model="made-up" * 100)
        line = await one(gw, capfd)
        assert (line["status"], line["code"], line["outcome"]) == (404, "model_not_found", "refused")
        assert line["model_asked"] == ("made-up" * 100)[:200]
        with contextlib.suppress(Exception):
            await gw.chat({"status": 500})
        assert (await one(gw, capfd))["outcome"] == "failed"


async def test_an_adapter_is_named_beside_its_model(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    async with rig(tmp_path) as gw:
        ahoy = AdapterEntry(name="ahoy", created=7, weights="/srv/ahoy.gguf")
        model = ModelEntry(name=TINY, created=1, replicas=("rep_1",), adapters=(ahoy,))
        write_json(gw.config.snapshot_file, to_dict(snapshot("e1:2", models=(model,))))
        held = (LocalAdapter(name="ahoy", weights="/srv/ahoy.gguf", id=4),)
        gw.publish((local_engine("rep_1", TINY, gw.engine.port, adapters=held),))
        await until(lambda: "ahoy" in gw.gateway.table.view.routes and gw.gateway.table.view.routes["ahoy"].seats)
        assert (await gw.chat(model="ahoy")).status_code == 200
        line = await one(gw, capfd)
        assert (line["model"], line["model_asked"], line["adapter"]) == (TINY, "ahoy", "ahoy")


@pytest.mark.parametrize("odd", ["half a pair: \ud800", 1 << 70, Path("/srv")])
async def test_a_line_that_is_odd_is_written_all_the_same_and_costs_no_other(tmp_path: Path, odd: Any) -> None:
    reader, writer = os.pipe()
    out = Unblocked(writer)
    log = AccessLog(config_for(tmp_path), out)
    for request_id in ("before", odd, "after"):
        log.write(7.0, {"request_id": request_id, "status": 200})
    log.flush()
    told = [json.loads(line) for line in os.read(reader, 4096).splitlines()]
    out.close()
    os.close(reader)
    os.close(writer)
    assert [line["request_id"] for line in told] == ["before", str(odd) if isinstance(odd, Path) else odd, "after"]
    assert {(line["ts"], line["event"], line["status"]) for line in told} == {(7.0, "request", 200)}


async def test_lines_that_come_together_go_out_in_pieces_that_a_pipe_takes_at_once(tmp_path: Path) -> None:
    pieces: list[bytes] = []

    class Taken(Unblocked):
        def take(self, lines: bytes) -> None:
            pieces.append(lines)

    access = AccessLog(config_for(tmp_path), Taken())
    for number in range(30):
        access.write(0.0, {"request_id": f"req_{number}", "model": "m" * (5000 if number == 7 else 300)})
    access.flush()
    told = [json.loads(line)["request_id"] for line in b"".join(pieces).splitlines()]
    assert told == [f"req_{number}" for number in range(30)]
    assert [piece.count(b"\n") for piece in pieces if len(piece) > PIPE_BUF] == [1]
    assert all(piece.endswith(b"\n") for piece in pieces)
    assert len(pieces) < 8


async def test_a_reader_of_standard_error_that_stalls_holds_up_nobody(tmp_path: Path) -> None:
    config = config_for(tmp_path)
    private_folder(config.snapshot_file.parent)
    config.snapshot_file.write_bytes(orjson.dumps(to_dict(snapshot())))
    gateway = Process(config.data)
    child = gateway.start()
    try:
        await ready(gateway)
        assert child.stderr is not None
        fcntl.fcntl(child.stderr, fcntl.F_SETPIPE_SZ, 4096)  # some ten lines
        address = f"http://127.0.0.1:{gateway.client}"
        async with httpx.AsyncClient(base_url=address, timeout=60, trust_env=False) as client:
            asked = [await client.get(f"/v1/{number}") for number in range(60)]
            assert {answer.status_code for answer in asked} == {404}
            metrics = (await client.get(f"http://127.0.0.1:{gateway.metrics}/metrics")).text
            assert "\nllmgw_log_lines_dropped_total 0.0\n" in metrics

        def read() -> str:
            """It stalls no more; and once it has all that was kept for it, the gateway may end."""
            assert child.stderr is not None
            lines: list[str] = []
            while sum('"event":"request"' in line for line in lines) < 60:
                lines.append(child.stderr.readline())
                assert lines[-1], "it ended"
            child.terminate()
            return "".join(lines) + child.stderr.read()

        told = await asyncio.to_thread(read)
    finally:
        gateway.end()
    assert sum(json.loads(line)["event"] == "request" for line in told.splitlines()) == 60  # none was lost
