"""Nothing measured is lost, nothing is counted twice: a gateway killed at random moments under load."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import random
import secrets
import signal
from collections import Counter
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from tests.processes import alive, fair, wait_for
from tests.stack import MODEL, Stack
from workers.agent.usage import Spool

HELLO = [{"role": "user", "content": "Hi."}]
pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

AT_ONCE = 8


@pytest.mark.live("stack")
async def test_a_gateway_that_is_killed_leaves_one_record_of_each_request(stack: Stack) -> None:
    assert set((await records_of_requests(stack, requests=40, kills=1)).values()) == {1}


@pytest.mark.prove
@pytest.mark.timeout(1200)
@pytest.mark.live("up")
async def test_a_gateway_that_is_killed_at_random_leaves_one_record_of_each_request(fresh_stack: Stack) -> None:
    await asyncio.to_thread(fresh_stack.start)  # its own: its gateway's deaths make the supervisor's pauses grow
    assert set((await records_of_requests(fresh_stack, requests=400, kills=10)).values()) == {1}


async def records_of_requests(stack: Stack, *, requests: int, kills: int) -> Counter[str]:
    """How many each request left whose gateway was killed so often meanwhile; of those that were answered, none is missing."""
    mark = f"spool-{secrets.token_hex(4)}"
    dice = random.Random()
    kill_at = sorted(dice.sample(range(10, requests - 10), kills))  # counted in requests that have ended
    reached: dict[str, int | None] = {}
    left_open: set[str] = set()
    over = asyncio.Event()
    numbers = itertools.count()

    async def client(http: httpx.AsyncClient) -> None:
        while not over.is_set() or len(reached) < requests:
            number = next(numbers)
            name = f"{mark}-{number}"
            while name not in reached:
                try:
                    reached[name] = await ask(http, name, stream=number % 2 == 0)
                except httpx.ConnectError:
                    await asyncio.sleep(0.05)  # nobody was there: nothing was sent
                except httpx.HTTPError:
                    reached[name] = None  # broke off: it may have been accepted, so it is not sent again

    async def ask(http: httpx.AsyncClient, name: str, *, stream: bool) -> int:
        """A request that takes a while."""
        body = {"model": MODEL, "messages": HELLO, "stream": stream, "max_tokens": 60, "ignore_eos": True}
        answer = await http.post("/v1/chat/completions", headers={"x-request-id": name}, json=body)
        return answer.status_code

    async def killer() -> None:
        for ended in kill_at:
            await asyncio.to_thread(
                wait_for, lambda ended=ended: len(reached) >= ended, seconds=fair(60), what="requests"
            )
            await asyncio.sleep(dice.random() * 0.1)
            left_open.update(
                await asyncio.to_thread(
                    wait_for, lambda: kill_gateway(stack, mark), seconds=fair(40), what="open requests"
                )
            )
        over.set()

    limits = httpx.Limits(max_connections=AT_ONCE, max_keepalive_connections=0)
    headers = {"authorization": f"Bearer {stack.quickstart['LLMGW_API_KEY']}"}
    async with httpx.AsyncClient(
        base_url=stack.url, headers=headers, timeout=30, limits=limits, trust_env=False
    ) as http:
        await asyncio.gather(killer(), *(client(http) for _ in range(AT_ONCE)))
    answered = {name for name, status in reached.items() if status is not None}

    await asyncio.to_thread(wait_for, stack.whole, seconds=fair(40), what="the stack", every=0.2)
    spool = stack.data / "usage"
    try:  # the agent has shipped all that there is, also what the kill left open, and cleared up behind it
        await asyncio.to_thread(
            wait_for, lambda: len(segments(spool)) == 1 and Spool(spool).waiting() == 0, seconds=fair(60), every=0.1
        )
    except AssertionError as error:
        raise AssertionError(f"{error}; {segments(spool)}: {stack.tail()}") from None
    assert open_records(spool) == set()
    found = [row for row in stack.api().all("usage", page_size=1000) if row["request_id"].startswith(mark)]
    counted = Counter(row["request_id"] for row in found)
    # every answered request has its record; one that broke off has one if the gateway had accepted it
    assert answered <= set(counted) <= set(reached)
    lost = {row["request_id"]: row["outcome"] for row in found if row["code"] == "gateway_restarted"}
    assert lost == dict.fromkeys(left_open, "failed")
    return counted


def kill_gateway(stack: Stack, mark: str) -> set[str]:
    """Kill it where some of our requests are under way; their ids. Where none are, a kill would show nothing."""
    if (pid := stack.pid("gateway")) is None:
        return set()
    os.kill(pid, signal.SIGSTOP)
    wait_for(lambda: stopped(pid), what="the gateway to stand still")
    if found := {name for name in open_records(stack.data / "usage") if name.startswith(mark)}:
        os.kill(pid, signal.SIGKILL)
        wait_for(lambda: not alive(pid), what="the gateway to be gone")
    else:
        os.kill(pid, signal.SIGCONT)
    return found


def stopped(pid: int) -> bool:
    """Whether all of its threads stand still."""
    states = set()
    for path in Path(f"/proc/{pid}/task").glob("*/stat"):
        with suppress(FileNotFoundError, ProcessLookupError):  # a thread that ends
            states.add(path.read_text().rpartition(")")[2].split()[0])
    return states == {"T"}


def segments(spool: Path) -> list[Path]:
    return sorted(spool.glob("spool-*.jsonl"))


def open_records(spool: Path) -> set[str]:
    """Ids of the requests that the spool says are under way."""
    found: dict[str, str] = {}
    for path in segments(spool):
        try:
            lines = path.read_bytes().splitlines()
        except FileNotFoundError:  # the agent is done with it: nothing was open
            continue
        for line in lines:
            said = json.loads(line)
            if said["op"] == "open":
                found[said["record"]["record_id"]] = said["record"]["request_id"]
            else:
                found.pop(said["record"]["record_id"], None)
    return set(found.values())
