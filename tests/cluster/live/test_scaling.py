"""Real nodes: pressure adds a replica and quiet takes it back; what cannot start is parked, said so, and tried again."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.harness.three import Three
from tests.processes import fair, wait_for


@contextmanager
def pressure(three: Three, model: str, *, clients: int) -> Iterator[list[str]]:
    """So many clients that ask again and again; what they were told instead of an answer."""
    over = threading.Event()
    refusals: list[str] = []

    def client() -> None:
        while not over.is_set():
            answer = three.chat(model, timeout=60, max_tokens=200, ignore_eos=True)
            if answer.status_code != 200:
                refusals.append(answer.text)

    threads = [threading.Thread(target=client) for _ in range(clients)]
    for thread in threads:
        thread.start()
    try:
        yield refusals
    finally:
        over.set()
        for thread in threads:
            thread.join()


def why(three: Three, model: str) -> dict[str, Any]:
    row = three.api().find("models", model, noun="model")
    told: dict[str, Any] = three.api().get(f"models/{row['id']}/why")
    return told


def test_requests_that_wait_add_a_replica_and_quiet_takes_it_back(three: Three) -> None:
    three.model("tiny", replicas=1, max_replicas=2, profile={"slots": 1})
    wait_for(lambda: len(three.ready("tiny")) == 1, seconds=fair(30), what="the first replica")
    wait_for(lambda: three.chat("tiny", timeout=60).status_code == 200, seconds=fair(30), what="an answer")
    first = three.ready("tiny")
    with pressure(three, "tiny", clients=8) as refusals:
        wait_for(lambda: len(three.ready("tiny")) == 2, seconds=fair(60), what="a second replica")
        busy = lambda: any((item["cpu"] or 0.0) > 0.1 for item in three.replicas("tiny"))  # noqa: E731
        wait_for(busy, seconds=fair(30), what="the cores that they keep busy to be told")
    assert refusals == []
    wait_for(lambda: three.ready("tiny") == first, seconds=fair(60), what="one replica again")
    reasons = [item["why"] for item in why(three, "tiny")["decisions"] if item["kind"] == "model_decided"]
    assert reasons[0].endswith("one replica less")
    assert reasons[1].endswith("one replica more")


@pytest.mark.prove
def test_a_broken_file_parks_its_model_and_retry_brings_it_back_after_mending(three: Three) -> None:
    three.model("broken")
    row = three.api().find("models", "broken", noun="model")
    path = Path(row["weights_path"])
    whole = path.read_bytes()
    path.write_bytes(b"GGUX" + whole[4:])
    try:
        three.api().post(f"models/{row['id']}/scale", {"replicas": 1})
        wait_for(
            lambda: why(three, "broken")["status"]["code"] == "model_parked", seconds=fair(60), what="it to be parked"
        )
        three.gone("broken")
        told = why(three, "broken")
        assert told["standing"]["failures"] == 5
        assert told["standing"]["parked_code"] == "engine_start_failed"
        wait_for(
            lambda: three.chat("broken").json()["error"]["code"] == "model_parked", seconds=fair(15), what="the word"
        )
        began = time.monotonic()
        answer = three.chat("broken", timeout=60)
        assert time.monotonic() - began < fair(3)
        assert answer.status_code == 503
        cause = "before it was ready. Its log says: invalid magic characters: 'GGUX'"
        assert cause in answer.json()["error"]["message"]
        assert cause in told["standing"]["parked_message"]
        time.sleep(3)
        assert three.replicas("broken") == []  # and nothing is tried meanwhile
    finally:
        path.write_bytes(whole)
    three.api().post(f"models/{row['id']}/retry", {"why": "mended"})
    wait_for(lambda: three.chat("broken", timeout=60).status_code == 200, seconds=fair(60), what="an answer")
    assert why(three, "broken")["standing"]["parked_at"] is None


def test_a_restart_under_load_loses_no_request(three: Three) -> None:
    three.model("tiny", replicas=1)
    wait_for(lambda: len(three.ready("tiny")) == 1, seconds=fair(30), what="the first replica")
    wait_for(lambda: three.chat("tiny", timeout=60).status_code == 200, seconds=fair(30), what="an answer")
    old = three.replicas("tiny")[0]["id"]
    with pressure(three, "tiny", clients=2) as refusals:
        row = three.api().find("models", "tiny", noun="model")
        assert three.api().post(f"models/{row['id']}/restart", {}) == {"replicas": 1}
        done = lambda: [item["id"] for item in three.replicas("tiny") if item["state"] == "ready"] != [old]  # noqa: E731
        wait_for(lambda: done() and len(three.replicas("tiny")) == 1, seconds=fair(60), what="a new replica alone")
    assert refusals == []
    wait_for(lambda: why(three, "tiny")["standing"]["restarting"] == [], seconds=fair(30), what="it to be forgotten")
