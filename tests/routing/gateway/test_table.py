"""Snapshot and engines in memory: swapped whole, kept over missing and broken files, matched by replica or name."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import pytest

from cluster.wire import EnginesFile, StartingReplica, to_dict
from llmgw_site.lib.files import private_folder, write_atomic, write_json
from routing.domain.offers import own_offer
from routing.domain.revoked import Revoked, RevokedFile
from routing.domain.snapshot import AdminEntry, ModelEntry, Snapshot
from routing.gateway.table import Table, View, compile_view
from tests.routing.gateway.rig import COLD, KEY, NARROW, TINY, config_for, local_engine, snapshot


@pytest.fixture
def table(tmp_path: Path) -> Table:
    config = config_for(tmp_path)
    private_folder(config.snapshot_file.parent)
    write_json(config.snapshot_file, to_dict(snapshot()))
    write_json(config.engines_file, to_dict(EnginesFile(written_at=0.0, engines=(local_engine("rep_1", TINY, 1),))))
    return Table(config, on_change=lambda view: None)


def test_both_files_make_one_view(table: Table) -> None:
    assert table.view == View()
    assert table.look()
    assert table.view.version == "e1:1"
    assert [seat.replica_id for seat in table.view.routes[TINY].seats] == ["rep_1"]
    assert table.view.routes[COLD].seats == ()
    assert table.view.replicas == {"rep_1": "ready"}
    assert not table.look()


@pytest.mark.parametrize(
    "garbage", [b"", b"{", b"[]", b'{"version":1,"made_at":0}', b'{"keys":[{}],"version":"x","made_at":0}']
)
def test_a_broken_file_leaves_the_last_good_one_and_is_logged_once(
    tmp_path: Path, table: Table, garbage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    table.look()
    before = table.view
    with caplog.at_level(logging.INFO):
        write_atomic(config_for(tmp_path).snapshot_file, garbage)
        for _ in range(5):
            assert not table.look()
    assert table.view is before
    assert [r.getMessage() for r in caplog.records].count("file_unreadable") == 1
    write_json(config_for(tmp_path).snapshot_file, to_dict(snapshot("e1:2")))
    assert table.look()
    assert table.view.version == "e1:2"


def test_a_file_that_is_gone_leaves_the_last_good_one(
    tmp_path: Path, table: Table, caplog: pytest.LogCaptureFixture
) -> None:
    table.look()
    before = table.view
    with caplog.at_level(logging.INFO):
        config_for(tmp_path).engines_file.unlink()
        config_for(tmp_path).snapshot_file.unlink()
        for _ in range(3):
            assert not table.look()
    assert table.view is before
    assert [r.getMessage() for r in caplog.records].count("file_missing") == 2


def test_a_broken_engines_file_does_not_hide_a_new_snapshot(tmp_path: Path, table: Table) -> None:
    table.look()
    write_atomic(config_for(tmp_path).engines_file, b"{")
    write_json(config_for(tmp_path).snapshot_file, to_dict(snapshot("e1:2")))
    assert table.look()
    assert table.view.version == "e1:2"
    assert table.view.routes[TINY].seats


def test_an_engine_serves_a_model_by_replica_id_or_by_name() -> None:
    models = (ModelEntry(name="a", created=0, replicas=("rep_x",)), ModelEntry(name="b", created=0))
    engines = (local_engine("rep_x", "other", 1), local_engine("rep_y", "b", 2), local_engine("rep_z", "c", 3))
    view = compile_view(Snapshot(version="v", made_at=0.0, models=models), EnginesFile(written_at=0, engines=engines))
    assert [seat.port for seat in view.routes["a"].seats] == [1]
    assert [seat.port for seat in view.routes["b"].seats] == [2]


def test_what_is_not_ready_is_told_as_waiting() -> None:
    model = ModelEntry(name="a", created=0, replicas=("rep_1", "rep_2"))
    file = EnginesFile(
        written_at=0,
        engines=(local_engine("rep_1", "a", 1, state="draining"),),
        starting=(StartingReplica(replica_id="rep_2", model="a", state="failed", message="no file"),),
    )
    route = compile_view(Snapshot(version="v", made_at=0.0, models=(model,)), file).routes["a"]
    assert route.seats == ()
    assert {(item.state, item.message) for item in route.waiting} == {("failed", "no file"), ("draining", "")}


def test_an_engine_that_is_about_to_leave_serves_only_where_no_other_does_and_is_not_offered() -> None:
    stays, leaves = local_engine("rep_1", TINY, 1), replace(local_engine("rep_2", TINY, 2), leaving=True)
    route = compile_view(snapshot(), EnginesFile(written_at=0.0, engines=(leaves, stays))).routes[TINY]
    assert ([seat.replica_id for seat in route.seats], route.leaving) == (["rep_1"], False)
    route = compile_view(snapshot(), EnginesFile(written_at=0.0, engines=(leaves,))).routes[TINY]
    assert ([seat.replica_id for seat in route.seats], route.leaving) == (["rep_2"], True)
    offer = own_offer(route, in_flight={}, said={})
    assert offer is not None
    assert offer.serving_state == "draining"


def test_what_was_revoked_since_is_gone_at_once_and_stays_gone_with_every_snapshot(tmp_path: Path) -> None:
    config, secret = config_for(tmp_path), "f" * 64
    private_folder(config.snapshot_file.parent)
    admin = AdminEntry(token_id="tok_1", sha256=secret, user="root")
    write_json(config.snapshot_file, to_dict(snapshot(admins=(admin,))))
    it = Table(config, on_change=lambda view: None)
    assert it.look()
    assert {KEY.sha256, NARROW.sha256} <= set(it.view.keys)
    routes = it.view.routes
    told = RevokedFile(revoked=tuple(Revoked(sha256=text, at=0.0) for text in (KEY.sha256, secret, "unknown")))
    write_json(config.revoked_file, to_dict(told))
    assert it.look()
    assert it.view.routes is routes, "nothing else was compiled anew"
    for version in ("e1:1", "e1:2"):
        assert KEY.sha256 not in it.view.keys
        assert NARROW.sha256 in it.view.keys
        assert it.view.admins == {}
        write_json(config.snapshot_file, to_dict(snapshot(f"{version}.", admins=(admin,))))
        assert it.look()
    again = Table(config, on_change=lambda view: None)
    again.look()
    assert KEY.sha256 not in again.view.keys, "after a restart, too"
    write_atomic(config.revoked_file, b"{")
    again.look()
    assert KEY.sha256 not in again.view.keys, "a damaged file leaves what was known"
