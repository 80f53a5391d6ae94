"""The gateway's series: their labels are bounded, and they go when their model or replica goes (F57)."""

from __future__ import annotations

from pathlib import Path

import httpx
from prometheus_client.parser import text_string_to_metric_families

from cluster.wire import to_dict
from llmgw_site.lib.files import write_json
from routing.domain.snapshot import ModelEntry
from tests.routing.gateway.listening import listening
from tests.routing.gateway.rig import SECOND, TINY, Rig, rig, snapshot
from tests.routing.gateway.scripted import until


async def scrape(gw: Rig) -> tuple[httpx.Response, dict[tuple[str, tuple[tuple[str, str], ...]], float]]:
    async with listening(gw.gateway.metrics_app, gw.config) as port, httpx.AsyncClient(timeout=60) as client:
        answer = await client.get(f"http://127.0.0.1:{port}/metrics")
        assert (await client.get(f"http://127.0.0.1:{port}/other")).status_code == 404
    samples = {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }
    return answer, samples


async def test_requests_and_tokens_are_counted_by_the_catalogues_names(tmp_path: Path) -> None:
    async with rig(tmp_path) as gw:
        await gw.chat(stream=True)
        for number in range(3):
            await gw.chat(model=f"made-up-{number}")
        answer, samples = await scrape(gw)
        assert answer.headers["content-type"].startswith("text/plain")
        labels = (("endpoint", "chat.completions"), ("model", TINY), ("status", "200"))
        assert samples["llmgw_requests_total", labels] == 1
        labels = (("endpoint", "chat.completions"), ("model", "unknown"), ("status", "404"))
        assert samples["llmgw_requests_total", labels] == 3
        assert samples["llmgw_tokens_total", (("direction", "in"), ("model", TINY))] == 7
        assert samples["llmgw_tokens_total", (("direction", "out"), ("model", TINY))] == 3
        assert samples["llmgw_first_token_seconds_count", (("model", TINY),)] == 1
        assert samples["llmgw_replica_requests_in_flight", (("replica", "rep_1"),)] == 0
        assert samples["llmgw_gateway_process_resident_memory_bytes", ()] > 0
        assert ("llmgw_event_loop_lag_seconds", ()) in samples
        assert "made-up" not in answer.text


async def test_f57_series_go_with_their_model_and_replica(tmp_path: Path) -> None:
    async with rig(tmp_path) as gw:
        await gw.chat()
        await gw.chat(model=SECOND)
        write_json(gw.config.snapshot_file, to_dict(snapshot("e1:2", models=(ModelEntry(name=TINY, created=1),))))
        gw.publish(())
        gw.gateway.table.look()
        answer, _ = await scrape(gw)
        assert TINY in answer.text
        assert SECOND not in answer.text
        assert "rep_2" not in answer.text


async def test_f37_a_blocked_event_loop_shows(tmp_path: Path) -> None:
    import time

    async with rig(tmp_path) as gw:
        value = gw.gateway.metrics.registry.get_sample_value
        await until(lambda: value("llmgw_event_loop_lag_max_seconds") is not None)
        time.sleep(2.0)  # noqa: ASYNC251 - the fault itself
        await until(lambda: (value("llmgw_event_loop_lag_max_seconds") or 0) > 1.7)
        await until(lambda: (value("llmgw_event_loop_lag_seconds") or 0) < 1.0)  # it is over
        _, samples = await scrape(gw)
        assert samples["llmgw_event_loop_lag_max_seconds", ()] > 1.7
