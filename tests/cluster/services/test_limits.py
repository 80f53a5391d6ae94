"""Limits counted in a real Valkey: the scripts do what their model in Python does, and nobody counts where it is away."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from cluster.domain.leasing import COUNTED, PARALLEL, REQUESTS, TOKENS, LimitGrant, LimitsAsk, LimitWant
from cluster.services import limits
from cluster.wire import WireError
from llmgw_site.lib.config import load
from llmgw_site.lib.errors import Refused
from llmgw_site.up.valkey import Valkey
from tests.routing.domain.counting import Counted, Permitted


@pytest.fixture
def store(valkey_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[redis.Redis]:
    monkeypatch.setattr(limits, "PATIENCE", 30.0)  # what a busy machine is late with would be asked, and counted, twice
    monkeypatch.setattr(limits, "PERMITS", 600.0)  # and nobody's permits end meanwhile
    limits._client.cache_clear()
    with redis.Redis.from_url(valkey_url) as client:
        yield client
    limits._client.cache_clear()


def clock(store: redis.Redis) -> float:
    return float("{}.{:06d}".format(*store.time()))


def ask(want: LimitWant, node_id: str = "node_a") -> LimitGrant:
    return limits.lease(LimitsAsk(wants=(want,)), node_id=node_id).grants[0]


def later(store: redis.Redis, key: str, seconds: int) -> None:
    """As if all of it had been so much earlier."""
    held = store.hgetall(key)
    store.delete(key)
    for second, amount in held.items():
        store.hset(key, str(int(second) - seconds), amount)


def test_the_script_counts_as_its_model_does(store: redis.Redis) -> None:
    dice, model, key = random.Random(7), Counted(), f"llmgw:limit:s:{TOKENS}"
    for _ in range(200):
        limit = dice.choice((100, 1000))
        want = LimitWant(
            scope="s",
            kind=TOKENS,
            limit=limit,
            want=dice.randrange(300),
            back=dice.randrange(60),
            taken=dice.randrange(9),
        )
        now = clock(store)
        got = ask(want)
        passed = clock(store) - now
        said = model.lease(want, now)
        if got.granted + want.taken:
            assert 0 < store.ttl(key) <= COUNTED + 5
        if int(now + passed) != int(now):  # the second changed in between: who knows where it was counted
            model.slots = {int(at): int(amount) for at, amount in store.hgetall(key).items()}
            continue
        assert (got.granted, got.left, got.amounts) == (said.granted, said.left, said.amounts)
        for first, leaves in zip(said.leaves, got.leaves, strict=True):
            assert first - passed - 0.001 <= leaves <= first + 0.001
        if dice.random() < 0.3:
            step = dice.randrange(1, 30)
            later(store, key, step)
            model.slots = {second - step: amount for second, amount in model.slots.items()}


def test_permits_are_counted_as_their_model_does(store: redis.Redis) -> None:
    dice, model = random.Random(7), Permitted()
    for _ in range(100):
        node, want = dice.choice("abc"), dice.randrange(8)
        asked = LimitWant(scope="s", kind=PARALLEL, limit=10, want=want, taken=dice.randrange(want + 2))
        got, said = ask(asked, f"node_{node}"), model.lease(f"node_{node}", asked, 0.0)
        assert (got.granted, got.left) == (said.granted, said.left)


def test_permits_of_an_edge_that_is_not_heard_of_end(store: redis.Redis) -> None:
    want = LimitWant(scope="s", kind=PARALLEL, limit=3, want=3, taken=3)
    assert ask(want, "node_a").granted == 3
    assert ask(want, "node_b").granted == 0
    key = f"llmgw:limit:s:{PARALLEL}"
    assert 0 < store.ttl(key) <= limits.PERMITS + 5
    store.hset(key, "node_a", f"3 {time.time() - 1:.6f}")
    store.hdel(key, "node_b")
    assert ask(want, "node_b").granted == 3
    assert ask(LimitWant(scope="s", kind=PARALLEL, limit=3), "node_b").left == 3
    assert not store.exists(key)


def test_f36_twenty_workers_on_one_limit_give_out_all_of_it_and_no_more(store: redis.Redis) -> None:
    got: list[int] = []

    def work(number: int) -> None:
        for _ in range(20):
            grant = ask(LimitWant(scope="one", kind=REQUESTS, limit=1000, want=7, taken=1), f"node_{number}")
            got.append(grant.granted + 1)

    threads = [threading.Thread(target=work, args=[number]) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=90)
        assert not thread.is_alive()
    kept = sum(int(amount) for amount in store.hvals(f"llmgw:limit:one:{REQUESTS}"))
    assert len(got) == 400
    assert sum(got) == kept
    assert 1000 <= kept <= 1000 + 400  # what edges let in by themselves counts, room or not
    assert ask(LimitWant(scope="one", kind=REQUESTS, limit=1000, want=1)).granted == 0


@pytest.mark.parametrize(
    "fields",
    [
        {"kind": "models"},
        {"scope": "a:b"},
        {"scope": ""},
        {"want": -1},
        {"back": 1 << 60},
        {"limit": -5},
        {"taken": -1},
    ],
)
def test_what_cannot_be_meant_is_refused(store: redis.Redis, fields: dict[str, Any]) -> None:
    with pytest.raises(WireError):
        ask(LimitWant(**{"scope": "s", "kind": TOKENS, "limit": 5, **fields}))
    with pytest.raises(WireError, match="at most 500"):
        limits.lease(LimitsAsk(wants=(LimitWant(scope="s", kind=TOKENS, limit=5),) * 501), node_id="n")
    assert not store.keys("llmgw:limit:*")


def test_f32_nobody_counts_without_valkey_and_it_is_soon_known_and_soon_over(
    tmp_path: Path, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "PATIENCE", 30.0)
    config = load({"LLMGW_DATA": str(tmp_path)})
    want = LimitWant(scope="s", kind=TOKENS, limit=100, want=60)
    with Valkey(config) as valkey:
        settings.REDIS_URL = valkey.url
        assert ask(want).granted == 60
    began = time.monotonic()
    for question in (LimitsAsk(wants=(want,)), LimitsAsk()):
        with pytest.raises(Refused) as told:
            limits.lease(question, node_id="node_a")
        assert (told.value.code, told.value.retry_after) == ("limits_not_counted", 2)
    assert time.monotonic() - began < limits.PATIENCE
    with Valkey(config):
        assert limits.lease(LimitsAsk(), node_id="node_a").grants == ()
        assert ask(want).granted == 40  # its file has what was counted
