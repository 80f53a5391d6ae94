"""The embedded Valkey, for real."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import redis

from llmgw_site.lib.config import Config, load
from llmgw_site.up import valkey
from llmgw_site.up.valkey import Valkey
from tests.processes import running, wait_for


def config(folder: Path) -> Config:
    return load({"LLMGW_DATA": str(folder / "d")})


def test_it_listens_on_a_private_socket_and_on_no_port(tmp_path: Path) -> None:
    where = config(tmp_path)
    with Valkey(where) as server, redis.Redis.from_url(server.url) as client:
        assert client.config_get("port") == {"port": "0"}
        assert client.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}
        assert valkey.socket_path(where).stat().st_mode & 0o777 == 0o700


def test_what_it_was_told_survives_a_kill(tmp_path: Path) -> None:
    where = config(tmp_path)
    with running(valkey.command(where), stdout=subprocess.DEVNULL, end=signal.SIGKILL) as child:
        wait_for(lambda: valkey.answers(valkey.socket_path(where)), what="Valkey")
        with redis.Redis.from_url(f"unix://{valkey.socket_path(where)}") as client:
            client.set("kept", "yes")
            wait_for(lambda: client.info("persistence")["aof_pending_bio_fsync"] == 0, what="the append-only file")
        child.kill()
    with Valkey(where) as server, redis.Redis.from_url(server.url) as client:
        assert client.get("kept") == b"yes"


def test_nobody_on_the_socket_is_no_answer(tmp_path: Path) -> None:
    assert not valkey.answers(tmp_path / "none.sock")
