"""Whatever happens to a request, there is one record of it, with the tokens that the engine counted or a lower bound of them."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.scripted_engine import Seen
from tests.routing.gateway.schedules import Draw, Met, run

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
    said = f"seed {seed}"

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

    cut = [record for record in records.values() if record["code"] == RESTARTED]
    ends = Counter(record["outcome"] for record in records.values())
    if kills > 1:  # of few requests none may have met one of these
        assert set(ends) >= {"ok", "failed", "client_gone"}, f"{said}: {ends}"
        assert cut, said
        assert ran.again, said
    assert len(cut) <= (kills + 1) * 12, said


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
    if completion is not None:  # 4
        if seen is None:
            return "counted, and no engine did it"
        if not estimated and (prompt, completion) != (PROMPT, counts):
            return "cut, and not marked as estimated"
        if estimated and completion > seen.sent:
            return "more than the engine sent"
        if estimated and not 1 <= (prompt or 0) <= PROMPT:
            return "a prompt of none, or more than the engine counted"
    well = met.whole and met.status == 200 and not item.script.keys() & {"error_after"}
    return "the client was answered well" if well else ""  # 5
