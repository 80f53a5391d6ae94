"""A model that a quota stops: what the snapshot says of it, and what a request is told."""

from __future__ import annotations

import pytest

from catalog.services import quotas, scopes
from cluster import selectors
from cluster.selectors import database_now
from llmgw_site.lib.errors import Kind
from llmgw_site.lib.units import GIB
from routing.domain.choose import Route, not_ready
from routing.selectors import compile_snapshot
from tests.cluster.rows import Machine, a_model_row, tick

pytestmark = pytest.mark.django_db


def test_a_request_for_a_model_over_its_limit_is_answered_with_the_sums() -> None:
    Machine().heartbeat()
    owner = scopes.create_organisation(actor="t", name="acme")
    quotas.put(actor="t", scope=owner, guarantee={}, limit={"memory": GIB})
    a_model_row("first", organisation=owner)
    a_model_row("second", organisation=owner)
    tick()
    entry = next(item for item in compile_snapshot(now=database_now()).models if item.name == "second")
    assert entry.code == "over_limit"
    refused = not_ready(Route(model=entry))
    assert (refused.kind, refused.code) == (Kind.UNAVAILABLE, "model_not_ready")
    assert refused.extra["reason"] == "over_limit"
    assert (
        "the organisation acme may have at most 1.0 GiB of memory, it holds 1.0 GiB, and one more replica of second takes "
        "1.0 GiB: an administrator can raise the limit"
    ) in refused.message
    assert "first" not in refused.message  # who may ask for this model need not know the others of its scope
    now = database_now()
    _, statuses = selectors.statuses(selectors.world(now), now)
    told = {item.name: item.reason for item in statuses.values()}["second"]
    assert "it holds 1.0 GiB (first 1.0 GiB), and" in told  # who runs the cluster sees who holds it
    assert "raise the limit with `llmgw quota set organisation:acme`" in told
