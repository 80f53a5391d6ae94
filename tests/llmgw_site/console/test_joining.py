"""Letting machines in from the console."""

from __future__ import annotations

import html
import re
from typing import Any

import pytest
from django.test import Client

from cluster.domain.joining import parse_token
from cluster.models import JoinToken
from cluster.services import joining
from tests.llmgw_site.console.conftest import Cluster, Person

ADD = "/admin/nodes/add"


def test_a_token_is_made_and_its_command_shown_once(admin: Client, cluster: Cluster) -> None:
    answer = admin.post(ADD, {"uses": "3", "hours": "168"})
    page = html.unescape(answer.content.decode())
    command = re.search(r"llmgw node join (\S+) --controller \S+", page)
    assert command is not None
    row = JoinToken.objects.get()
    assert parse_token(command[1]).token_id == row.id
    assert row.uses_allowed == 3
    assert row.created_by == "user:root"
    assert "3 machines" in page
    assert "no-store" in answer.headers["Cache-Control"]
    again = admin.get(ADD).content.decode()
    assert command[1] not in again
    assert row.id in again


def test_an_address_that_no_other_machine_reaches_is_told(admin: Client, cluster: Cluster) -> None:
    page = admin.post(ADD, {"uses": "1", "hours": "1"}).content.decode()
    for part in ("No other machine can reach http://127.0.0.1:", "LLMGW_NODE_HOST", "LLMGW_NODE_ADDRESS"):
        assert part in page, part


@pytest.mark.parametrize(
    "fields", [{"uses": "0", "hours": "24"}, {"uses": "x", "hours": "24"}, {"uses": "1", "hours": "9"}, {}]
)
def test_what_makes_no_sense_is_refused(fields: dict[str, Any], admin: Client, cluster: Cluster) -> None:
    answer = admin.post(ADD, fields)
    page = answer.content.decode()
    assert answer.status_code == 409
    at = "hours" if fields.get("uses") == "1" else "uses"
    assert f'id="error-{at}"' in page
    assert f'name="uses" value="{fields.get("uses", "")}"' in page
    assert not JoinToken.objects.exists()


def test_an_open_token_is_revoked(admin: Client, cluster: Cluster) -> None:
    token = joining.issue(actor="test").token
    page = admin.post(f"/admin/nodes/tokens/{token.id}/revoke", follow=True).content.decode()
    assert "worth nothing from now on" in page
    assert "No open token" in page
    token.refresh_from_db()
    assert token.revoked_at is not None
    assert "(not_found)" in admin.post("/admin/nodes/tokens/none/revoke", follow=True).content.decode()


def test_the_live_part_is_the_list_of_tokens(admin: Client, cluster: Cluster) -> None:
    token = joining.issue(actor="test").token
    parts = admin.get(f"{ADD}?parts=1").content.decode()
    assert token.id in parts
    assert "<html" not in parts


def test_each_thing_needs_its_permission(person: Person, cluster: Cluster) -> None:
    token = joining.issue(actor="test").token
    maker = person("cluster.view_jointoken", "cluster.add_jointoken", name="maker")
    assert ">Revoke<" not in maker.get(ADD).content.decode()
    assert maker.post(f"/admin/nodes/tokens/{token.id}/revoke").status_code == 403
    assert person("cluster.view_jointoken", name="looker").post(ADD).status_code == 403
