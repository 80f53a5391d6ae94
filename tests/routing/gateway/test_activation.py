"""Models at rest: a request brings one up, waits for that attempt, and is answered at once where it comes to nothing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client import generate_latest

from routing.domain.snapshot import ModelEntry
from routing.gateway import activation
from tests.routing.gateway.controllers import Controller
from tests.routing.gateway.hops import Many, Site, many
from tests.routing.gateway.rig import TINY, ask
from tests.routing.gateway.scripted import until

AT_REST = ModelEntry(name=TINY, created=1, on_demand=True, code="model_at_rest", reason="tiny is at rest")
NO_ROOM = {"code": "no_memory_now", "message": "one: it needs 4.0 GiB of memory and 1.0 GiB are free for it now"}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(activation, "POLL", 0.05)
    monkeypatch.setattr(activation, "LOOK", 0.01)
    monkeypatch.setattr(activation, "AGAIN", 0.0)


@asynccontextmanager
async def resting(
    folder: Path, *modules: str, controller: bool = True, **settings: Any
) -> AsyncIterator[tuple[Many, Site, Site, Controller]]:
    """A router that is an edge too, an inference node without an engine, and a controller."""
    async with many(folder) as town:
        town.models = [AT_REST]
        front = await town.start("front", *(modules or ("edge", "router")), **settings)
        worker = await town.start("worker", "inference", **settings)
        brain = Controller(town)
        if controller:
            await town.scripted("brain", "controller", handler=brain)
        await town.settle()
        yield town, front, worker, brain


def shown(site: Site) -> str:
    return generate_latest(site.gateway.metrics.registry).decode()


def come_up(town: Many, worker: Site) -> None:
    """The replica is there and ready, and everybody knows."""
    town.serve(worker, TINY)
    town.publish()


async def test_a_request_for_a_model_at_rest_waits_until_it_is_up_and_is_answered(tmp_path: Path) -> None:
    async with resting(tmp_path) as (town, front, worker, brain):
        asking = asyncio.ensure_future(front.chat())
        await until(lambda: len(brain.orders) >= 2)
        assert not asking.done()
        assert 'llmgw_requests_waiting_for_model{model="tiny"} 1.0' in shown(front)
        assert [order["model"] for order in brain.orders[:2]] == [TINY, TINY]
        assert [order["attempt"] for order in brain.orders[:2]] == [None, 7.0]
        brain.say("starting")
        come_up(town, worker)
        answer = await asking
        assert answer.status_code == 200, answer.text
        assert worker.asked == 1
        record = await front.record()
        assert (record.node_id, record.outcome) == (worker.node_id, "ok")
        assert record.queue_s is not None
        assert record.queue_s > 0.05
        assert not front.gateway.activation.waiting
        assert "llmgw_requests_waiting_for_model{" not in shown(front)
        said = len(brain.orders)
        assert (await front.chat()).status_code == 200
        assert len(brain.orders) == said  # it is up: nobody is asked
        await town.idle()


async def test_an_edge_waits_for_its_router_which_waits_for_the_model(tmp_path: Path) -> None:
    async with many(tmp_path) as town:
        town.models = [AT_REST]
        edge = await town.start("edge", "edge", first_byte_timeout=0.1)
        router = await town.start("router", "router")
        worker = await town.start("worker", "inference")
        brain = Controller(town)
        await town.scripted("brain", "controller", handler=brain)
        await town.settle()
        asking = asyncio.ensure_future(edge.chat())
        await until(lambda: brain.orders)
        assert edge.gateway.activation.waiting == {}
        assert router.gateway.activation.waiting == {TINY: 1}
        await asyncio.sleep(0.3)
        come_up(town, worker)
        answer = await asking
        assert answer.status_code == 200, answer.text
        await town.idle()


async def test_many_requests_make_one_attempt_and_all_are_answered(tmp_path: Path) -> None:
    async with resting(tmp_path) as (town, front, worker, brain):
        asking = [asyncio.ensure_future(front.chat()) for _ in range(20)]
        await until(lambda: front.gateway.activation.waiting == {TINY: 20})
        assert sum(order["attempt"] is None for order in brain.orders) == 1
        come_up(town, worker)
        assert {answer.status_code for answer in await asyncio.gather(*asking)} == {200}
        assert worker.asked == 20
        await town.idle()


@pytest.mark.parametrize(
    ("state", "fields", "code", "reason", "words"),
    [
        ("nowhere", NO_ROOM, "model_not_ready", "no_memory_now", "it needs 4.0 GiB"),
        ("failed", {"code": "engine_exited", "message": "bad magic"}, "model_not_ready", "engine_exited", "bad magic"),
        (
            "parked",
            {"code": "model_parked", "message": "tiny is parked: bad"},
            "model_parked",
            "model_parked",
            "parked",
        ),
        ("unwanted", {"code": "model_disabled", "message": "off"}, "model_disabled", "model_disabled", "off"),
    ],
)
async def test_an_attempt_that_comes_to_nothing_is_answered_at_once_with_why(
    tmp_path: Path, state: str, fields: dict[str, str], code: str, reason: str, words: str
) -> None:
    async with resting(tmp_path) as (town, front, _, brain):
        asking = asyncio.ensure_future(front.chat())
        await until(lambda: brain.orders)
        brain.say(state, **fields)
        async with asyncio.timeout(60):  # and not at the window's end
            answer = await asking
        assert answer.status_code == 503
        error = answer.json()["error"]
        assert error["code"] == code
        assert words in error["message"]
        assert ("retry-after" in answer.headers) == (code == "model_not_ready")
        assert (answer.headers.get("x-should-retry") == "false") == (code != "model_not_ready")
        assert (await front.record()).code == code
        assert not front.gateway.activation.waiting
        await town.idle()


async def test_a_later_request_is_a_new_attempt(tmp_path: Path) -> None:
    async with resting(tmp_path) as (town, front, worker, brain):
        brain.say("nowhere", **NO_ROOM)
        assert (await front.chat()).status_code == 503
        brain.say("waiting")
        asking = asyncio.ensure_future(front.chat())
        await until(lambda: len(brain.orders) >= 2)
        assert [order["attempt"] for order in brain.orders[:2]] == [None, None]
        come_up(town, worker)
        assert (await asking).status_code == 200


async def test_whoever_asks_again_and_again_for_what_cannot_start_asks_controllers_once_a_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(activation, "AGAIN", 3600.0)
    async with resting(tmp_path) as (_, front, _, brain):
        brain.say("nowhere", **NO_ROOM)
        answers = [await front.chat() for _ in range(10)]
        assert {answer.status_code for answer in answers} == {503}
        assert {answer.json()["error"]["message"] for answer in answers} == {answers[0].json()["error"]["message"]}
        assert len(brain.orders) == 1
        monkeypatch.setattr(activation, "AGAIN", 0.0)
        await front.chat()
        assert len(brain.orders) == 2


async def test_without_a_controller_it_is_said_at_once_and_what_runs_is_answered(tmp_path: Path) -> None:
    async with resting(tmp_path, controller=False) as (town, front, worker, _):
        answer = await front.chat()
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "activation_unavailable")
        come_up(town, worker)
        assert (await front.chat()).status_code == 200


async def test_a_controller_that_cannot_be_reached_is_none_and_the_next_one_is_asked(tmp_path: Path) -> None:
    async with resting(tmp_path, controller=False) as (town, front, worker, _):
        town.ghost("dead", "controller")
        await town.settle()
        assert (await front.chat()).json()["error"]["code"] == "activation_unavailable"
        brain = Controller(town)
        await town.scripted("zebra", "controller", handler=brain)
        await town.settle()
        asking = asyncio.ensure_future(front.chat())
        await until(lambda: brain.orders)
        come_up(town, worker)
        assert (await asking).status_code == 200


async def test_without_a_controller_a_node_that_may_be_ready_by_now_is_asked(tmp_path: Path) -> None:
    async with resting(tmp_path, controller=False) as (town, front, worker, _):
        town.serve(worker, TINY)
        model = town.models[0]
        town.models = [replace(model, placed=tuple(replace(item, state="starting") for item in model.placed))]
        town.publish()
        assert (await front.chat()).status_code == 200


async def test_an_answer_that_the_controllers_did_not_sign_is_no_answer(tmp_path: Path) -> None:
    async with resting(tmp_path, controller=False) as (town, front, _, _):
        liar = Controller(town, key="ab" * 32)
        liar.say("parked", code="model_parked", message="never again")
        await town.scripted("liar", "controller", handler=liar)
        await town.settle()
        answer = await front.chat()
        assert answer.json()["error"]["code"] == "activation_unavailable"
        assert len(liar.orders) == 1


async def test_controllers_that_fall_silent_later_are_waited_for_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(activation, "LOST_AFTER", 3600.0)
    async with resting(tmp_path) as (_, front, _, brain):
        asking = asyncio.ensure_future(front.chat())
        await until(lambda: len(brain.orders) >= 2)
        brain.status = 503
        asked = len(brain.orders)
        await until(lambda: len(brain.orders) >= asked + 3)
        assert not asking.done()
        monkeypatch.setattr(activation, "LOST_AFTER", 0.0)
        answer = await asking
        assert answer.json()["error"]["code"] == "activation_unavailable"


async def test_the_window_bounds_the_wait(tmp_path: Path) -> None:
    async with resting(tmp_path, activation_timeout=0.3) as (town, front, _, _):
        began = time.monotonic()
        answer = await front.chat()
        assert time.monotonic() - began >= 0.3
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "activation_timeout")
        assert "0.3 s. It may still be loading" in answer.json()["error"]["message"]
        await town.idle()


async def test_who_waited_in_vain_hears_how_far_it_is_and_that_it_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with resting(tmp_path) as (town, front, _, brain):
        brain.say("starting", message="a replica has been loading its weights for 40 s")
        patient = asyncio.ensure_future(front.chat())
        await until(lambda: len(brain.orders) >= 2)  # so the answer to the first is known
        dispatch = front.gateway.app._parts.dispatch
        monkeypatch.setattr(dispatch, "_config", replace(dispatch._config, activation_timeout=0.2))
        answer = await front.chat()
        patient.cancel()
        error = answer.json()["error"]
        assert (answer.status_code, error["code"], answer.headers["retry-after"]) == (503, "activation_timeout", "60")
        assert "It goes on (a replica has been loading its weights for 40 s): ask again" in error["message"]
        assert error["progress"] == "a replica has been loading its weights for 40 s"
        await town.idle()


async def test_who_has_other_models_that_cannot_either_is_told_how_long_it_was_waited_for(tmp_path: Path) -> None:
    async with resting(tmp_path, fallback_after=0.3, activation_timeout=0.9) as (town, front, _, _):
        town.models.append(ModelEntry(name="absent", created=2))
        town.change(TINY, fallbacks=("absent",))
        await town.settle()
        answer = await front.chat()
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "activation_timeout")
        assert "has come up within 0.3 s" in answer.json()["error"]["message"]


async def test_f39_a_client_that_leaves_waits_no_longer_and_the_last_one_ends_the_demand(tmp_path: Path) -> None:
    async with resting(tmp_path) as (town, front, _, brain):
        first, second = (asyncio.ensure_future(front.chat()) for _ in range(2))
        await until(lambda: front.gateway.activation.waiting == {TINY: 2})
        await asyncio.sleep(0.3)  # a tick of the gateway: it watches who leaves
        first.cancel()
        await until(lambda: front.gateway.activation.waiting == {TINY: 1})
        second.cancel()
        await until(lambda: not front.gateway.activation.waiting)
        said = len(brain.orders)
        await asyncio.sleep(0.3)
        assert len(brain.orders) <= said + 1  # one may have been on its way
        await until(lambda: len(front.records()) == 2)
        assert {record.outcome for record in front.records()} == {"client_gone"}
        await town.idle()


async def test_a_streaming_client_is_sent_comments_while_it_waits(tmp_path: Path) -> None:
    async with resting(tmp_path, keepalive_comment=0.2) as (town, front, worker, _):
        text, up = b"", False
        async with front.client.stream("POST", "/v1/chat/completions", json=ask(stream=True)) as answer:
            assert answer.status_code == 200
            async for piece in answer.aiter_raw():
                text += piece
                if text.count(b"\n\n") >= 2 and not up:
                    up = True
                    come_up(town, worker)
        assert text.startswith(b":")
        assert text.endswith(b"data: [DONE]\n\n")


async def test_a_failure_after_comments_is_an_event(tmp_path: Path) -> None:
    async with resting(tmp_path, keepalive_comment=0.2) as (_, front, _, brain):
        text, clean = b"", True
        try:
            async with front.client.stream("POST", "/v1/chat/completions", json=ask(stream=True)) as answer:
                async for piece in answer.aiter_raw():
                    text += piece
                    brain.say("nowhere", **NO_ROOM)
        except httpx.RemoteProtocolError:
            clean = False
        assert not clean
        assert b"model_not_ready" in text
        assert b"[DONE]" not in text


async def test_a_parked_model_is_answered_at_once_and_nobody_is_asked(tmp_path: Path) -> None:
    async with resting(tmp_path) as (town, front, _, brain):
        town.models = [replace(AT_REST, code="model_parked", reason="tiny is parked after 5 failed starts: bad magic")]
        await town.settle()
        answer = await front.chat()
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "model_parked")
        assert "bad magic" in answer.json()["error"]["message"]
        assert answer.headers["x-should-retry"] == "false"
        assert brain.orders == []


async def test_one_machine_that_does_everything_serves_as_soon_as_its_engine_is_there(tmp_path: Path) -> None:
    async with many(tmp_path) as town:
        town.models = [AT_REST]
        site = await town.start("one", "edge", "router", "inference")
        brain = Controller(town)
        await town.scripted("brain", "controller", handler=brain)
        await town.settle()
        asking = asyncio.ensure_future(site.chat())
        await until(lambda: brain.orders)
        town.serve(site, TINY)  # its own file alone: the controllers have yet to hear of it
        answer = await asking
        assert answer.status_code == 200, answer.text


async def test_a_node_that_is_only_starting_is_not_sent_what_waits(tmp_path: Path) -> None:
    async with resting(tmp_path) as (town, front, worker, brain):
        town.serve(worker, starting=(TINY,))
        model = town.models[0]
        town.models = [replace(model, placed=tuple(replace(item, state="starting") for item in model.placed))]
        town.publish()
        asking = asyncio.ensure_future(front.chat())
        await until(lambda: len(brain.orders) >= 3)
        assert not asking.done()
        town.models = [AT_REST]
        come_up(town, worker)
        assert (await asking).status_code == 200
        assert worker.asked == 1


async def test_a_model_that_is_disabled_meanwhile_is_refused_as_such(tmp_path: Path) -> None:
    async with resting(tmp_path) as (town, front, _, brain):
        asking = asyncio.ensure_future(front.chat())
        await until(lambda: brain.orders)
        town.models = [replace(AT_REST, enabled=False)]
        town.publish()
        assert (await asking).json()["error"]["code"] == "model_disabled"


ALWAYS = ModelEntry(name=TINY, created=1, code="no_memory_now", reason="one: it needs 4.0 GiB of memory")


async def test_a_request_for_a_model_that_always_runs_and_has_no_place_is_one_attempt(tmp_path: Path) -> None:
    async with resting(tmp_path) as (town, front, worker, brain):
        town.models = [ALWAYS]
        town.publish()
        await town.settle()
        brain.say("nowhere", **NO_ROOM)
        answer = await front.chat()
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "model_not_ready")
        assert "There is no place for the model" in answer.json()["error"]["message"]
        assert [order["attempt"] for order in brain.orders] == [None]
        brain.say("starting")  # there is room now
        asking = asyncio.ensure_future(front.chat())
        await until(lambda: len(brain.orders) >= 3)
        assert not asking.done()
        come_up(town, worker)
        assert (await asking).status_code == 200
        await town.idle()


async def test_a_model_that_always_runs_and_is_starting_is_not_waited_for(tmp_path: Path) -> None:
    async with resting(tmp_path) as (town, front, worker, brain):
        town.models = [ALWAYS]
        town.serve(worker, starting=(TINY,))
        model = town.models[0]
        town.models = [replace(model, placed=tuple(replace(item, state="starting") for item in model.placed))]
        town.publish()
        await town.settle()
        answer = await front.chat()
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "model_not_ready")
        assert brain.orders == []


async def test_without_a_controller_the_snapshot_says_why_a_model_that_always_runs_does_not(tmp_path: Path) -> None:
    async with resting(tmp_path, controller=False) as (town, front, _, _):
        town.models = [ALWAYS]
        town.publish()
        await town.settle()
        for _ in range(2):
            answer = await front.chat()
            assert (answer.status_code, answer.json()["error"]["code"]) == (503, "model_not_ready")
            assert answer.json()["error"]["reason"] == "no_memory_now"


async def test_a_model_is_up_for_its_own_requests_whether_an_adapter_of_it_is_or_not(tmp_path: Path) -> None:
    async with resting(tmp_path) as (town, front, _, brain):
        waits, until_ = front.gateway.activation.wait, asyncio.get_running_loop().time() + 60
        adapter = asyncio.ensure_future(waits(TINY, "its-adapter", lambda ready: False, until=until_, patience=60))
        await until(lambda: front.gateway.activation.waiting == {TINY: 1})
        up: list[bool] = []
        model = asyncio.ensure_future(waits(TINY, TINY, lambda ready: bool(up), until=until_, patience=60))
        await until(lambda: front.gateway.activation.waiting == {TINY: 2})
        up.append(True)
        assert await model is None
        assert not adapter.done()
        adapter.cancel()
        await until(lambda: not front.gateway.activation.waiting)
        assert {order["model"] for order in brain.orders} == {TINY}
        await town.idle()


async def test_a_thousand_requests_that_wait_for_one_model_are_one_question_a_second(tmp_path: Path) -> None:
    async with resting(tmp_path) as (town, front, _, brain):
        activation_ = front.gateway.activation
        loop = asyncio.get_running_loop()
        up: list[bool] = []
        waiting = [
            asyncio.ensure_future(
                activation_.wait(TINY, TINY, lambda ready: bool(up), until=loop.time() + 60, patience=60)
            )
            for _ in range(1000)
        ]
        await until(lambda: activation_.waiting == {TINY: 1000})
        await until(lambda: len(brain.orders) >= 3)
        assert [order["attempt"] for order in brain.orders].count(None) == 1
        for task in waiting[:999]:
            task.cancel()
        await until(lambda: activation_.waiting == {TINY: 1})
        up.append(True)
        assert await waiting[-1] is None
        assert activation_.waiting == {}
        await town.idle()
