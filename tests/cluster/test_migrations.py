"""Migrations of the cluster and of routing go back and forth, and the models are what they make."""

from __future__ import annotations

import pytest
from django.core.management import call_command
from django.db import connection

from cluster import selectors
from cluster.domain.plan import Remember
from cluster.models import Certificate, ClusterSetup, JoinToken, Node, Replica
from cluster.services import authority, identity, joining, members
from tests.cluster.rows import HARDWARE, a_ready_replica, report, tick
from tests.cluster.services.test_joining import a_csr

TABLES = {"cluster": "cluster_replica", "routing": "routing_usagerecord"}


@pytest.mark.django_db(transaction=True)
def test_every_migration_can_be_undone_and_done_again() -> None:
    for app in ("routing", "cluster"):
        call_command("migrate", app, "zero", verbosity=0)
        assert TABLES[app] not in connection.introspection.table_names()
    for app in ("cluster", "routing"):
        call_command("migrate", app, verbosity=0)
        assert TABLES[app] in connection.introspection.table_names()


@pytest.mark.django_db(transaction=True)
def test_nodes_and_replicas_stay_as_they_were_before_membership_and_after_it() -> None:
    """Back to the version that knew no tokens, certificates, map, setup and maintenance, and forward again."""
    machine, row = a_ready_replica()
    joining.issue(actor="t")
    Node.objects.filter(id=machine.node.id).update(maintenance="drained", roles=["inference"])
    ClusterSetup.objects.create(nodes={machine.node.id: ["inference"]}, updated_by="t")
    members.publish()
    authority.issue(csr=a_csr(), node=machine.node, now=selectors.database_now())
    own = identity.ensure_identity()
    for target in ("0001", "0002"):
        call_command("migrate", "cluster", target, verbosity=0)
    call_command("migrate", verbosity=0)
    node = Node.objects.get()
    assert (node.id, node.name, node.public_key) == (machine.node.id, machine.node.name, machine.node.public_key)
    assert node.hardware["cores"] == HARDWARE.cores
    assert (node.maintenance, node.roles, node.modules, node.cards_maintenance, node.call_counter) == (
        "",
        [],
        [],
        {},
        None,
    )
    assert (Replica.objects.get().id, Replica.objects.get().state) == (row.id, "ready")
    assert (identity.ensure_identity().epoch, identity.ensure_identity().public_key) == (own.epoch, own.public_key)
    assert not JoinToken.objects.exists()
    assert not Certificate.objects.exists()
    machine.heartbeat(report(row, "ready", port=1234, pid=42))
    assert members.publish().news
    assert authority.fingerprint(authority.certificate())


@pytest.mark.django_db(transaction=True)
def test_replicas_of_before_shares_hold_what_was_reserved_and_are_left_alone() -> None:
    """Back to the version that knew no shares, standings and measurements, and forward again."""
    machine, row = a_ready_replica()
    call_command("migrate", "cluster", "0002", verbosity=0)
    call_command("migrate", verbosity=0)
    (replica,) = selectors.world().replicas
    assert (replica.id, replica.reserved, replica.cards) == (row.id, row.reserved, ())
    assert row.reserved > 0
    machine.heartbeat(report(row, "ready", port=1234, pid=42))
    assert [op for op in tick().done if not isinstance(op, Remember)] == []
    assert Replica.objects.get().generation == 1


@pytest.mark.django_db
def test_no_model_differs_from_its_migrations() -> None:
    call_command("makemigrations", "catalog", "cluster", "routing", "--check", "--dry-run", verbosity=0)
