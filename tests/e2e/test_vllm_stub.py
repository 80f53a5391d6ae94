"""The program that stands in for vLLM takes no arguments of an engine over several nodes that vLLM would not, and its parts meet."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes import fair, free_port, wait_for
from workers.agent.address import find

STUB = Path(__file__).parent / "vllm_stub.py"
ADDRESS = find(()) or ""
CONFIG = '{"architectures": ["LlamaForCausalLM"], "num_attention_heads": 4, "num_hidden_layers": 2, "hidden_size": 64}'
pytestmark = pytest.mark.skipif(not ADDRESS, reason="this machine has no address but loopback")


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text(CONFIG)
    (tmp_path / "model.safetensors").write_bytes(b"s" * 1000)
    return tmp_path


def start(weights: Path, *, own: str = ADDRESS, **changes: str | None) -> subprocess.Popen[str]:
    """A part; None leaves an argument out, "" writes it alone."""
    values: dict[str, str | None] = {"tensor-parallel-size": "1", "gpu-memory-utilization": "0.5", "max-model-len": "256", "max-num-seqs": "2",
              "served-model-name": "m", "host": "127.0.0.1", "port": "1", "pipeline-parallel-size": "2", "distributed-executor-backend": "mp",
              "nnodes": "2", "node-rank": "1", "master-addr": ADDRESS, "master-port": "1", "headless": ""}  # fmt: skip
    values |= {name.replace("_", "-"): value for name, value in changes.items()}
    argv = [part for name, value in values.items() if value is not None for part in (f"--{name}", value) if part]
    env = {**os.environ, "CUDA_VISIBLE_DEVICES": "0", "VLLM_API_KEY": "k", "VLLM_HOST_IP": own}
    return subprocess.Popen(
        [sys.executable, str(STUB), "serve", str(weights), *argv], env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"headless": None}, "rank 0 answers, all others are headless"),
        ({"node_rank": "0"}, "rank 0 answers, all others are headless"),
        ({"master_addr": "127.0.0.1"}, "the master is on loopback"),
        ({"own": "127.0.0.1"}, "this node's own address is not told"),
        ({"nnodes": "3", "pipeline_parallel_size": "3"}, "more stages than layers"),
        ({"nnodes": "1"}, "it is headless, and nobody leads it"),
        ({"distributed_executor_backend": "ray"}, "invalid choice"),
        ({"distributed_executor_backend": None}, "without Ray it is mp"),
    ],
)
def test_wrong_arguments_end_it_with_the_reason(weights: Path, changes: dict[str, str | None], words: str) -> None:
    own = changes.pop("own", ADDRESS) or ADDRESS
    part = start(weights, own=own, **changes)
    out, _ = part.communicate(timeout=fair(60))
    assert part.returncode != 0
    assert words in out


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_the_leader_answers_when_all_have_joined_and_the_others_end_with_it(weights: Path) -> None:
    port, master = free_port(), free_port()
    leader = start(weights, node_rank="0", headless=None, port=str(port), master_port=str(master))
    follower = None
    try:
        with pytest.raises(AssertionError):
            wait_for(lambda: listens(port), seconds=0.7, what="an answer without the other", every=0.1)
        follower = start(weights, master_port=str(master))
        wait_for(lambda: listens(port), seconds=fair(60), what="an answer of both", every=0.05)
        leader.kill()
        out, _ = follower.communicate(timeout=fair(60))
        assert follower.returncode != 0
        assert "the master is gone" in out
    finally:
        for part in filter(None, (leader, follower)):
            part.kill()
            part.communicate()
