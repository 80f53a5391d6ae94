"""An update, one that fails, and the way back, while clients ask all the time: not one of them is told of it.

Real: `llmgw up`, its engines, the fetching over HTTP from the small hub; the worker is killed in the middle of the update. The model is tiny and recites a text of its own, so that an
answer tells which version gave it.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from llmgw_site.cli.client import CliError
from tests import tiny
from tests.cluster.harness.cluster import Cluster
from tests.hub.repos import Repo
from tests.hub.serve import running
from tests.processes import fair, wait_for
from tests.stack import Stack

pytestmark = [pytest.mark.slow, pytest.mark.live("up"), pytest.mark.timeout(600)]
NAME, REPO, FILE = "live", "org/live", "live-Q8_0.gguf"
OLD, NEW = "The old one speaks of rivers and of rain.", "A newer one tells of copper and of snow!"


class Traffic:
    """So many clients that ask again and again, some of them streaming. `answers`: how often each first word came."""

    def __init__(self, stack: Stack | Cluster, clients: int) -> None:
        self.failed: list[str] = []
        self.answers: Counter[str] = Counter()
        self._stack, self._over = stack, threading.Event()
        self._threads = [threading.Thread(target=self._client, args=(n % 2 == 0,)) for n in range(clients)]

    @contextmanager
    def flowing(self) -> Iterator[None]:
        for thread in self._threads:
            thread.start()
        try:
            yield
        finally:
            self._over.set()
            for thread in self._threads:
                thread.join()

    def _client(self, stream: bool) -> None:
        while not self._over.is_set():
            try:
                answer = self._stack.chat(model=NAME, max_tokens=12, timeout=60, stream=stream)
                if (
                    answer.status_code != 200
                    or "error" in answer.text[:200]
                    or (stream and "[DONE]" not in answer.text)
                ):
                    self.failed.append(f"{answer.status_code} {answer.text[-300:]}")
                    continue
                self.answers["new" if any(word in answer.text for word in ("newer", "copper", "A new")) else "old"] += 1
            except httpx.HTTPError as error:
                self.failed.append(repr(error))


def job(
    stack: Stack | Cluster, path: str, body: Any = None, *, until: str = "", then: Callable[[], Any] = lambda: None
) -> dict[str, Any]:
    """Open a job and follow it to its end. `then` is done once when the step `until` has begun."""
    opened = stack.api().post(path, body)
    waiting = [until] if until else []

    def ended() -> Any:
        now = stack.api().get(f"jobs/{opened['id']}")
        if any(step["name"] in waiting and step["state"] == "running" for step in now["steps"]):
            waiting.clear()
            then()
        return now["state"] not in ("queued", "running") and now

    found = dict(wait_for(ended, seconds=fair(240), what=f"the job {opened['id']} to end", every=0.2) or {})
    assert not waiting, f"the step {until} was never seen: {found}"
    return found


def serving(stack: Stack) -> list[str]:
    """The replicas of the model that are ready."""
    return [row["id"] for row in stack.api().all("replicas", model=NAME) if row["state"] == "ready"]


@pytest.mark.prove
def test_update_failure_and_rollback_under_constant_traffic_with_no_failed_request(fresh_stack: Stack) -> None:
    stack = fresh_stack
    old, new = (tiny.tiny_gguf(text=text).read_bytes() for text in (OLD, NEW))
    with running() as hub:
        repo = hub.add(Repo(REPO))
        first = repo.commit({FILE: old})
        stack.environ |= {
            "HF_ENDPOINT": hub.base,
            "LLMGW_PRIVATE_ADDRESSES": "1",
            "LLMGW_HEARTBEAT": "1",
            "LLMGW_RECONCILE": "1",
        }
        stack.start()
        made = job(
            stack, "jobs", {"kind": "serve", "args": {"source": [REPO], "name": NAME, "replicas": 2, "slots": 2}}
        )
        assert made["state"] == "done", (made["message"], stack.tail())
        wait_for(lambda: len(serving(stack)) == 2, seconds=fair(60), what="both replicas")
        before = set(serving(stack))

        # its header is sound, and the engine misses a tensor
        broken = repo.commit({FILE: new.replace(b"blk.0.attn_q.weight", b"blk.0.attn_x.weight")})
        traffic = Traffic(stack, clients=4)
        with traffic.flowing():
            wait_for(lambda: sum(traffic.answers.values()) > 20, seconds=fair(60), what="traffic")
            failed = job(stack, f"models/{NAME}/update")
            assert failed["state"] == "failed", failed["message"]
            assert "does not start on node" in failed["message"], failed["message"]
            assert set(serving(stack)) >= before or len(set(serving(stack)) & before) == 2, "the old ones serve on"
            assert traffic.answers["new"] == 0

            newest = repo.commit({FILE: new})
            done = job(stack, f"models/{NAME}/update", until="replace", then=lambda: stack.kill("worker"))
            assert done["state"] == "done", done["message"]
            assert len(done["result"]["answers"]) == 2
            count = traffic.answers["new"]
            wait_for(lambda: traffic.answers["new"] > count + 20, seconds=fair(60), what="answers of the new version")
            wait_for(lambda: not before & set(serving(stack)), seconds=fair(30), what="the old ones to end")
            (row,) = [row for row in stack.api().get("updates") if row["name"] == NAME]
            assert (row["commit"], row["changed"], bool(row["previous"])) == (newest, [], True)

            hub.seen.clear()
            back = job(stack, f"models/{NAME}/rollback")
            assert back["state"] == "done", back["message"]
            count = traffic.answers["old"]
            wait_for(lambda: traffic.answers["old"] > count + 20, seconds=fair(60), what="answers of the old version")
            assert hub.sent() == 0, "nothing is fetched on the way back"
        assert traffic.failed == []
        assert stack.chat(model=NAME, max_tokens=12).status_code == 200
        (row,) = [row for row in stack.api().get("updates") if row["name"] == NAME]
        assert row["commit"] == first
        kept = {row["commit"]: row["users"] for row in stack.api().get("mirror")}
        assert kept[first] == [f"model {NAME}"]
        assert kept[newest] == [f"earlier version of {NAME}"]
        unused = next(row for row in stack.api().get("mirror") if row["commit"] == broken)
        stack.api().delete(f"mirror/{unused['id']}")
        with pytest.raises(CliError, match="needed by"):
            stack.api().delete(
                f"mirror/{next(row['id'] for row in stack.api().get('mirror') if row['commit'] == first)}"
            )
        folder = stack.data / "weights" / unused["id"]
        wait_for(lambda: not folder.exists(), seconds=fair(30), what="the files of the version that nobody needs to go")
