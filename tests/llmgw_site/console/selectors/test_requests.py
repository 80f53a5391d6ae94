"""Minutes behind us, from real usage records."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from llmgw_site.console.selectors import Minute, minutes
from routing.domain.records import Outcome, UsageRecord
from routing.services import store_usage
from tests.llmgw_site.console.conftest import Cluster

NOW = datetime(2026, 11, 29, 12, 10, 30, tzinfo=UTC)


def record(name: str, ago: float, **more: object) -> dict[str, object]:
    from cluster.wire import to_dict

    start = NOW.timestamp() - ago
    given = {"outcome": Outcome.OK.value, "status": 200, **more}
    return to_dict(
        UsageRecord(record_id=name, request_id=name, started_at=start, endpoint="chat.completions", **given)  # type: ignore[arg-type]
    )


def test_each_minute_has_its_requests_failures_tokens_and_median(
    cluster: Cluster, django_assert_num_queries: object
) -> None:
    store_usage(
        node_id=cluster.node.id,
        records=[
            record("rec_1", 5, completion_tokens=10, first_token_s=0.1),
            record("rec_2", 10, completion_tokens=20, first_token_s=0.3),
            record("rec_3", 20, outcome=Outcome.FAILED.value, status=502),
            record("rec_4", 95, completion_tokens=7),
            record("rec_5", 3_600, completion_tokens=999),
        ],
    )
    with django_assert_num_queries(2):  # type: ignore[operator]
        found = minutes(3, NOW)
    assert found == (
        Minute(requests=1, tokens=7),
        Minute(),
        Minute(requests=3, failed=1, tokens=30, first_token_s=pytest.approx(0.2)),
    )
