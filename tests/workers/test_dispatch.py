"""workers.dispatch: what signals lead to."""

from __future__ import annotations

import functools
import socket
import time
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from channels_redis.core import RedisChannelLayer
from django.db import connection
from django.test.utils import CaptureQueriesContext

from catalog.services import keys
from cluster import signals
from cluster.domain.modules import ModuleReport
from cluster.models import Job
from cluster.services import demands, jobs, members, nodes
from cluster.wire import CardReport, Demand, EngineBuild, FetchReport, Hardware, WeightsReport
from llmgw_site import settings as product
from llmgw_site.lib.units import GIB
from routing import selectors
from tests.cluster.rows import HARDWARE, Machine, a_model_row, a_ready_replica, age, report
from tests.rows import a_key, a_version
from workers import dispatch, nudges


@pytest.fixture(autouse=True)
def no_time_passes(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """However long a busy machine takes, what comes in a row comes within one of the spans in which a thing happens once."""
    throttles, now = (dispatch._news, dispatch._map, dispatch._looks), time.monotonic()
    monkeypatch.setattr(dispatch, "time", SimpleNamespace(monotonic=lambda: now))
    for throttle in throttles:
        throttle.forget()
    yield
    for throttle in throttles:
        throttle.forget()


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Any]]:
    """Messages that would go to the broker; whether a real worker takes them is tested in test_celery."""
    messages: list[tuple[str, Any]] = []
    monkeypatch.setattr(dispatch.app, "send_task", lambda task, args, **options: messages.append((task, args)))
    return messages


@pytest.mark.django_db
def test_an_opened_job_wakes_a_worker_after_the_commit(
    sent: list[Any], django_capture_on_commit_callbacks: Any
) -> None:
    with django_capture_on_commit_callbacks(execute=True):
        job = jobs.open(kind="serve", subject="m", args={}, actor="t")
        assert sent == []
    assert sent == [("workers.tasks.advance.advance", (job.id,))]


@pytest.mark.django_db
def test_a_request_for_a_model_at_rest_wakes_the_reconciler(
    sent: list[Any], django_capture_on_commit_callbacks: Any
) -> None:
    a_model_row(replicas=0, max_replicas=1)
    with django_capture_on_commit_callbacks(execute=True):
        demands.asked(Demand(model="small"), now=1000.0)
        assert sent == []
    assert sent == [("workers.tasks.reconcile.reconcile", ())]


@pytest.mark.django_db
def test_many_changes_in_a_row_wake_the_reconciler_once_and_once_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first at once; the others together, when the last of them has long been written."""
    woken: list[float | None] = []
    monkeypatch.setattr(dispatch.app, "send_task", lambda task, args, **options: woken.append(options["countdown"]))
    monkeypatch.setattr(dispatch, "publish_snapshot", lambda: None)
    for _ in range(50):
        dispatch.catalogue_is_new()
        dispatch.model_asked()
    assert woken == [None, pytest.approx(dispatch.LOOK_EVERY)]
    dispatch._looks._next = 0.0  # as if that time had passed
    dispatch.catalogue_is_new()
    assert woken[2:] == [None]


@pytest.mark.django_db
def test_a_revoked_key_is_out_of_the_snapshot_at_once(sent: list[Any], django_capture_on_commit_callbacks: Any) -> None:
    with django_capture_on_commit_callbacks(execute=True):
        key, _ = a_key()
    before = selectors.published_version()
    with django_capture_on_commit_callbacks(execute=True):
        keys.revoke(actor="t", key=key)
    assert selectors.published_version() != before
    assert key.sha256 not in (selectors.published() or pytest.fail("nothing published")).payload
    assert sent[-1] == ("workers.tasks.reconcile.reconcile", ())


@pytest.mark.django_db
def test_weights_that_are_to_be_fetched_make_no_snapshot(
    sent: list[Any], django_capture_on_commit_callbacks: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who adds some would wait until all that clients may ask for is put together, and for the lock that it is published under."""
    monkeypatch.setattr(dispatch, "publish_snapshot", lambda: pytest.fail("published"))
    with django_capture_on_commit_callbacks(execute=True):
        a_version()
    assert sent[-1] == ("workers.tasks.reconcile.reconcile", ())


@pytest.mark.django_db
def test_only_a_heartbeat_with_news_wakes_the_reconciler(
    sent: list[Any], django_capture_on_commit_callbacks: Any
) -> None:
    machine, row = a_ready_replica()
    with django_capture_on_commit_callbacks(execute=True):
        machine.heartbeat(report(row, "ready", port=1234, pid=42, in_flight=5))
    assert sent == []
    with django_capture_on_commit_callbacks(execute=True):
        machine.heartbeat(report(row, "backoff", code="oom"))
    assert sent == [("workers.tasks.reconcile.reconcile", ())]


CARD = CardReport(uuid="GPU-1", name="L4", memory_total=24 * GIB, memory_foreign=0)


def cards(*found: CardReport) -> Hardware:
    return replace(HARDWARE, cards=found)


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("before", "after", "wakes"),
    [
        ({}, {"hardware": replace(HARDWARE, memory_available=GIB, disk_free=5)}, False),
        ({"hardware": cards(CARD)}, {"hardware": cards(replace(CARD, memory_foreign=GIB, memory_used=GIB))}, False),
        ({}, {"hardware": replace(HARDWARE, cores=8)}, True),
        ({}, {"hardware": cards(CARD)}, True),
        ({"hardware": cards(CARD)}, {"hardware": cards(replace(CARD, problem="Xid 79"))}, True),
        ({"hardware": cards(replace(CARD, problem="Xid 79"))}, {"hardware": cards(CARD)}, True),
        ({}, {"engines": (EngineBuild(kind="llama.cpp", problem="no such file"),)}, True),
        ({}, {"modules": (ModuleReport(name="inference", state="running"),)}, True),
        ({}, {"snapshot_version": "x:1", "spool_records": 9, "problems": ("disk is slow",)}, False),
    ],
)
def test_a_heartbeat_wakes_the_reconciler_where_replicas_can_run_on_something_else(
    sent: list[Any], django_capture_on_commit_callbacks: Any, before: Any, after: Any, wakes: bool
) -> None:
    machine = Machine()
    machine.heartbeat(**before)
    for beat in (before, after):
        sent.clear()
        machine.node.refresh_from_db()
        dispatch._news.forget()
        with django_capture_on_commit_callbacks(execute=True):
            machine.heartbeat(**beat)
        assert sent == ([("workers.tasks.reconcile.reconcile", ())] if wakes and beat is after else [])


@pytest.mark.django_db
def test_a_node_that_is_heard_again_after_a_silence_wakes_the_reconciler(
    sent: list[Any], django_capture_on_commit_callbacks: Any
) -> None:
    machine = Machine()
    for silence, wakes in ((None, True), (1.0, False), (600.0, True), (1.0, False)):
        if silence is not None:
            age(machine.node, silence)
        machine.node.refresh_from_db()
        sent.clear()
        dispatch._news.forget()
        with django_capture_on_commit_callbacks(execute=True):
            machine.heartbeat()
        assert bool(sent) == wakes, silence


@pytest.mark.django_db
def test_a_heartbeat_that_changes_nothing_writes_that_it_came_and_nothing_else(
    sent: list[Any], django_capture_on_commit_callbacks: Any
) -> None:
    machine, row = a_ready_replica()
    machine.heartbeat(report(row, "ready", port=1234, pid=42))
    machine.node.refresh_from_db()
    with CaptureQueriesContext(connection) as queries, django_capture_on_commit_callbacks(execute=True) as told:
        machine.heartbeat(report(row, "ready", port=1234, pid=42))
    written = [
        item["sql"] for item in queries if item["sql"].lstrip().upper().startswith(("UPDATE", "INSERT", "DELETE"))
    ]
    assert [sql.split()[1].strip('"') for sql in written] == ["cluster_node"]
    assert told == []
    assert sent == []


@pytest.mark.django_db(transaction=True)
def test_without_a_broker_a_job_is_opened_all_the_same_and_the_sweep_finds_it() -> None:
    job = jobs.open(kind="serve", subject="m", args={}, actor="t")
    assert jobs.orphans() == [job.id]
    assert Job.objects.get().state == "queued"


@pytest.fixture
def black_hole() -> Iterator[str]:
    """The URL of a Valkey that no connection reaches: a listener whose queue is full, so the kernel answers nothing."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        fillers = [socket.socket() for _ in range(4)]
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
        yield f"redis://127.0.0.1:{listener.getsockname()[1]}/0"
        for filler in fillers:
            filler.close()


def test_a_valkey_that_cannot_be_reached_holds_no_request_for_long(
    black_hole: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = {**product.CHANNEL_LAYERS["default"]["CONFIG"]["hosts"][0], "address": black_hole}
    monkeypatch.setattr(dispatch, "get_channel_layer", lambda: RedisChannelLayer(hosts=[host]))
    broker = dispatch.app.connection_for_write(black_hole, transport_options=product.CELERY_BROKER_TRANSPORT_OPTIONS)
    monkeypatch.setattr(dispatch.app, "send_task", functools.partial(dispatch.app.send_task, connection=broker))
    for wake in (dispatch.reconcile_now, functools.partial(dispatch.job_changed, job_id="job_1")):
        began = time.monotonic()
        wake()
        assert time.monotonic() - began < 30  # the kernel would try for two minutes


def test_a_wake_up_for_a_job_does_not_wait_in_a_queue_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[Any] = []
    monkeypatch.setattr(dispatch.app, "send_task", lambda task, args, **options: sent.append(options))
    dispatch.advance_later("job_1")
    dispatch.advance_later("job_1", delay=60.0)
    assert [item["expires"] for item in sent] == [dispatch.STALE, 60.0 + dispatch.STALE]


# --- nudges and the map


@pytest.fixture
def nudged(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What connected agents would be told."""
    told: list[Any] = []
    monkeypatch.setattr(
        dispatch.nudges,
        "send",
        lambda reason, *, nodes=(), removed=(): told.append((reason, set(nodes) | set(removed))),
    )
    return told


@pytest.mark.django_db
def test_a_new_key_is_told_to_every_connected_node(
    sent: list[Any], nudged: list[Any], django_capture_on_commit_callbacks: Any
) -> None:
    with django_capture_on_commit_callbacks(execute=True):
        a_key()
    assert ("snapshot", set()) in nudged
    nudged.clear()
    dispatch.publish_snapshot()
    assert nudged == []


@pytest.mark.django_db
def test_a_removed_node_is_named_at_once_whatever_else_goes_on(
    sent: list[Any], nudged: list[Any], django_capture_on_commit_callbacks: Any
) -> None:
    with django_capture_on_commit_callbacks(execute=True):
        machine = Machine()
    assert nudged == [("map", set())]
    with django_capture_on_commit_callbacks(execute=True):
        nodes.remove(node_id=machine.node.id, actor="t")
    assert ("map", {machine.node.id}) in nudged
    assert members.current_map().removed == (machine.node.id,)


@pytest.mark.django_db
def test_many_nodes_that_come_at_once_make_one_map_now_and_one_a_moment_later(
    sent: list[Any], nudged: list[Any], django_capture_on_commit_callbacks: Any
) -> None:
    with django_capture_on_commit_callbacks(execute=True):
        for _ in range(10):
            Machine()
    assert nudged == [("map", set())]
    assert sent == [("workers.tasks.reconcile.reconcile", ())]  # which publishes again when it may


@pytest.mark.django_db
def test_nodes_that_fetch_are_told_of_new_weights_and_of_a_node_that_has_them(
    sent: list[Any], nudged: list[Any], django_capture_on_commit_callbacks: Any
) -> None:
    data, bare, idle = Machine(), Machine(), Machine()
    modules = (ModuleReport(name="data"),)
    data.heartbeat(modules=modules, fetches=())
    idle.heartbeat(fetches=())
    nudged.clear()
    with django_capture_on_commit_callbacks(execute=True):
        version = a_version()
    assert ("weights", {data.node.id}) in nudged
    bare.heartbeat(fetches=(FetchReport(version=version.id),))
    nudged.clear()
    with django_capture_on_commit_callbacks(execute=True):
        weights = (WeightsReport(path=version.id, size=version.size),)
        data.heartbeat(modules=modules, fetches=(), weights_mark="m", weights=weights)
    assert ("weights", {bare.node.id}) in nudged


def test_a_changed_setup_is_told(sent: list[Any], nudged: list[Any]) -> None:
    signals.setup_changed.send(sender=None)
    assert nudged == [("setup", set())]
    assert sent == [("workers.tasks.reconcile.reconcile", ())]


def test_an_unreachable_valkey_is_not_tried_for_every_nudge(black_hole: str, monkeypatch: pytest.MonkeyPatch) -> None:
    host = {**product.CHANNEL_LAYERS["default"]["CONFIG"]["hosts"][0], "address": black_hole}
    monkeypatch.setattr(nudges, "get_channel_layer", lambda: RedisChannelLayer(hosts=[host]))
    monkeypatch.setattr(nudges, "_not_before", 0.0)
    nudges.send("snapshot")
    began = time.monotonic()
    for _ in range(100):
        nudges.send("snapshot")
    assert time.monotonic() - began < 20  # a hundred tries would take minutes
