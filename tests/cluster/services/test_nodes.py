"""cluster.services.nodes: who belongs, and what heartbeats change."""

from __future__ import annotations

import threading
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.db import connection
from django.db.models.functions import Now
from django.test.utils import CaptureQueriesContext

from catalog.models import Event
from cluster import selectors
from cluster.domain import signing
from cluster.domain.modules import ModuleReport
from cluster.models import ClusterIdentity, Node, Replica
from cluster.services import identity, nodes
from cluster.wire import CardReport, EngineBuild, Hardware
from llmgw_site.lib import files
from llmgw_site.lib.errors import Refused
from tests.cluster.rows import HARDWARE, Machine, a_model_row, a_ready_replica, report, tick

pytestmark = pytest.mark.django_db


def test_the_cluster_has_one_identity_whoever_asks_first() -> None:
    first = identity.ensure_identity()
    assert identity.ensure_identity().epoch == first.epoch
    assert ClusterIdentity.objects.count() == 1
    assert signing.public_hex(identity.private_key(first)) == first.public_key


def test_the_private_key_is_not_in_the_database_in_clear() -> None:
    row = identity.ensure_identity()
    assert identity.private_key(row) not in str(vars(row))


def test_another_secret_does_not_open_the_key_and_says_what_to_do(settings: Any) -> None:
    row = identity.ensure_identity()
    settings.SECRET_KEY = "another"
    with pytest.raises(Refused, match="LLMGW_SECRET_KEY") as refused:
        identity.private_key(row)
    assert refused.value.code == "identity_sealed"


def test_a_name_or_a_key_is_enrolled_once() -> None:
    machine = Machine("alpha")
    for name, key in (("alpha", "09" * 32), ("beta", machine.node.public_key)):
        with pytest.raises(Refused) as refused:
            nodes.enrol(name=name, public_key=key, address="", actor="t")
        assert refused.value.code == "node_exists"


@pytest.mark.parametrize("key", ["", "zz", "09" * 31, "09" * 33, "00" * 32, "09 " * 32])
def test_what_is_no_key_is_refused(key: str) -> None:
    with pytest.raises(Refused) as refused:
        nodes.enrol(name="n", public_key=key, address="", actor="t")
    assert refused.value.code == "bad_public_key"


def test_a_removed_name_may_join_again_and_both_are_on_record() -> None:
    nodes.remove(node_id=Machine("alpha").node.id, actor="user:x", why="sold")
    Machine("alpha")
    assert Node.objects.filter(name="alpha").count() == 2
    assert list(Event.objects.order_by("at", "id").values_list("kind", flat=True)) == [
        "node_enrolled",
        "node_removed",
        "node_enrolled",
    ]


def test_the_local_node_is_enrolled_once_and_keeps_its_key(tmp_path: Path) -> None:
    config = replace(settings.CONFIG, data=tmp_path, node_name="here")
    node = nodes.enrol_local(config)
    kept = files.read_json(config.node_file)
    assert nodes.enrol_local(config).id == node.id
    assert files.read_json(config.node_file) == kept
    assert kept["node_id"] == node.id
    assert signing.public_hex(kept["private_key"]) == node.public_key
    assert kept["controller_public_key"] == identity.ensure_identity().public_key
    assert config.node_file.stat().st_mode & 0o777 == 0o600


def test_a_local_key_of_another_database_is_enrolled_again_as_it_is(tmp_path: Path) -> None:
    config = replace(settings.CONFIG, data=tmp_path, node_name="here")
    nodes.enrol_local(config)
    kept = files.read_json(config.node_file)
    Node.objects.all().delete()
    nodes.enrol_local(config)
    assert files.read_json(config.node_file)["private_key"] == kept["private_key"]


@pytest.mark.parametrize("private", ["", "zz", "09" * 31, 7, None, ["09" * 32]])
def test_a_damaged_local_key_is_made_anew(tmp_path: Path, private: Any) -> None:
    config = replace(settings.CONFIG, data=tmp_path, node_name="here")
    first = nodes.enrol_local(config)
    files.write_json(config.node_file, {**files.read_json(config.node_file), "private_key": private})
    second = nodes.enrol_local(config)
    assert second.id != first.id
    assert signing.public_hex(files.read_json(config.node_file)["private_key"]) == second.public_key


def test_the_last_two_controllers_cannot_be_taken_out_at_once(
    transactional_db: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    machines = [Machine("a"), Machine("b")]
    for machine in machines:
        machine.heartbeat(modules=(ModuleReport(name="controller"),))
    both_look, look = threading.Barrier(2), selectors.setup_nodes
    outcomes: list[str] = []

    def together() -> Any:
        """Wait for the other one, in vain where only one may look at a time."""
        found = look()
        with suppress(threading.BrokenBarrierError):
            both_look.wait(1.0)
        return found

    def take_out(machine: Machine) -> None:
        try:
            nodes.remove(node_id=machine.node.id, actor="t")
            outcomes.append("removed")
        except Refused as refused:
            outcomes.append(refused.code)
        finally:
            connection.close()

    monkeypatch.setattr(selectors, "setup_nodes", together)
    threads = [threading.Thread(target=take_out, args=(machine,)) for machine in machines]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(outcomes) == ["last_controller", "removed"]
    assert Node.objects.filter(removed_at__isnull=True).count() == 1


def test_a_lost_or_removed_local_identity_is_made_anew(tmp_path: Path) -> None:
    config = replace(settings.CONFIG, data=tmp_path, node_name="here")
    first = nodes.enrol_local(config)
    config.node_file.unlink()
    second = nodes.enrol_local(config)
    nodes.remove(node_id=second.id, actor="t")
    third = nodes.enrol_local(config)
    assert len({first.public_key, second.public_key, third.public_key}) == 3
    assert list(Node.objects.filter(removed_at__isnull=True)) == [third]


# --- heartbeats


def test_a_heartbeat_leaves_what_the_node_is(db: None) -> None:
    machine = Machine()
    machine.heartbeat(version="9.9", problems=("disk short",), snapshot_version="e:1", spool_records=3)
    node = Node.objects.get(id=machine.node.id)
    assert node.last_seen_at is not None
    assert node.hardware["cores"] == 4
    assert (node.version, node.problems, node.snapshot_version, node.spool_records) == ("9.9", ["disk short"], "e:1", 3)


def a_call(machine: Machine, boot: str, at: float) -> signing.Call:
    return signing.Call(node=machine.node.id, time=at, boot=boot, counter=7, body="", signature="")


def test_f05_a_heartbeat_of_an_earlier_boot_that_was_held_up_on_a_controller_is_refused() -> None:
    """It was read before the new boot's first one, and is written after it: that is no clock that was set back."""
    machine, now = Machine(), 1_800_000_000.0
    held_up = Node.objects.get(id=machine.node.id)
    nodes.observe(
        node=Node.objects.get(id=machine.node.id), beat=machine.beat(version="new"), now=now + 5,
        call=a_call(machine, "new", now + 5),
    )  # fmt: skip
    with pytest.raises(Refused) as refused:
        nodes.observe(node=held_up, beat=machine.beat(version="old"), now=now + 0.1, call=a_call(machine, "old", now))
    assert refused.value.code == "call_repeated"
    assert Node.objects.get().version == "new"


def test_a_placed_replica_is_told_until_it_has_stopped_for_good() -> None:
    machine, row = a_ready_replica()
    row.model.enabled = False
    row.model.save()
    tick()
    (wanted,) = machine.heartbeat(report(row, "ready"))
    assert not wanted.run
    (wanted,) = machine.heartbeat(report(row, "draining"))
    assert not wanted.run
    assert machine.heartbeat() == []
    tick()
    assert not Replica.objects.exists()


def test_a_replica_that_the_node_lost_is_to_come_again() -> None:
    machine, row = a_ready_replica()
    (wanted,) = machine.heartbeat()
    assert wanted.run
    row.refresh_from_db()
    assert (row.state, row.pid) == ("pending", None)


def test_a_report_about_an_older_generation_says_nothing_about_the_new_one() -> None:
    machine, row = a_ready_replica()
    old = report(row, "ready")
    Replica.objects.filter(id=row.id).update(generation=2, state="pending")
    (wanted,) = machine.heartbeat(old)
    assert wanted.generation == 2
    assert Replica.objects.get(id=row.id).state == "pending"


@pytest.mark.parametrize("state", ["hibernating", "lost", "pending", ""])
def test_a_state_that_no_node_reports_changes_nothing(state: str) -> None:
    machine, row = a_ready_replica()
    machine.heartbeat(report(row, state))
    assert Replica.objects.get(id=row.id).state == "ready"


def test_a_report_about_a_replica_of_another_node_is_ignored() -> None:
    _, row = a_ready_replica()
    Machine().heartbeat(report(row, "failed"))
    assert Replica.objects.get(id=row.id).state == "ready"


def writes(queries: Any) -> list[str]:
    return [item["sql"] for item in queries.captured_queries if item["sql"].startswith(("UPDATE", "INSERT", "DELETE"))]


def test_a_heartbeat_without_news_writes_no_replica() -> None:
    machine, row = a_ready_replica()
    with CaptureQueriesContext(
        connection,
    ) as queries:
        machine.heartbeat(report(row, "ready", port=1234, pid=42))
    assert [sql for sql in writes(queries) if "cluster_replica" in sql] == []


@pytest.mark.parametrize(
    ("told", "kept"), [(0.0, 0.0), (1.234567, 1.23), (0.004, 0.0), (None, None), (-3.0, 0.0), (float("nan"), None)]
)
def test_cores_that_a_replica_keeps_busy_are_kept_in_hundredths(told: float | None, kept: float | None) -> None:
    machine, row = a_ready_replica()
    machine.heartbeat(report(row, "ready", port=1234, pid=42, cpu=told, in_flight=1))
    assert Replica.objects.get().cpu == kept
    machine.heartbeat(report(row, "ready", port=1234, pid=42, cpu=8.0, code="x"))  # with other news than load
    assert Replica.objects.get().cpu == 8.0
    machine.heartbeat()  # it is not there any more
    assert Replica.objects.get().cpu is None


def test_a_heartbeat_costs_the_same_queries_with_one_replica_or_with_twenty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identity, "listened", lambda **more: None)  # its cost comes with time: each two seconds
    costs = []
    machine = Machine()
    machine.heartbeat()
    for number in (1, 20):
        for n in range(number):
            a_model_row(f"m{number}-{n}", profile={"memory": 1000})
        tick()
        reports = [report(row, "ready") for row in Replica.objects.all()]
        machine.heartbeat(*reports)
        with CaptureQueriesContext(connection) as queries:
            machine.heartbeat(*reports)
        costs.append(len(queries))
    assert costs[0] == costs[1] <= 5


@pytest.mark.parametrize(
    "address", ["javascript:alert(1)", "http://10.0.0.6:8880/path", "http://u:p@10.0.0.6", "x" * 1000, "http://[::1"]
)
def test_what_is_no_address_is_not_told_to_the_other_nodes_and_shown_as_a_problem(address: str) -> None:
    machine = Machine()
    machine.heartbeat(address="http://10.0.0.5:8880/")
    machine.heartbeat(address=address)
    node = Node.objects.get()
    assert node.address == "http://10.0.0.5:8880"
    assert [repr(address[:100]) in problem for problem in node.problems] == [True]
    machine.heartbeat(address="https://node.example:8880")
    node.refresh_from_db()
    assert (node.address, node.problems) == ("https://node.example:8880", [])


def test_an_agent_that_has_just_begun_takes_back_nothing_of_what_the_machine_is() -> None:
    machine = Machine()
    machine.heartbeat()
    before = Node.objects.get(id=machine.node.id)
    machine.heartbeat(hardware=Hardware(), engines=())  # before its first reading
    after = Node.objects.get(id=machine.node.id)
    assert (after.hardware, after.engines) == (before.hardware, before.engines)
    assert after.hardware["cores"] == 4
    machine.heartbeat(hardware=replace(HARDWARE, cores=2))
    assert Node.objects.get(id=machine.node.id).hardware["cores"] == 2


def test_a_report_is_bounded_whatever_a_node_sends() -> None:
    machine, row = a_ready_replica()
    machine.heartbeat(
        report(row, "failed", message="x" * 10**5),
        problems=("x" * 10**4,) * 1000,
        engines=(EngineBuild(kind="k" * 10**4, version="v" * 10**4, problem="p" * 10**4),) * 1000,
        hardware=Hardware(cores=-1, memory_total=2**63, cards=tuple(CardReport(uuid=f"u{n}") for n in range(10**4))),
    )
    node, row = Node.objects.get(), Replica.objects.get()
    assert len(node.hardware["cards"]) <= 256
    assert len(str(node.problems) + str(node.engines)) < 200_000
    assert len(row.message) <= 1000
    assert selectors.world().nodes[0].cores == -1  # read as it is: nothing fits there


def test_a_log_tail_is_bounded() -> None:
    machine, row = a_ready_replica()
    machine.heartbeat(report(row, "failed", code="engine_failed", message="no", log_tail="x" * 100_000 + "END"))
    row.refresh_from_db()
    assert len(row.log_tail) <= 16_384
    assert row.log_tail.endswith("END")


def test_what_became_of_a_replica_is_on_record_under_the_name_of_the_node_that_saw_it() -> None:
    machine, row = a_ready_replica()
    machine.heartbeat(report(row, "backoff", code="oom", message="no memory", attempt=2))
    machine.heartbeat(report(row, "backoff", code="oom", message="no memory", attempt=2))
    machine.heartbeat(report(row, "starting"))
    told = Event.objects.filter(subject_id=row.id, kind__in=["replica_ready", "replica_failed"]).order_by("at", "id")
    assert [(e.kind, e.actor, e.why) for e in told] == [
        ("replica_ready", f"node:{machine.node.name}", ""),
        ("replica_failed", f"node:{machine.node.name}", "no memory"),
    ]


def test_a_mark_that_the_database_wrote_by_itself_moves_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite's own clock writes three decimals, and times are compared as text there."""
    identity.ensure_identity()
    ClusterIdentity.objects.update(listening_since=Now(), listening_at=Now())
    later = round(selectors.database_now() + 3600, 3)
    monkeypatch.setitem(selectors.NOW, connection.vendor, str(later))
    identity.listened(now=later)
    assert ClusterIdentity.objects.get().listening_at == selectors.from_unix(later)
