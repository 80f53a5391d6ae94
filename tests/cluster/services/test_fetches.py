"""Orders to fetch weights in the answers to heartbeats, and what of the reports is kept."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import orjson
import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from catalog.domain.manifests import manifest_from_dict
from catalog.models import Version
from catalog.services import served, versions
from cluster import selectors, signals
from cluster.domain.fetching import PULLS, REGISTRY, FetchReport, Sharing
from cluster.domain.modules import ModuleReport
from cluster.models import ClusterIdentity, Node, Replica
from cluster.selectors import mirror
from cluster.selectors.kept import kept
from cluster.services import identity
from cluster.wire import Wanted, WeightsReport, from_dict, to_dict
from llmgw_site.lib.errors import Refused
from llmgw_site.lib.units import GIB
from tests.cluster.rows import ACTOR, HARDWARE, Machine, age, report, tick
from tests.rows import a_model, a_version

pytestmark = pytest.mark.django_db
URL = "/api/v1/agent/heartbeat"
DATA = ("controller", "inference", "router", "edge", "data")
BARE = ("inference", "router", "edge")


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    """What another test's nodes told is no matter of this one."""
    mirror.forget()
    yield
    mirror.forget()


class Place:
    """A node as far as fetching goes: it says what it has and how far it is, over the real endpoint."""

    def __init__(self, *modules: str) -> None:
        self.machine = Machine()
        self.id = self.machine.node.id
        self.modules = tuple(ModuleReport(name=name) for name in modules or BARE)
        self.has: dict[str, int] = {}
        self.fetches: dict[str, FetchReport] = {}
        self.client = Client()

    def beat(self, *reports: Any, **fields: Any) -> Wanted:
        told: dict[str, Any] = {
            "modules": self.modules,
            "weights_mark": f"mark of {sorted(self.has)}",
            "weights": tuple(WeightsReport(path=name, size=size) for name, size in self.has.items()),
            "fetches": tuple(self.fetches.values()),
            "hardware": replace(HARDWARE, disk_free=100 * GIB),
            "address": f"https://{self.id.replace('_', '-')}:7443",
            **fields,
        }
        body = orjson.dumps(to_dict(self.machine.beat(*reports, **told)))
        answer = self.machine.post(self.client, URL, body)
        assert answer.status_code == 200, answer.content
        wanted = from_dict(Wanted, orjson.loads(answer.content))
        known = self.fetches
        self.fetches = {
            order.version: known.get(order.version, FetchReport(version=order.version, code=order.code))
            for order in wanted.fetches
        }
        return wanted

    def gets(self, version: Version, there: int, **fields: Any) -> None:
        self.fetches[version.id] = FetchReport(
            version=version.id, **{"size": version.size, "there": there, "rate": 1000.0, "source": REGISTRY, **fields}
        )

    def whole(self, version: Version) -> None:
        self.fetches.pop(version.id, None)
        self.has[version.id] = version.size


def look_again() -> None:
    """Let a second pass."""
    mirror.forget()


def placed(version: Version, *places: Place) -> list[Replica]:
    for place in places:
        place.beat()
    model = a_model(version=version, replicas=len(places), profile={"memory": GIB})
    tick()
    rows = list(Replica.objects.filter(model=model))
    assert len(rows) == len(places)
    return rows


def test_a_cluster_without_versions_costs_no_query_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identity, "listened", lambda **more: None)  # its cost comes with time: each two seconds
    place = Place(*DATA)
    place.beat()
    with CaptureQueriesContext(connection) as found:
        wanted = place.beat()
    assert (wanted.fetches, wanted.kept) == ((), ())
    bare = Place()
    bare.beat()
    a_version()
    with CaptureQueriesContext(connection) as other:
        bare.beat()
    assert len(other) == len(found)
    assert not any(
        "catalog_version" in query["sql"] and "COUNT" not in query["sql"] for query in other.captured_queries
    )


def test_one_data_node_fetches_a_new_version_and_the_others_take_it_from_there() -> None:
    mirrors = [Place(*DATA), Place(*DATA)]
    for place in mirrors:
        place.beat()
    version = a_version(size=1000)
    first = [place.beat() for place in mirrors]
    assert [wanted.kept for wanted in first] == [(version.id,)] * 2
    elected = [place for place, wanted in zip(mirrors, first, strict=True) if wanted.fetches[0].registry]
    assert len(elected) == 1
    other = next(place for place in mirrors if place is not elected[0])
    elected[0].gets(version, 400)
    elected[0].beat()
    look_again()
    assert other.beat().fetches[0].code == "fetch_waits"
    state = mirror.version_state(version.id)
    assert (state.whole, state.there, state.size, state.rate, state.code) == (False, 400, 1000, 1000, "")
    elected[0].whole(version)
    assert elected[0].beat().fetches == ()
    look_again()
    order = other.beat().fetches[0]
    assert [source.node_id for source in order.sources] == [elected[0].id]
    assert order.sources[0].address == f"https://{elected[0].id.replace('_', '-')}:7443"
    assert mirror.version_state(version.id).holders == (elected[0].machine.node.name,)


def test_a_node_fetches_what_its_replicas_run_with_and_keeps_that() -> None:
    data, bare = Place("data"), Place()
    version, unused = a_version(), a_version(commit="d" * 40)
    data.beat()
    rows = placed(version, bare)
    wanted = bare.beat()
    assert [order.version for order in wanted.fetches] == [version.id]
    assert wanted.kept == (version.id,)
    serve = wanted.replicas[0].serve
    assert (serve.weights.version, serve.weights.path) == (version.id, version.first)
    assert {order.version for order in data.beat().fetches} == {version.id, unused.id}
    data.whole(version)
    data.beat()
    look_again()
    assert [source.node_id for source in bare.beat().fetches[0].sources] == [data.id]
    bare.whole(version)
    assert bare.beat().fetches == ()
    state = mirror.version_state(version.id)
    assert state.holders == tuple(sorted(place.machine.node.name for place in (data, bare)))
    Replica.objects.filter(id=rows[0].id).update(run=False)
    bare.has = {}
    wanted = bare.beat(report(rows[0], "draining"))
    assert (wanted.fetches, wanted.kept) == ((), (version.id,))


def test_without_a_data_node_the_order_says_so() -> None:
    bare = Place()
    version = a_version()
    placed(version, bare)
    order = bare.beat().fetches[0]
    assert (order.code, order.registry, order.sources) == ("no_mirror", False, ())
    assert mirror.version_state(version.id).code == "no_mirror"


def test_many_nodes_do_not_all_pull_from_one_though_they_ask_in_the_same_second() -> None:
    data = Place("data")
    version = a_version()
    data.whole(version)
    data.beat()
    bare = [Place() for _ in range(PULLS + 2)]
    placed(version, *bare)
    first = [place.beat().fetches[0] for place in bare]
    assert sum(bool(order.sources) for order in first) == PULLS
    look_again()
    assert [place.beat().fetches[0].sources for place in bare] == [order.sources for order in first]


def test_how_far_one_version_is_costs_nothing_for_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """A job asks each second, and working out one version for 10,000 nodes takes a while."""
    wanted = [a_version(commit=letter * 40) for letter in "abc"]
    data = Place(*DATA)
    data.beat()
    worked_out: list[str] = []

    def sharing(version: str, *more: Any) -> Sharing:
        worked_out.append(version)
        return Sharing(version, *more)

    monkeypatch.setattr(mirror, "Sharing", sharing)
    assert not mirror.version_state(wanted[1].id).whole
    assert worked_out == [wanted[1].id]


def test_the_page_of_what_is_kept_reads_a_report_once() -> None:
    """It is looked at every three seconds, and reports of 10,000 nodes are long."""
    version = a_version()
    places = [Place(*DATA) for _ in range(3)]
    for place in places:
        place.whole(version)
        place.beat()
    assert len(kept()[0].holders) == 3
    with CaptureQueriesContext(connection) as found:
        assert len(kept()[0].holders) == 3
    assert not [
        query["sql"] for query in found.captured_queries if '"weights"' in query["sql"] or " weights " in query["sql"]
    ]


def test_a_node_that_is_not_heard_holds_nothing_and_fetches_nothing() -> None:
    gone, data = Place("data"), Place("data")
    version = a_version()
    gone.whole(version)
    gone.beat()
    age(gone.machine.node, 200)
    assert not data.beat().fetches[0].registry  # controllers have listened for a moment only: it may be there
    earlier = timezone.now() - timedelta(seconds=1000)
    ClusterIdentity.objects.update(listening_since=earlier, listening_at=timezone.now())
    look_again()
    assert data.beat().fetches[0].registry
    assert mirror.version_state(version.id).holders == ()


def test_an_agent_of_before_fetching_is_told_nothing_and_counts_for_nothing() -> None:
    old, new = Place(*DATA), Place("data")
    version = a_version()
    wanted = old.beat(fetches=None)
    assert wanted.fetches == ()
    assert Node.objects.get(id=old.id).fetches is None
    assert new.beat().fetches[0].registry
    old.has[version.id] = 5
    old.beat(fetches=None)
    look_again()
    assert mirror.version_state(version.id).holders == ()


def test_a_node_that_has_not_looked_yet_is_not_told_to_fetch_what_it_may_have() -> None:
    data = Place("data")
    a_version()
    assert data.beat(weights_mark="", weights=None).fetches == ()
    assert data.beat().fetches[0].registry


def test_what_a_node_reports_of_a_fetch_is_written_when_it_is_new() -> None:
    data = Place("data")
    version = a_version(size=1000)
    data.beat()
    data.gets(version, 5)
    data.beat()
    kept = Node.objects.get(id=data.id).fetches
    assert [(item["version"], item["there"], item["rate"]) for item in kept] == [(version.id, 5, 1000)]
    with CaptureQueriesContext(connection) as found:
        data.beat()
    updates = [query["sql"] for query in found.captured_queries if query["sql"].startswith("UPDATE cluster_node")]
    assert len(updates) == 1
    assert "fetches" not in updates[0]
    data.fetches = {}
    data.beat()
    assert Node.objects.get(id=data.id).fetches == []


def test_a_report_from_a_broken_agent_is_cut_to_what_can_be_kept() -> None:
    data = Place("data")
    version = a_version()
    data.fetches = {
        "x": FetchReport(version="../x"),
        version.id: FetchReport(
            version=version.id, size=-5, there=2**62, rate=-1.0, code="c" * 900, message="m" * 9000,
            failed=tuple(f"n{number}" for number in range(900)),
        ),
    }  # fmt: skip
    data.beat()
    (kept,) = Node.objects.get(id=data.id).fetches
    assert (kept["version"], kept["size"], kept["there"], kept["rate"]) == (version.id, 0, 1 << 60, 0)
    assert len(kept["code"]) == 64
    assert len(kept["failed"]) == 32


def test_a_failing_mirror_leaves_it_to_another_and_a_person_is_told_why() -> None:
    one, two = Place("data"), Place("data")
    version = a_version()
    for place in (one, two):
        place.beat()
    elected, other = (one, two) if one.beat().fetches[0].registry else (two, one)
    other.beat()
    elected.gets(version, 5, rate=None, code="disk_full", message="10 GiB more are needed", source="")
    elected.beat()
    look_again()
    assert other.beat().fetches[0].registry
    assert not elected.beat().fetches[0].registry
    other.gets(version, 0, rate=None, code="registry_gated", message="ask for access", source="")
    other.beat()
    look_again()
    state = mirror.version_state(version.id)
    assert state.code in ("disk_full", "registry_gated")
    assert state.message.startswith("node ")
    assert not state.whole


def test_progress_of_a_replica_moves_nobody_but_its_change_does(django_capture_on_commit_callbacks: Any) -> None:
    heard: list[str] = []

    def take(node_id: str, **kwargs: Any) -> None:
        heard.append(node_id)

    bare = Place()
    (row,) = placed(a_version(), bare)
    signals.observed.connect(take)
    try:
        for state, message, count in (
            ("fetching", "it has 1 GiB", 1), ("fetching", "it has 2 GiB", 1), ("starting", "", 2),
        ):  # fmt: skip
            with django_capture_on_commit_callbacks(execute=True):
                bare.beat(report(row, state, message=message))
            assert len(heard) == count
            row.refresh_from_db()
            assert (row.state, row.message) == (state, message)
    finally:
        signals.observed.disconnect(take)


def test_the_manifest_is_given_to_nodes_and_only_over_their_listener() -> None:
    place, version = Place(), a_version()
    answer = place.machine.get(place.client, f"/api/v1/agent/manifest?version={version.id}")
    assert place.machine.proves(answer)
    manifest = manifest_from_dict(orjson.loads(answer.content))
    assert (manifest.id, manifest.files[0].path) == (version.id, version.first)
    unknown = place.machine.get(place.client, "/api/v1/agent/manifest?version=ver_00000000")
    assert (unknown.status_code, orjson.loads(unknown.content)["error"]["code"]) == (404, "version_unknown")
    assert place.machine.proves(unknown)
    assert place.client.get(f"/api/v1/agent/manifest?version={version.id}").status_code == 404
    unsigned = place.client.get(f"/api/v1/agent/manifest?version={version.id}", headers={"x-llmgw-listener": "node"})
    assert unsigned.status_code == 401


def test_a_version_that_was_removed_is_kept_by_nobody() -> None:
    data = Place("data")
    version = a_version()
    data.whole(version)
    assert data.beat().kept == (version.id,)
    versions.remove(actor=ACTOR, version=version)
    wanted = data.beat()
    assert (wanted.kept, wanted.removed) == ((), (version.id,))
    with pytest.raises(Refused) as refused:
        mirror.version_state(version.id)
    assert refused.value.code == "version_unknown"


def test_what_a_restored_database_does_not_know_was_not_removed_by_anybody() -> None:
    data, bare = Place("data"), Place()
    older, newer, gone = a_version(), a_version(commit="d" * 40), a_version(commit="e" * 40)
    for place in (data, bare):
        for version in (older, newer, gone):
            place.whole(version)
    versions.remove(actor=ACTOR, version=gone)
    Version.objects.filter(pk=newer.pk).delete()  # as a backup from before it was made has it
    wanted = data.beat()
    assert (wanted.kept, wanted.removed) == ((older.id,), (gone.id,))
    assert bare.beat().removed == (), "others keep what they have"


def test_an_update_has_its_new_version_fetched_where_it_runs() -> None:
    data, bare = Place("data"), Place()
    old = a_version()
    data.beat()
    (row,) = placed(old, bare)
    new = a_version(commit="d" * 40)
    served.update(actor=ACTOR, model=row.model, version=new, previous=old)
    tick()
    wanted = bare.beat()
    assert new.id in {order.version for order in wanted.fetches}
    assert new.id in wanted.kept


def test_a_node_that_holds_the_version_gets_the_replica() -> None:
    places = [Place() for _ in range(3)]
    version = a_version()
    places[1].whole(version)
    for place in places:
        place.beat()
    a_model(version=version, profile={"memory": GIB})
    tick()
    assert Replica.objects.get().node_id == places[1].id


def test_a_node_without_room_on_its_disk_gets_none() -> None:
    place = Place()
    place.beat(hardware=replace(HARDWARE, disk_free=GIB))
    a_model(version=a_version(size=2 * GIB), profile={"memory": GIB})
    tick()
    assert not Replica.objects.exists()


def test_a_node_without_room_in_its_store_gets_no_replica_and_one_that_is_there_moves() -> None:
    """Its disk has room, and its own limit has not: that only the node itself can say."""
    full, other = Place(), Place()
    version = a_version()
    (row,) = placed(version, full)
    text = "64 MiB more do not fit: this node keeps 1 MiB of weights"
    full.fetches[version.id] = FetchReport(version=version.id, size=version.size, code="store_full", message=text)
    full.beat(report(row, "fetching", code="store_full", message=text))
    tick()
    now = selectors.database_now()
    _, statuses = selectors.statuses(selectors.world(now), now)
    assert "has no room for its weights" in statuses[row.model_id].reason
    other.beat()
    tick()
    new = Replica.objects.get(node_id=other.id)
    other.whole(version)
    other.beat(report(new, "ready", port=1, pid=2))
    tick()
    assert list(Replica.objects.filter(model=row.model, run=True)) == [new]


def test_what_a_node_is_fetching_counts_against_its_disk_only_as_far_as_it_is_still_to_come() -> None:
    place = Place()
    large, small = a_version(size=80 * GIB), a_version("acme/small", size=30 * GIB)
    (row,) = placed(large, place)
    place.gets(large, 60 * GIB)
    place.beat(report(row, "fetching"), hardware=replace(HARDWARE, disk_free=55 * GIB))
    a_model("small", version=small, profile={"memory": GIB})
    tick()
    assert Replica.objects.filter(model__name="small").exists()
