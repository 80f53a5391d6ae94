"""Adapters on a running cluster: added and removed under traffic, without one request that fails."""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from pathlib import Path

import pytest

from tests.processes import fair, wait_for
from tests.stack import Stack
from tests.tiny import make_tiny_gguf

pytestmark = [pytest.mark.slow, pytest.mark.live("stack"), pytest.mark.timeout(300)]

PLAIN, LOUD, CALM = "The model itself says this.", "A loud adapter shouts that.", "One calm adapter whispers it."


class Traffic:
    """Chats with these models, one after the other on each of three connections. `wrong`: what was not answered as it should."""

    def __init__(self, stack: Stack, **names: str) -> None:
        self.wrong: list[tuple[str, int, str]] = []
        self.answered: Counter[str] = Counter()
        self._stack, self._names, self._asked = stack, names, dict.fromkeys(range(3), "")
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._ask, args=(number,)) for number in self._asked]

    def __enter__(self) -> Traffic:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def add(self, name: str, answer: str) -> None:
        self._names[name] = answer

    def drop(self, name: str) -> None:
        """From now on nobody asks for it."""
        del self._names[name]
        wait_for(lambda: name not in self._asked.values(), seconds=fair(40), what="the last request of it")

    def _ask(self, number: int) -> None:
        for turn in itertools.count(number):
            if self._over.is_set():
                return
            name, wanted = (items := list(self._names.items()))[turn % len(items)]
            self._asked[number] = name
            if name not in self._names:
                continue
            answer = self._stack.chat(model=name, max_tokens=40)
            self._asked[number] = ""
            said = answer.json()["choices"][0]["message"]["content"] if answer.status_code == 200 else answer.text
            self.answered[name] += 1
            if said != wanted:
                self.wrong.append((name, answer.status_code, said))


def test_adapters_are_added_and_removed_under_traffic_and_no_request_fails(stack: Stack, tmp_path: Path) -> None:
    loud, calm = tmp_path / "loud.gguf", tmp_path / "calm.gguf"
    base = make_tiny_gguf(tmp_path / "base.gguf", text=PLAIN, loras=[(loud, LOUD), (calm, CALM)])
    stack.serve("voices", base)
    api = stack.api()
    model = api.find("models", "voices", noun="model")
    adapters = f"models/{model['id']}/adapters"

    def says(name: str) -> str:
        answer = stack.chat(model=name, max_tokens=40)
        return str(answer.json()["choices"][0]["message"]["content"]) if answer.status_code == 200 else ""

    try:
        with Traffic(stack, voices=PLAIN) as traffic:
            api.post(adapters, {"name": "org/loud", "path": str(loud)})
            wait_for(lambda: says("org/loud") == LOUD, seconds=fair(40), what=f"the adapter: {stack.tail()}", every=0.1)
            traffic.add("org/loud", LOUD)
            api.post(adapters, {"name": "calm", "path": str(calm)})
            wait_for(lambda: says("calm") == CALM, seconds=fair(40), what=f"the second: {stack.tail()}", every=0.1)
            traffic.add("calm", CALM)
            wait_for(
                lambda: len(stack.engines("voices")) == 1, seconds=fair(40), what="the old engine to end", every=0.1
            )
            listed = {item.id: item for item in stack.openai().models.list().data}
            assert {"voices", "org/loud", "calm"} <= set(listed)
            assert getattr(listed["calm"], "parent", "") == "voices"
            wait_for(
                lambda: min(traffic.answered[name] for name in ("voices", "org/loud", "calm")) > 10,
                seconds=fair(60), what="answers of each",
            )  # fmt: skip
            (old,) = stack.engines("voices")
            traffic.drop("calm")
            api.delete(f"{adapters}/calm")
            wait_for(
                lambda: stack.chat(model="calm").status_code == 404, seconds=fair(20), what="it to be gone", every=0.1
            )
            wait_for(
                lambda: len(now := stack.engines("voices")) == 1 and old not in now,
                seconds=fair(60), what="a new engine alone", every=0.1,
            )  # fmt: skip
        assert traffic.wrong == []
        rows = wait_for(
            lambda: [row for row in api.all("usage") if row["model_asked"] == "org/loud" and row["status"] == 200],
            what="its usage records", every=0.2,
        )  # fmt: skip
        assert {row["model_served"] for row in rows} == {"voices"}
    finally:
        stack.remove_model("voices")
