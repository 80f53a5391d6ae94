"""Orders about a model that somebody deletes at that moment, on connections of their own."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from catalog.models import Model
from catalog.services import served
from cluster import selectors
from cluster.models import ModelStanding
from cluster.services import demands, standing
from cluster.wire import Demand
from llmgw_site.lib.errors import Refused
from tests.cluster.rows import ACTOR, Machine, a_model_row, tick
from tests.cluster.threads import at_once

pytestmark = pytest.mark.django_db(transaction=True)


def ask(model: Model) -> object:
    return demands.asked(Demand(model=model.name), now=selectors.database_now())


@pytest.mark.parametrize(
    "order",
    [
        lambda model: standing.restart(actor=ACTOR, model=model),
        lambda model: standing.retry(actor=ACTOR, model=model),
        lambda model: standing.scale(actor=ACTOR, model=model, replicas=0, max_replicas=1),
        ask,
    ],
    ids=["restart", "retry", "scale", "ask"],
)
def test_an_order_for_a_model_that_is_deleted_is_done_or_refused(order: Callable[[Model], object]) -> None:
    machine = Machine()
    machine.heartbeat()
    for _ in range(8):
        model = a_model_row(replicas=0 if order is ask else 1, max_replicas=1)
        tick()
        model.placed.update(state="failed")
        errors = at_once(
            lambda model=model: order(model),  # type: ignore[misc]
            lambda model=model: served.remove(actor=ACTOR, model=model),  # type: ignore[misc]
        )
        assert [error for error in errors if not isinstance(error, Refused)] == []
        assert {error.code for error in errors if isinstance(error, Refused)} <= {"not_found", "model_not_found"}
        assert not Model.objects.exists()
        assert not ModelStanding.objects.exists()
