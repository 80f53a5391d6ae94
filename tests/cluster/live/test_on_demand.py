"""Models on demand on real nodes: the first request starts one and is answered; what cannot start says why at once."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests import tiny
from tests.cluster.harness.three import Three
from tests.processes import fair, wait_for


def test_the_first_request_starts_a_model_and_is_answered_and_later_it_comes_to_rest(three: Three) -> None:
    made = three.model("tiny")
    assert three.replicas("tiny") == []
    answer = three.chat("tiny", timeout=60)
    assert answer.status_code == 200, answer.text
    assert tiny.TEXT.split()[0] in answer.text
    wait_for(lambda: len(three.ready("tiny")) == 1, seconds=fair(30), what="the controllers to know that it is ready")
    three.api().patch(f"models/{made['id']}", {"rest_after": 3})
    three.gone("tiny")
    again = three.chat("tiny", timeout=60)
    assert again.status_code == 200, again.text


def test_many_first_requests_make_one_replica_and_all_are_answered(three: Three) -> None:
    three.model("tiny")
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: three.chat("tiny", timeout=60, max_tokens=4), range(8)))
    assert {answer.status_code for answer in answers} == {200}
    assert len(three.replicas("tiny")) == 1


def test_a_model_that_fits_nowhere_is_answered_at_once_with_the_figures(three: Three) -> None:
    three.model("huge", profile={"memory": 1 << 44})
    for _ in range(2):  # the second is an attempt of its own
        began = time.monotonic()
        answer = three.chat("huge", timeout=60)
        assert time.monotonic() - began < fair(30)
        assert answer.status_code == 503, answer.text
        error = answer.json()["error"]
        assert error["code"] == "model_not_ready"
        assert "16.0 TiB" in error["message"] or "16 TiB" in error["message"]
        time.sleep(1.1)


def test_a_model_whose_file_is_broken_is_answered_with_what_its_engine_said(three: Three, tmp_path: Path) -> None:
    three.model("broken")
    path = Path(three.api().find("models", "broken", noun="model")["weights_path"])
    whole = path.read_bytes()
    path.write_bytes(b"GGUX" + whole[4:])
    try:
        began = time.monotonic()
        answer = three.chat("broken", timeout=60)
        assert time.monotonic() - began < fair(40)
        assert answer.status_code == 503, answer.text
        assert answer.json()["error"]["code"] in ("model_not_ready", "model_parked")
        assert "huge" not in answer.text
    finally:
        path.write_bytes(whole)


def test_without_a_controller_what_is_at_rest_says_so_and_what_runs_is_answered(three: Three) -> None:
    three.model("tiny")
    three.model("other")
    assert three.outcome("tiny", timeout=60) == "200"
    three["c1"].kill("web")
    answer = three.chat("other", timeout=60)
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "activation_unavailable")
    assert three.outcome("tiny", timeout=60) == "200"
    three["c1"].start("web")
    wait_for(lambda: three.outcome("other", timeout=60) == "200", seconds=fair(30), what="the other", every=0.5)
