"""routing.services and selectors: the published snapshot, and usage that is stored once."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from catalog.models import ApiKey, Model
from catalog.services import keys
from cluster.selectors import database_now
from cluster.services import identity
from cluster.wire import Hardware, WireError, from_dict
from llmgw_site.lib.units import GIB
from routing import selectors, services
from routing.domain.snapshot import Snapshot
from routing.models import PublishedSnapshot, UsageRecord
from tests.cluster.rows import Machine, a_model_row, a_ready_replica, report, tick
from tests.rows import a_key

pytestmark = pytest.mark.django_db


def published() -> Snapshot:
    return from_dict(Snapshot, json.loads(PublishedSnapshot.objects.get().payload))


def test_a_snapshot_names_keys_models_and_the_replicas_that_may_answer() -> None:
    key, _ = a_key()
    _, row = a_ready_replica()
    version = services.publish()
    snapshot = published()
    assert snapshot.version == version == selectors.published_version()
    assert [(item.key_id, item.sha256) for item in snapshot.keys] == [(key.id, key.sha256)]
    (model,) = snapshot.models
    assert (model.name, model.enabled, model.replicas, model.code) == ("small", True, (row.id,), "")


def test_a_snapshot_says_which_models_run_on_demand() -> None:
    for name, fields in {"always": {}, "demand": {"replicas": 0, "max_replicas": 2}, "never": {"replicas": 0}}.items():
        a_model_row(name, **fields)
    services.publish()
    assert {model.name: model.on_demand for model in published().models} == {
        "always": False,
        "demand": True,
        "never": False,
    }


def test_the_version_rises_only_when_something_that_nodes_act_on_changed() -> None:
    machine, row = a_ready_replica()
    first = services.publish()
    machine.heartbeat(report(row, "ready", in_flight=7))
    assert services.publish() == first
    Model.objects.update(enabled=False)
    second = services.publish()
    epoch, counter = first.rsplit(":", 1)
    assert second == f"{epoch}:{int(counter) + 1}"
    assert published().models[0].code == "model_disabled"
    assert published().models[0].replicas == ()


def test_a_store_that_got_another_name_publishes_under_it_though_nothing_else_changed() -> None:
    a_model_row()
    first = services.publish()
    epoch, _ = first.rsplit(":", 1)
    identity.begin_epoch(epoch)
    second = services.publish()
    assert second == f"{identity.ensure_identity().epoch}:1"
    assert second != first
    assert services.publish() == second


def test_a_store_that_gets_another_name_while_it_publishes_publishes_under_the_new_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    a_model_row()
    lock = services.plan_lock

    @contextmanager
    def renamed() -> Iterator[None]:
        identity.begin_epoch(identity.ensure_identity().epoch)
        with lock():
            yield

    monkeypatch.setattr(services, "plan_lock", renamed)
    assert services.publish() == f"{identity.ensure_identity().epoch}:1"


def test_memory_that_changes_by_a_little_makes_no_new_version() -> None:
    a_model_row(profile={"memory": 100 * GIB})
    machine = Machine()
    versions = set()
    for free in (3, 4, 5):
        machine.heartbeat(hardware=Hardware(cores=4, memory_total=200 * GIB, memory_available=free * GIB))
        versions.add(services.publish())
    assert len(versions) == 1
    assert f"{published().models[0].reason}".endswith("are free for it now")
    machine.heartbeat(hardware=Hardware(cores=4, memory_total=50 * GIB, memory_available=free * GIB))
    assert services.publish() not in versions


@pytest.mark.parametrize("how", ["revoked", "expired"])
def test_a_key_that_is_worth_nothing_is_not_in_it(how: str) -> None:
    key, _ = a_key()
    assert len(selectors.compile_snapshot(now=database_now()).keys) == 1
    if how == "revoked":
        keys.revoke(actor="t", key=key)
    else:
        ApiKey.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    assert selectors.compile_snapshot(now=database_now()).keys == ()


def test_a_model_that_is_short_says_why_in_the_snapshot() -> None:
    a_model_row(profile={"memory": 1 << 45})
    Machine().heartbeat()
    tick()
    services.publish()
    (model,) = published().models
    assert model.code == "too_little_memory"
    assert "32.0 TiB" in model.reason


def test_compiling_costs_the_same_queries_however_much_there_is(django_assert_num_queries: Any) -> None:
    for number in range(6):
        a_ready_replica(f"m{number}")
        with django_assert_num_queries(20):
            selectors.compile_snapshot(now=1.0)


@pytest.mark.django_db(transaction=True)
def test_many_publishers_at_once_agree_on_one_version() -> None:
    a_ready_replica()
    gate = threading.Barrier(5)
    versions: list[str] = []

    def publisher() -> None:
        try:
            gate.wait()
            versions.append(services.publish())
        finally:
            connection.close()

    Model.objects.update(description="x", enabled=False)
    threads = [threading.Thread(target=publisher) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(versions) == 5
    assert len(set(versions)) == 1


# --- usage


def a_record(record_id: str, **fields: Any) -> dict[str, Any]:
    values = {"record_id": record_id, "request_id": "r", "started_at": 1_700_000_000.5, "endpoint": "chat.completions"}
    return {**values, "outcome": "ok", "status": 200, "prompt_tokens": 3, "completion_tokens": 4, **fields}


def test_records_are_stored_once_however_often_they_come() -> None:
    first = services.store_usage(node_id="n", records=[a_record("a"), a_record("b")])
    again = services.store_usage(node_id="n", records=[a_record("b", status=500), a_record("c")])
    assert (first.ids, again.ids) == (["a", "b"], ["b", "c"])
    assert sorted(UsageRecord.objects.values_list("record_id", "status")) == [("a", 200), ("b", 200), ("c", 200)]


def test_a_batch_may_hold_a_record_twice() -> None:
    assert services.store_usage(node_id="n", records=[a_record("a"), a_record("a")]).ids == ["a"]


def test_what_is_not_known_is_null_and_never_zero() -> None:
    services.store_usage(node_id="n", records=[a_record("a", prompt_tokens=None, completion_tokens=None)])
    row = UsageRecord.objects.get()
    assert (row.prompt_tokens, row.first_token_s, row.reported_by) == (None, None, "n")
    assert row.started_at.timestamp() == 1_700_000_000.5


def test_a_key_shows_when_it_was_last_used() -> None:
    key, _ = a_key()
    services.store_usage(
        node_id="n", records=[a_record("a", key_id=key.id), a_record("b", key_id=key.id, started_at=1_700_000_100.0)]
    )
    services.store_usage(node_id="n", records=[a_record("c", key_id=key.id, started_at=1_600_000_000.0)])
    key.refresh_from_db()
    assert key.last_used_at is not None
    assert key.last_used_at.timestamp() == 1_700_000_100.0


@pytest.mark.parametrize(
    "wrong",
    [{}, {"record_id": "x"}, a_record(""), a_record("x", started_at="now"), a_record("x", started_at=1e30)],
)
def test_a_record_that_cannot_be_read_holds_up_no_other(wrong: dict[str, Any]) -> None:
    stored = services.store_usage(node_id="n", records=[wrong, a_record("good")])
    assert stored.ids == ["good"]
    assert [item["record_id"] for item in stored.refused] == [wrong.get("record_id", "")]
    assert stored.refused[0]["reason"]


@pytest.mark.parametrize(
    ("fields", "column", "kept"),
    [
        ({"prompt_tokens": 1 << 70}, "prompt_tokens", 1 << 40),
        ({"prompt_tokens": -5}, "prompt_tokens", 0),
        ({"status": 10**9}, "status", 999),
        ({"request_id": "r" * 999}, "request_id", "r" * 200),
        ({"outcome": "teleported"}, "outcome", "failed"),
    ],
)
def test_a_value_that_no_column_can_hold_is_cut_to_what_it_holds(fields: Any, column: str, kept: Any) -> None:
    services.store_usage(node_id="n", records=[a_record("a", **fields)])
    assert getattr(UsageRecord.objects.get(), column) == kept


def test_a_batch_is_bounded() -> None:
    with pytest.raises(WireError, match="500"):
        services.store_usage(node_id="n", records=[a_record(f"r{n}") for n in range(501)])


def test_five_hundred_records_cost_a_handful_of_queries(django_assert_max_num_queries: Any) -> None:
    with django_assert_max_num_queries(25):
        stored = services.store_usage(node_id="n", records=[a_record(f"r{n}", key_id="key_1") for n in range(500)])
    assert len(stored.ids) == 500


def test_a_summary_adds_up_by_column() -> None:
    records = [
        a_record("a", model_asked="m1"),
        a_record("b", model_asked="m1", outcome="failed", completion_tokens=None),
        a_record("c", model_asked="m2"),
    ]
    services.store_usage(node_id="n", records=records)
    rows = selectors.summary(selectors.usage(), "model_asked")
    assert [(r["value"], r["requests"], r["failed"], r["prompt_tokens"], r["completion_tokens"]) for r in rows] == [
        ("m1", 2, 1, 6, 4),
        ("m2", 1, 0, 3, 4),
    ]
