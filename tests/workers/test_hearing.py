"""workers.hearing: whether nodes are heard here, and what a handler that fails does to silent nodes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest
from django.test import Client
from django.utils import timezone

from cluster import selectors
from cluster.api import agent
from cluster.domain.states import NodeState
from cluster.models import ClusterIdentity, Node
from cluster.services import hearing as outcomes
from cluster.services import nodes
from cluster.wire import to_dict
from llmgw_site.lib import files
from llmgw_site.lib.config import load
from tests.cluster.rows import Machine
from tests.workers.agent.test_join import Authority
from workers import hearing
from workers.agent.tls import Tls

pytestmark = pytest.mark.django_db
BEAT = "/api/v1/agent/heartbeat"


@pytest.fixture(autouse=True)
def fresh_process() -> Iterator[None]:
    outcomes.forget()
    yield
    outcomes.forget()


@pytest.fixture
def listener(settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Client:
    """This machine is a node; its node listener leads straight to the real views."""
    settings.CONFIG = replace(settings.CONFIG, data=tmp_path)
    nodes.enrol_local(settings.CONFIG)
    client = Client(raise_request_exception=False)

    def hand_over(request: httpx.Request) -> httpx.Response:
        answer = client.get(request.url.raw_path.decode(), headers={**request.headers, "x-llmgw-listener": "node"})
        return httpx.Response(answer.status_code, content=answer.content)

    link = httpx.Client(transport=httpx.MockTransport(hand_over))
    monkeypatch.setattr(hearing, "_client", lambda config: link)
    return client


def beat(client: Client, machine: Machine) -> int:
    return int(machine.post(client, BEAT, orjson.dumps(to_dict(machine.beat()))).status_code)


def listening_at() -> Any:
    return ClusterIdentity.objects.get().listening_at


def test_who_is_heard_says_so_and_writes_the_mark(listener: Client) -> None:
    assert listening_at() is None
    assert hearing.ask()
    assert listening_at() is not None


def test_without_a_node_of_its_own_nothing_is_asked(settings: Any, tmp_path: Path) -> None:
    settings.CONFIG = replace(settings.CONFIG, data=tmp_path)
    assert not hearing.ask()


def test_a_listener_that_is_not_there_hears_nothing(settings: Any, tmp_path: Path, free_port: int) -> None:
    settings.CONFIG = replace(settings.CONFIG, data=tmp_path, node_port=free_port)
    nodes.enrol_local(settings.CONFIG)
    assert not hearing.ask()
    assert listening_at() is None


def test_f05_a_database_that_does_not_take_the_mark_is_not_heard(
    listener: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(**kwargs: Any) -> None:
        raise RuntimeError("the database stands still")

    monkeypatch.setattr(outcomes.identity, "listened", broken)
    assert not hearing.ask()
    assert listening_at() is None


def test_f06_heartbeats_that_all_fail_declare_nobody_offline_and_go_on_by_themselves(
    listener: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Five minutes of 500. What passes is told by the clock of the process and by rows that grow older."""
    clock = 1000.0
    monkeypatch.setattr(outcomes.time, "monotonic", lambda: clock)
    machines = [Machine(f"n{number}") for number in range(3)]
    assert [beat(listener, machine) for machine in machines] == [200, 200, 200]
    assert hearing.ask()
    good = agent.nodes.observe

    def broken(**kwargs: Any) -> Any:
        raise RuntimeError("a defect")

    monkeypatch.setattr(agent.nodes, "observe", broken)
    for _ in range(10):
        clock += 31.0
        _pass(31.0)
        before = listening_at()
        assert [beat(listener, machine) for machine in machines] == [500, 500, 500]
        assert not hearing.ask()
        assert listening_at() == before
    assert states() == {NodeState.ONLINE}
    monkeypatch.setattr(agent.nodes, "observe", good)
    assert beat(listener, machines[0]) == 200
    clock += 31.0
    assert [beat(listener, machine) for machine in machines] == [200, 200, 200]
    assert hearing.ask()
    assert states() == {NodeState.ONLINE}
    assert (listening_at() - ClusterIdentity.objects.get().listening_since).total_seconds() < 60  # a new span


def test_f06_one_node_whose_heartbeats_fail_makes_nobody_deaf(
    listener: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    sick, *well = [Machine(f"n{number}") for number in range(3)]
    good = agent.nodes.observe

    def broken_for_one(**kwargs: Any) -> Any:
        if kwargs["node"].id == sick.node.id:
            raise RuntimeError("a defect that this node's report meets")
        return good(**kwargs)

    monkeypatch.setattr(agent.nodes, "observe", broken_for_one)
    for _ in range(3):
        assert [beat(listener, machine) for machine in (sick, *well)] == [500, 200, 200]
    assert hearing.ask()
    assert listening_at() is not None


def test_a_message_that_cannot_be_read_is_the_nodes_fault(listener: Client) -> None:
    machine = Machine()
    for _ in range(5):
        assert machine.post(listener, BEAT, b"{}").status_code == 400
    assert hearing.ask()


def test_the_own_listener_is_called_with_the_certificate_that_is_there_now(tmp_path: Path) -> None:
    """A worker lives for longer than a certificate does."""
    authority, config = Authority(), load({"LLMGW_DATA": str(tmp_path), "LLMGW_NODE_ADDRESS": "https://n1.example"})
    tls = Tls(files.private_folder(config.tls_folder))
    csr = tls.request()
    tls.keep(certificate=authority.certificate(csr), ca=authority.pem)
    first = hearing._client(config)
    assert hearing._client(config) is first
    tls.keep(certificate=authority.certificate(csr), ca=authority.pem)
    assert hearing._client(config) is not first


def test_an_identity_that_is_damaged_hears_nothing(settings: Any, tmp_path: Path) -> None:
    settings.CONFIG = config = replace(settings.CONFIG, data=tmp_path)
    files.private_folder(config.node_file.parent)
    config.node_file.write_text('{"node_id": "n", "private_key": 7, "controller_public_key": ""}')
    assert not hearing.ask()


def _pass(seconds: float) -> None:
    """Every time in the rows is so much longer ago."""
    gone = timedelta(seconds=seconds)
    for node in Node.objects.filter(last_seen_at__isnull=False):
        Node.objects.filter(id=node.id).update(last_seen_at=node.last_seen_at - gone)
    own = ClusterIdentity.objects.get()
    if own.listening_at:
        ClusterIdentity.objects.update(listening_at=own.listening_at - gone, listening_since=own.listening_since - gone)
    assert timezone.now() > (own.listening_at or timezone.now() - gone)


def states() -> set[NodeState]:
    return {view.state for view in selectors.world().nodes if view.name.startswith("n")}
