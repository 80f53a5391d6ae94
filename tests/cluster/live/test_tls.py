"""Traffic between nodes by TLS where the address that a node advertises says https: both sides are verified."""

from __future__ import annotations

import ssl

import httpx
import pytest

from tests.cluster.harness.calls import members_of, thief
from tests.cluster.harness.cluster import Cluster
from tests.cluster.harness.node import Node
from tests.cluster.live.test_chat import an_id
from tests.processes import fair, wait_for


def secure(cluster: Cluster, name: str, roles: str) -> Node:
    """A further node that advertises https."""
    node = cluster.add(name, roles)
    node.environ["LLMGW_NODE_ADDRESS"] = node.link.url.replace("http://", "https://")
    cluster.join(node, cluster.token(uses=1))
    node.start(seconds=60)
    wait_for(lambda: cluster.states().get(name) == "online", seconds=fair(20), what=f"{name} to be online", every=0.2)
    return node


def call(caller: Node | None, callee: Node, *, signer: Node) -> httpx.Response:
    """A call by TLS with the certificate of `caller` (None: none), signed by `signer`."""
    context = ssl.create_default_context(cafile=str(signer.data / "node" / "ca.pem"))
    context.check_hostname = False
    if caller is not None:
        context.load_cert_chain(caller.data / "node" / "node.pem", caller.data / "node" / "node.key")
    members = members_of(signer)
    path = "/api/v1/node/models"
    signed = members.sign(members.nodes[callee.id], method="GET", path=path, body=b"")
    headers = [(name.decode(), value.decode("latin-1")) for name, value in signed]
    with httpx.Client(trust_env=False, timeout=20, verify=context) as client:
        return client.get(f"https://{callee.link.outer[0]}:{callee.link.outer[1]}{path}", headers=headers)


def test_nodes_that_advertise_https_verify_each_other_by_certificate(cluster: Cluster) -> None:
    i4 = secure(cluster, "i4", "inference")
    i5 = secure(cluster, "i5", "inference,router,edge")
    cluster.serve("tiny-secret", profile={"nodes": ["i4"]})
    for via in ("e1", "i5"):
        wait_for(
            lambda via=via: cluster.answers("tiny-secret", via=via),
            seconds=fair(30),
            what=f"an answer through {via}",
            every=0.3,
        )  # type: ignore[misc]
    name = an_id()
    assert cluster.outcome("tiny-secret", request_id=name) == "200"
    assert "i4" not in cluster.went(name), "what passes the link is no plain text"
    wait_for(lambda: i4.id in members_of(i5).nodes, seconds=fair(30), what="i5 to know i4")
    wait_for(lambda: call(i5, i4, signer=i5).status_code == 200, seconds=fair(30), what="i4 to know i5")
    with pytest.raises(httpx.HTTPError):
        httpx.get(f"http://{i4.link.outer[0]}:{i4.link.outer[1]}/healthz", trust_env=False)
    assert _refused(None, i4, signer=i5), "without a certificate"
    assert _refused(i5, i4, signer=cluster["r1"]), "with the certificate of another"
    copied = thief(i5)
    cluster.api().delete(f"nodes/{i5.id}")
    wait_for(lambda: _refused(copied, i4, signer=copied), seconds=fair(30), what="the removed node to be refused")
    assert call(copied, i4, signer=copied).json()["error"]["code"] == "node_removed"
    assert cluster.outcome("tiny-secret") == "200"


def _refused(caller: Node | None, callee: Node, *, signer: Node) -> bool:
    """Whether the call is refused: by 401, or in the handshake."""
    try:
        return call(caller, callee, signer=signer).status_code == 401
    except httpx.HTTPError:
        return True
