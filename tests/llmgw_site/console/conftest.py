"""A small cluster made through the services, and people with and without permissions."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.utils import timezone

from catalog.models import Model
from catalog.services import scopes, served
from cluster.domain import signing
from cluster.models import ClusterIdentity, Node, Replica
from cluster.selectors import database_now, statuses, world
from cluster.services import apply, identity, nodes
from cluster.wire import CardReport, EngineBuild, Hardware, Heartbeat, ReplicaReport
from llmgw_site.console import oidc
from tests.fakes.oidc import CLIENT, SECRET, Provider, running

GIB = 1 << 30
Person = Callable[..., Client]


@pytest.fixture
def person(db: None) -> Person:
    """A signed-in member of staff with these permissions; `everything=True`: an administrator."""

    def sign_in(*permissions: str, name: str = "someone", everything: bool = False) -> Client:
        user = User.objects.create_user(name, password="long-enough", is_staff=True, is_superuser=everything)
        for permission in permissions:
            app, codename = permission.split(".")
            user.user_permissions.add(Permission.objects.get(content_type__app_label=app, codename=codename))
        client = Client()
        client.force_login(user)
        return client

    return sign_in


@pytest.fixture
def admin(person: Person) -> Client:
    return person(name="root", everything=True)


class Cluster:
    """One node that reports what it is told to report."""

    def __init__(self) -> None:
        identity.ensure_identity()
        identity.listened(now=database_now())
        self.node = nodes.enrol(
            name="alpha", public_key=signing.public_hex("11" * 32), address="http://127.0.0.1:8880", actor="test"
        )
        self.beat()

    def beat(self, *replicas: ReplicaReport) -> None:
        nodes.heartbeat(
            node=Node.objects.get(id=self.node.id),
            beat=Heartbeat(
                node_id=self.node.id,
                boot_id="boot",
                sent_at=database_now(),
                version="0.1.0",
                name="alpha",
                hardware=Hardware(
                    cores=4,
                    memory_total=16 * GIB,
                    memory_available=12 * GIB,
                    cards=(CardReport(uuid="GPU-1", name="Card One", memory_total=8 * GIB),),
                ),
                engines=(
                    EngineBuild(kind="llama.cpp", version="b1"),
                    EngineBuild(kind="vllm", problem="it is not installed"),
                ),
                replicas=replicas,
            ),
            now=database_now(),
        )

    def another(self, name: str, *, seen: bool = True) -> Node:
        """A further node."""
        key = signing.public_hex(secrets.token_hex(32))
        node = nodes.enrol(name=name, public_key=key, address=f"http://{name}:8880", actor="test")
        if seen:
            Node.objects.filter(id=node.id).update(last_seen_at=timezone.now())
        return node

    def runs(self, *modules: str) -> Node:
        """Our node says that it runs these."""
        rows = [{"name": name, "state": "running", "code": "", "message": ""} for name in modules]
        Node.objects.filter(id=self.node.id).update(modules=rows)
        return Node.objects.get(id=self.node.id)

    @staticmethod
    def listened_for(seconds: float) -> None:
        """A controller has processed heartbeats for so long."""
        ClusterIdentity.objects.update(listening_since=timezone.now() - timedelta(seconds=seconds))

    def model(self, name: str, *, ready: bool = True, in_flight: int = 0, **fields: object) -> Model:
        """A model of the catalogue; its replica is placed by the planner, and ready if it is said so."""
        model = served.add_model(
            actor="test", name=name, weights_path=f"/srv/{name}.gguf", weights_size=GIB, profile={"context": 2048, "slots": 2},
            **fields,  # type: ignore[arg-type]
        )  # fmt: skip
        if ready:
            now = database_now()
            plan, _ = statuses(world(now), now)
            apply.commit(plan)
            self.beat(*(self._ready(row, in_flight) for row in Replica.objects.filter(run=True)))
        return model

    @staticmethod
    def _ready(row: Replica, in_flight: int) -> ReplicaReport:
        return ReplicaReport(
            replica_id=row.id, generation=row.generation, state="ready", pid=1, port=1, context=2048, slots=2,
            memory=300 << 20, cpu=1.0, in_flight=in_flight,
        )  # fmt: skip


@pytest.fixture
def cluster(db: None) -> Cluster:
    organisation = scopes.create_organisation(actor="test", name="default")
    team = scopes.create_team(actor="test", organisation=organisation, name="default")
    scopes.create_project(actor="test", team=team, name="default")
    return Cluster()


@pytest.fixture(scope="module")
def oidc_server() -> Iterator[Provider]:
    with running() as it:
        yield it


@pytest.fixture
def provider(oidc_server: Provider, settings: Any) -> Provider:
    """The one that the console signs people in by, as new: nobody has asked it yet, and nothing is wrong with it."""
    it = oidc_server
    it.faults, it.in_id_token, it.seen, it.method = {}, True, [], "client_secret_basic"
    it.person = {"sub": "s-1", "preferred_username": "ann", "email": "ann@example.com", "groups": ["admins"]}
    settings.CONFIG = replace(
        settings.CONFIG, oidc_issuer=it.issuer, oidc_client_id=CLIENT, oidc_client_secret=SECRET, oidc_name="Acme",
        oidc_roles=(("admins", "admin", ""), ("search", "operator", "team:team of main"), ("lost", "viewer", "team:nowhere")),
        oidc_username_claim="preferred_username", oidc_roles_claim="groups",
    )  # fmt: skip
    oidc._provider.cache_clear()
    return it
