"""The HTTP/1.1 client against byte servers: framing, reuse, what is never sent again, times, back-pressure."""

from __future__ import annotations

import asyncio
import resource
import socket
import ssl
import tracemalloc
from collections.abc import AsyncIterator
from itertools import pairwise
from typing import Any

import pytest
import uvloop
from hypothesis import given, settings
from hypothesis import strategies as st

from routing.gateway.upstream import Broken, Limits, NotReached, Response, Target, TooSlow, Upstream
from tests.routing.gateway.scripted import Peer, Server, connected, serving, until

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
HEAD = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"


@pytest.fixture
async def upstream() -> AsyncIterator[Upstream]:
    client = Upstream(connect_timeout=2)
    yield client
    await client.close()
    assert client.connections == 0


@pytest.mark.parametrize(
    "host", ["a..invalid", "b\u00fccher.invalid", "n" * 70 + ".invalid", "\u00fc" * 70, "a\0b", "."]
)
async def test_what_is_no_host_name_is_not_reached(upstream: Upstream, host: str) -> None:
    with pytest.raises(NotReached):
        await ask(upstream, Target(host, 1))


async def ask(client: Upstream, target: Target, **given: Any) -> Response:
    arguments: dict[str, Any] = {
        "method": b"POST",
        "path": b"/v1/x",
        "headers": [],
        "body": b"{}",
        "first_byte_timeout": 5.0,
        "idle_timeout": 5.0,
    }
    return await client.request(target, **(arguments | given))


async def drain(response: Response) -> bytes:
    out = b""
    while piece := await response.read():
        out += piece
    return out


def answering(*answers: bytes) -> Any:
    """A handler that answers each request of a connection with the next of `answers`, then closes."""

    async def handle(peer: Peer) -> None:
        for answer in answers:
            if not await peer.request():
                return
            await peer.send(answer)

    return handle


async def test_the_request_is_written_once_with_host_and_length_and_nothing_else(upstream: Upstream) -> None:
    seen: list[bytes] = []

    async def handle(peer: Peer) -> None:
        seen.append(await peer.request())
        await peer.send(OK)

    async with serving(handle) as server:
        assert await drain(await ask(upstream, server.target, headers=[(b"x-a", b"1")], body=b"hello")) == b"ok"
        port = server.target.port
    expected = f"POST /v1/x HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\ncontent-length: 5\r\nx-a: 1\r\n\r\nhello"
    assert seen == [expected.encode()]


@pytest.mark.parametrize(
    ("answer", "body"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc", b"abc"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", b""),
        (HEAD + b"3;x=y\r\nabc\r\n2\r\nde\r\n0\r\ntrailer: t\r\n\r\n", b"abcde"),
        (b"HTTP/1.1 200 OK\r\n\r\nuntil the end", b"until the end"),
        (b"HTTP/1.0 200 OK\r\n\r\nuntil the end", b"until the end"),
        (b"HTTP/1.1 204 No Content\r\n\r\n", b""),
        (b"HTTP/1.1 304 Not Modified\r\ncontent-length: 10\r\n\r\n", b""),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n" + OK, b"ok"),
    ],
)
async def test_every_framing_of_an_answer_is_read_to_its_end(upstream: Upstream, answer: bytes, body: bytes) -> None:
    async with serving(answering(answer)) as server:
        assert await drain(await ask(upstream, server.target)) == body


async def test_the_answer_to_head_has_no_body_though_it_names_a_length(upstream: Upstream) -> None:
    async with serving(answering(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n")) as server:
        response = await ask(upstream, server.target, method=b"HEAD", body=b"")
        assert await response.read() == b""
        assert (b"content-length", b"10") in response.headers


async def test_header_names_are_lower_case_and_repeated_ones_are_kept(upstream: Upstream) -> None:
    answer = b"HTTP/1.1 200 OK\r\nSet-Cookie: a\r\nSet-Cookie: b\r\nContent-Length: 0\r\n\r\n"
    async with serving(answering(answer)) as server:
        response = await ask(upstream, server.target)
        assert response.headers == [(b"set-cookie", b"a"), (b"set-cookie", b"b"), (b"content-length", b"0")]


@pytest.mark.parametrize("step", [1, 2, 3, 7])
async def test_an_answer_that_trickles_in_is_the_same_answer(upstream: Upstream, step: int) -> None:
    answer = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nX-Long-Name: v\r\n\r\n5\r\nhello\r\n1\r\n!\r\n0\r\n\r\n"

    async def handle(peer: Peer) -> None:
        await peer.request()
        for at in range(0, len(answer), step):
            await peer.send(answer[at : at + step])
            await asyncio.sleep(0)

    async with serving(handle) as server:
        response = await ask(upstream, server.target)
        assert await drain(response) == b"hello!"
        assert (b"x-long-name", b"v") in response.headers


@given(pieces=st.lists(st.binary(min_size=1, max_size=40), max_size=8), cuts=st.sets(st.integers(1, 400), max_size=12))
@settings(max_examples=60, deadline=None)
def test_a_chunked_body_is_the_same_however_the_socket_cuts_it(pieces: list[bytes], cuts: set[int]) -> None:
    wire = HEAD + b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"
    edges = [0, *sorted(cut for cut in cuts if cut < len(wire)), len(wire)]

    async def run() -> None:
        async def handle(peer: Peer) -> None:
            await peer.request()
            for start, end in pairwise(edges):
                await peer.send(wire[start:end])
                await asyncio.sleep(0)
            await peer.closed()

        client = Upstream(connect_timeout=2)
        async with serving(handle) as server:
            assert await drain(await ask(client, server.target)) == b"".join(pieces)
        await client.close()

    uvloop.run(run())


async def test_a_connection_is_used_again_after_the_clean_end(upstream: Upstream) -> None:
    async with serving(answering(OK, HEAD + b"1\r\na\r\n0\r\n\r\n", OK)) as server:
        for body in (b"ok", b"a"):
            assert await drain(await ask(upstream, server.target)) == body
        await asyncio.sleep(Limits().rest + 0.01)
        assert await drain(await ask(upstream, server.target)) == b"ok"
        assert server.accepted == 1


async def test_after_a_stream_a_connection_rests_since_llama_cpp_closes_it_without_a_word(upstream: Upstream) -> None:
    async def stream_then_close(peer: Peer) -> None:
        assert await peer.request()
        await peer.send(HEAD + b"1\r\na\r\n0\r\n\r\n")
        await asyncio.sleep(0.005)  # the next request would be on its way already

    async with serving(stream_then_close) as server:
        for number in range(1, 4):
            assert await drain(await ask(upstream, server.target)) == b"a"
            assert server.accepted == number


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok",
        OK + b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nwrong",
        OK + b"garbage",
    ],
)
async def test_what_follows_an_answer_is_never_taken_for_the_next(upstream: Upstream, answer: bytes) -> None:
    async def handle(peer: Peer) -> None:
        await peer.request()
        await peer.send(answer)
        await peer.closed()

    async with serving(handle) as server:
        for _ in range(2):
            assert await drain(await ask(upstream, server.target)) == b"ok"
        assert server.accepted == 2


async def test_a_server_that_speaks_on_an_idle_connection_loses_it(upstream: Upstream) -> None:
    async def handle(peer: Peer) -> None:
        await peer.request()
        await peer.send(OK)
        await asyncio.sleep(0.01)
        await peer.send(OK)
        await peer.closed()

    async with serving(handle) as server:
        assert await drain(await ask(upstream, server.target)) == b"ok"
        await until(lambda: upstream.connections == 0)


async def test_a_kept_connection_that_was_closed_meanwhile_is_replaced_before_a_byte_is_written(
    upstream: Upstream,
) -> None:
    """The close is in the kernel, the event loop has not seen it: the request goes to a fresh connection at once."""
    listener = socket.create_server(("127.0.0.1", 0))
    target = Target("127.0.0.1", listener.getsockname()[1])
    requests = []

    def answer_one() -> None:
        peer, _ = listener.accept()
        requests.append(peer.recv(65536))
        peer.sendall(OK)
        peer.close()

    for _ in range(3):
        asking = asyncio.ensure_future(ask(upstream, target))
        answer = asyncio.get_running_loop().run_in_executor(None, answer_one)
        assert await drain(await asking) == b"ok"
        # From here the loop is not entered before the next request takes the connection.
        assert answer.done() or not await answer
    listener.close()
    assert len(requests) == 3


async def test_f17_a_connection_cut_after_the_request_was_sent_is_broken_and_never_sent_again(
    upstream: Upstream,
) -> None:
    requests = 0

    async def handle(peer: Peer) -> None:
        nonlocal requests
        await peer.request()
        requests += 1
        if requests == 1:
            await peer.send(OK)
            await peer.request()
            requests += 1
        peer.writer.transport.abort()

    async with serving(handle) as server:
        assert await drain(await ask(upstream, server.target)) == b"ok"
        for sent in (2, 3):  # on a kept connection, on a fresh one
            with pytest.raises(Broken) as broken:
                await ask(upstream, server.target)
            assert broken.value.reached
            assert not broken.value.headers_received
            assert requests == sent


@pytest.mark.parametrize(
    "answer", [b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nabc", HEAD + b"3\r\nabc\r\n", HEAD + b"3\r\nabc\r\n0\r\n"]
)
async def test_a_body_that_is_cut_gives_what_came_and_then_the_error(upstream: Upstream, answer: bytes) -> None:
    async with serving(answering(answer)) as server:
        response = await ask(upstream, server.target)
        assert await response.read() == b"abc"
        with pytest.raises(Broken) as broken:
            await drain(response)
        assert broken.value.headers_received


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab",
        b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\nx: " + b"v" * 100_000 + b"\r\n\r\n",
        b"".join(b"HTTP/1.1 103 Early\r\nlink: %d\r\n\r\n" % n for n in range(4000)),
    ],
)
async def test_an_answer_that_is_no_http_or_has_no_bound_is_broken(upstream: Upstream, answer: bytes) -> None:
    async with serving(answering(answer)) as server:
        with pytest.raises(Broken):
            await ask(upstream, server.target)
        await until(lambda: upstream.connections == 0)


async def test_trailers_are_bounded(upstream: Upstream) -> None:
    answer = HEAD + b"1\r\na\r\n0\r\n" + b"".join(b"t%d: %b\r\n" % (n, b"v" * 100) for n in range(2000)) + b"\r\n"
    async with serving(answering(answer)) as server:
        response = await ask(upstream, server.target)
        with pytest.raises(Broken):
            await drain(response)


async def test_f64_unreachable_is_told_from_slow() -> None:
    client = Upstream(connect_timeout=0.2)
    with socket.create_server(("127.0.0.1", 0)) as closed:
        nobody = Target("127.0.0.1", closed.getsockname()[1])
    with pytest.raises(NotReached) as unreachable:
        await ask(client, nobody)
    assert not unreachable.value.reached

    async def silent(peer: Peer) -> None:
        await peer.closed()

    async with serving(silent) as server:
        with pytest.raises(TooSlow) as slow:
            await ask(client, server.target, first_byte_timeout=0.1)
    assert slow.value.stage == "first_byte"
    assert slow.value.reached
    await client.close()


async def test_f64_a_connect_that_is_never_answered_counts_as_not_reached() -> None:
    client = Upstream(connect_timeout=0.1)
    # A full accept queue: the kernel answers no further SYN, as a host behind a dropping firewall would.
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(0)
    fillers = []
    for _ in range(3):
        filler = socket.socket()
        filler.setblocking(False)
        filler.connect_ex(listener.getsockname())
        fillers.append(filler)
    with pytest.raises(TooSlow) as slow:
        await ask(client, Target("127.0.0.1", listener.getsockname()[1]))
    assert slow.value.stage == "connect"
    assert not slow.value.reached
    for handle in (*fillers, listener):
        handle.close()
    await client.close()


async def test_f29_a_silent_stream_ends_at_the_time_that_was_set(upstream: Upstream) -> None:
    async def handle(peer: Peer) -> None:
        await peer.request()
        await peer.send(HEAD + b"1\r\na\r\n")
        await peer.closed()

    async with serving(handle) as server:
        response = await ask(upstream, server.target, first_byte_timeout=60, idle_timeout=0.2)
        assert await response.read() == b"a"
        started = asyncio.get_running_loop().time()
        with pytest.raises(TooSlow) as slow:
            await response.read()
        assert slow.value.stage == "idle"
        assert 0.15 < asyncio.get_running_loop().time() - started < 0.6


async def test_f02_a_head_that_comes_early_does_not_shorten_the_time_to_the_first_byte(upstream: Upstream) -> None:
    async def handle(peer: Peer) -> None:
        await peer.request()
        await peer.send(HEAD)
        await asyncio.sleep(0.3)
        await peer.send(b"1\r\na\r\n0\r\n\r\n")

    async with serving(handle) as server:
        assert await drain(await ask(upstream, server.target, first_byte_timeout=2, idle_timeout=0.1)) == b"a"


async def test_f28_comments_count_as_life(upstream: Upstream) -> None:
    async def handle(peer: Peer) -> None:
        await peer.request()
        await peer.send(HEAD)
        for _ in range(8):
            await peer.send(b"3\r\n:\n\n\r\n")
            await asyncio.sleep(0.06)
        await peer.send(b"0\r\n\r\n")

    async with serving(handle) as server:
        response = await ask(upstream, server.target, first_byte_timeout=0.2, idle_timeout=0.2)
        assert await drain(response) == b":\n\n" * 8


async def test_f48_one_server_that_never_answers_leaves_others_alone(upstream: Upstream) -> None:
    async def silent(peer: Peer) -> None:
        await peer.closed()

    async with serving(silent) as hung, serving(answering(*[OK] * 100)) as good:
        waiting = [asyncio.ensure_future(ask(upstream, hung.target)) for _ in range(50)]
        await until(lambda: hung.accepted == 50)
        for _ in range(100):
            assert await drain(await ask(upstream, good.target)) == b"ok"
        assert not any(task.done() for task in waiting)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


@pytest.mark.parametrize("at", ["before the head", "in the body"])
async def test_f27_cancelling_drops_the_connection_at_once(upstream: Upstream, at: str) -> None:
    gone = asyncio.Event()

    async def handle(peer: Peer) -> None:
        await peer.request()
        if at == "in the body":
            await peer.send(HEAD + b"1\r\na\r\n")
        await peer.closed()
        gone.set()

    async def use(server: Server) -> None:
        await drain(await ask(upstream, server.target))

    async with serving(handle) as server:
        task = asyncio.ensure_future(use(server))
        await until(lambda: server.accepted == 1)
        await asyncio.sleep(0.05)
        task.cancel()
        async with asyncio.timeout(1):
            await gone.wait()
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_abort_is_idempotent_and_harmless_after_the_end(upstream: Upstream) -> None:
    async with serving(answering(OK, OK, HEAD + b"1\r\na\r\n")) as server:
        ended = await ask(upstream, server.target)
        assert await drain(ended) == b"ok"
        ended.abort()
        assert await drain(await ask(upstream, server.target)) == b"ok"
        running = await ask(upstream, server.target)
        running.abort()
        running.abort()
        with pytest.raises(Broken):
            await running.read()
        assert server.accepted == 1


async def test_idle_connections_are_let_go_before_the_other_side_does() -> None:
    client = Upstream(connect_timeout=1, limits=Limits(idle_connection=0.3))
    async with serving(answering(OK, OK)) as server:
        assert await drain(await ask(client, server.target)) == b"ok"
        assert client.connections == 1
        await until(lambda: client.connections == 0, seconds=3)
    assert Limits().idle_connection <= 4.0
    await client.close()


async def test_a_streamed_body_is_sent_with_its_length_or_in_chunks(upstream: Upstream) -> None:
    seen: list[bytes] = []

    async def handle(peer: Peer) -> None:
        data = b""
        while not data.endswith((b"END", b"0\r\n\r\n")):
            data += await peer.reader.read(65536)
        seen.append(data.partition(b"\r\n\r\n")[0].rpartition(b"\r\n")[2] + b"|" + data.partition(b"\r\n\r\n")[2])
        await peer.send(OK)

    async def pieces() -> AsyncIterator[bytes]:
        yield b"abc"
        yield b""
        yield b"END"

    async with serving(handle) as server:
        assert await drain(await ask(upstream, server.target, body=pieces(), length=6)) == b"ok"
        assert await drain(await ask(upstream, server.target, body=pieces())) == b"ok"
    assert seen == [b"content-length: 6|abcEND", b"transfer-encoding: chunked|3\r\nabc\r\n3\r\nEND\r\n0\r\n\r\n"]


async def test_an_early_answer_stops_the_sending_and_the_connection_is_not_used_again(upstream: Upstream) -> None:
    stopped = asyncio.Event()

    async def handle(peer: Peer) -> None:
        await peer.reader.readuntil(b"\r\n\r\n")
        await peer.send(b"HTTP/1.1 413 Too Large\r\ncontent-length: 2\r\n\r\nno")
        await peer.closed()

    async def endless() -> AsyncIterator[bytes]:
        try:
            while True:
                yield b"x" * 1000
                await asyncio.sleep(0.01)
        finally:
            stopped.set()

    body = endless()
    async with serving(handle) as server:
        response = await ask(upstream, server.target, body=body)
        assert response.status == 413
        assert await drain(response) == b"no"
        await body.aclose()
        assert stopped.is_set()
        await until(lambda: upstream.connections == 0)


async def test_an_error_of_the_body_comes_through_and_drops_the_connection(upstream: Upstream) -> None:
    async def handle(peer: Peer) -> None:
        await peer.closed()

    async def failing() -> AsyncIterator[bytes]:
        yield b"abc"
        raise KeyError("client gone")

    async with serving(handle) as server:
        with pytest.raises(KeyError):
            await ask(upstream, server.target, body=failing())
        await until(lambda: upstream.connections == 0)


async def test_a_slow_server_slows_the_sending_of_a_streamed_body(upstream: Upstream) -> None:
    produced = 0
    go = asyncio.Event()

    async def handle(peer: Peer) -> None:
        await peer.reader.readuntil(b"\r\n\r\n")
        await go.wait()
        await peer.reader.readexactly(64 * 1024 * 1024)
        await peer.send(OK)

    async def big() -> AsyncIterator[bytes]:
        nonlocal produced
        for _ in range(1024):
            produced += 65536
            yield b"x" * 65536

    async with serving(handle) as server:
        asking = asyncio.ensure_future(ask(upstream, server.target, body=big(), length=64 * 1024 * 1024))
        await asyncio.sleep(0.3)
        assert produced < 16 * 1024 * 1024  # what the kernel's buffers take
        go.set()
        assert await drain(await asking) == b"ok"


async def test_a_slow_reader_slows_a_fast_server_and_memory_stays_bounded(upstream: Upstream) -> None:
    """200 MB from the server, a reader that falls behind: no more than the bound and the kernel's buffers wait."""
    total = 200 * 1024 * 1024
    sent = 0

    async def handle(peer: Peer) -> None:
        nonlocal sent
        await peer.request()
        await peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % total)
        piece = b"x" * (256 * 1024)
        while sent < total:
            await peer.send(piece)
            sent += len(piece)

    async with serving(handle) as server:
        response = await ask(upstream, server.target, idle_timeout=0.2)
        await asyncio.sleep(0.5)  # longer than the idle time: it is us who are slow, so it lives
        assert sent < 32 * 1024 * 1024
        tracemalloc.start()
        read = 0
        while piece := await response.read():
            assert len(piece) <= 1024 * 1024
            read += len(piece)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert read == total
    assert peak < 8 * 1024 * 1024
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < 4 * 1024 * 1024


async def test_one_read_of_the_socket_wakes_the_reader_once(upstream: Upstream) -> None:
    """Several chunks in one read are one piece: fewer writes to the client, and no task or timer for each."""
    async with serving(answering(HEAD + b"1\r\na\r\n" * 100 + b"0\r\n\r\n")) as server:
        response = await ask(upstream, server.target)
        tasks = len(asyncio.all_tasks())
        assert await response.read() == b"a" * 100
        assert len(asyncio.all_tasks()) <= tasks
        assert await response.read() == b""


async def test_a_sink_is_given_every_piece_without_a_task_and_drains_where_it_is_full(upstream: Upstream) -> None:
    async def handle(peer: Peer) -> None:
        await peer.request()
        await peer.send(HEAD)
        for number in range(20):
            await peer.send(b"2\r\n%02d\r\n" % number)
            await asyncio.sleep(0.002)
        await peer.send(b"0\r\n\r\n")

    got: list[bytes] = []
    drained = 0

    def sink(piece: bytes) -> bool:
        got.append(piece)
        return len(got) % 5 > 0

    async def drain() -> None:
        nonlocal drained
        drained += 1
        await asyncio.sleep(0.02)

    async with serving(handle) as server:
        response = await ask(upstream, server.target)
        await response.pump(sink, drain)
        assert b"".join(got) == b"".join(b"%02d" % number for number in range(20))
        assert drained == len(got) // 5
        assert await response.read() == b""


async def test_what_a_sink_raises_comes_out_and_a_cut_body_is_broken_after_its_pieces(upstream: Upstream) -> None:
    got: list[bytes] = []

    def sink(piece: bytes) -> bool:
        got.append(piece)
        if piece == b"bad":
            raise KeyError("bad piece")
        return True

    async def drain() -> None:
        raise AssertionError("never full")

    async def handle(peer: Peer) -> None:
        await peer.request()
        await peer.send(HEAD + b"1\r\na\r\n")
        await asyncio.sleep(0.02)
        await peer.send(b"3\r\nbad\r\n")
        await asyncio.sleep(0.02)

    async with serving(handle) as server:
        response = await ask(upstream, server.target)
        with pytest.raises(KeyError):
            await response.pump(sink, drain)
        response.abort()
        cut = await ask(upstream, server.target)
        with pytest.raises(Broken):
            await cut.pump(lambda piece: bool(got.append(piece)) or True, drain)
    assert got == [b"a", b"bad", b"a", b"bad"]


async def test_a_sink_that_is_full_slows_a_fast_server(upstream: Upstream) -> None:
    sent = 0

    async def handle(peer: Peer) -> None:
        nonlocal sent
        await peer.request()
        await peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: 104857600\r\n\r\n")
        while sent < 104857600:
            await peer.send(b"x" * 262144)
            sent += 262144

    go = asyncio.Event()
    read = 0

    def sink(piece: bytes) -> bool:
        nonlocal read
        read += len(piece)
        return False

    async with serving(handle) as server:
        pumping = asyncio.ensure_future((await ask(upstream, server.target)).pump(sink, go.wait))  # type: ignore[arg-type]
        await asyncio.sleep(0.3)
        assert sent < 32 * 1024 * 1024
        go.set()
        await pumping
    assert read == 104857600


@pytest.mark.parametrize("header", [(b"x", b"a\r\nx-llmgw-node: b"), (b"x\n", b"a"), (b"x", b"a\rb")])
async def test_f54_a_line_break_in_a_header_is_refused_and_nothing_is_sent(
    upstream: Upstream, header: tuple[bytes, bytes]
) -> None:
    async with serving(answering(OK)) as server:
        with pytest.raises(ValueError, match="line break"):
            await ask(upstream, server.target, headers=[header])
        assert server.accepted == 0


async def test_after_close_nothing_is_open_and_readers_hear_of_it() -> None:
    client = Upstream(connect_timeout=1)
    async with serving(answering(HEAD + b"1\r\na\r\n", OK)) as server:
        response = await ask(client, server.target)
        await client.close()
        with pytest.raises(Broken):
            await drain(response)
        with pytest.raises(NotReached):
            await ask(client, server.target)
    assert client.connections == 0


async def test_a_server_without_tls_is_not_reached_by_tls(upstream: Upstream) -> None:
    async def handle(peer: Peer) -> None:
        await peer.send(b"220 this is no TLS\r\n")
        await peer.closed()

    async with serving(handle) as server:
        target = Target("127.0.0.1", server.target.port, tls=ssl.create_default_context())
        with pytest.raises(NotReached):
            await ask(upstream, target)


async def test_a_scripted_client_can_be_closed() -> None:
    async with serving(answering(OK)) as server, connected(server.target.port) as client:
        await client.send(b"GET / HTTP/1.1\r\n\r\n")
        assert (await client.response())[2] == b"ok"
