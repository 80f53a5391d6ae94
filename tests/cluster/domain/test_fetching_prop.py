"""What holds of orders to fetch, whatever nodes report."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from cluster.domain.fetching import PULLS, REGISTRY, SOURCES, Fetch, FetchReport, Sharing, Site, remember

V = "ver_00000000"
NOW = 10_000.0
IDS = [f"n{number}" for number in range(12)]
times = st.sampled_from([0.0, NOW - 1000, NOW - 10, NOW])
fetches = st.builds(
    Fetch,
    version=st.just(V),
    size=st.just(100),
    there=st.integers(0, 100),
    rate=st.none() | st.integers(0, 9),
    code=st.sampled_from(["", "fetch_waits", "no_mirror", "disk_full"]),
    source=st.sampled_from(["", REGISTRY, *IDS]),
    moved_at=times,
    failed_at=times,
    failed=st.dictionaries(st.sampled_from(IDS), times, max_size=4),
)


@st.composite
def fleets(draw: st.DrawFn) -> list[Site]:
    count = draw(st.integers(0, len(IDS)))
    return [
        Site(
            id=name,
            name=name,
            address=draw(st.sampled_from(["", f"https://{name}", f"https://{name}"])),
            data=draw(st.booleans()),
            has={V} if draw(st.booleans()) else (),
            fetches=draw(st.just({}) | fetches.map(lambda item: {V: item})),
        )
        for name in IDS[:count]
    ]


@given(fleets(), st.permutations(IDS))
def test_orders_keep_their_promises(fleet: list[Site], turns: list[str]) -> None:
    sharing = Sharing(V, fleet, NOW)
    by_id = {item.id: item for item in fleet}
    lacking = [by_id[name] for name in turns if name in by_id and V not in by_id[name].has]
    found = {item.id: sharing.order(item) for item in lacking}
    holders = {item.id for item in fleet if V in item.has and item.address}
    registry = [name for name, order in found.items() if order.registry]
    assert len(registry) <= 1
    if lacking and not holders:  # 2, 3
        assert len(registry) == any(item.data for item in lacking)
    assert all(by_id[name].data for name in registry)
    pulls = Counter()
    for name, order in found.items():
        named = [source.node_id for source in order.sources]
        assert name not in named
        assert set(named) <= holders
        assert len(set(named)) == len(named) <= SOURCES
        assert not (order.registry and named)
        assert bool(order.code) == bool(order.message) == (not named and not order.registry)
        pulls.update(named[:1])
        fetch = by_id[name].fetches.get(V)
        if fetch and any(not fetch.shuns(holder, NOW) for holder in holders):
            assert not any(fetch.shuns(holder, NOW) for holder in named)
    assert not pulls or max(pulls.values()) <= PULLS
    if holders and found:
        assert len([name for name in found if name not in registry]) == 0 or registry or sum(pulls.values()) > 0
    assert {item.id: sharing.order(item) for item in lacking} == found  # told again, told the same


@given(fleets(), st.permutations(IDS))
def test_two_controllers_that_know_the_same_say_the_same(fleet: list[Site], order: list[str]) -> None:
    known = [item for item in fleet if V not in item.has and (item.data or V in item.fetches)]
    one, other = Sharing(V, fleet, NOW), Sharing(V, sorted(fleet, key=lambda item: order.index(item.id)), NOW)
    assert [one.order(item) for item in known] == [other.order(item) for item in reversed(known)][::-1]


@given(fleets())
def test_who_fetches_from_where_it_comes_from_and_moves_goes_on(fleet: list[Site]) -> None:
    sharing = Sharing(V, fleet, NOW)
    elected = sharing.elected
    if elected is None:
        return
    before = elected.fetches.get(V) or Fetch(version=V)
    report = FetchReport(
        version=V, size=1000, there=before.there + 1, rate=5.0, source=REGISTRY, failed=tuple(before.failed)
    )
    moved = remember([before], [report], NOW + 5)[0]
    still = [
        Site(id=item.id, name=item.name, address=item.address, data=item.data, has=item.has,
             fetches={V: moved} if item.id == elected.id else {})
        for item in fleet
    ]  # fmt: skip
    now = Sharing(V, still, NOW + 5).elected
    assert now is not None
    assert now.id == elected.id


@given(st.integers(1, 3), st.integers(1, 60))
def test_however_many_want_it_everybody_gets_it_in_few_rounds(mirrors: int, count: int) -> None:
    has = {f"m{number}" for number in range(mirrors)}
    wanting = {f"n{number}" for number in range(count)}
    rounds = 0
    while wanting:
        sites = [Site(id=name, name=name, address=name, data=name[0] == "m", has={V}) for name in has]
        sites += [Site(id=name, name=name, address=name, fetches={V: Fetch(version=V)}) for name in wanting]
        sharing = Sharing(V, sites, NOW)
        served = {item.id for item in sites if item.id in wanting and sharing.order(item).sources}
        has, wanting, rounds = has | served, wanting - served, rounds + 1
    assert mirrors * (PULLS + 1) ** (rounds - 1) < count + mirrors  # it multiplies by PULLS + 1 each round
