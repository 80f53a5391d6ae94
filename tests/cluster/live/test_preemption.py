"""Real nodes: a higher class takes room, and two models that have room for one take turns."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from tests.cluster.harness.three import Three
from tests.processes import fair, wait_for


def cores(three: Three) -> int:
    return sum(row["hardware"]["cores"] for row in three.api().all("nodes") if row["name"] in ("i1", "i2"))


def headroom(three: Three, model: str) -> dict[str, Any]:
    row = three.api().find("models", model, noun="model")
    told: dict[str, Any] = three.api().get(f"models/{row['id']}/headroom")
    return told


def preemptions(three: Three) -> int:
    """Replicas that have given way since the cluster began."""
    return [item["kind"] for item in three.api().all("events")].count("replica_preempted")


def test_a_critical_model_takes_an_opportunistic_ones_cores_and_the_victim_returns_later(three: Three) -> None:
    every, before = cores(three), preemptions(three)
    three.model("tiny", replicas=every, max_replicas=every, priority_class="opportunistic")
    wait_for(lambda: len(three.ready("tiny")) == every, seconds=fair(60), what="all cores to be in use")
    told = headroom(three, "tiny")
    assert (told["fits"], told["code"], told["room_from"]) == (0, "no_room_now", [])
    made = three.model("second", replicas=0, max_replicas=1, priority_class="critical")
    taken = lambda: [item["model"] for item in headroom(three, "second")["room_from"]]  # noqa: E731
    wait_for(lambda: taken() == ["tiny"], seconds=fair(30), what="the room that would be taken", every=0.2)
    three.api().post(f"models/{made['id']}/scale", {"replicas": 1})
    wait_for(lambda: len(three.ready("second")) == 1, seconds=fair(60), what="the critical model")
    wait_for(lambda: three.answers("second", via="c1"), seconds=fair(15), what="an answer")
    assert len(three.ready("tiny")) == every - 1
    assert three.outcome("tiny", timeout=60) == "200", "the others serve on"
    assert preemptions(three) == before + 1
    three.api().post(f"models/{made['id']}/scale", {"replicas": 0, "max_replicas": 0})
    wait_for(lambda: len(three.ready("tiny")) == every, seconds=fair(60), what="the victim to return")


@pytest.mark.prove
def test_f38_two_models_on_demand_that_have_room_for_one_take_turns(three: Three) -> None:
    """A streams; B is asked for and needs A's cores: A finishes its requests, then B is served, and A again."""
    (node,) = [row for row in three.api().all("nodes") if row["name"] == "i1"]
    profile = {"nodes": ["i1"], "threads": node["hardware"]["cores"]}
    three.model("tiny", profile=profile)
    three.model("second", profile=profile)
    assert three.chat("tiny", timeout=fair(60)).status_code == 200
    answers: dict[str, list[str]] = {"tiny": [], "second": []}
    served = threading.Event()

    def ask(model: str) -> None:
        answer = three.chat(model, timeout=fair(180), max_tokens=100, ignore_eos=True)
        answers[model].append("" if answer.status_code == 200 else answer.text)

    def ask_on() -> None:
        while not served.is_set():
            ask("tiny")
        for _ in range(2):  # it comes back, though the other has just had the room
            ask("tiny")

    def ask_once() -> None:
        try:
            ask("second")
        finally:
            served.set()

    clients = [threading.Thread(target=target) for target in (ask_on, ask_on, ask_once)]
    for client in clients:
        client.start()
    for client in clients:
        client.join()
    assert answers["second"] == [""]
    assert set(answers["tiny"]) == {""}
