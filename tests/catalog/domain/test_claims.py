"""What claims say of a person here."""

from __future__ import annotations

from typing import Any

import pytest

from catalog.domain.claims import Mapped, roles, username
from catalog.domain.roles import Role
from llmgw_site.lib.errors import Refused

TABLE = (
    Mapped(value="ops", role=Role.OPERATOR),
    Mapped(value="cn=admins,dc=acme", role=Role.ADMIN),
    Mapped(value="search", role=Role.VIEWER, scope="team:search"),
    Mapped(value="leads", role=Role.ADMIN, scope="team:search"),
)


@pytest.mark.parametrize(
    ("held", "expected"),
    [
        (["ops"], {"": Role.OPERATOR}),
        ("ops", {"": Role.OPERATOR}),
        (["ops", "cn=admins,dc=acme", "unknown"], {"": Role.ADMIN}),
        (["leads", "search", "ops"], {"": Role.OPERATOR, "team:search": Role.ADMIN}),
        ([], {}),
        (None, {}),
        ([1, None, {"ops": True}, ["ops"]], {}),
        ({"ops": True}, {}),
        ("search ops", {}),
    ],
)
def test_the_highest_role_of_each_scope_counts(held: Any, expected: dict[str, Role]) -> None:
    assert roles({"groups": held}, "groups", TABLE) == expected
    assert roles({}, "groups", TABLE) == {}


def test_a_name_is_one_that_users_may_have() -> None:
    assert username({"email": "ann.b+c@example.com"}, "email") == "ann.b+c@example.com"
    for claims in ({}, {"name": "a b"}, {"name": ""}, {"name": ["ann"]}, {"name": "x" * 151}, {"name": "ann\n"}):
        with pytest.raises(Refused) as refused:
            username(claims, "name")
        assert refused.value.code == "oidc_no_username"
