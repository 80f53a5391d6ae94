"""Who fetches which version of weights, and from whom.

A version is fetched from where it comes from by exactly one node with the module `data`; everybody else takes it from nodes
that have it. So that those who fetch at the same time do not all pull from one, only PULLS of them get one holder's bytes at
once: the others wait for a holder more, and their number doubles and doubles again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

PULLS = 4
"""Nodes that take one version from one holder at once."""
SOURCES = 4
"""Holders that one order names: whom to ask when the first one fails."""
STILL = 300.0
"""Seconds without a new byte after which a fetch counts as stopped: long enough to compute a large file's SHA-256."""
SHUNNED = 300.0
"""Seconds in which who failed is asked for nothing, where there is somebody else."""
REGISTRY = "registry"
"""Source of a fetch from where the version comes from."""
WAITING = frozenset({"fetch_waits", "no_mirror"})
"""Codes of orders that wait for others: no failures of the node that has them."""
NO_ROOM = frozenset({"disk_full", "store_full"})
"""Codes of a node that no waiting helps: somebody has to make room there, or another node takes the weights."""
MOST = 1000
"""Fetches that are kept of a report."""


@dataclass(frozen=True, kw_only=True)
class FetchSource:
    """A node that holds the whole version. `address`: base URL of its node listener."""

    node_id: str
    address: str


@dataclass(frozen=True, kw_only=True)
class FetchOrder:
    """A version that the node shall have. It takes it from the first of the `sources` that gives it; with `registry` from
    where the version comes from; with neither it waits, and `code` and `message` say what for."""

    version: str
    registry: bool = False
    sources: tuple[FetchSource, ...] = ()
    code: str = ""
    message: str = ""


@dataclass(frozen=True, kw_only=True)
class FetchReport:
    """An order to fetch that is not whole yet: how far it is, or why it does not get on.

    `there`: bytes of `size` that are there; `rate`: bytes a second now, None: nothing is being fetched at this moment.
    `source`: id of the node it comes from, or REGISTRY; `failed`: ids of the nodes that did not give it since the last report.
    `shared`: of the bytes that are there, those of files that other versions there gave.
    """

    version: str
    size: int = 0
    there: int = 0
    rate: float | None = None
    code: str = ""  # why it does not get on
    message: str = ""  # the same for people
    source: str = ""
    failed: tuple[str, ...] = ()
    shared: int = 0


@dataclass(frozen=True, kw_only=True)
class Fetch:
    """What is remembered of a node's fetch. Times are Unix seconds.

    `moved_at`: when bytes last came while it was fetching, 0: it is not fetching; `failed_at`: when it began to fail, 0: it does
    not; `failed`: holders that did not give it, and when.
    """

    version: str
    size: int = 0
    there: int = 0
    rate: int | None = None
    code: str = ""
    message: str = ""
    source: str = ""
    moved_at: float = 0.0
    failed_at: float = 0.0
    failed: Mapping[str, float] = field(default_factory=dict)
    shared: int = 0

    @property
    def moving(self) -> bool:
        return self.rate is not None and not self.failed_at

    def failing(self, now: float) -> bool:
        """Whether somebody else should rather fetch it."""
        return bool(self.failed_at) and (bool(self.code) or now - self.failed_at < SHUNNED)

    def shuns(self, holder: str, now: float) -> bool:
        at = self.failed.get(holder)
        return at is not None and now - at < SHUNNED


@dataclass(frozen=True, kw_only=True)
class Site:
    """A node that is heard and knows how to fetch. `data`: it runs the module; `has`: versions that are whole there;
    `fetches`: what it reported of its orders, by version."""

    id: str
    name: str
    address: str = ""
    data: bool = False
    has: Collection[str] = ()
    fetches: Mapping[str, Fetch] = field(default_factory=dict)


def remember(before: Iterable[Fetch], reports: Sequence[FetchReport], now: float) -> tuple[Fetch, ...]:
    """What is known of a node's fetches after its report. What it does not report it has, or has no order for, any more.

    1. it is fetching and bytes came, or it has just begun: it moves now
    2. it says why it does not get on: it has failed since it first said so
    3. it is fetching, and no byte came for STILL seconds: it has failed, too
    4. bytes came: it does not fail any more
    """
    known = {item.version: item for item in before}
    return tuple(_remembered(known.get(item.version), item, now) for item in reports[:MOST])


def _remembered(before: Fetch | None, told: FetchReport, now: float) -> Fetch:
    old = before or Fetch(version=told.version)
    came = told.there > old.there
    moved_at = 0.0
    if told.rate is not None:
        moved_at = now if came or not old.moved_at else old.moved_at  # 1
    failed_at = 0.0 if came else old.failed_at  # 4
    stopped = moved_at and now - moved_at >= STILL and told.there < told.size  # 3
    if stopped or (told.code and told.code not in WAITING):  # 2
        failed_at = old.failed_at or now
    elif failed_at and now - failed_at >= SHUNNED:
        failed_at = 0.0
    failed = {holder: at for holder, at in old.failed.items() if now - at < SHUNNED}
    return Fetch(
        version=told.version, size=max(0, told.size), there=max(0, told.there),
        rate=None if told.rate is None else max(0, round(told.rate)), code=told.code, message=told.message,
        source=told.source, moved_at=moved_at, failed_at=failed_at,
        failed={**failed, **dict.fromkeys(told.failed, now)}, shared=min(max(0, told.shared), max(0, told.there)),
    )  # fmt: skip


class Sharing:
    """Who gets one version from whom at this moment. The same nodes, reports and time give the same orders.

    1. nodes have it: the others take it from them, at most PULLS from one at once, those that are no data nodes first. Who
       moves keeps its source; who fails comes last; whom a node reported as failing is avoided, by that node altogether where
       there is another. Who finds no seat waits: `fetch_waits`
    2. nobody has it, or a data node gets it from nobody who has: exactly one data node fetches it from where it comes from.
       The one that moves, else the one that has most of it, and one that fails only where all do; the others wait
    3. nobody has it, and no data node is heard: `no_mirror`
    """

    def __init__(self, version: str, sites: Iterable[Site], now: float) -> None:
        self.version, self.now = version, now
        everybody = list(sites)
        holding = [site for site in everybody if version in site.has and site.address]
        self.holders = {site.id: site for site in sorted(holding, key=self._rank)}
        wanting = [site for site in everybody if version not in site.has and (site.data or version in site.fetches)]
        struck = {holder for site in wanting for holder in self._fetch(site).failed if self._shuns(site, holder)}
        self._tiers = [
            [site.id for site in self.holders.values() if not site.data and site.id not in struck],
            [site.id for site in self.holders.values() if site.data and site.id not in struck],
            [site.id for site in self.holders.values() if site.id in struck],
        ]
        self._seats = dict.fromkeys(self.holders, PULLS)
        self._free = [list(tier) for tier in self._tiers]
        self._first: dict[str, str] = {}  # by fetcher: the holder it takes it from; "": it waits
        self.elected = self._elect(wanting)
        for site in sorted(wanting, key=self._turn):
            if site is not self.elected:
                self._seat(site)

    def order(self, site: Site) -> FetchOrder:
        """What this node, which lacks the version, is told. One that nobody knew to want it comes after all others."""
        if self.elected is not None and self.elected.id == site.id:  # 2
            return FetchOrder(version=self.version, registry=True)
        if site.id not in self._first:
            self._seat(site)
        first = self._first[site.id]
        if first:  # 1
            return FetchOrder(version=self.version, sources=self._sources(site, first))
        if not self.holders:
            return self._without(site)
        text = (
            f"each of the {len(self.holders)} nodes that have it gives it to {PULLS} others already: it waits its turn"
        )
        return FetchOrder(version=self.version, code="fetch_waits", message=text)

    def _without(self, site: Site) -> FetchOrder:
        if self.elected is None and site.data:  # 2: nobody knew it yet
            self.elected = site
            return FetchOrder(version=self.version, registry=True)
        if self.elected is None:  # 3
            text = "no node that fetches and keeps weights is heard: give a node the role data, or start it again"
            return FetchOrder(version=self.version, code="no_mirror", message=text)
        fetch = self._fetch(self.elected)
        text = f"node {self.elected.name} fetches it first"
        if fetch.failed_at and fetch.message:
            text = f"node {self.elected.name} does not get it: {fetch.message}"
        return FetchOrder(version=self.version, code="fetch_waits", message=text)

    def _elect(self, wanting: Iterable[Site]) -> Site | None:
        able = [site for site in wanting if site.data]
        if self.holders:
            able = [site for site in able if all(self._shuns(site, holder) for holder in self.holders)]
        return min(able, key=self._claim, default=None)

    def _claim(self, site: Site) -> tuple[bool, bool, int, int]:
        fetch = self._fetch(site)
        return fetch.failing(self.now), not fetch.moving, -fetch.there, self._rank(site)

    def _turn(self, site: Site) -> tuple[bool, bool, bool, int]:
        fetch = self._fetch(site)
        return fetch.failing(self.now), not fetch.moving, not site.data, self._rank(site)

    def _seat(self, site: Site) -> None:
        fetch = self._fetch(site)
        kept = fetch.source if fetch.moving and fetch.source != site.id and self._seats.get(fetch.source) else ""
        first = kept if kept and not self._shuns(site, kept) else self._found(site)
        self._first[site.id] = first
        if not first:
            return
        self._seats[first] -= 1
        if not self._seats[first]:
            for tier in self._free:
                if first in tier:
                    tier.remove(first)

    def _found(self, site: Site) -> str:
        """A holder with a free seat; one that failed this node only where all of them did."""
        if not any(self._free):
            return ""
        found = next(self._round(site, self._free), "")
        if found or any(holder != site.id and not self._shuns(site, holder) for holder in self.holders):
            return found  # or it waits for one of those
        return next((holder for tier in self._free for holder in tier if holder != site.id), "")

    def _sources(self, site: Site, first: str) -> tuple[FetchSource, ...]:
        others = (holder for holder in self._round(site, self._tiers) if holder != first)
        named = [first, *islice(others, SOURCES - 1)]
        return tuple(FetchSource(node_id=holder, address=self.holders[holder].address) for holder in named)

    def _round(self, site: Site, tiers: Iterable[Sequence[str]]) -> Iterator[str]:
        """The holders that did not fail this node, tier by tier, each from another place on for each node."""
        turn = _hash(self.version, site.id, "turn")
        for tier in tiers:
            for step in range(len(tier)):
                holder = tier[(turn + step) % len(tier)]
                if holder != site.id and not self._shuns(site, holder):
                    yield holder

    def _shuns(self, site: Site, holder: str) -> bool:
        return self._fetch(site).shuns(holder, self.now)

    def _fetch(self, site: Site) -> Fetch:
        return site.fetches.get(self.version) or Fetch(version=self.version)

    def _rank(self, site: Site) -> int:
        return _hash(self.version, site.id)


def _hash(*words: str) -> int:
    """Spreads evenly, and is the same in every process. No secret depends on it."""
    return int.from_bytes(hashlib.blake2b(" ".join(words).encode(), digest_size=8).digest(), "big")
