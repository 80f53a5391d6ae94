"""A key that is revoked: refused by every connected gateway at once, and for as long as no controller answers."""

from __future__ import annotations

import time
from collections.abc import Callable

from catalog.domain.keys import digest
from tests.cluster.harness.cluster import Cluster
from tests.processes import fair, wait_for

BASE = ("agent", "gateway")


def status(cluster: Cluster, token: str) -> int:
    return cluster.request("GET", "/v1/models", token=token).status_code


def test_a_revoked_key_is_refused_at_once_and_while_controllers_are_down(
    cluster: Cluster, record_property: Callable[[str, object], None]
) -> None:
    api = cluster.api()
    made = {name: api.post("keys", {"name": name}) for name in ("leaked", "kept")}
    texts = {name: row["key"] for name, row in made.items()}
    wait_for(lambda: {status(cluster, text) for text in texts.values()} == {200}, seconds=fair(30), what="both keys")
    snapshots = {name: (node.data / "cluster" / "snapshot.json").read_bytes() for name, node in cluster.nodes.items()}

    began = time.monotonic()
    api.delete(f"keys/{made['leaked']['id']}")
    wait_for(
        lambda: status(cluster, texts["leaked"]) == 401, seconds=fair(30), what="the edge to refuse it", every=0.02
    )
    gone = digest(texts["leaked"])

    def heard() -> bool:
        files = [node.file("cluster/revoked.json") for node in cluster.nodes.values()]
        return all(gone in {item["sha256"] for item in file.get("revoked", ())} for file in files)

    wait_for(heard, seconds=fair(30), what="every node to have heard", every=0.02)
    record_property("seconds until all had heard", round(time.monotonic() - began, 2))

    # no controller, a node that starts anew, and the snapshot of before: the nudge alone has to do
    cluster["c1"].freeze("web")
    edge = cluster["e1"]
    (edge.data / "cluster" / "snapshot.json").write_bytes(snapshots["e1"])
    edge.reboot()
    wait_for(lambda: status(cluster, texts["kept"]) == 200, seconds=fair(30), what="the edge to be back", every=0.1)
    assert status(cluster, texts["leaked"]) == 401
    cluster["c1"].thaw()
    api.delete(f"keys/{made['kept']['id']}")
