"""Sums of usage: they are those of the stored records, whatever happens while these are stored."""

from __future__ import annotations

import random
import threading
from datetime import UTC, date, datetime, timedelta
from importlib import import_module
from typing import Any

import pytest
from django.apps import apps
from django.db import connection
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from catalog.services import keys
from routing import services
from routing.domain.rollups import SUMS, by_day, by_quarter
from routing.models import UsageDay, UsageQuarter, UsageRecord
from tests.routing.test_services import a_record
from tests.rows import a_key

pytestmark = pytest.mark.django_db
DAY = 86_400
T = 1_700_000_000.0


def agree() -> None:
    """Every sum is that of the records there are."""
    records = list(UsageRecord.objects.all())
    days = {
        (row.day, row.key_id, row.project_id, row.model_asked, row.model_served, row.alias_target): tuple(
            getattr(row, name) for name in SUMS
        )
        for row in UsageDay.objects.all()
    }
    assert days == {tuple(key): sums for key, sums in by_day(records).items()}
    quarters = {(row.start, row.key_id, row.project_id): row.cost for row in UsageQuarter.objects.all()}
    assert quarters == {tuple(key): cost for key, cost in by_quarter(records).items()}


RECORDS = st.builds(
    a_record,
    st.integers(0, 12).map(lambda n: f"rec_{n}"),
    started_at=st.integers(0, 3 * DAY).map(lambda s: T + s),  # some come days late
    key_id=st.sampled_from(["key_1", "key_2", ""]),
    model_asked=st.sampled_from(["a", "b"]),
    model_served=st.sampled_from(["a", ""]),
    alias_target=st.sampled_from(["", "a", "adapter"]),
    outcome=st.sampled_from(["ok", "failed", "refused", "client_gone"]),
    estimated=st.booleans(),
    completion_tokens=st.integers(0, 9) | st.none(),
    cost=st.integers(0, 99) | st.none(),
)


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(st.lists(st.tuples(st.lists(RECORDS, min_size=1, max_size=6), st.booleans()), max_size=6))
def test_sums_are_those_of_the_records_however_often_batches_come(
    monkeypatch: pytest.MonkeyPatch, batches: list[tuple[list[dict[str, Any]], bool]]
) -> None:
    """Batches overlap and repeat; of some, the process dies after the sums were written and before the commit."""
    for table in (UsageRecord, UsageDay, UsageQuarter):
        table.objects.all().delete()

    def dies(**_: Any) -> None:
        raise KeyboardInterrupt

    for batch, crash in batches:
        if crash:
            with monkeypatch.context() as broken:
                broken.setattr(keys, "touch", dies)
                with pytest.raises(KeyboardInterrupt):
                    services.store_usage(node_id="n", records=batch)
            agree()
        services.store_usage(node_id="n", records=batch)
        agree()


@pytest.mark.django_db(transaction=True)
def test_one_batch_that_comes_several_times_at_once_counts_once() -> None:
    batch = [a_record(f"rec_{n}", key_id="key_1", model_served="m", model_asked="m", cost=n) for n in range(40)]
    gate, failed = threading.Barrier(4), []

    def send(part: list[dict[str, Any]]) -> None:
        try:
            gate.wait()
            services.store_usage(node_id="n", records=part)
        except Exception as error:
            failed.append(error)
        finally:
            connection.close()

    parts = [batch, batch[::-1], batch[10:], batch[:30]]
    threads = [threading.Thread(target=send, args=(part,)) for part in parts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert UsageDay.objects.get().requests == UsageRecord.objects.count() == 40
    agree()


@pytest.mark.django_db(transaction=True)
def test_f36_twenty_workers_that_store_what_one_key_spent_wait_for_each_other_and_lose_nothing() -> None:
    key, _ = a_key("bot")
    gate, failed = threading.Barrier(20), []

    def work(number: int) -> None:
        dice = random.Random(number)
        batches = [
            [
                a_record(
                    f"rec_{number}_{batch}_{n}", started_at=T + dice.choice((0, 900, DAY)), key_id=key.pk,
                    project_id=key.project_id, model_asked=dice.choice("abc"), model_served="a", cost=n + 1,
                )
                for n in range(4)
            ]
            for batch in range(3)
        ]  # fmt: skip
        try:
            gate.wait()
            for records in batches:
                services.store_usage(node_id=f"node_{number}", records=records)
        except Exception as error:
            failed.append(error)
        finally:
            connection.close()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
        assert not thread.is_alive()
    assert failed == []
    assert UsageRecord.objects.count() == 20 * 3 * 4
    assert sum(row.cost for row in UsageQuarter.objects.all()) == 20 * 3 * (1 + 2 + 3 + 4)
    agree()


def test_what_an_engine_lies_about_stops_no_sum() -> None:
    for n in range(3):
        services.store_usage(node_id="n", records=[a_record(f"r{n}", prompt_tokens=1 << 80, cost=1 << 80)])
    assert UsageDay.objects.get().prompt_tokens == 3 << 40
    agree()


def test_records_of_before_the_sums_are_added_up_when_these_are_made() -> None:
    batch = [
        a_record("a", model_asked="m", model_served="m", estimated=True),
        a_record("b", model_asked="m", model_served="m", outcome="failed", completion_tokens=None),
        a_record("c", model_asked="nothing", outcome="refused"),
        a_record("d", model_asked="else", outcome="refused", started_at=T + DAY),
    ]
    services.store_usage(node_id="n", records=batch)
    UsageDay.objects.all().delete()
    import_module("routing.migrations.0005_rollups").fill(apps, None)
    assert sum(row.requests for row in UsageDay.objects.all()) == len(batch)
    agree()


def test_going_back_folds_what_only_the_target_of_an_alias_tells_apart() -> None:
    fields = {"model_asked": "prod", "model_served": "m"}
    batch = [
        a_record(f"r{n}", **fields, alias_target=target, cost=n) for n, target in enumerate(("", "m", "m", "adapter"))
    ]
    services.store_usage(node_id="n", records=[*batch, a_record("x", key_id="other", alias_target="m", **fields)])
    assert UsageDay.objects.count() == 4
    import_module("routing.migrations.0008_days_by_target").fold(apps, connection.schema_editor())
    assert {(row.key_id, row.alias_target, row.requests, row.cost) for row in UsageDay.objects.all()} == {
        ("", "", 4, 6), ("other", "", 1, 0),
    }  # fmt: skip


def test_sums_are_forgotten_by_their_day() -> None:
    services.store_usage(node_id="n", records=[a_record("a"), a_record("b", started_at=T + DAY, cost=5)])
    assert services.prune_rollups(before=datetime(2023, 11, 15, 12, tzinfo=UTC), limit=10) == 1
    assert [row.day for row in UsageDay.objects.all()] == [date(2023, 11, 15)]
    assert services.prune_quarters(before=datetime(2023, 11, 15, tzinfo=UTC) + timedelta(days=9), limit=10) == 1
