"""Who is calling, as a node's gateway sees it: its files, and signatures between nodes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from cluster.domain import signing
from llmgw_site.lib.errors import Refused
from llmgw_site.lib.files import write_json
from routing.gateway.callers import HOP, KEY, Marks
from routing.gateway.membership import Members
from routing.gateway.upstream import Headers, NotReached
from tests.routing.gateway.nodes import CONTROLLER_KEY, Cluster

PATH = "/v1/chat/completions"
BODY = b'{"model":"tiny"}'
MARKS = Marks(hop="handed", key="key_1", project="proj_1", session="s-1")


class Clock:
    """`time` is what the machine's clock shows; setting it is not time that passes."""

    def __init__(self, now: float = 1_000_000.0) -> None:
        self.time = now
        self.passed = 0.0

    def now(self) -> float:
        return self.time

    def monotonic(self) -> float:
        return self.passed

    def go_on(self, seconds: float) -> None:
        self.time += seconds
        self.passed += seconds


class Pair:
    """An edge that calls, and a router that is called."""

    def __init__(self, folder: Path) -> None:
        self.cluster = Cluster(folder)
        self.cluster.add("edge", "edge", address="http://127.0.0.1:1")
        self.cluster.add("router", "router", address="http://127.0.0.1:2")
        self.cluster.publish()
        self.clocks = {name: Clock() for name in self.cluster.nodes}
        self.edge, self.router = (
            Members(self.cluster.nodes[name].config, self.clocks[name]) for name in ("edge", "router")
        )
        self.look()

    def look(self) -> None:
        self.edge.look()
        self.router.look()

    def signed(self, *, marks: Marks | None = MARKS, path: str = PATH, body: bytes | None = BODY) -> Headers:
        router = self.edge.nodes.get("node_router") or self.router.nodes["node_router"]
        return self.edge.sign(router, method="POST", path=path, body=body, marks=marks)

    def refused(self, headers: Headers, *, path: str = PATH, body: bytes = BODY) -> str:
        with pytest.raises(Refused) as caught:
            self.router.verify(headers, method="POST", path=path).check(body)
        assert caught.value.kind == "unauthorized"
        return caught.value.code


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    return Pair(tmp_path)


def test_a_signed_call_is_believed_with_its_marks(pair: Pair) -> None:
    caller = pair.router.verify(pair.signed(), method="POST", path=PATH)
    caller.check(BODY)
    assert (caller.node_id, caller.marks) == ("node_edge", MARKS)


def test_marks_without_a_hop_are_nobodys_word(pair: Pair) -> None:
    headers = [*pair.signed(marks=None), (KEY.encode(), b"key_of_another")]
    assert pair.router.verify(headers, method="POST", path=PATH).marks == Marks()


def test_f18_a_call_that_is_unsigned_signed_by_another_key_changed_or_repeated_is_refused(pair: Pair) -> None:
    def changed(name: str, value: bytes) -> Headers:
        return [(n, value if n == name.encode() else v) for n, v in pair.signed()]

    assert pair.refused([]) == "node_signature_required"
    assert pair.refused(pair.signed()[:-6]) == "node_signature_required"
    assert pair.refused(changed(signing.SIGNATURE, b"0" * 64)) == "bad_signature"
    assert pair.refused(changed(HOP, b"forwarded")) == "bad_signature"
    assert pair.refused(changed(KEY, b"key_2")) == "bad_signature"
    assert pair.refused([item for item in pair.signed() if item[0] != HOP.encode()]) == "bad_signature"
    assert pair.refused([*pair.signed(marks=None), (HOP.encode(), b"handed")]) == "bad_signature"
    assert pair.refused(changed(signing.NODE, b"node_router")) == "bad_signature"
    assert pair.refused(changed(signing.NODE, b"node_x")) == "node_unknown"
    assert pair.refused(pair.signed(), path="/v1/embeddings") == "bad_signature"
    assert pair.refused(pair.signed(), body=b"{}") == "body_changed"
    assert pair.refused(pair.signed(body=None)) == "body_unsigned"
    other = Members(pair.cluster.add("other", "edge").config, Clock())
    write_json(
        pair.cluster.nodes["other"].config.node_file,
        {"node_id": "node_edge", "private_key": "11" * 32, "controller_public_key": signing.public_hex(CONTROLLER_KEY)},
    )
    other.look()
    forged = other.sign(pair.edge.nodes["node_router"], method="POST", path=PATH, body=BODY, marks=MARKS)
    assert pair.refused(forged) == "bad_signature"
    once = pair.signed()
    pair.router.verify(once, method="POST", path=PATH)
    assert pair.refused(once) == "call_repeated"


def test_a_call_for_one_node_is_worth_nothing_at_another(pair: Pair, tmp_path: Path) -> None:
    third = pair.cluster.add("third", "router", address="http://127.0.0.1:3")
    pair.cluster.publish()
    pair.look()
    members = Members(third.config, Clock())
    members.look()
    with pytest.raises(Refused) as caught:
        members.verify(pair.signed(), method="POST", path=PATH)
    assert caught.value.code == "bad_signature"


def test_clock_skew_does_no_harm_once_the_offset_is_known(pair: Pair) -> None:
    pair.clocks["edge"].time += 3600.0
    assert pair.refused(pair.signed()) == "clock_skew"
    pair.cluster.publish(offsets={"edge": -3600.0})
    pair.look()
    pair.router.verify(pair.signed(), method="POST", path=PATH)
    pair.clocks["edge"].time -= 121.0
    assert pair.refused(pair.signed()) == "clock_skew"


def test_a_call_that_waited_while_the_gateway_was_being_built_is_no_copy(pair: Pair) -> None:
    since = pair.clocks["router"].monotonic()
    early = pair.signed()
    for clock in pair.clocks.values():
        clock.go_on(5.0)
    pair.router = Members(pair.cluster.nodes["router"].config, pair.clocks["router"], since=since)
    pair.look()
    assert pair.router.verify(early, method="POST", path=PATH).node_id == "node_edge"
    assert pair.refused(early) == "call_repeated"


def test_a_call_that_the_process_before_this_one_may_have_met_is_refused(pair: Pair) -> None:
    copied = pair.signed()
    pair.router.verify(copied, method="POST", path=PATH)
    for clock in pair.clocks.values():
        clock.go_on(5.0)
    pair.router = Members(pair.cluster.nodes["router"].config, pair.clocks["router"])  # it was restarted
    pair.look()
    assert pair.refused(copied) == "call_repeated"
    pair.router.verify(pair.signed(), method="POST", path=PATH)
    pair.clocks["router"].time += 3600.0  # its machine's clock is set; the agent says so
    pair.cluster.publish(offsets={"router": -3600.0})
    pair.look()
    pair.router.verify(pair.signed(), method="POST", path=PATH)
    assert pair.refused(copied) == "call_repeated"


def test_a_damaged_public_key_refuses_its_nodes_calls_only(pair: Pair) -> None:
    call = pair.signed()
    node = pair.router.nodes["node_edge"]
    pair.router.nodes["node_edge"] = replace(node, public_key="zz")
    assert pair.refused(call) == "bad_signature"


def test_a_removed_node_is_refused_by_name_and_one_never_heard_of_is_unknown(pair: Pair) -> None:
    call = pair.signed()
    gone = pair.cluster.nodes.pop("edge")
    pair.cluster.publish()
    pair.router.look()
    assert pair.refused(call) == "node_removed"
    pair.cluster.removed = (gone.node_id,)
    pair.cluster.publish()
    again = Members(pair.cluster.nodes["router"].config, Clock())  # one that never saw it in a map
    again.look()
    with pytest.raises(Refused) as caught:
        again.verify(call, method="POST", path=PATH)
    assert caught.value.code == "node_removed"
    pair.cluster.nodes["edge"] = gone  # it joined again
    pair.cluster.removed = ()
    pair.cluster.publish()
    pair.router.look()
    pair.router.verify(pair.signed(), method="POST", path=PATH)


def test_the_controllers_are_believed_too(pair: Pair) -> None:
    router = pair.router.nodes["node_router"]
    key = signing.pairwise_key(CONTROLLER_KEY, router.public_key)
    headers = signing.sign(
        key, method="GET", path="/api/v1/node/models", node="controller", now=1_000_000.0, boot="b", counter=1, body=b""
    )
    caller = pair.router.verify(
        [(n.encode(), v.encode()) for n, v in headers.items()], method="GET", path="/api/v1/node/models"
    )
    assert caller.node_id == "controller"


def test_files_are_followed_and_a_damaged_one_changes_nothing(pair: Pair) -> None:
    heard: list[int] = []
    pair.edge.on_change.append(lambda: heard.append(1))
    assert not pair.edge.look()
    pair.edge._files[1].path.write_text("{")
    assert not pair.edge.look()
    assert pair.edge.map is not None
    pair.cluster.nodes["edge"].modules = ("edge", "inference")
    pair.cluster.nodes["edge"].stopped = ("router",)
    pair.cluster.publish()
    assert pair.edge.look()
    assert heard
    assert pair.edge.runs("inference")
    assert not pair.edge.runs("router")
    assert pair.edge.stopped("router")
    assert [node.name for node in pair.edge.others("router")] == ["router"]
    assert pair.edge.others("edge") == []
    assert pair.edge.at("http://127.0.0.1:2/") == pair.edge.nodes["node_router"]
    assert pair.edge.at("http://127.0.0.1:1") is None


def test_of_two_nodes_at_one_address_the_one_that_is_not_gone_is_meant(pair: Pair) -> None:
    pair.cluster.add("zombie", "router", address="http://127.0.0.1:2").state = "offline"  # what it was before
    pair.cluster.publish()
    pair.look()
    assert pair.edge.at("http://127.0.0.1:2") == pair.edge.nodes["node_router"]


def test_before_an_agent_has_decided_the_roles_of_the_settings_count(tmp_path: Path) -> None:
    bare = Members(Cluster(tmp_path).add("a").config, Clock())
    assert [bare.runs(name) for name in ("edge", "router", "inference", "cloud")] == [True, True, True, False]
    cloud = Members(Cluster(tmp_path).add("b", roles=("cloud",)).config, Clock())
    assert [cloud.runs(name) for name in ("edge", "cloud")] == [False, True]
    assert cloud.node_id == ""
    with pytest.raises(Refused) as caught:
        cloud.verify([], method="POST", path=PATH)
    assert caught.value.code == "node_signature_required"


@pytest.mark.parametrize("address", ["", "ftp://x", "http://", "http://a:b", "nonsense"])
def test_an_address_that_is_none_cannot_be_reached(pair: Pair, address: str) -> None:
    pair.cluster.nodes["router"].address = address
    pair.cluster.publish()
    pair.look()
    with pytest.raises(NotReached):
        pair.edge.target(pair.edge.nodes["node_router"])


def test_a_target_is_one_object_while_its_node_stays(pair: Pair) -> None:
    router = pair.edge.nodes["node_router"]
    first = pair.edge.target(router)
    pair.cluster.publish()
    pair.look()
    assert pair.edge.target(pair.edge.nodes["node_router"]) is first
    assert (first.host, first.port, first.tls) == ("127.0.0.1", 2, None)
