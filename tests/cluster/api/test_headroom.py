"""/api/v1/models/…/headroom."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client

from llmgw_site.lib.units import GIB
from tests.cluster.rows import Machine, a_model_row, a_ready_replica, report, tick

pytestmark = pytest.mark.django_db
PATH = "/api/v1/models/{}/headroom"


def test_it_takes_the_permissions_to_look(client: Client) -> None:
    a_ready_replica()
    assert client.get(PATH.format("small")).status_code == 401
    user = User.objects.create_user("reader", password="x")
    user.user_permissions.set(Permission.objects.filter(codename="view_model"))
    client.force_login(user)
    assert client.get(PATH.format("small")).json()["error"]["code"] == "permission_denied"
    user.user_permissions.set(Permission.objects.filter(codename__in=["view_model", "view_replica", "view_node"]))
    assert client.get(PATH.format("small")).status_code == 200


def test_it_says_how_many_more_fit_and_who_makes_room(admin_client: Client) -> None:
    machine = Machine("one")
    machine.heartbeat()
    low = a_model_row("org/low", profile={"memory": 5 * GIB}, priority_class="opportunistic")
    tick()
    row = low.placed.get()
    machine.heartbeat(report(row, "ready"))
    high = a_model_row("org/high", profile={"memory": 4 * GIB}, priority_class="critical", replicas=0, max_replicas=2)
    told = admin_client.get(PATH.format("org/high")).json()
    assert (told["model"], told["fits"], told["counted"], told["allowed"]) == ("org/high", 0, True, 2)
    assert told["code"] == "no_memory_now"
    assert told["room_from"] == [
        {
            "replica": row.pk,
            "model": "org/low",
            "klass": "opportunistic",
            "node": "one",
            "in_flight": 0,
            "bytes": 5 * GIB,
            "ground": "class",
        }
    ]
    low.placed.all().delete()
    told = admin_client.get(PATH.format(high.pk)).json()
    assert (told["fits"], told["places"], told["room_from"]) == (
        1,
        [{"node": "one", "profile": "default", "count": 1}],
        [],
    )
    assert admin_client.get(PATH.format("nobody")).status_code == 404
