"""Whatever happens to a request, there is one record of it, with the tokens that the engine counted or a lower bound of them."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.scripted_engine import Seen
from tests.routing.gateway.rig import TINY
from tests.routing.gateway.schedules import AT_ONCE, Draw, Met, Ran, run

RESTARTED = "gateway_restarted"
PROMPT = 7
"""Tokens that the engine counts of any prompt."""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.mark.parametrize(
    ("requests", "kills", "deaths"),
    [(60, 1, 2), pytest.param(2_000, 20, 20, marks=[pytest.mark.prove, pytest.mark.timeout(1500)])],
)
async def test_random_requests_kills_and_restarts_leave_one_right_record_of_each(
    tmp_path: Path, requests: int, kills: int, deaths: int
) -> None:
    seed = random.getrandbits(32)
    ran = await run(tmp_path, seed=seed, requests=requests, kills=kills, deaths=deaths)
    ends = judge(ran, kills=kills, said=f"seed {seed}")
    if kills > 1:  # of few requests none may have met one of these
        assert {end[0] for end in ends} >= {"ok", "failed", "client_gone"}, f"seed {seed}: {ends}"
        assert ran.again, f"seed {seed}"


@pytest.mark.prove
@pytest.mark.timeout(1500)
async def test_an_edge_and_a_node_that_are_killed_under_queues_limits_and_fallbacks_leave_one_right_record_of_each(
    tmp_path: Path,
) -> None:
    seed = random.getrandbits(32)
    ran = await run(tmp_path, seed=seed, requests=2_000, kills=15, deaths=15, hops=True)
    said = f"seed {seed}"
    ends = judge(ran, kills=15, said=said)
    assert ran.behind == [], said  # one record, and nobody but the edge writes it
    assert {end[0] for end in ends} >= {"ok", "failed", "client_gone", "refused"}, f"{said}: {ends}"
    codes = {end[1] for end in ends}
    assert codes >= {"upstream_lost", "parallel_limit_reached", RESTARTED}, f"{said}: {ends}"
    assert codes & {"queue_full", "queue_timeout"}, f"{said}: {ends}"
    assert codes & {"requests_limit_reached", "tokens_limit_reached"}, f"{said}: {ends}"
    served = Counter((record["model_asked"], record["model_served"]) for record in ran.stored.values())
    assert served[TINY, "second"], f"{said}: {served}"
    assert ran.again, said


def judge(ran: Ran, *, kills: int, said: str) -> Counter[tuple[str, str]]:
    """What holds of every schedule. Gives how its records ended: outcomes with their codes."""
    counted = Counter(record["request_id"] for record in ran.stored.values())
    assert {name: count for name, count in counted.items() if count != 1} == {}, said
    assert set(counted) <= set(ran.draws), said
    assert ran.changed == [], said
    assert len(ran.left_over) <= 1, said

    records = {record["request_id"]: record for record in ran.stored.values()}
    assert {name for name, seen in ran.seen.items() if len(seen) > 1} == set(), said
    assert set(ran.seen) <= set(records), said  # each that reached an engine, even if nobody heard of it any more
    answered = {name for name, met in ran.met.items() if met.status}
    assert answered <= set(records), said
    wrong = {
        name: (why, record, ran.draws[name], ran.met[name], ran.seen.get(name))
        for name, record in records.items()
        if (why := fault(record, ran.draws[name], ran.met[name], ran.seen.get(name, [None])[0]))
    }
    assert wrong == {}, said
    ends = Counter((record["outcome"], record["code"]) for record in records.values())
    cut = ends["failed", RESTARTED]
    assert bool(cut) or kills == 1, said
    assert cut <= (kills + 1) * AT_ONCE, said
    return ends


def fault(record: dict[str, Any], item: Draw, met: Met, seen: Seen | None) -> str:
    """What is wrong with a record; "": nothing.

    1. left open by a gateway that was killed   failed, and counts are not known
    2. refused                                  it reached no engine, and cost nothing
    3. ok                                       an engine did it, and its counts are the record's
    4. cut, by whomever                         no more than what the engine sent, marked as estimated; or all, as counted
    5. answered in full, and well               then it is ok, unless 1
    """
    prompt, completion, estimated = record["prompt_tokens"], record["completion_tokens"], record["estimated"]
    counts = None if item.endpoint == "embeddings" else item.tokens
    if (record["endpoint"], record["stream"]) != (item.endpoint, item.stream) and record["outcome"] != "client_gone":
        return "of another kind"  # one that left within its body was not read
    if record["code"] == RESTARTED:  # 1
        known = record["outcome"] != "failed" or prompt is not None or completion is not None
        return "more is said than anybody can know" if known else ""
    if record["outcome"] == "refused":  # 2
        return "it cost something" if seen is not None or completion or prompt else ""
    if record["outcome"] == "ok":  # 3
        if seen is None:  # it may have been killed once all was sent
            return "no engine did it"
        return "" if (prompt, completion, estimated) == (PROMPT, counts, False) else "other counts than the engine's"
    if completion is not None or prompt is not None:  # 4
        if seen is None:
            return "counted, and no engine did it"
        if item.endpoint == "embeddings":
            return "" if prompt == PROMPT and not estimated else "other counts than the engine's"
        if not estimated and (prompt, completion) != (PROMPT, counts):
            return "cut, and not marked as estimated"
        if estimated and (completion or 0) > seen.sent:
            return "more than the engine sent"
        if estimated and not 1 <= (prompt or 0) <= PROMPT:
            return "a prompt of none, or more than the engine counted"
    well = met.whole and met.status == 200 and not item.script.keys() & {"error_after"}
    return "the client was answered well" if well else ""  # 5
