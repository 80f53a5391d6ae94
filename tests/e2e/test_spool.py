"""Nothing measured is lost, nothing is counted twice: a gateway killed at random moments under load."""

from __future__ import annotations

import asyncio
import os
import random
import secrets
import signal
from collections import Counter

import httpx
import pytest

from tests.processes import wait_for
from tests.stack import MODEL, Stack

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("stack"), pytest.mark.timeout(300)]

REQUESTS, AT_ONCE, KILLS = 200, 8, 6


async def test_200_requests_with_the_gateway_killed_at_random_give_one_record_each(stack: Stack) -> None:
    mark = f"spool-{secrets.token_hex(4)}"
    dice = random.Random(7)
    reached: dict[str, int | None] = {}
    todo = iter(range(REQUESTS))

    async def client(http: httpx.AsyncClient) -> None:
        for number in todo:
            name = f"{mark}-{number}"
            while name not in reached:
                try:
                    answer = await http.post(
                        "/v1/chat/completions",
                        headers={"x-request-id": name},
                        json={
                            "model": MODEL,
                            "messages": [{"role": "user", "content": "Hi."}],
                            "stream": number % 2 == 0,
                        },
                    )
                    reached[name] = answer.status_code
                except httpx.ConnectError:
                    await asyncio.sleep(0.05)  # nobody was there: nothing was sent
                except httpx.HTTPError:
                    reached[name] = None  # broke off: it may have been accepted, it is not sent again

    async def killer() -> None:
        for _ in range(KILLS):
            await asyncio.sleep(0.2 + dice.random())
            pid = await asyncio.to_thread(wait_for, lambda: stack.pid("gateway"), seconds=20, what="the gateway")
            os.kill(pid, signal.SIGKILL)

    limits = httpx.Limits(max_connections=AT_ONCE, max_keepalive_connections=0)
    headers = {"authorization": f"Bearer {stack.quickstart['LLMGW_API_KEY']}"}
    async with httpx.AsyncClient(
        base_url=stack.url, headers=headers, timeout=30, limits=limits, trust_env=False
    ) as http:
        await asyncio.gather(killer(), *(client(http) for _ in range(AT_ONCE)))
    assert len(reached) == REQUESTS
    broke = {name for name, status in reached.items() if status is None}
    answered = set(reached) - broke

    await asyncio.to_thread(wait_for, stack.whole, seconds=30, what="the stack", every=0.2)

    def records() -> Counter[str]:
        rows = stack.api().all("usage", page_size=1000)
        return Counter(row["request_id"] for row in rows if row["request_id"].startswith(mark))

    # every answered request has its record; one that broke off has one if the gateway had accepted it
    await asyncio.to_thread(wait_for, lambda: answered <= set(records()), seconds=30, what="all records", every=0.5)
    await asyncio.to_thread(wait_for, lambda: _is_shipped(stack), seconds=30, what="the spool to be empty", every=0.5)
    counted = records()
    assert {name: times for name, times in counted.items() if times != 1} == {}
    assert set(counted) <= set(reached)
    assert answered <= set(counted)
    assert len(broke) < REQUESTS // 2, "too few were answered for this to show anything"


def _is_shipped(stack: Stack) -> bool:
    (node,) = stack.api().all("nodes")
    return node.get("spool_records") in (0, None) and len(list((stack.data / "usage").glob("spool-*.jsonl"))) <= 1
