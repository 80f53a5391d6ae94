"""Only an answer that our controllers signed for this very call is believed; the first that gives one is asked."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import httpx
import orjson
import pytest

from cluster.domain import signing
from cluster.wire import Heartbeat, Wanted, to_dict
from workers.agent.clients import Clients
from workers.agent.identity import Identity, NoIdentity
from workers.agent.link import Link, LinkError, NodeRemoved
from workers.agent.tls import Tls

NODE_KEY, CONTROLLER_KEY = "11" * 32, "22" * 32
IDENTITY = Identity(node_id="node_1", private_key=NODE_KEY, controller_public_key=signing.public_hex(CONTROLLER_KEY))
KEY = signing.pairwise_key(CONTROLLER_KEY, signing.public_hex(NODE_KEY))
BEAT = Heartbeat(node_id="node_1", boot_id="b", sent_at=0.0)
Serve = Callable[[httpx.Request], httpx.Response]


def signed(request: httpx.Request, status: int, body: bytes, *, key: bytes = KEY) -> httpx.Response:
    nonce = request.headers[signing.SIGNATURE]
    signature = signing.sign_answer(key, nonce=nonce, status=status, body=body)
    return httpx.Response(status, content=body, headers={signing.SIGNATURE: signature})


def wanted(time: float = 1000.0) -> bytes:
    return orjson.dumps(to_dict(Wanted(server_time=time, snapshot_version="E:1")))


def link(serve: Serve, *, urls: tuple[str, ...] = ("http://a",), clock: Callable[[], float] = lambda: 1000.0) -> Link:
    client = httpx.AsyncClient(transport=httpx.MockTransport(serve))
    return Link(urls, IDENTITY, boot_id="boot", clock=clock, clients=Clients(client))


async def test_a_heartbeat_is_signed_and_its_answer_believed() -> None:
    calls = []

    def serve(request: httpx.Request) -> httpx.Response:
        call = signing.read(request.headers)
        assert call
        path = request.url.raw_path.decode()
        assert signing.verify(KEY, call, method="POST", path=path, body=request.content, now=1000.0) is None
        calls.append(call)
        return signed(request, 200, wanted())

    sender = link(serve)
    assert (await sender.heartbeat(BEAT)).snapshot_version == "E:1"
    await sender.heartbeat(BEAT)
    assert [call.counter for call in calls] == [1, 2]
    assert {call.node for call in calls} == {"node_1"}


@pytest.mark.parametrize(
    "answer",
    [
        lambda request: httpx.Response(200, content=wanted()),
        lambda request: signed(request, 200, wanted(), key=b"x" * 32),
        lambda request: httpx.Response(200, content=wanted(), headers=signed(request, 200, b"other").headers),
        lambda request: httpx.Response(200, content=wanted(), headers=signed(request, 304, wanted()).headers),
        lambda request: signed(request, 200, b"{"),
        lambda request: signed(request, 200, b'{"replicas": []}'),
        lambda request: signed(request, 500, wanted()),
        lambda request: httpx.Response(302, headers={"location": "http://evil/"}),
    ],
    ids=["unsigned", "another key", "another body", "another status", "no JSON", "no Wanted", "error", "redirect"],
)
async def test_a_broken_or_unsigned_answer_is_no_answer(answer: Serve) -> None:
    sender = link(answer)
    with pytest.raises(LinkError):
        await sender.heartbeat(BEAT)
    assert sender.offset == 0.0


async def test_a_recorded_answer_to_another_call_is_not_believed() -> None:
    recorded: list[httpx.Response] = []

    def serve(request: httpx.Request) -> httpx.Response:
        if not recorded:
            recorded.append(signed(request, 200, wanted()))
        return recorded[0]

    sender = link(serve)
    await sender.heartbeat(BEAT)
    with pytest.raises(LinkError, match="not signed"):
        await sender.heartbeat(BEAT)


async def test_controllers_are_tried_in_order_and_the_one_that_answered_goes_first() -> None:
    asked = []

    def serve(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.host)
        if request.url.host == "a":
            raise httpx.ConnectError("down")
        return signed(request, 200, wanted())

    sender = link(serve, urls=("http://a", "http://b"))
    await sender.heartbeat(BEAT)
    await sender.heartbeat(BEAT)
    assert asked == ["a", "b", "b"]


async def test_when_all_are_down_the_error_says_what_each_did() -> None:
    def serve(request: httpx.Request) -> httpx.Response:
        if request.url.host == "a":
            raise httpx.ConnectError("refused")
        return httpx.Response(401, content=b'{"error": {"code": "node_unknown"}}')

    with pytest.raises(LinkError, match=r"http://a: refused; http://b: answered 401 node_unknown"):
        await link(serve, urls=("http://a", "http://b")).heartbeat(BEAT)


async def test_cluster_time_is_learned_from_answers_and_used_for_signing() -> None:
    clock = itertools.count(500.0, 0.0)
    times = []

    def serve(request: httpx.Request) -> httpx.Response:
        times.append(float(request.headers[signing.TIME]))
        return signed(request, 200, wanted(time=9000.0))

    sender = link(serve, clock=lambda: next(clock))
    await sender.heartbeat(BEAT)
    await sender.heartbeat(BEAT)
    assert times == [500.0, 9000.0]


async def test_a_signed_refusal_may_tell_the_time_an_unsigned_one_may_not() -> None:
    body = b'{"error": {"code": "clock_skew"}, "server_time": 9000.0}'
    answers: list[Serve] = [lambda r: httpx.Response(401, content=body), lambda r: signed(r, 401, body)]
    sender = link(lambda request: answers.pop(0)(request))
    for offset in (0.0, 8000.0):
        with pytest.raises(LinkError, match="clock_skew"):
            await sender.heartbeat(BEAT)
        assert sender.offset == offset


async def test_the_snapshot_is_fetched_with_the_version_at_hand_in_the_signed_path() -> None:
    def serve(request: httpx.Request) -> httpx.Response:
        call = signing.read(request.headers)
        assert call
        path = request.url.raw_path.decode()
        assert signing.verify(KEY, call, method="GET", path=path, body=b"", now=1000.0) is None
        if request.url.params["have"] == "E:1":
            return signed(request, 304, b"")
        return signed(request, 200, b'{"version": "E:1"}')

    sender = link(serve)
    assert await sender.snapshot("") == b'{"version": "E:1"}'
    assert await sender.snapshot("E:1") is None


async def test_usage_answers_name_what_is_stored() -> None:
    def serve(request: httpx.Request) -> httpx.Response:
        records = orjson.loads(request.content)["records"]
        return signed(request, 200, orjson.dumps({"stored": [r["record_id"] for r in records]}))

    assert (await link(serve).usage(({"record_id": "rec_1"},))).stored == {"rec_1"}


async def test_usage_answers_name_what_is_refused_for_good() -> None:
    body = {"stored": ["rec_1"], "refused": [{"record_id": "rec_2", "reason": "no time"}, {"reason": "no id"}]}
    got = await link(lambda request: signed(request, 200, orjson.dumps(body))).usage(({"record_id": "rec_1"},))
    assert (got.stored, got.refused) == ({"rec_1"}, {"rec_2"})


@pytest.mark.parametrize(
    "text", [None, "{", '{"node_id": "n"}', '{"node_id":"n","private_key":"zz","controller_public_key":"00"}']
)
def test_an_identity_that_cannot_be_used_says_what_to_do(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "identity.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(NoIdentity, match="enrol"):
        Identity.read(path)


def asked_in_order(sender_urls: tuple[str, ...], down: set[str]) -> tuple[Link, list[str]]:
    asked: list[str] = []

    def serve(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.host)
        if request.url.host in down:
            raise httpx.ConnectError("down")
        return signed(request, 200, wanted())

    return link(serve, urls=sender_urls), asked


async def test_controllers_of_the_map_are_asked_when_our_own_are_down_and_are_forgotten_when_it_drops_them() -> None:
    down = {"a"}
    sender, asked = asked_in_order(("http://a/",), down)
    sender.learn([("http://a", "node_a"), ("http://b", "node_b")])
    await sender.heartbeat(BEAT)
    assert (asked, sender.urls) == (["a", "b"], ("http://b", "http://a"))
    sender.learn([("http://c", "node_c")])
    assert sender.urls == ("http://a", "http://c")


async def test_a_controller_that_fell_silent_is_asked_last() -> None:
    sender, asked = asked_in_order(("http://a", "http://b"), set())
    sender.doubt("http://a")
    await sender.heartbeat(BEAT)
    assert asked == ["b"]


async def test_time_lost_with_a_controller_that_hangs_does_not_move_the_clusters_time() -> None:
    now = [1000.0]

    def serve(request: httpx.Request) -> httpx.Response:
        if request.url.host == "a":
            now[0] += 10.0
            raise httpx.ReadTimeout("no word")
        return signed(request, 200, wanted(5010.0))

    sender = link(serve, urls=("http://a", "http://b"), clock=lambda: now[0])
    await sender.heartbeat(BEAT)
    assert sender.offset == 4000.0


async def test_only_a_signed_refusal_takes_a_node_out_of_its_cluster() -> None:
    body = b'{"error": {"code": "node_removed"}}'
    with pytest.raises(LinkError):
        await link(lambda request: httpx.Response(401, content=body)).heartbeat(BEAT)
    with pytest.raises(NodeRemoved):
        await link(lambda request: signed(request, 401, body)).heartbeat(BEAT)


async def test_a_next_certificate_is_asked_for_by_a_signed_call() -> None:
    def serve(request: httpx.Request) -> httpx.Response:
        assert orjson.loads(request.content)["csr"] == "CSR"
        return signed(request, 200, b'{"certificate": "C", "ca_certificate": "CA"}')

    found = await link(serve).certificate("CSR")
    assert (found.certificate, found.ca_certificate) == ("C", "CA")


async def test_an_https_controller_is_not_called_without_our_certificate(tmp_path: Path) -> None:
    client = httpx.AsyncClient(transport=httpx.MockTransport(lambda request: httpx.Response(200)))
    clients = Clients(client, Tls(tmp_path))
    sender = Link(("https://127.0.0.1:1",), IDENTITY, boot_id="boot", clock=lambda: 1000.0, clients=clients)
    with pytest.raises(LinkError):
        await sender.heartbeat(BEAT)


async def test_what_a_version_consists_of_is_asked_by_a_signed_call_and_believed_when_signed() -> None:
    def serve(request: httpx.Request) -> httpx.Response:
        call, path = signing.read(request.headers), request.url.raw_path.decode()
        assert path == "/api/v1/agent/manifest?version=ver_0000000001"
        assert call
        assert signing.verify(KEY, call, method="GET", path=path, body=b"", now=1000.0) is None
        return signed(request, 200, b'{"id": "ver_0000000001"}')

    assert await link(serve).manifest("ver_0000000001") == {"id": "ver_0000000001"}
    for answer in (b"{", b'{"id": 1}'):
        key = KEY if answer == b"{" else b"x" * 32
        with pytest.raises(LinkError):
            await link(lambda request, answer=answer, key=key: signed(request, 200, answer, key=key)).manifest("ver_1")  # type: ignore[misc]
    with pytest.raises(LinkError, match="version_unknown"):
        await link(lambda request: signed(request, 404, b'{"error": {"code": "version_unknown"}}')).manifest("ver_1")
