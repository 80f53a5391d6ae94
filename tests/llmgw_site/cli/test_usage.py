"""`llmgw usage` and `llmgw request` against a real server."""

from __future__ import annotations

import json

import pytest

from routing import services
from tests.llmgw_site.cli.conftest import Llmgw
from tests.routing.test_services import a_record
from tests.rows import a_key, a_project

pytestmark = pytest.mark.django_db(transaction=True)
WHEN = ("--since", "2023-11-01", "--until", "2023-12-01")


@pytest.fixture(autouse=True)
def records() -> None:
    project = a_project("shop")
    key, _ = a_key("bot", project=project)
    fields = {"key_id": key.pk, "project_id": project.pk, "model_asked": "m1", "model_served": "m1", "cost": 1_500_000}
    services.store_usage(
        node_id="n",
        records=[
            a_record("rec_a", request_id="r-a", queue_s=0.5, first_token_s=1.0, total_s=3.0, stream=True, **fields),
            a_record("rec_b", request_id="r-b", model_asked="gone", outcome="refused", prompt_tokens=None),
        ],
    )


def test_usage_is_added_up(llmgw: Llmgw) -> None:
    done = llmgw("usage", *WHEN)
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines()[3].split() == ["m1", "1", "0", "3", "0", "4", "1.50", "USD"]
    assert done.out.endswith("Together 2 requests, 1.50 USD.\n")
    assert "bot" in llmgw("usage", "--by", "key,day", "--scope", "shop", *WHEN).out
    assert json.loads(llmgw("usage", "--by", "day", "--key", "bot", "--json", *WHEN).out)["total"]["requests"] == 1
    assert "none" in llmgw("usage", "--by", "model,target", *WHEN).out  # nobody asked for an alias
    table = llmgw("usage", "--by", "model", "--csv", *WHEN).out.splitlines()
    assert table[0].startswith("model,requests")
    assert table[1].endswith("1.500000,USD")
    assert llmgw("usage", "--since", "2020-01-01", "--until", "2020-02-01").out.startswith("Nobody asked for anything")


def test_what_cannot_be_reported_is_said(llmgw: Llmgw) -> None:
    assert llmgw("usage", "--by", "colour").code == 2
    assert llmgw("usage", "--csv", "--json").code == 2
    done = llmgw("usage", "--since", "soon")
    assert (done.code, "Write a day such as" in done.err) == (1, True)


def test_one_request_is_followed(llmgw: Llmgw) -> None:
    done = llmgw("request", "r-a")
    assert (done.code, done.err) == (0, "")
    assert "bot" in done.out
    assert "1.50 USD" in done.out
    bars = [line for line in done.out.splitlines() if "█" in line]
    assert [line.count("█") for line in bars] == [8, 8, 32]
    assert "500 ms in the queue" in bars[0]
    line = json.loads(done.out.splitlines()[-1])
    assert (line["request_id"], line["model"]) == ("r-a", "m1")
    assert json.loads(llmgw("request", "rec_a", "--json").out)["record"]["record_id"] == "rec_a"
    assert llmgw("request", "r-none").code == 4


def test_of_sound_that_was_heard_its_seconds_are_told(llmgw: Llmgw) -> None:
    counted = {"prompt_tokens": None, "completion_tokens": None, "model_served": "m1"}
    services.store_usage(
        node_id="n",
        records=[a_record(f"rec_s{n}", request_id=f"r-s{n}", audio_seconds=n, **counted) for n in (30, 41)],
    )
    assert "30 s" in next(line for line in llmgw("request", "r-s30").out.splitlines() if line.startswith("sound"))
    assert "sound" not in llmgw("request", "r-a").out
    assert json.loads(llmgw("usage", "--by", "day", "--json", *WHEN).out)["total"]["audio_seconds"] == 71
    head, *rows = llmgw("usage", "--by", "served", "--csv", *WHEN).out.splitlines()
    assert rows[0].split(",")[head.split(",").index("audio_seconds")] == "71"
