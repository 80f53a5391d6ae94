"""Several edges, controllers that fail and come back, answers that are late or lost: never over what is documented."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from routing.domain.leases import Parallel, PerMinute
from routing.domain.limits import overshoot, share
from tests.routing.domain.counting import Counted, Permitted

STEP = st.one_of(
    st.tuples(st.just("ask"), st.integers(0, 3), st.integers(1, 12)),
    st.tuples(st.just("tick"), st.integers(0, 3), st.just(0)),
    st.tuples(st.just("end"), st.integers(0, 50), st.integers(0, 12)),
    st.tuples(st.just("pause"), st.integers(1, 40), st.just(0)),
    st.tuples(st.just("rest"), st.integers(1, 70), st.just(0)),
    st.tuples(st.just("fail"), st.just(0), st.just(0)),
    st.tuples(st.just("return"), st.just(0), st.just(0)),
    st.tuples(st.just("lose"), st.integers(0, 3), st.just(0)),
)


@dataclass
class Use:
    edge: int
    at: float
    amount: int
    counted: bool
    over: bool = False


@dataclass
class World:
    """Edges as gateway/limiter.py drives them, with clocks that differ."""

    limit: int
    edges: list[PerMinute]
    counter: Counted = field(default_factory=Counted)
    now: float = 100.0
    up: bool = True
    heard: list[bool] = field(default_factory=list)
    down_at: list[float] = field(default_factory=list)
    uses: list[Use] = field(default_factory=list)

    def clock(self, edge: int) -> float:
        return self.now + 17.3 * edge

    def tell(self, edge: int, *, lost: bool = False, late: float = 0.05) -> None:
        item = self.edges[edge]
        asked_at = self.clock(edge)
        want = item.want(asked_at)
        if want is None and self.heard[edge]:
            return
        if not self.up:
            item.unheard(want)
            self.heard[edge] = False
            return
        grant = None if want is None else self.counter.lease(want, self.now)
        self.now += late
        if lost:
            item.unheard(want)
            self.heard[edge] = False
            self.down_at.append(self.now)
            return
        self.heard[edge] = True
        if want is not None and grant is not None:
            item.answered(asked_at, self.clock(edge), want, grant)

    def ask(self, edge: int, amount: int) -> None:
        item = self.edges[edge]
        if amount > self.limit:  # which no waiting helps
            return
        if self.heard[edge] and not item.passes(self.clock(edge), amount, counted=True):
            item.waiting += amount
            self.tell(edge)
            item.waiting -= amount
        counted = self.heard[edge]
        if item.passes(self.clock(edge), amount, counted=counted):
            item.take(self.clock(edge), amount, counted=counted)
            self.uses.append(Use(edge, self.now, amount, counted))

    def end(self, number: int, used: int) -> None:
        open_uses = [use for use in self.uses if not use.over]
        if open_uses:
            use = open_uses[number % len(open_uses)]
            used = min(used, use.amount)
            self.edges[use.edge].settle(
                use.at + 17.3 * use.edge, self.clock(use.edge), reserved=use.amount, used=used, counted=use.counted
            )
            use.amount, use.over = used, True


@given(limit=st.integers(1, 60), edges=st.integers(2, 4), steps=st.lists(STEP, max_size=120))
@settings(max_examples=150)
def test_no_minute_of_all_edges_is_over_the_bound(limit: int, edges: int, steps: list[tuple[str, int, int]]) -> None:
    items = [PerMinute("s", "tokens_per_minute") for _ in range(edges)]
    for item in items:
        item.limit, item.edges = limit, edges
    world = World(limit, items, heard=[True] * edges)
    for what, number, amount in steps:
        edge = number % edges
        if what == "ask":
            world.ask(edge, amount)
        elif what == "tick":
            world.tell(edge)
        elif what == "end":
            world.end(number, amount)
        elif what == "pause":
            world.now += number / 10
        elif what == "rest":
            world.now += number
            for other in range(edges):  # each second, in truth
                world.tell(other)
        elif what == "lose":
            world.tell(edge, lost=True)
        else:
            world.up = what == "return"
        if not world.up or not all(world.heard):
            world.down_at.append(world.now)
        taken = sum(use.amount for use in world.uses if world.now - 60 < use.at)
        alone = any(world.now - at < 130 for at in world.down_at)
        assert taken <= limit + (overshoot(limit, edges, largest=12) if alone else 0), (what, world.now)


@given(
    limit=st.integers(1, 60),
    edges=st.integers(2, 6),
    steps=st.lists(st.tuples(st.floats(0, 40), st.integers(1, 60), st.integers(0, 60) | st.none()), max_size=60),
)
def test_an_edge_by_itself_has_no_more_than_the_limit_in_a_minute_and_its_share_in_the_long_run(
    limit: int, edges: int, steps: list[tuple[float, int, int | None]]
) -> None:
    """Larger requests than its share among them; of some it turns out that they used less."""
    item, now, most = PerMinute("s", "tokens_per_minute"), 100.0, share(limit, edges)
    item.limit, item.edges = limit, edges
    taken: list[tuple[float, int]] = []
    for pause, amount, used in steps:
        now += pause
        if amount > limit or not item.passes(now, amount, counted=False):
            continue
        item.take(now, amount, counted=False)
        if used is not None and used < amount:
            item.settle(now, now, reserved=amount, used=used, counted=False)
            amount = used
        taken.append((now, amount))
        assert sum(n for at, n in taken if now - 60 < at) <= min(limit, most + max(n for _, n in taken))
        for at, _ in taken:
            assert sum(n for then, n in taken if then >= at) <= most * ((now - at) / 60 + 1) + limit


@given(limit=st.integers(1, 60), edges=st.integers(2, 6), amounts=st.lists(st.integers(1, 60), min_size=1, max_size=8))
def test_whatever_is_within_the_limit_passes_once_the_time_that_was_told_is_over(
    limit: int, edges: int, amounts: list[int]
) -> None:
    item, now = PerMinute("s", "tokens_per_minute"), 100.0
    item.limit, item.edges = limit, edges
    for amount in (min(amount, limit) for amount in amounts):
        wait = item.wait(now, amount, counted=False)
        assert wait is not None
        assert item.passes(now, amount, counted=False) == (wait <= 0)
        if wait > 0:
            assert not item.passes(now + wait - 1.001, amount, counted=False) or wait <= 1.001
        now += max(0.0, wait) + 1e-6
        assert item.passes(now, amount, counted=False)
        item.take(now, amount, counted=False)


@given(
    limit=st.integers(1, 12),
    edges=st.integers(2, 4),
    steps=st.lists(
        st.tuples(st.sampled_from(("ask", "end", "tick", "pause", "fail", "return")), st.integers(0, 9)), max_size=120
    ),
)
@settings(max_examples=150)
def test_never_more_run_at_a_time_than_the_bound(limit: int, edges: int, steps: list[tuple[str, int]]) -> None:
    """Every second each edge says what it runs; so permits end only with an edge."""
    items = [Parallel("s") for _ in range(edges)]
    for item in items:
        item.limit, item.edges = limit, edges
    counter, now, up, failed = Permitted(), 100.0, True, False

    def tell(edge: int) -> None:
        want = items[edge].want(now)
        if want is not None and up:
            items[edge].answered(now, now, want, counter.lease(str(edge), want, now))
        elif not up:
            items[edge].unheard(want)

    for what, number in steps:
        edge = number % edges
        item = items[edge]
        if what == "ask":
            if up and not item.passes(now, 1, counted=True):
                item.waiting += 1
                tell(edge)
                item.waiting -= 1
            if item.passes(now, 1, counted=up):
                item.take(now, 1, counted=up)
        elif what == "end":
            if item.running:
                item.settle(now, now, reserved=1, used=0, counted=up)
        elif what == "tick":
            tell(edge)
        elif what == "pause":
            now += number / 10
            for other in range(edges):
                tell(other)
        else:
            up, failed = what == "return", True
            for other in range(edges):
                tell(other)
        assert sum(item.running for item in items) <= limit + (overshoot(limit, edges) if failed else 0)


def test_what_is_not_given_out_and_what_was_not_used_goes_back() -> None:
    item, counter = PerMinute("s", "tokens_per_minute"), Counted()
    item.limit, item.edges = 1000, 2
    item.waiting = 300
    want = item.want(10.0)
    assert want is not None
    assert want.want == 350  # and a lot of 50
    item.answered(10.0, 10.1, want, counter.lease(want, 10.0))
    item.waiting = 0
    item.take(10.1, 300, counted=True)
    assert item.held(10.2) == 50
    assert item.left(10.2, counted=True) == 700
    item.settle(10.1, 11.0, reserved=300, used=20, counted=True)
    want = item.want(13.0)
    assert want is not None
    assert (want.want, want.back, want.taken) == (0, 330, 0)
    assert counter.lease(want, 13.0).left == 980
    assert item.idle(13.0) is False
    assert item.idle(71.1) is True


def test_what_was_let_in_alone_is_told_and_counts() -> None:
    item, counter = PerMinute("s", "requests_per_minute"), Counted()
    item.limit, item.edges = 10, 2
    for _ in range(5):
        assert item.passes(10.0, 1, counted=False)
        item.take(10.0, 1, counted=False)
    assert not item.passes(10.0, 1, counted=False)
    assert item.wait(10.0, 1, counted=False) == 61.0
    want = item.want(11.0)
    assert want is not None
    assert want.taken == 5
    item.unheard(want)
    want = item.want(12.0)
    assert want is not None
    assert want.taken == 5
    assert counter.lease(want, 12.0).left == 5
    assert item.want(12.0) is None


def test_what_is_larger_than_a_share_passes_and_is_paid_for_before_anything_else() -> None:
    item = PerMinute("s", "tokens_per_minute")
    item.limit, item.edges = 100, 4  # a share of 25
    item.take(10.0, 20, counted=False)
    assert not item.passes(10.0, 6, counted=False)
    assert item.passes(10.0, 80, counted=False)
    assert not item.passes(10.0, 81, counted=False)
    item.take(10.0, 55, counted=False)
    assert (item.left(11.0, counted=False), item.reset(11.0, counted=False)) == (
        0,
        179.0,
    )  # 75 are three minutes' share
    assert not item.passes(72.0, 1, counted=False)  # its minute is over
    assert item.wait(72.0, 1, counted=False) == item.wait(72.0, 60, counted=False) == 118.0
    assert not item.idle(72.0)
    item.settle(10.0, 72.0, reserved=55, used=5, counted=False)
    assert item.wait(72.0, 1, counted=False) == 0.0
    assert item.passes(72.0, 1, counted=False)


def test_what_was_larger_than_a_share_and_used_no_more_than_it_is_not_owed() -> None:
    """As of a request whose model is not ready: others must not wait for what nobody had."""
    item = PerMinute("s", "tokens_per_minute")
    item.limit, item.edges = 100, 4  # a share of 25
    item.take(10.0, 20, counted=False)
    item.take(10.0, 55, counted=False)
    assert not item.passes(11.0, 1, counted=False)
    item.settle(10.0, 11.0, reserved=20, used=20, counted=False)
    item.settle(10.0, 11.0, reserved=55, used=0, counted=False)
    assert item.passes(11.0, 5, counted=False)
    assert not item.passes(11.0, 6, counted=False)
    item.take(11.0, 80, counted=False)
    item.edges = 2  # another edge went meanwhile
    item.settle(11.0, 12.0, reserved=80, used=40, counted=False)
    assert item.wait(12.0, 1, counted=False) == 71.0  # 60 are 72 s of a share of 50
    item.take(100.0, 80, counted=False)
    item.limit = 0  # nothing is let in any more
    item.settle(100.0, 101.0, reserved=80, used=70, counted=False)
    assert not item.passes(101.0, 1, counted=False)


def test_an_edge_that_was_refused_knows_when_there_is_room_and_asks_again_before() -> None:
    item, counter = PerMinute("s", "requests_per_minute"), Counted()
    item.limit, item.edges = 1, 2
    item.waiting = 1
    for now in (10.0, 11.0):
        want = item.want(now)
        assert want is not None
        item.answered(now, now, want, counter.lease(want, now))
        if now == 10.0:
            item.take(now, 1, counted=True)
    assert item.wait(11.0, 1, counted=True) == 62.0  # 10 + 1 + 62 - 11
    assert item.wait(12.0, 1, counted=True) == 61.0
    assert not item.may_ask(11.4)
    assert item.want(11.4) is None
    assert item.may_ask(11.6)
