"""`llmgw bench` of a real engine: what it finds is kept with the profile, where the scheduler reads it."""

from __future__ import annotations

import pytest

from tests.processes import fair, wait_for
from tests.stack import MODEL, Stack

pytestmark = [pytest.mark.prove, pytest.mark.slow, pytest.mark.live("stack"), pytest.mark.timeout(300)]


def test_a_bench_measures_the_engine_and_the_scheduler_counts_with_it(stack: Stack) -> None:
    api = stack.api()
    before = api.find("models", MODEL, noun="model")["profiles"][0]
    opened = api.post(f"models/{MODEL}/bench", {"ttft": 20, "seconds": 2, "most": 4})
    ended = wait_for(
        lambda: (now := api.get(f"jobs/{opened['id']}"))["state"] not in ("queued", "running") and now,
        seconds=fair(120), what="the bench to end", every=0.2,
    )  # fmt: skip
    job = dict(ended or {})
    assert job["state"] == "done", job["message"]
    (found,) = job["result"]["measured"]
    assert found["at_once"] == 4
    assert found["tps"] > 1
    profile = api.find("models", MODEL, noun="model")["profiles"][0]
    assert (profile["measured_tps"], profile["measured_concurrency"]) == (found["tps"], 4.0)
    sized = api.post(f"models/{MODEL}/target", {"tps": found["tps"] / 2})
    assert (sized["replicas"], sized["each"]) == (1, pytest.approx(found["tps"]))
    kept = {name: before[name] for name in ("measured_tps", "measured_concurrency")}
    api.patch(f"profiles/{profile['id']}", kept)
