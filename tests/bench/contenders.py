"""What is measured: straight to the stub, through nginx, and through the real gateway process. All on 127.0.0.1."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from catalog.domain.keys import KEY_PREFIX, make
from cluster.wire import EnginesFile, LocalEngine, to_dict
from llmgw_site.lib.config import Config, load
from llmgw_site.lib.files import private_folder, write_json
from routing.domain.snapshot import KeyEntry, ModelEntry, Snapshot
from tests.bench.load import Aim
from tests.processes import fair, free_port

_KEY = make(KEY_PREFIX, entropy=os.urandom(32))
_NGINX = """
daemon off; worker_processes 1; pid {folder}/nginx.pid; error_log {folder}/error.log error; {user}
events {{ worker_connections 4096; }}
http {{
  access_log off; default_type application/json; keepalive_requests 100000000; keepalive_timeout 75s;
  client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/f;
  uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s; client_body_buffer_size 64k;
  upstream stub {{ server 127.0.0.1:{stub}; keepalive 512; keepalive_requests 100000000; }}
  server {{
    listen 127.0.0.1:{port} backlog=2048;
    location / {{
      proxy_pass http://stub; proxy_http_version 1.1; proxy_set_header Connection "";
      proxy_buffering off; proxy_request_buffering on;
    }}
  }}
}}
"""


class BenchError(Exception):
    """The benchmark cannot run; the text says what to do."""


@dataclass(frozen=True, kw_only=True)
class Contender:
    """`pid` None: nothing stands between (direct)."""

    name: str
    aim: Aim
    pid: int | None


@contextmanager
def stub(core: set[int]) -> Iterator[int]:
    """The upstream's port."""
    child = subprocess.Popen(
        [sys.executable, "-m", "tests.bench.stub"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=_pinned(core),
    )
    assert child.stdout is not None
    try:
        yield int(child.stdout.readline())
    finally:
        _end(child)


def direct(port: int) -> Contender:
    return Contender(name="direct", aim=Aim(host="127.0.0.1", port=port, key=_KEY.text), pid=None)


def nginx_binary() -> str:
    """nginx, installed with apt where that is possible. Raises BenchError."""
    found = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
    if found is None and os.geteuid() == 0 and shutil.which("apt-get"):
        subprocess.run(["apt-get", "update", "-qq"], check=False, stdout=subprocess.DEVNULL)
        environ = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
        command = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", "nginx-light"]
        subprocess.run(command, check=False, stdout=subprocess.DEVNULL, env=environ)
        found = shutil.which("nginx", path="/usr/sbin")
    if found is None:
        raise BenchError("nginx is the measure and is not here: install it (Debian: apt-get install nginx-light)")
    return found


@contextmanager
def nginx(folder: Path, stub_port: int, core: set[int]) -> Iterator[Contender]:
    """One worker, unbuffered, kept connections to the stub."""
    port = free_port()
    user = "user root;" if os.geteuid() == 0 else ""
    config = folder / "nginx.conf"
    config.write_text(_NGINX.format(folder=folder, port=port, stub=stub_port, user=user))
    child = subprocess.Popen([nginx_binary(), "-c", str(config), "-p", str(folder)], preexec_fn=_pinned(core))
    try:
        _wait(child, f"http://127.0.0.1:{port}/", folder / "error.log")
        yield Contender(name="nginx", aim=Aim(host="127.0.0.1", port=port, key=_KEY.text), pid=child.pid)
    finally:
        _end(child)


@contextmanager
def gateway(folder: Path, stub_port: int, core: set[int]) -> Iterator[Contender]:
    """`llmgw gateway` with one key, one model and one engine: the stub. Spool and access log are on, as in production."""
    ports = {name: str(free_port()) for name in ("LLMGW_PORT", "LLMGW_NODE_PORT", "LLMGW_METRICS_PORT")}
    settings = {"LLMGW_DATA": str(folder), "LLMGW_MAX_CONNECTIONS": "4096", **ports}
    config = load(settings)
    _prepare(config, stub_port)
    log = folder / "gateway.log"
    with log.open("wb") as stderr:
        child = subprocess.Popen(
            [sys.executable, "-c", "from llmgw_site.cli.main import main; main()", "gateway"],
            env=os.environ | settings,
            stderr=stderr,
            preexec_fn=_pinned(core),
        )
    try:
        _wait(child, f"http://127.0.0.1:{config.port}/readyz", log)
        yield Contender(name="llmgw", aim=Aim(host="127.0.0.1", port=config.port, key=_KEY.text), pid=child.pid)
    finally:
        _end(child)


def _prepare(config: Config, stub_port: int) -> None:
    private_folder(config.snapshot_file.parent)
    key = KeyEntry(
        key_id="key_bench", sha256=_KEY.sha256, prefix=_KEY.prefix, project_id="proj_bench", models=("bench",)
    )
    model = ModelEntry(name="bench", created=1, replicas=("rep_bench",))
    write_json(
        config.snapshot_file, to_dict(Snapshot(version="bench:1", made_at=time.time(), keys=(key,), models=(model,)))
    )
    engine = LocalEngine(
        replica_id="rep_bench",
        model="bench",
        engine="llama.cpp",
        state="ready",
        host="127.0.0.1",
        port=stub_port,
        key="engine-key",
        slots=4096,
    )
    write_json(config.engines_file, to_dict(EnginesFile(written_at=time.time(), engines=(engine,))))


def _pinned(core: set[int]) -> Callable[[], None]:
    return lambda: os.sched_setaffinity(0, core)


def _wait(child: subprocess.Popen[bytes], url: str, log: Path) -> None:
    """Until `url` answers anything at all. Raises BenchError with the log's end."""
    end = time.monotonic() + fair(60)
    while time.monotonic() < end and child.poll() is None:
        try:
            urllib.request.urlopen(url, timeout=1).close()
        except urllib.error.HTTPError:
            return
        except OSError:
            time.sleep(0.05)
        else:
            return
    said = log.read_text()[-1500:] if log.exists() else ""
    raise BenchError(f"{child.args} did not answer at {url}: {said}")


def _end(child: subprocess.Popen[str] | subprocess.Popen[bytes]) -> None:
    child.terminate()
    try:
        child.wait(12)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
