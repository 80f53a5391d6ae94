"""Every endpoint, streamed and not, in every way to end, at one gateway and over a hop: status, envelope, one record, counters,
and nothing left over."""

from __future__ import annotations

from pathlib import Path

import pytest

from routing.domain.endpoints import CHAT, ENDPOINTS, MESSAGES
from tests.routing.gateway.matrix import CASES, CELLS, HOP, ONE, TRANSLATED, WAYS, Cell, code_of, total, town
from tests.routing.gateway.rig import TINY
from tests.routing.gateway.scripted import connected, until

EACH = 2
"""Ways to end that each cell is put through in the quick form."""


def covering(way: str) -> list[tuple[Cell, str]]:
    """Each cell with some ways to end, each way with some cells, others for each way through gateways."""
    cases = list(CASES)
    step = len(cases) // EACH
    start = list(WAYS).index(way)
    return [
        (cell, cases[(number + start + turn * step) % len(cases)])
        for number, cell in enumerate(CELLS)
        for turn in range(EACH)
    ]


@pytest.mark.parametrize("way", [ONE, HOP])
async def test_each_endpoint_and_each_way_to_end_is_recorded_once_and_leaves_nothing(tmp_path: Path, way: str) -> None:
    chosen = covering(way)
    assert {case for _, case in chosen} == set(CASES)
    assert {cell.endpoint.name for cell, _ in chosen} == set(ENDPOINTS)
    assert {cell.endpoint.name for cell, _ in chosen if cell.translated} == set(TRANSLATED)
    async with town(tmp_path, way) as it:
        for cell, case in chosen:
            await it.play(cell, case)


@pytest.mark.prove
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("cell", CELLS, ids=str)
async def test_every_endpoint_ends_in_every_way_and_is_recorded_once_each_time(
    tmp_path: Path, cell: Cell, way: str
) -> None:
    async with town(tmp_path, way) as it:
        for case in CASES:
            await it.play(cell, case)
        assert it.cases == len(CASES)


@pytest.mark.parametrize("anthropic", [False, True], ids=["openai", "anthropic"])
@pytest.mark.parametrize("way", [ONE, HOP])
async def test_a_list_of_models_is_answered_whatever_is_spent_and_leaves_no_record(
    tmp_path: Path, way: str, anthropic: bool
) -> None:
    shaped = ENDPOINTS[MESSAGES if anthropic else CHAT]
    async with town(tmp_path, way) as it:
        await it.begin()
        own = it.options({"headers": {"anthropic-version": "2023-06-01"} if anthropic else {}})["headers"]
        for case in ("requests", "budget"):
            await CASES[case](it, CELLS[0])  # from now on no chat is let in
            for path in ("/v1/models", f"/v1/models/{TINY}"):
                for method, name, headers, status, code in (
                    ("GET", path, own, 200, ""),
                    ("POST", path, own, 405, "method_not_allowed"),
                    ("GET", "/v1/models/nobody", own, 404, "model_not_found"),
                    ("GET", path, own | {"authorization": "Bearer sk-llmgw-nobody"}, 401, "invalid_api_key"),
                ):
                    answer = await it.edge.client.request(method, name, headers=headers)
                    assert answer.status_code == status, answer.text
                    assert answer.headers["content-type"] == "application/json"
                    assert code_of(shaped, answer.text) == code if code else TINY in answer.text
                    it.ended += 1
                async with connected(it.edge.client.base_url.port or 0) as client:  # asks and leaves at once
                    head = f"GET {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {it.key.text}\r\n\r\n"
                    await client.send(head.encode())
                it.ended += 1
        await until(lambda: total(it.edge, "llmgw_requests_total") == it.ended + len(it.ends))
        await it.settled(None)
