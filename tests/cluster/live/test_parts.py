"""A replica over two real nodes with cards that there are not, and in the place of vLLM a program that checks its arguments, meets
its other part over the network and speaks vLLM's API: served, asked, and killed one part at a time."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.harness.three import Three
from tests.processes import fair, wait_for
from workers.agent import process
from workers.agent.address import find

pytestmark = [pytest.mark.prove, pytest.mark.slow, pytest.mark.timeout(300), pytest.mark.xdist_group("parts")]
E2E = Path(__file__).resolve().parents[2] / "e2e"
ADDRESS = find(())
"""Of this machine, where others would reach it: the parts must not meet on loopback."""
CONFIG = {"architectures": ["LlamaForCausalLM"], "num_attention_heads": 4, "num_key_value_heads": 4, "num_hidden_layers": 2,
          "hidden_size": 64, "vocab_size": 100, "max_position_embeddings": 512, "torch_dtype": "bfloat16"}  # fmt: skip
PAIR = ("i1", "i2")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Three]:
    if ADDRESS is None:
        pytest.skip("this machine has no address but loopback")
    folder = Path(tempfile.mkdtemp(prefix="llmgw-parts-"))
    program = folder / "vllm"
    stub = str(E2E / "vllm_stub.py")
    program.write_text(f"#!{sys.executable}\nimport runpy\nrunpy.run_path({stub!r}, run_name='__main__')\n")
    program.chmod(0o755)
    weights = folder / "weights"
    weights.mkdir()
    (weights / "config.json").write_text(json.dumps(CONFIG))
    (weights / "model.safetensors").write_bytes(b"s" * 100_000)
    path = f"{E2E / 'cards'}:{os.environ.get('PYTHONPATH', '')}"
    three = Three(PATH=f"{folder}:{os.environ['PATH']}", PYTHONPATH=path)
    try:
        three.start()
        for row in three.api().all("nodes"):
            if row["name"] in PAIR:
                three.api().post(f"nodes/{row['id']}/fabric", {"fabric": "ib0", "address": ADDRESS})
        profile = {
            "engine": "vllm",
            "tp": 1,
            "pp": 2,
            "card_memory": 1 << 30,
            "memory": 1 << 26,
            "context": 256,
            "threads": 0,
        }
        three.model("wide", replicas=1, weights_path=str(weights), profile=profile)
        yield three
    finally:
        three.close()
        shutil.rmtree(folder, ignore_errors=True)


def parts(cluster: Three) -> dict[str, int]:
    """Process of each part, by node."""
    return {name: found[0].pid for name in PAIR if (found := process.find(cluster[name].data))}


def replica(cluster: Three) -> dict[str, Any]:
    return next((row for row in cluster.replicas("wide") if row["run"]), {})


def serves(cluster: Three, *, seconds: float = 60) -> dict[str, Any]:
    """The replica, once it is ready and a chat was answered."""
    wait_for(
        lambda: replica(cluster).get("state") == "ready" and cluster.answers("wide", via="c1"),
        seconds=fair(seconds), what=f"wide to answer: {replica(cluster)}", every=0.2,
    )  # fmt: skip
    return replica(cluster)


def test_two_nodes_answer_as_one_and_only_their_leader_is_asked(cluster: Three) -> None:
    found = serves(cluster)
    assert set(parts(cluster)) == set(PAIR)
    answer = cluster.chat("wide")
    assert answer.status_code == 200, answer.text
    assert "fake engine" in answer.text
    engines = {name: cluster[name].file("cluster/engines.json")["engines"] for name in PAIR}
    assert {name: len(rows) for name, rows in engines.items()} == {
        name: int(name == found["node_name"]) for name in PAIR
    }
    argv = {name: Path(f"/proc/{pid}/cmdline").read_text().split("\0") for name, pid in parts(cluster).items()}
    ranks = {name: words[words.index("--node-rank") + 1] for name, words in argv.items()}
    assert sorted(ranks.values()) == ["0", "1"]
    assert ranks[found["node_name"]] == "0"
    assert all(words[words.index("--master-addr") + 1] == ADDRESS for words in argv.values())


@pytest.mark.parametrize("leads", [False, True])
def test_a_part_that_is_killed_is_the_end_of_both_and_both_begin_anew(cluster: Three, leads: bool) -> None:
    before, was = serves(cluster), parts(cluster)
    victim = next(name for name in PAIR if (name == before["node_name"]) is leads)
    os.kill(was[victim], signal.SIGKILL)
    wait_for(
        lambda: replica(cluster).get("generation", 0) > before["generation"],
        seconds=fair(30), what="another generation", every=0.1,
    )  # fmt: skip
    after, now = serves(cluster), parts(cluster)
    assert set(now) == set(PAIR)
    assert not set(now.values()) & set(was.values())
    assert after["id"] == before["id"]
    events = cluster.api().get("events", subject_id=before["id"])["results"]
    why = next(item["why"] for item in events if item["kind"] == "replica_renewed")
    assert f"on node {victim}" in why
    assert "signal 9" in why


def test_parts_outlive_their_agent_and_are_adopted(cluster: Three) -> None:
    before, was = serves(cluster), parts(cluster)
    for name in PAIR:
        cluster[name].kill("agent")
    for name in PAIR:
        cluster[name].start("agent")
    wait_for(lambda: cluster.answers("wide", via="c1"), seconds=fair(30), what="an answer", every=0.2)
    assert parts(cluster) == was
    assert serves(cluster)["generation"] == before["generation"]
    restarted(cluster, before)  # how an adopted process ends nobody can know, and the other tests ask


def restarted(cluster: Three, before: dict[str, Any]) -> None:
    """Begin both anew in place, and wait until they are told to."""
    model = cluster.api().find("models", "wide", noun="model")
    cluster.api().post(f"models/{model['id']}/restart", {"in_place": True})
    wait_for(
        lambda: replica(cluster).get("generation") == before["generation"] + 1,
        seconds=fair(30), what="another generation", every=0.1,
    )  # fmt: skip


def test_a_restart_in_place_ends_the_leader_first_and_begins_both_anew(cluster: Three) -> None:
    before, was = serves(cluster), parts(cluster)
    restarted(cluster, before)
    after, now = serves(cluster), parts(cluster)
    assert not set(now.values()) & set(was.values())
    assert after["generation"] == before["generation"] + 1  # nothing was lost on the way
    assert [item["state"] for item in after["parts"]] == ["ready", "ready"]


def test_a_model_that_is_not_wanted_leaves_no_part_behind(cluster: Three) -> None:
    serves(cluster)
    model = cluster.api().find("models", "wide", noun="model")
    cluster.api().post(f"models/{model['id']}/disable")
    wait_for(lambda: not parts(cluster), seconds=fair(30), what="both parts to end", every=0.2)
    wait_for(lambda: not cluster.replicas("wide"), seconds=fair(30), what="the replica to go", every=0.2)
    cluster.api().post(f"models/{model['id']}/enable")
    assert [item["state"] for item in serves(cluster)["parts"]] == ["ready", "ready"]
