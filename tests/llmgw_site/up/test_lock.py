"""One supervisor for each data folder."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from llmgw_site.lib.config import Config, load
from llmgw_site.lib.errors import Refused
from llmgw_site.up.lock import Lock
from tests.processes import stop


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return load({"LLMGW_DATA": str(tmp_path / "data")})


def test_a_second_one_is_told_who_holds_the_data_and_since_when(config: Config) -> None:
    first = Lock(config)
    first.take()
    with pytest.raises(Refused) as caught:
        Lock(config).take()
    assert caught.value.code == "data_in_use"
    assert f"process {os.getpid()}, since 20" in caught.value.message
    assert "LLMGW_DATA=" in caught.value.message
    first.release()


def test_it_is_free_after_release(config: Config) -> None:
    for _ in range(2):
        lock = Lock(config)
        lock.take()
        with pytest.raises(Refused):
            Lock(config).take()
        lock.release()


def test_a_killed_holder_leaves_nothing_to_delete(config: Config) -> None:
    code = (
        "from llmgw_site.lib.config import load; from llmgw_site.up.lock import Lock; import time\n"
        "lock = Lock(load()); lock.take(); print('held', flush=True); time.sleep(60)"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", code], env={**os.environ, "LLMGW_DATA": str(config.data)}, stdout=subprocess.PIPE
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(Refused, match=f"process {holder.pid}"):
            Lock(config).take()
    finally:
        holder.kill()
        holder.communicate()
    lock = Lock(config)
    lock.take()
    lock.release()
    stop(holder)
