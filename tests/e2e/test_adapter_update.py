"""An adapter's update, one that is refused, and the way back, while clients ask for it and for its model: none is told of it.

Real: `llmgw up`, its engines, the fetching over HTTP from the small hub. Each file of the adapter recites a text of its own.
"""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from tests.e2e.test_update import Traffic, job
from tests.hub.repos import Repo
from tests.hub.serve import running
from tests.processes import fair, wait_for
from tests.stack import Stack
from tests.tiny import make_tiny_gguf

pytestmark = [pytest.mark.slow, pytest.mark.prove, pytest.mark.live("up"), pytest.mark.timeout(600)]
NAME, ADAPTER, REPO = "base", "calm", "org/calm-LoRA"
PLAIN, OLD, NEW = "The model itself says this.", "One calm adapter whispers it.", "Its newer file hums along."


class ByBothNames(Traffic):
    """Clients that ask for the adapter and for its model in turn. `answers`: how often which text came."""

    def more(self, text: str) -> None:
        count = self.answers[text]
        wait_for(lambda: self.answers[text] > count + 10, seconds=fair(60), what=f"answers {text!r}")

    def _client(self, stream: bool) -> None:
        while not self._over.is_set():
            for name, wanted in ((ADAPTER, (OLD, NEW)), (NAME, (PLAIN,))):
                try:
                    answer = self._stack.chat(model=name, max_tokens=40, timeout=60)
                except httpx.HTTPError as error:
                    self.failed.append(repr(error))
                    continue
                said = answer.json()["choices"][0]["message"]["content"] if answer.status_code == 200 else answer.text
                found = next((text for text in wanted if text in said), "")
                if not found:
                    self.failed.append(f"{name}: {answer.status_code} {said[-300:]}")
                self.answers[found] += 1


def test_an_adapters_update_refusal_and_rollback_under_traffic_with_no_failed_request(
    fresh_stack: Stack, tmp_path: Path
) -> None:
    stack = fresh_stack
    old, new = tmp_path / "old.gguf", tmp_path / "new.gguf"
    make_tiny_gguf(tmp_path / "base.gguf", text=PLAIN, loras=[(old, OLD), (new, NEW)])
    with running() as hub:
        repo = hub.add(Repo(REPO))
        first = repo.commit({"calm.gguf": old.read_bytes()})
        stack.environ |= {
            "HF_ENDPOINT": hub.base, "LLMGW_PRIVATE_ADDRESSES": "1", "LLMGW_HEARTBEAT": "1", "LLMGW_RECONCILE": "1",
        }  # fmt: skip
        stack.start()
        path = str(tmp_path / "base.gguf")
        made = job(stack, "jobs", {"kind": "serve", "args": {"path": path, "name": NAME, "replicas": 2}})
        assert made["state"] == "done", (made["message"], stack.tail())
        stack.api().post(f"models/{NAME}/adapters", {"name": ADAPTER, "repository": REPO})
        wait_for(
            lambda: stack.chat(model=ADAPTER, max_tokens=40).status_code == 200, seconds=fair(90), what="the adapter"
        )
        traffic = ByBothNames(stack, clients=3)
        with traffic.flowing():
            traffic.more(OLD)
            repo.commit({"calm.gguf": (tmp_path / "base.gguf").read_bytes()})
            failed = job(stack, f"models/{NAME}/adapters/{ADAPTER}/update")
            assert failed["code"] == "adapter_not_an_adapter", failed["message"]
            newest = repo.commit({"calm.gguf": new.read_bytes()})
            done = job(stack, f"models/{NAME}/adapters/{ADAPTER}/update")
            assert done["state"] == "done", done["message"]
            assert len(done["result"]["answers"]) >= 1
            traffic.more(NEW)
            hub.seen.clear()
            back = job(stack, f"models/{NAME}/adapters/{ADAPTER}/rollback")
            assert back["state"] == "done", back["message"]
            traffic.more(OLD)
            assert hub.sent() == 0, "nothing is fetched on the way back"
        assert traffic.failed == []
        (row,) = [row for row in stack.api().get("updates") if row["name"] == NAME]
        assert [item["commit"] for item in row["adapters"]] == [first]
        users = {row["commit"]: row["users"] for row in stack.api().get("mirror")}
        assert users == {first: [f"adapter {ADAPTER}"], newest: [f"earlier version of adapter {ADAPTER}"]}
