"""A cluster of real nodes: one controller, an edge, two routers, three inference nodes, a cloud node before a stub provider."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, TypeVar

import httpx

from llmgw_site.cli.client import Api, CliError, Target
from tests import tiny
from tests.cluster.harness.links import Links
from tests.cluster.harness.node import CONTROLLER, LLMGW, NODE_PORT, PLAIN, Node
from tests.cluster.harness.provider import EXTERNAL, Provider, offer
from tests.cluster.harness.reaper import marked, watched
from tests.cluster.harness.stores import stores
from tests.processes import fair, wait_for

T = TypeVar("T")
MODEL = "tiny"
"""Served by a replica on each inference node."""
LAYOUT = {"c1": "controller", "e1": "edge", "r1": "router", "r2": "router", "i1": "inference", "i2": "inference",
          "i3": "inference", "x1": "cloud"}  # fmt: skip
HOMES = ["i1", "i2", "i3"]
HEARTBEAT, STALE, OFFLINE, REFRESH, SKIP, CONNECT, FIRST_BYTE = 1, 4, 8, 2, 3, 2, 20
"""Seconds; the defaults are 30, 90, 300, 30, 30, 10, 600."""
TIMES = {
    "LLMGW_HEARTBEAT": str(HEARTBEAT),
    "LLMGW_STALE_AFTER": str(STALE),
    "LLMGW_OFFLINE_AFTER": str(OFFLINE),
    "LLMGW_PEERS_REFRESH": str(REFRESH),
    "LLMGW_NODE_SKIP": str(SKIP),
    "LLMGW_CONNECT_TIMEOUT": str(CONNECT),
    "LLMGW_FIRST_BYTE_TIMEOUT": str(FIRST_BYTE),
    "LLMGW_RECONCILE": "1",
    "LLMGW_DRAIN_TIMEOUT": "5",
    "LLMGW_THREADS": "1",
    "LLMGW_DATA_FREE": "1 MiB",
}


class Cluster:
    """Made by `start`, ended by `close`. Nodes are `cluster["i1"]`."""

    def __init__(self, **environ: str) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="llmgw-cl-"))  # short: unix sockets lie below it
        self.nodes: dict[str, Node] = {}
        self._rest = ExitStack()
        self._rest.enter_context(watched(self.folder))
        self._net = _network()
        self._common = {**TIMES, **environ}
        self.links = Links(self._owner)
        self._rest.callback(self.links.close)
        self.provider = self._rest.enter_context(Provider(f"{self._net}.0.200"))
        self.stores: dict[str, str] = {}
        self.left_whole = False
        """Whether the test before found it whole at its end: then nothing has happened to it since."""

    def __getitem__(self, name: str) -> Node:
        return self.nodes[name]

    # --- start and end

    def start(self) -> None:
        """All of it, as fast as the machine can."""
        self.start_controller(LAYOUT["c1"])
        others = [self.add(name, roles) for name, roles in LAYOUT.items() if name != "c1"]
        token = self.token(uses=len(others))
        with ThreadPoolExecutor(len(others)) as pool:
            list(pool.map(lambda node: self.join(node, token), others))
        for node in others:
            node.spawn()
        for node in others:
            node.until_ready(*node.services, seconds=60)
        self.serve(MODEL, replicas=3)
        offer(self.api(), self.provider)
        self.until_whole(seconds=60)

    def start_controller(self, roles: str) -> None:
        """c1, with stores of its own."""
        with marked(self.folder):
            self.stores = self._rest.enter_context(stores(self.folder / "stores"))
        first = self.add("c1", roles, services=CONTROLLER, **self.stores)
        first.environ["LLMGW_CONTROLLERS"] = f"http://{first.host}:{NODE_PORT}"
        first.spawn("gateway")
        made = first.run(sys.executable, "-m", "django", "llmgw_bootstrap", seconds=90)
        assert made.returncode == 0, made.stdout
        first.start(seconds=60)

    def add(self, name: str, roles: str, *, services: tuple[str, ...] = PLAIN, **environ: str) -> Node:
        """A node with a folder, an address and a link; nothing of it runs yet."""
        number = len(self.nodes) + 1
        host = f"{self._net}.0.{number}"
        link = self.links.add(name, outer=(f"{self._net}.1.{number}", NODE_PORT), inner=(host, NODE_PORT))
        node = Node(
            name,
            self.folder / name,
            host,
            link,
            services=services,
            environ={**self._common, "LLMGW_ROLES": roles, **environ},
        )
        self.nodes[name] = node
        return node

    def token(self, **fields: Any) -> str:
        """The text of a join token."""
        return str(self.api().post("join-tokens", fields)["token"])

    def join(self, node: Node, token: str) -> None:
        """Take a node in by the real command."""
        done = node.run(*LLMGW, "node", "join", token, "--controller", self["c1"].link.url, "--no-start")
        assert done.returncode == 0, done.stdout

    def extra(self, name: str, roles: str, *, services: tuple[str, ...] = PLAIN, **environ: str) -> Node:
        """A further node, joined and at work; `mend` ends it."""
        node = self.add(name, roles, services=services, **environ)
        self.join(node, self.token(uses=1))
        node.start(seconds=60)
        wait_for(lambda: self.states().get(name) == "online", seconds=fair(20), what=f"{name} to be online", every=0.2)
        return node

    def drop(self, name: str) -> None:
        """End a node that a test added, and forget it."""
        node = self.nodes.pop(name)
        try:
            if node_id := str(node.file("node/identity.json").get("node_id", "")):
                self._until(lambda: self._removed(node_id), 20, f"{name} to be removed")
        finally:
            node.destroy()
        shutil.rmtree(node.data, ignore_errors=True)
        node.link.set("refuse")
        self.links.links.pop(name)

    def _removed(self, node_id: str) -> bool:
        """Whether the controllers have forgotten this node; asks them to."""
        if all(row["id"] != node_id for row in self.api().all("nodes")):
            return True
        self.api().delete(f"nodes/{node_id}")
        return False

    def close(self) -> None:
        try:
            with ThreadPoolExecutor(8) as pool:
                list(pool.map(lambda node: node.destroy(), self.nodes.values()))
        finally:
            self._rest.close()
            if not os.environ.get("KEEP_CLUSTER"):
                shutil.rmtree(self.folder, ignore_errors=True)

    # --- its users

    @property
    def secrets(self) -> dict[str, str]:
        return dict(self["c1"].file("secrets/quickstart.json"))

    @property
    def key(self) -> str:
        return self.secrets["api_key"]

    def api(self, node: str = "c1") -> Api:
        """The admin API of a controller, or the node endpoints of any node, as the administrator."""
        return Api(Target(self[node].url, self.secrets["admin_token"], "the harness"))

    def request(self, method: str, path: str, *, via: str = "e1", token: str = "", **more: Any) -> httpx.Response:
        """One request to a node's client listener with the key (or another token), as it is answered."""
        headers = {"authorization": f"Bearer {token or self.key}", **more.pop("headers", {})}
        with httpx.Client(trust_env=False, verify=False, timeout=more.pop("timeout", 30)) as client:
            return client.request(method, self[via].url + path, headers=headers, **more)

    def admin(self, method: str, path: str, *, via: str, **more: Any) -> httpx.Response:
        return self.request(method, path, via=via, token=self.secrets["admin_token"], **more)

    def chat(self, model: str = MODEL, *, via: str = "e1", request_id: str = "", headers: dict[str, str] | None = None,
             timeout: float = 30, **more: Any) -> httpx.Response:  # fmt: skip
        body = {
            "model": model,
            "messages": [{"role": "user", "content": "Hi."}],
            "temperature": 0,
            "max_tokens": 20,
            **more,
        }
        sent = {**({"x-request-id": request_id} if request_id else {}), **(headers or {})}
        return self.request("POST", "/v1/chat/completions", via=via, json=body, headers=sent, timeout=timeout)

    def outcome(self, model: str = MODEL, **more: Any) -> str:
        """How one chat ended, for a comparison that tells why it failed: `200`, or the status with what was answered."""
        answer = self.chat(model, **more)
        return "200" if answer.status_code == 200 else f"{answer.status_code} {answer.text}"

    def went(self, request_id: str) -> list[str]:
        """Nodes that a request with this id was passed on to by another node, once for each time."""
        return [name for name, link in self.links.links.items() for _ in range(link.reached[request_id])]

    def answers(self, model: str = MODEL, *, via: str = "e1") -> bool:
        try:
            return self.chat(model, via=via, max_tokens=4).status_code == 200
        except httpx.HTTPError:
            return False

    def models(self, via: str = "e1") -> list[str]:
        """Names in the model list of a node; empty where it does not answer."""
        try:
            answer = self.request("GET", "/v1/models", via=via)
        except httpx.HTTPError:
            return []
        return [row["id"] for row in answer.json()["data"]] if answer.status_code == 200 else []

    def serve(
        self, name: str, path: Path | None = None, *, replicas: int = 1, seconds: float = 60, **args: Any
    ) -> None:
        """Have a model served, and wait until all its replicas are ready."""
        where = path or tiny.tiny_gguf(name=name)
        job = self.api().post(
            "jobs", {"kind": "serve", "args": {"name": name, "path": str(where), "replicas": replicas, **args}}
        )
        ended = wait_for(
            lambda: (now := self.api().get(f"jobs/{job['id']}"))["state"] not in ("queued", "running") and now,
            seconds=fair(seconds), what=f"job {job['id']}: {job}", every=0.2,
        )  # fmt: skip
        assert ended, job
        assert ended["state"] == "done", ended
        wait_for(
            lambda: len(self.ready(name)) == replicas,
            seconds=fair(seconds),
            what=f"{replicas} replicas of {name}",
            every=0.2,
        )
        self._until(lambda: self.known(name), seconds, f"{name} to be known where it is asked for")

    def known(self, model: str) -> bool:
        """Whether every edge has the model in its list, and every router knows a node where it is ready."""
        roles = {name: node.environ["LLMGW_ROLES"].split(",") for name, node in self.nodes.items()}
        routers = {name for name, of in roles.items() if "router" in of} - {*self.ready(model)}
        path = f"/api/v1/cloud/peers?model={model}"
        rows = [self.admin("GET", path, via=name).json() for name in routers]
        return all(any(row["serving_state"] == "ready" for row in of) for of in rows) and all(
            model in self.models(name) for name, of in roles.items() if "edge" in of
        )

    def remove_model(self, name: str) -> None:
        api = self.api()
        row = api.find("models", name, noun="model")
        if row.get("enabled"):
            api.post(f"models/{row['id']}/disable")
        api.delete(f"models/{row['id']}")

    def replicas(self, model: str = MODEL) -> list[dict[str, Any]]:
        return [row for row in self.api().all("replicas") if row["model_name"] == model]

    def ready(self, model: str = MODEL) -> list[str]:
        """Names of the nodes with a ready replica of the model, as the controllers know."""
        return sorted(row["node_name"] for row in self.replicas(model) if row["state"] == "ready" and row["run"])

    def states(self) -> dict[str, str]:
        """How each node stands, by name."""
        return {row["name"]: row["state"] for row in self.api().all("nodes")}

    def setup(self, nodes: dict[str, list[str]] | None = None, tier: list[str] | None = None) -> dict[str, Any]:
        """Write the cluster setup (none: the empty one)."""
        now = self.api().get("cluster/setup")
        wanted = {"controller_tier": tier or [], "nodes": nodes or {}, "version": now["version"]}
        return dict(self.api().put("cluster/setup", wanted))

    # --- whole again

    def whole(self) -> bool:
        """Every process runs, every node is online and does what it is for, every model is where it belongs, and both kinds are
        answered."""
        return (
            not any(node.missing() for node in self.nodes.values())
            and set(self.states().items()) == {(name, "online") for name in self.nodes}
            and self.ready() == HOMES
            and all(self.routes(name) for name in ("r1", "r2"))
            and self.modules("e1") == {name: {role} for name, role in LAYOUT.items()}
            and all(self.answers(model) for model in (MODEL, EXTERNAL))
        )

    def routes(self, node: str) -> bool:
        """Whether the gateway of a node takes what edges hand over."""
        found = self.admin("GET", "/api/v1/node/modules", via=node).json()["modules"]
        return any((item["name"], item["state"]) == ("router", "running") for item in found)

    def modules(self, node: str) -> dict[str, set[str]]:
        """What runs on each node, by the map that the gateway of this one goes by."""
        rows = self.admin("GET", "/api/v1/node/map", via=node).json()["nodes"]
        return {row["name"]: {item["name"] for item in row["modules"] if item["state"] == "running"} for row in rows}

    def until_whole(self, seconds: float = 40) -> None:
        self._until(self.whole, seconds, "the cluster to be whole")

    def _until(self, look: Callable[[], bool], seconds: float, what: str) -> None:
        """Wait; where it was in vain, say how everything stands, before the test's own timeout ends it without a word."""
        try:
            wait_for(lambda: quiet(look), seconds=min(fair(seconds), 120), what=what, every=0.1)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.say()}") from None

    def mend(self) -> None:
        """Undo what a test did to it: links, stopped and dead processes, models, setup, maintenance, added nodes."""
        self.links.mend()
        self.provider.mend()
        for node in self.nodes.values():
            node.thaw()
        for node in self.nodes.values():
            node.spawn()
        for node in self.nodes.values():
            node.until_ready()
        for name in [name for name in self.nodes if name not in LAYOUT]:
            self.drop(name)
        for name in ("r1", "r2"):
            path = "/api/v1/router/strategy"
            if self.admin("GET", path, via=name).json()["strategy"] != "load_based":
                self.admin("PUT", path, via=name, json={"strategy": "load_based"})
        api = self.api()
        if api.get("cluster/setup")["nodes"]:
            self.setup()
        for row in api.all("nodes"):
            if row.get("maintenance"):
                api.post(f"nodes/{row['id']}/uncordon", {})
        for row in api.all("models"):
            if row["name"] not in (MODEL, EXTERNAL):
                self.remove_model(row["name"])
        self._until(lambda: set(self.states().values()) == {"online"}, 30, "all to be online")
        self._spread()

    def _spread(self) -> None:
        """One replica on each inference node again: replicas that moved stay where they are unless they are made anew."""
        if sorted(row["node_name"] for row in self.replicas() if row["run"]) == HOMES:
            return
        model = self.api().find("models", MODEL, noun="model")
        self.api().post(f"models/{model['id']}/disable")
        self._until(lambda: not any(row["run"] for row in self.replicas()), 20, "no replica to be wanted")
        for pid in [pid for node in self.nodes.values() for pid in node.engines(MODEL)]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)  # no request is under way: why wait until all routers have heard
        self._until(lambda: not self.replicas(), 20, "all replicas to go")
        self.api().post(f"models/{model['id']}/enable")

    def say(self) -> str:
        """What stands and what does not, for a failed test."""
        lines = [f"data folders under {self.folder}"]
        for name, node in self.nodes.items():
            lines.append(f"{name}: {node.missing() or 'all run'}; link {node.link.mode}")
        try:
            lines += [
                f"states {self.states()}",
                f"replicas {[(r['node_name'], r['state'], r.get('code')) for r in self.replicas()]}",
            ]
            lines += [json.dumps(self.chat(model, max_tokens=2).json())[:300] for model in (MODEL, EXTERNAL)]
        except Exception as error:
            lines.append(repr(error))
        return "\n".join(lines)

    def _owner(self, port: int) -> str:
        """The node whose process has the local end `port` of a connection: /proc/net/tcp and the descriptors."""
        mark = f":{port:04X}"
        inodes = {
            f"socket:[{fields[9]}]"
            for line in Path("/proc/net/tcp").read_text().splitlines()[1:]
            if (fields := line.split())[1].endswith(mark) and fields[9] != "0"
        }
        for name, node in list(self.nodes.items()):
            for pid in node.pids():
                for handle in Path(f"/proc/{pid}/fd").glob("*"):
                    try:
                        if str(handle.readlink()) in inodes:
                            return name
                    except OSError:
                        continue
        return ""


def quiet(look: Callable[[], T]) -> T | None:
    """A look while things are in motion: no answer is none."""
    try:
        return look()
    except (httpx.HTTPError, CliError, OSError):
        return None


def _network() -> str:
    """Two bytes of 127.0.0.0/8 that nobody else uses, spread by process id: `127.x`."""
    for step in range(200):
        net = f"127.{20 + (os.getpid() + step * 7) % 200}"
        with socket.socket() as probe:
            try:
                probe.bind((f"{net}.0.1", NODE_PORT))
            except OSError:
                continue
            return net
    raise RuntimeError("no free network in 127.0.0.0/8")


def running() -> Iterator[Cluster]:
    """A cluster for as long as the generator lives."""
    cluster = Cluster()
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.close()


__all__ = ["EXTERNAL", "MODEL", "Cluster", "quiet", "running"]
