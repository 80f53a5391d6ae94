"""Intents and the last wanted state come back as they were written, and a damaged file is no disaster."""

from __future__ import annotations

from pathlib import Path

from cluster.wire import Serve, Wanted, WantedReplica, Weights
from workers.agent.store import Intent, IntentStore, WantedStore

SERVE = Serve(engine="llama.cpp", model="m", weights=Weights(path="/w"), args=("-b", "1"), env={"A": "1"})
INTENT = Intent(replica_id="rep_1", generation=3, serve=SERVE, port=4000, key="secret", started_at=1.5)


def test_intents_survive_and_are_private(tmp_path: Path) -> None:
    path = tmp_path / "intents.json"
    store = IntentStore(path)
    store.put(INTENT)
    store.change("rep_1", pid=7, start_time=8)
    store.change("rep_unknown", pid=1)
    found = IntentStore(path).get("rep_1")
    assert found
    assert (found.serve, found.pid, found.start_time, found.key) == (SERVE, 7, 8, "secret")
    assert path.stat().st_mode & 0o777 == 0o600
    assert IntentStore(path).ports == {4000}


def test_dropped_intents_are_gone(tmp_path: Path) -> None:
    path = tmp_path / "intents.json"
    store = IntentStore(path)
    store.put(INTENT)
    store.keep_only({"rep_1"})
    assert IntentStore(path).get("rep_1")
    store.keep_only(set())
    store.drop("rep_1")
    assert IntentStore(path).get("rep_1") is None


def test_a_damaged_or_foreign_file_counts_as_none(tmp_path: Path) -> None:
    for text in ("{", "[]", '{"intents": [{"replica_id": 7}]}'):
        (tmp_path / "f.json").write_text(text)
        assert IntentStore(tmp_path / "f.json").ports == set()
    (tmp_path / "w.json").write_text('{"server_time": "x"}')
    assert WantedStore(tmp_path / "w.json").read() is None


def test_wanted_is_written_only_when_the_replicas_change(tmp_path: Path) -> None:
    path = tmp_path / "wanted.json"
    store = WantedStore(path)
    assert store.read() is None
    replicas = (WantedReplica(replica_id="rep_1", generation=1, run=True, serve=SERVE),)
    store.write(Wanted(server_time=1.0, replicas=replicas))
    first = path.stat().st_ino
    store.write(Wanted(server_time=2.0, replicas=replicas))
    assert path.stat().st_ino == first
    found = store.read()
    assert found
    assert found.replicas == replicas
    store.write(Wanted(server_time=3.0))
    found = store.read()
    assert found
    assert found.replicas == ()


def test_a_key_never_shows_in_a_repr() -> None:
    assert "secret" not in repr(INTENT)
