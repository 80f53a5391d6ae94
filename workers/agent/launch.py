"""Starting one engine: check the weights, choose a port, write the intent, spawn. Runs in a thread."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from catalog.mirror.store import Store
from cluster.wire import CardReport, Serve
from llmgw_site.lib.config import Config
from llmgw_site.lib.errors import Kind, Refused
from llmgw_site.lib.files import private_folder
from llmgw_site.lib.units import format_bytes
from workers.agent import enginelog, ports, probe, process, weights
from workers.agent.engines.base import Engine
from workers.agent.events import Spawn, SpawnFailed
from workers.agent.store import Intent, IntentStore

SPARE = 10
"""One part in so many of what llama.cpp may take of a card is beyond what it was seen or is thought to take."""


class StartRefused(Exception):
    """No process came to be; `failure` says why."""

    def __init__(self, failure: SpawnFailed) -> None:
        super().__init__(failure.message)
        self.failure = failure


def visible(serve: Serve, cards: Sequence[CardReport]) -> dict[str, str]:
    """The engine sees the cards that were chosen for it and no other; one on the processor sees none. Raises Refused
    `card_missing`. Source: CUDA C++ Programming Guide, environment variables.

    By UUID, which no restart of the machine renumbers. vLLM reads the variable itself and takes numbers only (its issue
    13815): it gets their places among the node's cards, which are in the order of the bus.
    """
    if not serve.cards:
        return {"CUDA_VISIBLE_DEVICES": ""}
    places = {card.uuid: place for place, card in enumerate(cards)}
    missing = [uuid for uuid in serve.cards if uuid not in places]
    if missing and (cards or serve.engine == "vllm"):
        text = f"The card {missing[0]} is not there: the driver of this node does not name it."
        raise Refused(Kind.UNAVAILABLE, "card_missing", text)
    if serve.engine != "vllm":
        return {"CUDA_VISIBLE_DEVICES": ",".join(serve.cards)}
    numbers = ",".join(str(places[uuid]) for uuid in serve.cards)
    return {"CUDA_VISIBLE_DEVICES": numbers, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


def room_on_cards(serve: Serve, cards: Sequence[CardReport]) -> None:
    """Whether its cards have what it may take of them. Raises Refused `card_memory_taken`: an engine that ended has not
    given it back yet, or somebody else was faster. An attempt would fail for certain and be held against the model.

    llama.cpp is planned with something to spare; vLLM does not start unless all of its share is free. What the driver
    does not tell is not checked.
    """
    there = {card.uuid: card for card in cards}
    for uuid, size in zip(serve.cards, serve.card_memory, strict=False):
        card = there.get(uuid)
        if card is None or card.memory_total is None or card.memory_used is None:
            continue
        free = max(0, card.memory_total - card.memory_used)
        if free < (size if serve.engine == "vllm" else size - size // SPARE):
            text = f"The card {uuid} has {format_bytes(free)} free and the engine may take {format_bytes(size)} of it: "
            text += (
                "others use it, or an engine that has ended has not given its memory back yet. It is looked at again."
            )
            raise Refused(Kind.UNAVAILABLE, "card_memory_taken", text)


class Starter:
    """Owns the folders of engines. `start` may run in several threads; ports and intents are taken one at a time."""

    def __init__(self, config: Config, engines: Mapping[str, Engine], intents: IntentStore, store: Store) -> None:
        self._config, self._engines, self._intents, self._store = config, engines, intents, store
        self._logs = private_folder(config.data / "logs" / "engines")
        self._cwd = private_folder(config.run / "engines")
        self._lock = threading.Lock()
        self.cards: Callable[[], Sequence[CardReport]] = tuple
        """Reads the node's cards, for an engine that uses some; may block for a few seconds."""

    def log_path(self, replica_id: str) -> Path:
        return self._logs / f"{Path(replica_id).name}.log"  # also asked for ids that `start` refused

    def start(self, order: Spawn, key: str) -> tuple[process.Child, int]:
        """The running child and its port. Raises StartRefused.

        1. `replica_id_refused`    the id would not be a safe file name
        2. `engine_unknown`        no such kind
        3. `engine_missing`        the engine is not installed here
        4. `weights_missing`, `weights_changed`
        5. `engine_args_refused`   the profile's args or env do not pass the vetting
        6. `card_missing`, `card_memory_taken`, `card_memory_unknown`   what the driver says of its cards does not fit
        7. `spawn_failed`          the system refused
        """
        serve = order.serve
        if not order.replica_id.replace("_", "").replace("-", "").isalnum() or len(order.replica_id) > 64:  # 1
            raise self._refused(
                order, "replica_id_refused", f"The replica id {order.replica_id!r:.80} is no plain name.", final=True
            )
        engine = self._engines.get(serve.engine)
        if engine is None:  # 2
            known = ", ".join(sorted(self._engines))
            message = f"This node knows no engine {serve.engine!r:.40}; it knows {known}."
            raise self._refused(order, "engine_unknown", message, final=True)
        problem = engine.build().problem
        if problem:  # 3
            raise self._refused(order, "engine_missing", f"{serve.engine} cannot run on this node: {problem}.")
        try:
            serve = weights.placed(serve, self._store)
        except Refused as refused:  # 4
            raise self._refused(order, refused.code, refused.message) from None
        wrong = weights.problem(serve)
        if wrong is not None:  # 4
            raise self._refused(order, *wrong)
        cards = self.cards() if serve.cards else ()
        with self._lock:
            try:
                room_on_cards(serve, cards)
                port = ports.free_port(self._intents.ports)
                threads = probe.default_threads(self._config.threads)
                command = engine.command(serve, port=port, threads=threads, cards=cards)
                env = {**command.env, **engine.secrets(key), **visible(serve, cards)}
                return self._spawn(order, engine, command.argv, env, port, key), port
            except Refused as refused:  # 5, 6
                final = refused.kind is not Kind.UNAVAILABLE  # a card may come back
                raise self._refused(order, refused.code, refused.message, final=final) from None
            except OSError as error:  # 7
                with contextlib.suppress(OSError):
                    self._intents.drop(order.replica_id)
                message = f"The engine could not be started: {error.strerror or error}."
                raise self._refused(order, "spawn_failed", message) from None

    def _spawn(
        self, order: Spawn, engine: Engine, argv: tuple[str, ...], env: Mapping[str, str], port: int, key: str
    ) -> process.Child:
        limit = self._config.engine_log_bytes
        log = enginelog.open_for(self.log_path(order.replica_id), limit=limit, title=f"generation {order.generation}")
        try:
            # Before the spawn: an engine that starts in the moment of a crash is found with its port and its key.
            self._intents.put(
                Intent(
                    replica_id=order.replica_id, generation=order.generation, serve=order.serve, port=port, key=key,
                    started_at=time.time(),
                )
            )  # fmt: skip
            child = process.spawn(
                argv, env=env, replica_id=order.replica_id, data=self._config.data, cwd=self._cwd, log=log,
                file_limit=limit if engine.files_bounded else 0,
            )  # fmt: skip
        finally:
            os.close(log)
        # Not worth failing for: an intent without a pid explains the engine as well, and it runs already.
        with contextlib.suppress(OSError):
            self._intents.change(order.replica_id, pid=child.pid, start_time=child.start_time)
        return child

    def _refused(self, order: Spawn, code: str, message: str, *, final: bool = False) -> StartRefused:
        failure = SpawnFailed(replica_id=order.replica_id, launch=order.launch, code=code, message=message, final=final)
        return StartRefused(failure)
