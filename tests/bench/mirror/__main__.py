"""`python -m tests.bench.mirror [--size MIB] [--runs N] [--strict]`: see the package. Runs for about a minute."""

from __future__ import annotations

import argparse
import hashlib
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import orjson

from catalog.domain.manifests import Manifest, ManifestFile
from catalog.domain.repository import Format
from catalog.mirror.store import Store
from cluster.wire import FetchSource
from llmgw_site.lib.files import write_json
from llmgw_site.lib.units import MIB
from tests.bench.contenders import BenchError, _end, _pinned, _wait, nginx_binary
from tests.bench.measure import pss_mib, tree
from tests.bench.mirror.reading import Giver, ReadError, read
from tests.processes import free_port
from tests.routing.gateway.nodes import Cluster, Node
from workers.agent.identity import Identity
from workers.agent.node_map import NodeMap
from workers.agent.sources import WEIGHTS, FromNodes, NodeCalls
from workers.agent.tls import Tls

VERSION, NAME = "ver_0000000001", "model.gguf"
LEAST = 0.8
"""Of nginx's throughput a node has to give; memory may grow by MOST_MIB while it gives."""
MOST_MIB = 24.0
LOOK = 0.05
_NGINX = """
daemon off; worker_processes 1; pid {folder}/nginx.pid; error_log {folder}/error.log error; {user}
events {{ worker_connections 256; }}
http {{
  access_log off; sendfile on; tcp_nopush on; types {{ }} default_type application/octet-stream;
  client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/f;
  uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
  server {{ listen 127.0.0.1:{port}; root {root}; }}
}}
"""


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.mirror", description=__doc__)
    parser.add_argument("--size", type=int, default=1024, help="MiB of the file (default 1024)")
    parser.add_argument("--runs", type=int, default=5, help="runs of each, one after the other; medians are shown")
    parser.add_argument("--strict", action="store_true", help="exit with 1 where a goal is missed")
    parser.add_argument("--out", type=Path, default=Path("var/bench/mirror.json"))
    given = parser.parse_args()
    try:
        found = _bench(given.size * MIB, given.runs)
    except (BenchError, ReadError) as error:
        say(f"bench: {error}")
        return 2
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_bytes(orjson.dumps(found, option=orjson.OPT_INDENT_2))
    say(f"\n{_table(found)}\n\nwritten to {given.out}")
    return 1 if given.strict and not all(goal["met"] for goal in found["goals"]) else 0


def _bench(size: int, runs: int) -> dict[str, Any]:
    cores = sorted(os.sched_getaffinity(0))
    ours, theirs = {cores[0]}, {cores[-1]}  # the client on one core, the contender alone on another
    with tempfile.TemporaryDirectory(prefix="llmgw-bench-") as name, ExitStack() as stack:
        folder = Path(name)
        cluster = Cluster(folder / "nodes")
        holder, asker = cluster.add("holder", "data"), cluster.add("asker", "inference")
        say(f"making a file of {size // MIB} MiB")
        manifest = _stored(holder, size)
        root = holder.config.store / VERSION / "files"
        port, pid = stack.enter_context(_gateway(cluster, holder, theirs))
        calls = _calls(asker)
        path = f"{WEIGHTS}/{VERSION}/{NAME}"
        givers = [
            Giver(name="nginx", port=stack.enter_context(_nginx(folder / "nginx", root, theirs)), path=f"/{NAME}"),
            Giver(name="llmgw", port=port, path=path, headers=lambda: calls.headers(holder.node_id, path)),
        ]
        os.sched_setaffinity(0, ours)
        for giver in givers:
            read(giver, size, 1)  # warm
        with _watched(pid) as memory:
            before = memory[0]
            rates = _rates(givers, size, runs)
            most = max(memory)
        os.sched_setaffinity(0, set(cores))
        say("a node fetches, checks and writes it")
        node = _fetched(folder / "asker-store", manifest, calls, holder, port)
        checking = _hashing(root / NAME)
    ratios = {str(count): round(rates["llmgw"][count] / rates["nginx"][count], 3) for count in (1, 4)}
    return {
        "machine": {"cores": len(cores), "python": platform.python_version()},
        "size_mib": size // MIB, "runs": runs,
        "mib_per_s": {name: {str(count): round(value, 1) for count, value in each.items()} for name, each in rates.items()},
        "ratio_to_nginx": ratios,
        "memory_mib": {"before": round(before, 1), "most": round(most, 1)},
        "node": {"fetched_checked_written_mib_per_s": round(node, 1), "sha256_alone_mib_per_s": round(checking, 1)},
        "goals": [
            {"goal": f"at least {LEAST:.0%} of nginx over {count} connection(s)", "measured": ratios[str(count)],
             "met": ratios[str(count)] >= LEAST} for count in (1, 4)
        ] + [{"goal": f"memory grows by no more than {MOST_MIB:.0f} MiB", "measured": round(most - before, 1), "met": most - before <= MOST_MIB}],
    }  # fmt: skip


def _rates(givers: list[Giver], size: int, runs: int) -> dict[str, dict[int, float]]:
    """MiB a second by contender and number of connections: medians of runs that take turns."""
    found: dict[str, dict[int, list[float]]] = {giver.name: {1: [], 4: []} for giver in givers}
    for number in range(runs):
        for count in (1, 4):
            for giver in givers if number % 2 else reversed(givers):
                found[giver.name][count].append(size / MIB / read(giver, size, count))
        told = ", ".join(f"{name} {each[1][-1]:.0f} and {each[4][-1]:.0f}" for name, each in found.items())
        say(f"run {number + 1} of {runs}: MiB/s over 1 and 4 connections: {told}")
    return {name: {count: statistics.median(rates) for count, rates in each.items()} for name, each in found.items()}


def _stored(holder: Node, size: int) -> Manifest:
    """A whole version with one file of random bytes, read once so that it lies in the page cache."""
    folder = holder.config.store / VERSION
    (folder / "files").mkdir(parents=True)
    digest, piece = hashlib.sha256(), os.urandom(8 * MIB)
    with (folder / "files" / NAME).open("wb") as file:
        for number in range(size // len(piece)):
            turned = piece[number % 4096 :] + piece[: number % 4096]
            file.write(turned)
            digest.update(turned)
    files = (ManifestFile(path=NAME, size=size, sha256=digest.hexdigest()),)
    manifest = Manifest(id=VERSION, format=Format.GGUF, first=NAME, files=files)
    write_json(folder / "manifest.json", manifest.as_dict())
    (folder / "whole").touch()
    return manifest


@contextmanager
def _gateway(cluster: Cluster, holder: Node, core: set[int]) -> Iterator[tuple[int, int]]:
    """The real gateway process of a node that holds the version: its node listener's port, and its pid."""
    ports = {name: str(free_port()) for name in ("LLMGW_PORT", "LLMGW_NODE_PORT", "LLMGW_METRICS_PORT")}
    port = int(ports["LLMGW_NODE_PORT"])
    holder.address = f"http://127.0.0.1:{port}"
    cluster.publish()
    log = holder.config.data / "gateway.log"
    with log.open("wb") as stderr:
        child = subprocess.Popen(
            [sys.executable, "-c", "from llmgw_site.cli.main import main; main()", "gateway"],
            env=os.environ | {"LLMGW_DATA": str(holder.config.data), **ports}, stderr=stderr, preexec_fn=_pinned(core),
        )  # fmt: skip
    try:
        _wait(child, f"http://127.0.0.1:{port}/healthz", log)
        yield port, child.pid
    finally:
        _end(child)


@contextmanager
def _nginx(folder: Path, root: Path, core: set[int]) -> Iterator[int]:
    """One worker with sendfile."""
    folder.mkdir()
    port, config = free_port(), folder / "nginx.conf"
    user = "user root;" if os.geteuid() == 0 else ""
    config.write_text(_NGINX.format(folder=folder, port=port, root=root, user=user))
    child = subprocess.Popen([nginx_binary(), "-c", str(config), "-p", str(folder)], preexec_fn=_pinned(core))
    try:
        _wait(child, f"http://127.0.0.1:{port}/none", folder / "error.log")
        yield port
    finally:
        _end(child)


def _calls(asker: Node) -> NodeCalls:
    """What the agent of the node that asks signs its calls with."""
    config = asker.config
    node_map = NodeMap(config.map_file, time.time)
    return NodeCalls(Identity.read(config.node_file), node_map=node_map, tls=Tls(config.tls_folder), now=time.time)


@contextmanager
def _watched(pid: int) -> Iterator[list[float]]:
    """MiB that a process takes, looked at all the time."""
    seen, over = [pss_mib(tree(pid))], threading.Event()

    def look() -> None:
        while not over.wait(LOOK):
            seen.append(pss_mib(tree(pid)))

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield seen
    finally:
        over.set()
        thread.join()


def _fetched(folder: Path, manifest: Manifest, calls: NodeCalls, holder: Node, port: int) -> float:
    """MiB a second of a node's own fetch: four connections, checked as it comes, written and synced."""
    began = time.perf_counter()
    with FromNodes(calls, VERSION, [FetchSource(node_id=holder.node_id, address=f"http://127.0.0.1:{port}")]) as origin:
        Store(folder).fetch(manifest, origin)
    return manifest.size / MIB / (time.perf_counter() - began)


def _hashing(path: Path) -> float:
    began = time.perf_counter()
    with path.open("rb") as file:
        hashlib.file_digest(file, "sha256")
    return path.stat().st_size / MIB / (time.perf_counter() - began)


def _table(found: dict[str, Any]) -> str:
    rates, ratio, memory, node = found["mib_per_s"], found["ratio_to_nginx"], found["memory_mib"], found["node"]
    lines = [
        "| | 1 connection | 4 connections |", "| --- | --- | --- |",
        *(f"| {name} | {each['1']:.0f} MiB/s | {each['4']:.0f} MiB/s |" for name, each in rates.items()),
        f"| llmgw to nginx | {ratio['1']:.2f} | {ratio['4']:.2f} |",
        "", f"memory of the gateway: {memory['before']:.0f} MiB before, {memory['most']:.0f} MiB at most",
        f"a node's own fetch, checked and written: {node['fetched_checked_written_mib_per_s']:.0f} MiB/s; SHA-256 alone {node['sha256_alone_mib_per_s']:.0f} MiB/s",
        *(f"{'met' if goal['met'] else 'MISSED'}: {goal['goal']} ({goal['measured']})" for goal in found["goals"]),
    ]  # fmt: skip
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
