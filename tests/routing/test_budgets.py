"""Budgets as rows: what is spent of them is a sum of usage, how they stand is told to nodes and kept as an event."""

from __future__ import annotations

import asyncio
import json
import random
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from catalog.models import Budget, Event
from catalog.services import budgets
from cluster.wire import from_dict, to_dict
from llmgw_site.lib.config import Config
from llmgw_site.lib.errors import Refused
from routing import selectors, services
from routing.domain.snapshot import Snapshot
from routing.models import PublishedSnapshot, UsageRecord
from tests.cluster.rows import a_model_row
from tests.routing.gateway.rig import TINY, ask, rig
from tests.routing.test_services import a_record
from tests.rows import ACTOR, a_key

pytestmark = pytest.mark.django_db
NOON = datetime(2026, 3, 15, 12, tzinfo=UTC)


def spend(key: Any, units: float, when: datetime = NOON, record_id: str = "") -> None:
    record = a_record(
        record_id or f"rec_{when.timestamp()}_{units}", started_at=when.timestamp(), key_id=key.pk,
        project_id=key.project_id, model_asked="m", model_served="m", stream=True, cost=int(units * 1_000_000),
    )  # fmt: skip
    services.store_usage(node_id="n", records=[record])


def told(now: datetime) -> Snapshot:
    made = selectors.compile_snapshot(now=now.timestamp())
    return from_dict(Snapshot, json.loads(json.dumps(to_dict(made))))


def test_f25_a_budget_is_reached_by_streams_alone_and_holds_until_its_period_is_over() -> None:
    key, _ = a_key("bot")
    team = key.project.team
    budgets.put(actor=ACTOR, of=team, period="day", amount=Decimal(10), zone="Europe/Berlin")
    services.look_at_budgets(NOON)
    assert told(NOON).scopes == ()  # nothing follows from it yet
    spend(key, 8.5)
    assert services.look_at_budgets(NOON) == 1
    entries = {scope.scope_id: scope.budgets for scope in told(NOON).scopes}
    assert [(item.spent, item.amount, item.hard) for item in entries[team.pk]] == [(8_500_000, 10_000_000, True)]
    spend(key, 2)
    services.look_at_budgets(NOON)
    later = NOON + timedelta(hours=10, minutes=59)  # 22:59 UTC: the last minute of Berlin's day
    assert services.look_at_budgets(later) == 0
    (entry,) = next(scope.budgets for scope in told(later).scopes if scope.scope_id == team.pk)
    assert entry.spent >= entry.amount
    assert entry.resets_at == datetime(2026, 3, 15, 23, tzinfo=UTC).timestamp()
    assert services.look_at_budgets(later + timedelta(minutes=1)) == 1
    assert told(later + timedelta(minutes=1)).scopes == ()
    events = Event.objects.filter(subject_kind="budget", actor="budgets").order_by("at", "id")
    assert [item.kind for item in events] == ["budget_warned", "budget_spent", "budget_reset"]
    assert "10.500000 USD of 10.000000 USD" in events[1].message


def test_f25_what_streams_cost_closes_the_gateway_that_measured_them(tmp_path: Path) -> None:
    """The whole round: streams of a real gateway, their records, the budget, the snapshot, and the gateway again."""
    a_model_row(TINY, price_input=Decimal(1_000_000), price_output=Decimal(1_000_000))  # a unit a token
    key, text = a_key("bot")
    budgets.put(actor=ACTOR, of=key.project, period="month", amount=Decimal(15), zone="UTC")

    def asked(folder: str, *streams: bool) -> tuple[list[tuple[int, str]], list[dict[str, Any]], int]:
        """By a gateway that knows what controllers say now: status and code of each, records, and what reached the engine."""
        services.publish()
        snapshot = PublishedSnapshot.objects.get().payload

        async def work() -> tuple[list[tuple[int, str]], list[dict[str, Any]], int]:
            def prepare(config: Config) -> None:
                config.snapshot_file.write_text(snapshot)

            async with rig(tmp_path / folder, prepare=prepare) as gw:
                found = []
                for stream in streams:
                    headers = {"authorization": f"Bearer {text}"}
                    answer = await gw.client.post("/v1/chat/completions", json=ask(stream=stream), headers=headers)
                    said = "" if answer.status_code == 200 else answer.json()["error"]["code"]
                    found.append((answer.status_code, said))
                await gw.idle()
                await gw.record(len(streams))
                return found, [to_dict(record) for record in gw.records()], len(gw.engine.requests)

        return asyncio.run(work())

    found, records, reached = asked("first", True, True)
    assert (found, reached) == ([(200, "")] * 2, 2)
    assert sum(record["cost"] for record in records) == 20_000_000  # 7 tokens and 3, each time
    services.store_usage(node_id="n", records=records)
    services.look_at_budgets(timezone.now())
    for folder in ("second", "third"):  # and so it stays
        found, records, reached = asked(folder, True, False)
        assert (found, reached) == ([(429, "budget_spent")] * 2, 0)
        services.store_usage(node_id="n", records=records)
        services.look_at_budgets(timezone.now())
    assert Budget.objects.get().standing == "spent"


def test_a_snapshot_tells_nothing_of_a_period_that_is_over_though_nobody_looked_since() -> None:
    key, _ = a_key("bot")
    budgets.put(actor=ACTOR, of=key, period="day", amount=Decimal(1))
    spend(key, 2)
    services.look_at_budgets(NOON)
    assert told(NOON).keys[0].budgets[0].spent == 2_000_000
    assert told(NOON + timedelta(days=1)).keys[0].budgets == ()


def test_what_is_spent_is_the_sum_of_the_records_whatever_the_zone() -> None:
    dice = random.Random(7)
    first, _ = a_key("k0")
    keys = [first, a_key("k1", project=first.project)[0], a_key("other")[0]]
    for n in range(150):
        when = NOON - timedelta(minutes=dice.randrange(0, 40 * 24 * 60))
        spend(dice.choice(keys), dice.randrange(1, 9), when, f"rec_{n}")
    for zone in ("Asia/Kathmandu", "America/New_York", "UTC"):
        for period in ("day", "month"):
            for of in (first, first.project, first.project.team.organisation):
                budgets.put(actor=ACTOR, of=of, period=period, amount=Decimal(500), zone=zone)
        for item in services.budgets_now(NOON):
            records = UsageRecord.objects.filter(started_at__gte=item.span.start, project_id=first.project_id)
            if item.row.key_id:
                records = records.filter(key_id=item.row.key_id)
            assert item.spent == sum(record.cost or 0 for record in records)


def test_looking_costs_the_same_however_many_budgets_there_are(django_assert_max_num_queries: Any) -> None:
    for n in range(8):
        key, _ = a_key(f"k{n}")
        budgets.put(actor=ACTOR, of=key, period="month", amount=Decimal(1))
    services.look_at_budgets(NOON)
    with django_assert_max_num_queries(4):
        assert services.look_at_budgets(NOON) == 0


def test_a_budget_that_is_changed_stands_anew() -> None:
    key, _ = a_key("bot")
    budgets.put(actor=ACTOR, of=key, period="month", amount=Decimal(1), warn_at=None)
    spend(key, 2)
    services.look_at_budgets(NOON)
    assert Budget.objects.get().standing == "spent"
    budgets.put(actor=ACTOR, of=key, period="month", amount=Decimal(5))
    services.look_at_budgets(NOON)
    row = Budget.objects.get()
    assert (row.standing, row.warn_at, row.amount) == ("ok", None, Decimal(5))
    budgets.remove(actor=ACTOR, of=key, period="month")
    assert not Budget.objects.exists()


@pytest.mark.parametrize(
    "fields",
    [
        {"amount": Decimal(-1)},
        {"amount": None},
        {"amount": Decimal(1), "zone": "Mars/Olympus"},
        {"amount": Decimal(1), "warn_at": 1.5},
        {"amount": Decimal(1), "period": "week"},
    ],
)
def test_a_budget_that_cannot_be_is_refused(fields: dict[str, Any]) -> None:
    key, _ = a_key("bot")
    with pytest.raises(Refused):
        budgets.put(actor=ACTOR, of=key, **{"period": "day", **fields})
