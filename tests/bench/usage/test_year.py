"""tests.bench.usage: the rows are those that such a year leaves."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from django.db.models import Sum

from catalog.models import Budget
from routing.models import UsageDay, UsageQuarter
from tests.bench.usage.year import Size, fill

pytestmark = pytest.mark.django_db


def test_the_rows_follow_from_the_size() -> None:
    size = Size(days=3, requests=180, teams=2, projects=4, keys=6, models=3, each=2, busy=3)
    found = fill(size, datetime(2026, 3, 15, 0, 40, tzinfo=UTC))
    assert found == {"routing_usageday": 3 * 6 * 2, "routing_usagequarter": (40 * 96 + 3) * 2}
    assert UsageDay.objects.order_by().values("day", "key_id", "model_served").distinct().count() == 3 * 6 * 2
    of_a_day = UsageDay.objects.filter(day="2026-03-13").aggregate(Sum("requests"))["requests__sum"]
    assert of_a_day == 180 + sum(range(6)) * 2  # each key has a number of its own
    assert UsageQuarter.objects.filter(start="2026-03-15T00:30Z").count() == 2
    assert Budget.objects.count() == 3
