"""Carries out the orders to fetch: weights of the registry or of other nodes into this node's store, a few at a time.

A fetch goes on wherever it was broken off, also by kill -9 (`catalog.mirror`). One whose order is gone is stopped; one that
fails is tried again after a pause. On the controllers' word versions are removed that nobody wants here any more.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

from catalog.domain.manifests import VERSION, Manifest, manifest_from_dict
from catalog.mirror.fetch import Origin
from catalog.mirror.origins import FromAddresses, FromRegistry
from catalog.mirror.store import Store
from catalog.registry.client import Registry
from cluster.wire import REGISTRY, FetchOrder, FetchReport, Wanted
from llmgw_site.lib.config import Config
from llmgw_site.lib.errors import Kind, Refused
from llmgw_site.lib.logs import event
from llmgw_site.lib.outgoing import Guard
from workers.agent.fetch_plan import Here, Rate, can_begin, patience, pause, same_way, to_remove
from workers.agent.link import LinkError, NodeRemoved
from workers.agent.sources import FromNodes, NodeCalls, recent

log = logging.getLogger(__name__)

TOGETHER = 2
"""Versions that are fetched at once."""
TICK, TOLD_EVERY, TIDY_EVERY = 0.25, 2.0, 10.0
"""Seconds between two looks at the orders, two words about progress, and two looks at what may go."""


class Asked(Protocol):
    """What is needed of workers.agent.link.Link."""

    async def manifest(self, version: str) -> Any: ...


@dataclass(kw_only=True)
class _Fetch:
    """One order and how it stands. A thread writes `there`, `shared` and `origin`, each a plain assignment; the loop all else."""

    order: FetchOrder
    stop: threading.Event = field(default_factory=threading.Event)
    task: asyncio.Task[None] | None = None
    whole: bool = False
    size: int = 0
    there: int = 0
    shared: int = 0
    began_with: int = 0
    rate: Rate = field(default_factory=Rate)
    origin: FromNodes | None = None
    doubted: dict[str, float] = field(default_factory=dict)
    failures: int = 0
    retry_at: float = 0.0
    code: str = ""
    message: str = ""

    @property
    def running(self) -> bool:
        return self.task is not None and not self.task.done()


class Fetching:
    """See the module. One owner, the agent's loop.

    `used`: versions of replicas of this node; `data`: whether it runs the data module. `news`: the controllers, and replicas
    that wait, should hear; `changed`: what is whole here has changed.
    """

    def __init__(
        self, config: Config, store: Store, link: Asked, calls: NodeCalls, *,
        used: Callable[[], Collection[str]], data: Callable[[], bool],
        news: Callable[[], None] = lambda: None, changed: Callable[[], None] = lambda: None,
    ) -> None:  # fmt: skip
        self._config, self._store, self._link, self._calls = config, store, link, calls
        self._used, self._data = used, data
        self._news, self._changed = news, changed
        self._orders: dict[str, FetchOrder] = {}
        self._fetches: dict[str, _Fetch] = {}
        self._kept: tuple[str, ...] | None = None
        self._removed: frozenset[str] = frozenset()
        self._unwanted: dict[str, float] = {}  # since when
        self._wake = asyncio.Event()
        self._told_at = 0.0
        self._said: tuple[tuple[str, str, str], ...] = ()
        self._tidied = False

    def take(self, wanted: Wanted) -> None:
        """A controller's answer. Where other versions are to be kept than before, there may be room now."""
        if wanted.kept != self._kept:
            self._hurry("store_full")
        self._kept, self._removed = wanted.kept, frozenset(wanted.removed)
        self.order(wanted.fetches)

    def order(self, orders: Iterable[FetchOrder]) -> None:
        """All that is to be fetched; what is not named is not wanted any more."""
        self._orders = {item.version: item for item in orders if VERSION.fullmatch(item.version)}
        self._wake.set()

    def reports(self) -> tuple[FetchReport, ...]:
        """Every order that is not whole yet."""
        now = time.monotonic()
        known = [(order, self._fetches.get(version)) for version, order in self._orders.items()]
        return tuple(_report(order, item, now) for order, item in known if item is None or not item.whole)

    # --- the orders -----------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Look at the orders for ever."""
        tidy_at = 0.0
        try:
            while True:
                self._wake.clear()
                try:
                    self._look(time.monotonic())
                    if time.monotonic() >= tidy_at:
                        tidy_at = time.monotonic() + TIDY_EVERY
                        await self._tidy(time.monotonic())
                except OSError as error:
                    event(log, "store_unreadable", level=logging.ERROR, path=str(self._store.root), reason=str(error))
                except Exception:
                    log.exception("fetching_failed")
                # not wait_for: in Python 3.11 it can swallow a cancellation that meets the event
                with suppress(TimeoutError):
                    async with asyncio.timeout(TICK):
                        await self._wake.wait()
        finally:
            for item in self._fetches.values():
                item.stop.set()

    def _look(self, now: float) -> None:
        """1. follow the orders; 2. begin what may begin; 3. say how far all is."""
        for version, item in list(self._fetches.items()):  # 1
            self._follow(item, self._orders.get(version), now)
        for version, order in self._orders.items():
            self._fetches.setdefault(version, _Fetch(order=order))
        running = sum(item.running for item in self._fetches.values())
        for item in self._fetches.values():  # 2
            ready = not item.running and not item.whole and self._may_begin(item.order) and now >= item.retry_at
            if ready and running < TOGETHER:
                running += 1
                item.stop = threading.Event()
                item.began_with = item.there  # the try before brought it: no progress of this one
                item.task = asyncio.ensure_future(self._fetch(item))
        said = tuple((item.version, item.code, item.message) for item in self.reports())
        if (running or said != self._said) and now >= self._told_at + TOLD_EVERY:  # 3
            self._told_at, self._said = now, said
            self._news()

    def _may_begin(self, order: FetchOrder) -> bool:
        """Not where room may have to be made of other versions, and no controller has said yet which must stay."""
        return can_begin(order) and (self._store.limit is None or self._kept is not None)

    def _follow(self, item: _Fetch, order: FetchOrder | None, now: float) -> None:
        """1. not wanted any more: it stops, and is forgotten; 2. from elsewhere: it stops, and begins again with what is there;
        3. other nodes: asked from the next request on."""
        version = item.order.version
        if order is None or not same_way(item.order, order):  # 1, 2
            if item.running and not item.stop.is_set():
                event(log, "fetch_stopping", version=version, wanted=order is not None)
                item.stop.set()
            if item.running:
                return
            if order is None:
                del self._fetches[version]
                return
            item.retry_at, item.failures, item.code, item.message = 0.0, 0, "", ""
        item.order = order
        if item.origin is not None:  # 3
            item.origin.take(order.sources)
        if item.running:
            item.rate.note(now, item.there - item.shared)
            if item.there > item.began_with:
                item.failures, item.code, item.message = 0, "", ""

    # --- one fetch ------------------------------------------------------------------------------------------------

    async def _fetch(self, item: _Fetch) -> None:
        """One try. Whatever comes of it stands in `item`."""
        version = item.order.version
        try:
            manifest = await self._manifest(item.order)
            item.size = manifest.size
            event(log, "fetch_begins", version=version, size=manifest.size, registry=not item.order.sources)
            await _in_thread(self._bring, item, manifest)
        except Refused as refused:
            self._failed(item, refused.code, refused.message, refused.retry_after)
        except (LinkError, NodeRemoved) as error:
            self._failed(
                item, "manifest_unavailable", f"what {version} consists of cannot be asked: {error}", pause(1, 0)
            )
        except OSError as error:
            text = f"the store of this node fails ({error.strerror or error}): look at the disk of {self._store.root}"
            full = error.errno in (
                errno.ENOSPC,
                errno.EDQUOT,
            )  # not even its lists could be written, or others filled the disk meanwhile
            self._failed(item, "disk_full" if full else "fetch_failed", text, None)
        except Exception:
            log.exception("fetch_failed")
            self._failed(item, "fetch_failed", "a defect of llmgw; the log of this node's agent says more", None)
        else:
            item.whole, item.there, item.code, item.message = True, item.size, "", ""
            event(log, "fetch_done", version=version, size=item.size, shared=item.shared)
            self._changed()
        finally:
            item.origin = None
            self._wake.set()
            self._news()

    def _failed(self, item: _Fetch, code: str, message: str, retry_after: float | None) -> None:
        if code == "fetch_stopped":
            return
        item.failures += 1
        item.code, item.message = code, message
        wait = pause(item.failures, retry_after)
        item.retry_at = time.monotonic() + wait
        event(
            log,
            "fetch_failed",
            level=logging.WARNING,
            version=item.order.version,
            code=code,
            reason=message,
            again_in=wait,
        )

    async def _manifest(self, order: FetchOrder) -> Manifest:
        """What the version consists of: as this node was told before, where it comes from other nodes, else as the controllers
        say now. Raises Refused, LinkError."""
        held = await asyncio.to_thread(self._store.manifest, order.version)
        if held is not None and order.sources:
            return held
        try:
            told = manifest_from_dict(await self._link.manifest(order.version))
        except LinkError:
            if held is None:
                raise
            return held
        if told.id != order.version:
            raise Refused(Kind.UPSTREAM, "manifest_bad", f"the list of {order.version} is that of {told.id}")
        return told

    def _bring(self, item: _Fetch, manifest: Manifest) -> None:
        """In a thread. Raises Refused, OSError."""
        status = self._store.status(manifest.id)
        item.there = item.began_with = status.there if status is not None else 0
        item.shared = 0
        item.rate = Rate()
        with ExitStack() as stack:
            origin = self._origin(item, manifest, stack)
            try:
                self._store.fetch(
                    manifest,
                    origin,
                    kept=self._needed,
                    stop=item.stop,
                    tell=partial(setattr, item, "there"),
                    here=partial(setattr, item, "shared"),
                )
            except Refused as refused:
                left = self._store.status(manifest.id)
                item.there = left.there if left is not None else 0  # a file that was discarded is not there any more
                if refused.code == "file_wrong" and item.origin is not None:
                    item.origin.doubt_all()
                raise

    def _origin(self, item: _Fetch, manifest: Manifest, stack: ExitStack) -> Origin:
        """Other nodes where the order names some, else where the version comes from, with this node's own settings."""
        if item.order.sources:
            item.origin = stack.enter_context(
                FromNodes(self._calls, manifest.id, item.order.sources, doubted=item.doubted)
            )
            return item.origin
        guard = Guard(private=self._config.private_addresses)
        urls = {file.path: file.url for file in manifest.files if file.url}
        if urls:
            return stack.enter_context(FromAddresses(guard, urls))
        registry = Registry(guard=guard, endpoint=self._config.registry, token=self._config.registry_token)
        return FromRegistry(stack.enter_context(registry), manifest)

    # --- the store ------------------------------------------------------------------------------------------------

    def _needed(self) -> set[str]:
        """Versions that must not go. Threads may ask, too: what is read is replaced, never changed."""
        return {*(self._kept or ()), *self._orders, *self._used()}

    async def _tidy(self, now: float) -> None:
        """Remove what nobody wants here, once it was unwanted for a while; see what has gone by other hands."""
        if not self._tidied:
            await asyncio.to_thread(self._store.tidy)
            self._tidied = True
        here = [Here(item.manifest.id, item.whole) for item in await asyncio.to_thread(self._store.versions)]
        whole = {item.version for item in here if item.whole}
        for version, item in self._fetches.items():
            item.whole = item.whole and version in whole
        gone = to_remove(here, kept=self._kept, ordered=self._orders, used=self._used(), data=self._data())
        self._unwanted = {version: self._unwanted.get(version, now) for version in gone}
        for version, since in list(self._unwanted.items()):
            if now - since < patience(whole=version in whole, removed=version in self._removed):
                continue
            if version in self._needed():  # since the one before was being removed, which may take long
                continue
            with suppress(Refused):  # it is just being stopped
                if await asyncio.to_thread(self._store.remove, version):
                    event(log, "weights_removed", version=version)
                    self._hurry("store_full", "disk_full")
                    self._changed()

    def _hurry(self, *codes: str) -> None:
        """What failed with one of these is tried again at the next look, and is not the worse for its failures before."""
        for item in self._fetches.values():
            if item.code in codes:
                item.retry_at, item.failures = 0.0, 0


async def _in_thread(work: Callable[..., None], *args: Any) -> None:
    """As asyncio.to_thread, but no end of the process waits for it: a connection may hang for half a minute."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()

    def tell(error: BaseException | None) -> None:
        if done.cancelled():
            return
        if error is None:
            done.set_result(None)
        else:
            done.set_exception(error)

    def run() -> None:
        error: BaseException | None = None
        try:
            work(*args)
        except BaseException as caught:
            error = caught
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(tell, error)

    threading.Thread(target=run, name="fetching", daemon=True).start()
    await done


def _report(order: FetchOrder, item: _Fetch | None, now: float) -> FetchReport:
    if item is None:
        return FetchReport(version=order.version, code=order.code, message=order.message)
    told = (item.code, item.message) if item.code or item.running else (order.code, order.message)
    source = "" if not item.running else item.origin.using if item.origin is not None else REGISTRY
    return FetchReport(
        version=order.version, size=item.size, there=item.there, rate=item.rate.of(now) if item.running else None,
        code=told[0], message=told[1], source="" if order.sources and source == REGISTRY else source,
        failed=recent(item.doubted), shared=item.shared,
    )  # fmt: skip
