"""What each role comes with."""

from __future__ import annotations

import pytest

from catalog.domain.roles import OWN, Role, gives


@pytest.mark.parametrize(
    ("permission", "scoped", "cluster"),
    [
        # the least role that has it, of a scope and of the cluster; None: none has
        ("catalog.view_apikey", "viewer", "viewer"),
        ("routing.view_usagerecord", "viewer", "viewer"),
        ("catalog.view_model", "viewer", "viewer"),
        ("catalog.add_apikey", "operator", "operator"),
        ("catalog.change_model", "operator", "operator"),
        ("catalog.add_model", None, "operator"),
        ("catalog.delete_version", None, "operator"),
        ("cluster.add_job", None, "operator"),
        ("cluster.change_node", None, "operator"),
        ("cluster.delete_node", None, "admin"),
        ("cluster.add_jointoken", None, "admin"),
        ("cluster.change_clustersetup", None, "admin"),
        ("catalog.change_provider", None, "admin"),
        ("catalog.add_organisation", None, "admin"),
        ("catalog.add_project", "admin", "admin"),
        ("catalog.add_rolegrant", "admin", "admin"),
        ("catalog.manage_all_tokens", None, "admin"),
        ("cluster.view_node", None, "viewer"),
        ("catalog.view_event", None, "viewer"),
        ("auth.change_user", None, "admin"),
        ("auth.change_permission", None, None),
        ("sessions.delete_session", None, None),
    ],
)
def test_the_least_role_that_has_a_permission(permission: str, scoped: str | None, cluster: str | None) -> None:
    for wanted, of_scope in ((scoped, True), (cluster, False)):
        found = [role.value for role in Role if gives(role, permission, scoped=of_scope)]
        assert found == [role.value for role in Role][(list(Role).index(Role(wanted)) if wanted else 3) :]


def test_whoever_has_a_role_has_tokens_of_their_own() -> None:
    for permission in OWN:
        assert all(gives(role, permission, scoped=scoped) for role in Role for scoped in (True, False))
