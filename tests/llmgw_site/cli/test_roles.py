"""`llmgw role` against a real server."""

from __future__ import annotations

import pytest

from catalog.models import Event, RoleGrant
from tests.llmgw_site.cli.conftest import Llmgw
from tests.rows import a_project, a_user

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_role_from_giving_to_taking(llmgw: Llmgw) -> None:
    a_project()
    a_user("ann")
    assert "Nobody has a role yet" in llmgw("role", "list").out
    assert (
        "ann is viewer of the project main"
        in llmgw("role", "give", "ann", "viewer", "--of", "main", "--why", "new").out
    )
    assert "ann is operator of the cluster" in llmgw("role", "give", "ann", "operator").out
    assert Event.objects.filter(kind="role_added", why="new").count() == 1
    listed = llmgw("role", "list").out
    assert "project main" in listed
    assert "the cluster" in listed
    assert llmgw("role", "take", "ann", "--of", "project:main").code == 0
    missing = llmgw("role", "take", "ann", "--of", "main")
    assert (missing.code, "operator of the cluster" in missing.err) == (4, True)
    assert llmgw("role", "take", "ann").code == 0
    assert not RoleGrant.objects.exists()
    assert llmgw("role", "give", "nobody", "viewer").code == 1
    assert llmgw("role", "give", "ann", "king").code == 1
    assert llmgw("role", "give", "ann", "viewer", "--of", "nowhere").code == 4
