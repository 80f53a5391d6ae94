"""The whole agent as a process, with the real engine on a tiny real model, and a controller that checks signatures."""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import httpx
import orjson
import pytest

from cluster.wire import Load, ReplicaLoad, Wanted, WantedReplica, Weights, to_dict
from routing.domain.figures import Figures, figures_in
from tests.processes import alive, free_port, wait_for
from tests.tiny import TEXT, tiny_gguf
from tests.workers.agent.node import KEY, TOP, Node, R, broken_weights, chat, ended, serve_tiny, stop_engines
from workers.agent import enginelog, process
from workers.agent.engines.llama_cpp import LlamaCpp
from workers.agent.probe import proportional_memory
from workers.agent.store import Intent, IntentStore

pytestmark = pytest.mark.slow


def test_a_wanted_model_answers_and_the_controllers_hear_all_about_it(node: Node) -> None:
    node.want()
    node.start_agent()
    engine = node.wait_ready()
    assert chat(engine) == TEXT
    assert (engine.slots, engine.context, engine.host) == (2, 512, "127.0.0.1")
    report = node.report(lambda r: r.state == "ready" and r.memory and r.cpu is not None)
    assert 0.0 <= report.cpu <= os.cpu_count()
    assert (report.context, report.slots, report.generation, report.pid) == (512, 2, 1, node.pids()[0])
    beat = wait_for(lambda: node.controller.beats[-1].hardware.cores and node.controller.beats[-1])
    assert [build.kind for build in beat.engines if not build.problem] == ["llama.cpp"]
    assert node.controller.refused == []
    assert (node.data / "cluster" / "engines.json").stat().st_mode & 0o777 == 0o600


def test_the_engine_is_on_loopback_behind_its_key_and_the_key_is_in_no_command_line(node: Node) -> None:
    node.want()
    node.start_agent()
    engine = node.wait_ready()
    assert httpx.get(f"http://127.0.0.1:{engine.port}/v1/models", trust_env=False).status_code == 401
    assert engine.key not in Path(f"/proc/{node.pids()[0]}/cmdline").read_text()
    assert engine.key not in node.log.read_text()
    assert engine.key not in (node.data / "logs" / "engines" / f"{R}.log").read_text()


def test_an_embedding_model_is_ready_after_a_real_embedding(node: Node) -> None:
    node.want(serve=serve_tiny(embeddings=True, pooling="mean"))
    node.start_agent()
    engine = node.wait_ready()
    answer = httpx.post(
        f"http://127.0.0.1:{engine.port}/v1/embeddings",
        headers={"authorization": f"Bearer {engine.key}"},
        json={"input": "Hello"},
        trust_env=False,
    )
    assert len(answer.json()["data"][0]["embedding"]) == 64


def test_the_real_engine_counts_its_work_and_moves_with_each_token(node: Node) -> None:
    node.want()
    node.start_agent()
    engine = node.wait_ready()

    def figures() -> Figures:
        answer = httpx.get(
            f"http://127.0.0.1:{engine.port}/metrics",
            headers={"authorization": f"Bearer {engine.key}"},
            trust_env=False,
        )
        found = figures_in(answer.content)
        assert found is not None
        return found

    before = figures()
    assert (before.running, before.waiting) == (0, 0)
    assert before.steps > 0  # of the agent's own token
    assert chat(engine) == TEXT
    after = figures()
    assert after.steps > before.steps
    assert after.generated_tokens > before.generated_tokens
    assert after.prompt_tokens > before.prompt_tokens


@pytest.mark.prove
def test_f60_a_real_engine_that_is_stopped_is_replaced_and_answers_again(node: Node) -> None:
    node.want()
    node.start_agent(LLMGW_ENGINE_PROBE_AFTER="1", LLMGW_ENGINE_PROBE_PATIENCE="1")
    first = node.wait_ready()
    pid = node.pids()[0]
    os.kill(pid, signal.SIGSTOP)
    second = node.wait_ready(other_than=first)
    assert chat(second) == TEXT
    assert pid not in node.pids()
    report = node.report(lambda r: r.state == "ready" and r.pid != pid)
    assert report.attempt == 2
    assert re.search("engine_signal.*(engine_wedged|engine_unresponsive)", node.log.read_text())


def test_f45_an_idle_engine_that_is_killed_is_back_and_answers(node: Node) -> None:
    node.want()
    node.start_agent()
    first = node.wait_ready()
    pid = node.pids()[0]
    os.kill(pid, signal.SIGKILL)
    second = node.wait_ready(other_than=first)
    assert chat(second) == TEXT
    assert pid not in node.pids()
    assert node.report(lambda r: r.state == "ready" and r.pid != pid).attempt == 2


def test_f11_a_killed_agent_leaves_its_engine_and_the_next_adopts_the_same_process(node: Node) -> None:
    node.want()
    node.start_agent()
    engine = node.wait_ready()
    pids = node.pids()
    node.end_agent(signal.SIGKILL)
    assert chat(engine) == TEXT
    node.controller.beats.clear()
    node.start_agent()
    assert node.report(lambda r: r.state == "ready").pid == pids[0]
    assert node.engine() == engine
    assert chat(engine) == TEXT
    os.kill(pids[0], signal.SIGKILL)  # an adopted engine is watched like any other
    node.wait_ready(other_than=engine)


def test_sigterm_ends_the_agent_and_leaves_the_engine(node: Node) -> None:
    node.want()
    node.start_agent()
    engine = node.wait_ready()
    assert node.end_agent() == 0
    assert chat(engine) == TEXT
    assert node.engine() == engine


def test_f11_an_agent_killed_at_any_moment_leaves_nothing_to_clean_by_hand(node: Node) -> None:
    dice = random.Random(11)
    node.want()
    for round_ in range(12):
        agent = node.start_agent()
        try:
            agent.wait(dice.uniform(0.05, 0.9))
        except subprocess.TimeoutExpired:
            pass
        node.end_agent(signal.SIGKILL)
        if round_ % 3 == 2:
            for pid in node.pids():
                os.kill(pid, signal.SIGKILL)
        assert len(node.pids()) <= 1
    node.start_agent()
    node.report(lambda r: r.state == "ready")
    assert chat(node.wait_ready()) == TEXT
    assert len(node.pids()) == 1


def test_an_engine_spawned_in_the_moment_of_a_crash_is_adopted_not_doubled(node: Node) -> None:
    serve, key, port = serve_tiny(), "secret", free_port()
    folder = node.data / "logs" / "engines"
    folder.mkdir(parents=True)
    intents = IntentStore(node.data / "node" / "engines-intent.json")
    intents.put(Intent(replica_id=R, generation=1, serve=serve, port=port, key=key, started_at=1e9))
    command = LlamaCpp().command(serve, port=port, threads=1)
    log = enginelog.open_for(folder / f"{R}.log", limit=1 << 20, title="crash")
    child = process.spawn(
        command.argv, env={**command.env, **LlamaCpp().secrets(key)}, replica_id=R, data=node.data, cwd=node.data,
        log=log, file_limit=0,
    )  # fmt: skip
    os.close(log)
    serve = replace(serve, start_timeout=1e10)
    intents.put(Intent(replica_id=R, generation=1, serve=serve, port=port, key=key, started_at=1e9))
    node.want(serve=serve)
    node.start_agent()
    assert node.wait_ready().port == port
    assert node.pids() == [child.pid]


def test_an_engine_that_no_intent_explains_is_ended(node: Node) -> None:
    log = os.open(node.data / "x.log", os.O_CREAT | os.O_WRONLY)
    child = process.spawn(
        (sys.executable, "-c", "import signal; signal.pause()"), env={}, replica_id="rep_stray", data=node.data,
        cwd=node.data, log=log, file_limit=0,
    )  # fmt: skip
    os.close(log)
    wait_for(node.pids)
    node.start_agent()
    ended(child.pid)
    assert child.reap() in (-signal.SIGTERM, -signal.SIGKILL)


def test_a_replica_that_is_not_to_run_finishes_its_requests_and_stops(node: Node) -> None:
    node.want()
    node.start_agent()
    node.wait_ready()
    pid = node.pids()[0]
    with node.gateway() as tell:
        tell(Load(replicas={R: ReplicaLoad(in_flight=1)}))
        node.report(lambda r: r.in_flight == 1)
        node.want(run=False)
        wait_for(lambda: node.engine("draining"), what="draining in engines.json")
        seen = len(node.controller.beats)
        wait_for(lambda: len(node.controller.beats) > seen + 8, what="some heartbeats")
        tell(Load(replicas={R: ReplicaLoad(in_flight=1)}))
        assert alive(pid)
        tell(Load(replicas={R: ReplicaLoad(in_flight=0, last_used_at=5.0)}))
        ended(pid)
    assert node.report(lambda r: r.state == "stopped").last_used_at == 5.0
    node.controller.wanted = ()
    wait_for(lambda: not node.controller.beats[-1].replicas, what="the replica to be forgotten")
    assert not (node.data / "logs" / "engines" / f"{R}.log").exists()
    node.want()
    node.wait_ready()


def test_without_a_gateway_an_idle_engine_is_stopped_too(node: Node) -> None:
    node.want()
    node.start_agent()
    node.wait_ready()
    node.controller.wanted = ()
    assert wait_for(lambda: not node.pids(), what="the engine to stop")


def test_another_generation_replaces_the_engine(node: Node) -> None:
    node.want()
    node.start_agent()
    first = node.wait_ready()
    with node.gateway() as tell:
        node.want(generation=2, serve=serve_tiny(context=256))
        wait_for(lambda: node.engine("draining"))
        seen = len(node.controller.beats)
        wait_for(lambda: len(node.controller.beats) > seen + 8)
        tell(Load())
        second = node.wait_ready(other_than=first)
    assert second.context == 256
    assert node.report(lambda r: r.generation == 2 and r.state == "ready").attempt == 1
    assert len(node.pids()) == 1


def test_hostile_arguments_are_refused_on_the_node_and_nothing_runs(node: Node) -> None:
    node.want(serve=serve_tiny(args=("--log-file", str(node.data / "x")), env={"LD_PRELOAD": "/x.so"}))
    node.start_agent()
    report = node.report(lambda r: r.state == "failed")
    assert report.code == "engine_args_refused"
    assert "--log-file" in report.message
    assert node.engines().starting[0].code == "engine_args_refused"
    assert node.pids() == []
    node.want(generation=2, serve=serve_tiny(args=("-b", "64"), env={"LLAMA_ARG_TOP_K": "1"}))
    assert chat(node.wait_ready()) == TEXT


def test_missing_weights_are_named_and_looked_for_again(node: Node, tmp_path: Path) -> None:
    path = tmp_path / "later.gguf"
    node.want(serve=serve_tiny(weights=Weights(path=str(path))))
    node.start_agent()
    report = node.report(lambda r: r.state == "backoff")
    assert report.code == "weights_missing"
    assert str(path) in report.message
    shutil.copy(tiny_gguf(), path)
    assert chat(node.wait_ready()) == TEXT


def test_a_model_that_cannot_be_loaded_shows_the_engines_last_words(node: Node, tmp_path: Path) -> None:
    path = broken_weights(tmp_path)
    node.want(serve=serve_tiny(weights=Weights(path=str(path), size=200_000)))
    node.start_agent()
    report = node.report(lambda r: r.state == "backoff")
    assert report.code == "engine_start_failed"
    assert str(path) in report.log_tail
    assert report.message.startswith("The engine ended with exit code 1 before it was ready. Its log says: ")
    assert re.search("tensor|GGUF|not within the file bounds", report.message), report.message
    assert report.attempt >= 3


def test_a_node_that_restarts_serves_before_any_controller_answers(node: Node) -> None:
    node.want()
    node.start_agent()
    first = node.wait_ready()
    node.end_agent(signal.SIGKILL)
    stop_engines(node.data)
    node.controller.status = 500
    node.controller.beats.clear()
    node.start_agent()
    assert chat(node.wait_ready(other_than=first)) == TEXT
    assert node.controller.beats == []


def test_a_silent_broken_or_false_controller_changes_nothing(node: Node) -> None:
    node.want()
    node.start_agent()
    engine = node.wait_ready()
    for sign_with, status in ((None, 200), (b"x" * 32, 200), (None, 500)):
        node.controller.sign_with, node.controller.status = sign_with, status
        node.controller.wanted = ()
        calls = len(node.controller.beats)
        if status == 200:
            wait_for(lambda calls=calls: len(node.controller.beats) > calls, what="a heartbeat")
    assert chat(engine) == TEXT
    assert node.engine() == engine
    beats = len(node.controller.beats)
    node.want()  # before the controller is believed again
    node.controller.sign_with, node.controller.status = KEY, 200
    wait_for(lambda: len(node.controller.beats) > beats, what="heartbeats to go on by themselves")
    assert node.engine() == engine


def test_the_snapshot_is_fetched_once_per_version_and_written_whole(node: Node) -> None:
    node.start_agent()
    node.controller.snapshot = b'{"version": "E:1", "made_at": 1}'
    node.controller.snapshot_version = "E:1"
    file = node.data / "cluster" / "snapshot.json"
    wait_for(file.exists, what="the snapshot")
    assert file.read_bytes() == node.controller.snapshot
    wait_for(lambda: node.controller.beats[-1].snapshot_version == "E:1", what="its version in a heartbeat")


def test_a_snapshot_that_cannot_be_read_leaves_the_one_at_hand(node: Node) -> None:
    good = b'{"version": "E:1", "made_at": 1}'
    node.controller.snapshot, node.controller.snapshot_version = good, "E:1"
    node.start_agent()
    file = node.data / "cluster" / "snapshot.json"
    wait_for(file.exists, what="the snapshot")
    node.controller.snapshot, node.controller.snapshot_version = b'{"version": 2}', "E:2"
    wait_for(lambda: "snapshot_failed" in node.tail, what="the refusal in the log")
    assert file.read_bytes() == good
    node.controller.snapshot = b'{"version": "E:2", "made_at": 2}'
    wait_for(lambda: file.read_bytes() == node.controller.snapshot, what="the next one")


def test_what_the_gateway_reads_is_mended_when_it_is_damaged_or_gone(node: Node) -> None:
    node.controller.snapshot, node.controller.snapshot_version = b'{"version": "E:1", "made_at": 1}', "E:1"
    node.want()
    node.start_agent()
    engine = node.wait_ready()
    snapshot, engines = node.data / "cluster" / "snapshot.json", node.data / "cluster" / "engines.json"
    wait_for(snapshot.exists, what="the snapshot")
    for damage in (b"garbage{{{", b'{"version": "E:1"}', None):
        for file in (snapshot, engines):
            file.unlink() if damage is None else file.write_bytes(damage)
        assert wait_for(
            lambda: snapshot.exists() and snapshot.read_bytes() == node.controller.snapshot, what="the snapshot"
        )
        assert wait_for(lambda: engines.exists() and engine.key.encode() in engines.read_bytes(), what="the engines")


def test_usage_is_shipped_and_survives_a_killed_agent(node: Node) -> None:
    folder = node.data / "usage"
    folder.mkdir()
    lines = [b'{"op":"close","record":{"record_id":"rec_%d"}}\n' % n for n in range(1200)]
    spool = folder / f"spool-{1:020d}-boot.jsonl"
    spool.write_bytes(b"".join(lines[:700]))
    node.start_agent()
    wait_for(lambda: len(node.controller.stored) > 0, what="the first batch")
    node.end_agent(signal.SIGKILL)
    with spool.open("ab") as file:
        file.writelines(lines[700:])
    node.start_agent()
    wait_for(lambda: len(set(node.controller.stored)) == 1200, what="all records")
    wait_for(lambda: node.controller.beats[-1].spool_records == 0, what="an empty spool in a heartbeat")
    assert set(node.controller.stored) == {f"rec_{n}" for n in range(1200)}


def test_two_agents_never_work_on_one_data_folder(node: Node) -> None:
    node.start_agent()
    wait_for(lambda: node.controller.beats, what="a heartbeat")
    done = subprocess.run(
        [sys.executable, "-m", "workers.agent"],
        cwd=TOP,
        env=node.environ(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert node.agent
    assert f"another agent (pid {node.agent.pid}) works on {node.data}" in done.stderr


def test_a_node_that_is_not_enrolled_says_so(tmp_path: Path) -> None:
    env = {**os.environ, "LLMGW_DATA": str(tmp_path / "d")}
    done = subprocess.run(
        [sys.executable, "-m", "workers.agent"], cwd=TOP, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "enrol this node" in done.stderr


def test_the_agent_is_small(node: Node) -> None:
    node.want()
    agent = node.start_agent()
    node.report(lambda r: r.state == "ready" and r.memory)
    assert (proportional_memory([agent.pid]) or 0) < 60 << 20


def test_wanted_state_of_a_newer_controller_is_read(node: Node) -> None:
    wanted = Wanted(server_time=0, replicas=(WantedReplica(replica_id=R, generation=1, run=True, serve=serve_tiny()),))
    message = {**to_dict(wanted), "v": 9, "hint": "of the future"}
    folder = node.data / "cluster"
    folder.mkdir()
    (folder / "wanted.json").write_bytes(orjson.dumps(message))
    node.controller.status = 500
    node.start_agent()
    assert node.wait_ready().replica_id == R
