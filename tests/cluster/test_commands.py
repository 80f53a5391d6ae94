"""manage.py cluster_fsck and cluster_plan."""

from __future__ import annotations

import json
from io import StringIO

import pytest
from django.core.management import call_command

from catalog.models import Model
from cluster.models import Replica
from tests.cluster.rows import Machine, a_model_row, a_ready_replica

pytestmark = pytest.mark.django_db


def said(command: str, *args: str) -> str:
    out = StringIO()
    call_command(command, *args, stdout=out)
    return out.getvalue()


def test_fsck_finds_nothing_in_a_sound_cluster() -> None:
    a_ready_replica()
    assert said("cluster_fsck") == "1 models, 1 nodes, 1 replicas: all as it must be\n"


def test_fsck_says_what_is_broken_and_ends_with_1() -> None:
    _, row = a_ready_replica()
    Replica.objects.update(shares=[{**row.shares[0], "memory": 1 << 45}])
    out = StringIO()
    with pytest.raises(SystemExit) as ended:
        call_command("cluster_fsck", stdout=out)
    assert ended.value.code == 1
    assert "32.0 TiB are promised" in out.getvalue()


def test_a_replica_of_before_shares_holds_what_was_reserved_for_it() -> None:
    a_ready_replica()
    Replica.objects.update(shares=[], reserved=1 << 45)
    out = StringIO()
    with pytest.raises(SystemExit):
        call_command("cluster_fsck", stdout=out)
    assert "32.0 TiB are promised" in out.getvalue()


def test_the_plan_is_printed_and_nothing_is_changed() -> None:
    a_model_row()
    Machine().heartbeat()
    assert said("cluster_plan").startswith("start   small: profile default needs 1.0 GiB")
    assert not Replica.objects.exists()


def test_reasons_to_wait_are_printed() -> None:
    a_model_row()
    assert "wait    small (no_node): the cluster has no node" in said("cluster_plan")


def test_the_plan_as_json_is_for_scripts() -> None:
    a_ready_replica()
    assert json.loads(said("cluster_plan", "--json")) == {"ops": [], "waits": []}
    Model.objects.update(enabled=False)
    (op,) = json.loads(said("cluster_plan", "--json"))["ops"]
    assert op["op"] == "stop"
    assert said("cluster_plan").startswith("stop    small rep_")
