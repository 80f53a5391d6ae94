"""A controller to measure: PostgreSQL, rows of so many nodes with their replicas, `llmgw gateway` and `llmgw web`."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import psycopg

from cluster.domain.modules import ModuleReport
from llmgw_site.up.valkey import Valkey
from tests import postgres
from tests.processes import free_port, running, wait_for

MODULES = tuple(ModuleReport(name=name) for name in ("inference", "router", "edge", "data"))
"""What each simulated node runs."""


@dataclass(frozen=True)
class Enrolled:
    """One simulated node as it knows itself."""

    node_id: str
    key: bytes  # shared with the controllers
    replicas: tuple[str, ...]


@dataclass(frozen=True)
class Controller:
    port: int  # of its node listener
    gateway: int  # pid
    web: int  # pid
    database: str
    nodes: tuple[Enrolled, ...]


@contextmanager
def controller(folder: Path, *, nodes: int, replicas: int) -> Iterator[Controller]:
    """Running and ready. Its PostgreSQL waits for the disk as a server of production does."""
    with ExitStack() as stack:
        url = stack.enter_context(postgres.server(durable=True))
        with psycopg.connect(url, autocommit=True) as link:
            link.execute("CREATE EXTENSION pg_stat_statements")
        ports = {name: str(free_port()) for name in ("LLMGW_PORT", "LLMGW_NODE_PORT", "LLMGW_METRICS_PORT")}
        own = {
            **{name: value for name, value in os.environ.items() if not name.startswith("LLMGW_")},
            "DATABASE_URL": url,
            "LLMGW_DATA": str(folder),
            "LLMGW_HEARTBEAT": "30",
            "LLMGW_ACCESS_LOG": "0",
            **ports,
        }
        os.environ.update(own)
        os.environ["DJANGO_SETTINGS_MODULE"] = "llmgw_site.settings"
        subprocess.run([sys.executable, "-m", "django", "llmgw_bootstrap"], check=True, env=os.environ)
        fleet = _enrol(nodes, replicas)
        stack.enter_context(_valkey())
        environ = {
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "tests.bench.heartbeats.settings",
            "PYTHONPATH": str(Path.cwd()),
        }
        pids = {}
        for name in ("web", "gateway"):
            log = stack.enter_context((folder / f"{name}.log").open("wb"))
            argv = [sys.executable, "-m", "llmgw_site.cli.services", name]
            pids[name] = stack.enter_context(running(argv, env=environ, stdout=log, stderr=log)).pid
        port = int(ports["LLMGW_NODE_PORT"])
        wait_for(lambda: _ready(port), seconds=30, what=f"the controller to answer; see {folder}/*.log")
        stack.callback(lambda: sys.stdout.write(_tail(folder / "web.log")))
        yield Controller(port=port, gateway=pids["gateway"], web=pids["web"], database=url, nodes=fleet)


def _tail(log: Path) -> str:
    """What `web` had to say, if that was anything."""
    said = log.read_text(errors="replace")[-3000:]
    return f"web said:\n{said}\n" if said else ""


def _ready(port: int) -> bool:
    """Whether `web` answers through the node listener: with a refusal, as nobody signed this."""
    try:
        answer = httpx.post(f"http://127.0.0.1:{port}/api/v1/agent/join", content=b"{}", trust_env=False, timeout=2)
    except httpx.HTTPError:
        return False
    return answer.status_code == 400


def _valkey() -> Valkey:
    from django.conf import settings

    return Valkey(settings.CONFIG)


def _enrol(nodes: int, replicas: int) -> tuple[Enrolled, ...]:
    """Rows as if each node had joined and reported its replicas ready; written in bulk."""
    import django

    django.setup()
    from django.utils import timezone

    from catalog.models import Model, Profile
    from cluster.domain import signing
    from cluster.models import Node, Replica
    from cluster.services import identity, members
    from cluster.wire import Serve, Weights, to_dict
    from llmgw_site.lib.units import GIB

    own = identity.ensure_identity()
    model = Model.objects.create(name="bench", weights_path="/models/bench.gguf", replicas=nodes * replicas)
    profile = Profile.objects.create(model=model, name="default", memory=GIB)
    serve = to_dict(Serve(engine="llama.cpp", model="bench", weights=Weights(path="/models/bench.gguf"), memory=GIB))
    keys = [secrets.token_hex(32) for _ in range(nodes)]
    now, modules = timezone.now(), members.kept(MODULES)
    rows = Node.objects.bulk_create(
        Node(
            name=f"bench-{number}",
            public_key=signing.public_hex(key),
            address=f"http://10.0.0.1:{number + 1}",
            modules=modules,
            last_seen_at=now,
        )
        for number, key in enumerate(keys)
    )
    placed = Replica.objects.bulk_create(
        Replica(
            model=model,
            profile=profile,
            node=row,
            slot=number * replicas + n,
            serve=serve,
            digest="d",
            reserved=GIB,
            state="ready",
        )
        for number, row in enumerate(rows)
        for n in range(replicas)
    )
    return tuple(
        Enrolled(
            node_id=row.id,
            key=signing.pairwise_key(key, own.public_key),
            replicas=tuple(item.id for item in placed[number * replicas : (number + 1) * replicas]),
        )
        for number, (row, key) in enumerate(zip(rows, keys, strict=True))
    )
