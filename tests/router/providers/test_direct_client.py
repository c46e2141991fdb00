"""The direct client against servers that write exact bytes; both loops, since their transports differ."""

from __future__ import annotations

import asyncio
import gzip
import socket
import sys
from pathlib import Path
from typing import Any

import pytest

from router.errors import UpstreamBrokenStream, UpstreamError, UpstreamTimeout, UpstreamUnreachable
from router.providers.direct_client import DirectClient
from router.providers.direct_connection import MAXIMUM_HEAD_BYTES
from router.providers.upstream_client import UpstreamCall
from tests.fakes.byte_upstream import Exchange, always, post, upstream
from tests.fakes.certificate import tls_pair

pytestmark = pytest.mark.anyio

LOOPS = [pytest.param(("asyncio", {"use_uvloop": False}), id="asyncio")]
if sys.platform != "win32":
    LOOPS.append(pytest.param(("asyncio", {"use_uvloop": True}), id="uvloop"))

PLAIN = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\nX-Thing: a\r\n\r\nhello"
CHUNKED = (
    b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntrailer: x-sum\r\n\r\n"
    b"3;name=value\r\nhel\r\n2\r\nlo\r\n0\r\nx-sum: 1\r\nx-thing: trailer\r\n\r\n"
)
TO_THE_END = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n\r\nhello"


@pytest.fixture(params=LOOPS)
def anyio_backend(request: pytest.FixtureRequest) -> Any:
    return request.param


async def test_what_is_sent() -> None:
    async with upstream(always(PLAIN)) as (server, client):
        await post(client, server.url, b"[1]", accept="text/event-stream", host="evil", connection="close")

    head, body = server.requests[0].split(b"\r\n\r\n")
    assert body == b"[1]"
    assert head.split(b"\r\n") == [
        b"POST /v1/chat?x=1 HTTP/1.1",
        b"host: 127.0.0.1:%d" % server.port,
        b"accept: text/event-stream",
        b"content-length: 3",
    ]


@pytest.mark.parametrize("value", ["a\r\nx-evil: 1", "a\nb", "a\x00b"])
async def test_a_header_cannot_smuggle_another(value: str) -> None:
    async with upstream(always(PLAIN)) as (server, client):
        with pytest.raises(UpstreamUnreachable, match="cannot be sent"):
            await post(client, server.url, **{"x-name": value})
        with pytest.raises(UpstreamUnreachable, match="cannot be sent"):
            await post(client, server.url, **{"x name": "fine"})

    assert server.requests == []


@pytest.mark.parametrize("piece", [1, 2, 3, 7, None])
@pytest.mark.parametrize("data", [PLAIN, CHUNKED], ids=["length", "chunked"])
async def test_any_split_of_the_bytes_gives_the_same_answer(data: bytes, piece: int | None) -> None:
    async with upstream(always(data, piece=piece)) as (server, client):
        answers = [await post(client, server.url) for _ in range(3)]

    assert {answer.body for answer in answers} == {b"hello"}
    assert answers[0].headers.get("x-thing") in {"a", None}  # a trailer is no header
    assert server.connections == 1


async def test_a_body_without_a_length_ends_with_its_connection() -> None:
    async with upstream(always(TO_THE_END, close=True)) as (server, client):
        answers = [await post(client, server.url) for _ in range(2)]

    assert [answer.body for answer in answers] == [b"hello", b"hello"]
    assert server.connections == 2


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\nconnection: close\r\n\r\nhello",
        b"HTTP/1.0 200 OK\r\ncontent-length: 5\r\n\r\nhello",
        PLAIN + b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nevil",
        PLAIN + b"garbage",
    ],
    ids=["close", "http-1.0", "a second answer", "garbage behind"],
)
async def test_such_a_connection_is_not_used_again(data: bytes) -> None:
    async with upstream(always(data)) as (server, client):
        answers = [await post(client, server.url) for _ in range(2)]

    assert [answer.body for answer in answers] == [b"hello", b"hello"]
    assert server.connections == 2


async def test_bytes_that_nobody_asked_for_are_no_part_of_the_next_answer() -> None:
    sent = asyncio.Event()

    async def play(exchange: Exchange) -> None:
        await exchange.write(PLAIN)
        if exchange.number == 1:
            await asyncio.sleep(0.01)
            await exchange.write(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nevil")
            sent.set()

    async with upstream(play) as (server, client):
        first = await post(client, server.url)
        await sent.wait()
        for _ in range(1000):
            if not client.connections:
                break
            await asyncio.sleep(0.001)
        second = await post(client, server.url)

    assert (first.body, second.body) == (b"hello", b"hello")
    assert server.connections == 2


@pytest.mark.parametrize("status", [204, 304])
async def test_an_answer_without_a_body_leaves_its_connection_usable(status: int) -> None:
    async with upstream(always(b"HTTP/1.1 %d X\r\n\r\n" % status)) as (server, client):
        answers = [await post(client, server.url) for _ in range(2)]

    assert [(answer.status, answer.body) for answer in answers] == [(status, b"")] * 2
    assert server.connections == 1


async def test_interim_answers_are_passed_over() -> None:
    interim = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n"
    async with upstream(always(interim + PLAIN, piece=5)) as (server, client):
        answer = await post(client, server.url)

    assert (answer.status, answer.body) == (200, b"hello")
    assert "link" not in answer.headers


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nhello!",
        b"HTTP/1.1 200 OK\r\ncontent-length: -5\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\ncontent-length: 5x\r\n\r\nhello",
        b"HTTP/1.1 101 Switching\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n" * 20,
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"HTTP/1.1 200 OK\r\nno colon here\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nx-a: " + b"a" * (MAXIMUM_HEAD_BYTES + 10),
        b"HTTP/1.1 200 OK\r\n" + b"x-a: a\r\n" * (MAXIMUM_HEAD_BYTES // 8 + 10) + b"\r\n",
    ],
    ids=[
        *("length and chunked", "two lengths", "negative", "no number", "switching", "interim flood"),
        *("no http", "no header", "endless header", "many headers"),
    ],
)
async def test_an_ambiguous_or_boundless_head_is_refused(data: bytes) -> None:
    async with upstream(always(data)) as (server, client):
        with pytest.raises(UpstreamError):
            await post(client, server.url)

        assert client.connections == 0


@pytest.mark.parametrize(
    "rest",
    [b"zz\r\nhello\r\n", b"5\r\nhelloXX", b"5\r\nhello\r\n0\r\nx: " + b"a" * (4 * MAXIMUM_HEAD_BYTES)],
    ids=["no size", "no end of chunk", "endless trailer"],
)
async def test_a_body_with_broken_framing_breaks_off(rest: bytes) -> None:
    head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
    async with upstream(always(head + rest)) as (server, client):
        with pytest.raises(UpstreamBrokenStream):
            await post(client, server.url)

        assert client.connections == 0


@pytest.mark.parametrize("ending", ["fin", "reset"])
@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", UpstreamUnreachable),
        (b"HTTP/1.1 200", UpstreamUnreachable),
        (PLAIN[:-2], UpstreamBrokenStream),
        (CHUNKED[:-4], UpstreamBrokenStream),
    ],
    ids=["nothing", "half a head", "half a body", "half a chunked body"],
)
async def test_what_breaks_off_is_an_error(data: bytes, expected: type[UpstreamError], ending: str) -> None:
    async def play(exchange: Exchange) -> None:
        if data:
            await exchange.write(data)
        if ending == "reset":
            exchange.reset()
        else:
            exchange.writer.close()

    async with upstream(play) as (server, client):
        with pytest.raises(expected):
            await post(client, server.url)

    assert len(server.requests) == 1  # a new connection is not tried again


@pytest.mark.parametrize("ending", ["fin", "reset"])
async def test_a_kept_connection_that_dies_unheard_is_replaced_once(ending: str) -> None:
    async def play(exchange: Exchange) -> None:
        if exchange.number == 2:
            if ending == "reset":
                exchange.reset()
            else:
                exchange.writer.close()
            return
        await exchange.write(PLAIN)

    async with upstream(play) as (server, client):
        answers = [await post(client, server.url, b"%d" % number) for number in range(2)]

    assert [answer.body for answer in answers] == [b"hello", b"hello"]
    assert [request[-1:] for request in server.requests] == [b"0", b"1", b"1"]


async def test_an_answer_that_had_begun_is_not_asked_for_again() -> None:
    async def play(exchange: Exchange) -> None:
        await exchange.write(PLAIN if exchange.number == 1 else b"HTTP/1.1 200 O")
        if exchange.number > 1:
            exchange.writer.close()

    async with upstream(play) as (server, client):
        await post(client, server.url)
        with pytest.raises(UpstreamUnreachable):
            await post(client, server.url)

    assert len(server.requests) == 2


@pytest.mark.parametrize(
    "data", [b"", b"HTTP/1.1 2", PLAIN[:-1]], ids=["nothing", "half a head", "half a body"]
)
async def test_silence_ends_at_its_deadline_and_closes_the_connection(data: bytes) -> None:
    async def play(exchange: Exchange) -> None:
        if data:
            await exchange.write(data)
        await exchange.reader.read()

    async with upstream(play) as (server, client):
        with pytest.raises(TimeoutError):
            await post(client, server.url, seconds=0.05)

        assert client.connections == 0


async def test_leaving_while_waiting_closes_the_connection() -> None:
    asked = asyncio.Event()

    async def play(exchange: Exchange) -> None:
        asked.set()
        assert await exchange.reader.read() == b""

    async with upstream(play) as (server, client), asyncio.timeout(5):
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(post(client, server.url))
            await asked.wait()
            task.cancel()
        await server.left.wait()


async def test_an_answer_that_is_not_read_to_its_end_closes_its_connection() -> None:
    async with upstream(always(PLAIN[:-1])) as (server, client):
        until = asyncio.get_running_loop().time() + 5
        answer = await client.post(UpstreamCall(server.url, {}, b""), connect_s=2, until=until)
        assert await answer.read(until) == b"hell"
        await answer.aclose()

        assert client.connections == 0
        assert await answer.read(until) == b""


async def test_a_reader_that_is_slow_holds_the_upstream_back() -> None:
    size = 8 << 20
    head = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % size
    written = 0

    async def play(exchange: Exchange) -> None:
        nonlocal written
        await exchange.write(head)
        for _ in range(size >> 16):
            await exchange.write(b"x" * (1 << 16))
            written += 1 << 16

    async with upstream(play) as (server, client):
        until = asyncio.get_running_loop().time() + 5
        answer = await client.post(UpstreamCall(server.url, {}, b""), connect_s=2, until=until)
        await asyncio.sleep(0.05)
        assert written < size
        received = 0
        while piece := await answer.read(until):
            received += len(piece)
        await answer.aclose()

    assert received == size


async def test_a_large_request_arrives_whole() -> None:
    async with upstream(always(PLAIN)) as (server, client):
        await post(client, server.url, b"y" * (5 << 20))

    assert server.requests[0].endswith(b"\r\n\r\n" + b"y" * (5 << 20))


@pytest.mark.parametrize("piece", [1, None])
async def test_a_body_that_came_compressed_is_read(piece: int | None) -> None:
    packed = gzip.compress(b"hello " * 500)
    head = b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: %d\r\n\r\n" % len(packed)
    async with upstream(always(head + packed, piece=piece)) as (server, client):
        answers = [await post(client, server.url) for _ in range(2)]

    assert [answer.body for answer in answers] == [b"hello " * 500] * 2
    assert server.connections == 1


@pytest.mark.parametrize(
    ("coding", "body"), [(b"br", b"hello"), (b"gzip", b"hello")], ids=["unknown", "not what it says"]
)
async def test_a_body_that_cannot_be_decoded_is_an_error(coding: bytes, body: bytes) -> None:
    head = b"HTTP/1.1 200 OK\r\ncontent-encoding: %s\r\ncontent-length: 5\r\n\r\n" % coding
    async with upstream(always(head + body)) as (server, client):
        with pytest.raises(UpstreamBrokenStream):
            await post(client, server.url)


async def test_many_requests_at_once_each_have_a_connection_and_share_them_later() -> None:
    async def play(exchange: Exchange) -> None:
        await asyncio.sleep(0.005)
        body = exchange.request.split(b"\r\n\r\n")[1]
        await exchange.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body))

    async with upstream(play) as (server, client):
        for _ in range(3):
            bodies = [b"number %d" % number for number in range(40)]
            answers = await asyncio.gather(*(post(client, server.url, body) for body in bodies))
            assert [answer.body for answer in answers] == bodies

    assert server.connections == 40


async def test_a_connection_that_takes_too_long_is_a_timeout_of_connecting() -> None:
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        waiting = [socket.socket() for _ in range(3)]
        for one in waiting:
            one.setblocking(False)
            one.connect_ex(full.getsockname())
        client = DirectClient()
        until = asyncio.get_running_loop().time() + 5
        call = UpstreamCall(f"http://127.0.0.1:{full.getsockname()[1]}/", {}, b"")
        with pytest.raises(UpstreamTimeout, match="no connection in time"):
            await client.post(call, connect_s=0.1, until=until)
        for one in waiting:
            one.close()
        await client.aclose()


async def test_answers_come_over_tls_too(tmp_path: Path) -> None:
    server_tls, client_tls = tls_pair(tmp_path)
    async with upstream(always(CHUNKED), server_tls=server_tls, client_tls=client_tls) as (server, client):
        answers = [await post(client, server.url) for _ in range(3)]

    assert [answer.body for answer in answers] == [b"hello"] * 3
    assert server.connections == 1


async def test_a_certificate_that_nobody_signed_is_refused(tmp_path: Path) -> None:
    server_tls, _ = tls_pair(tmp_path)
    async with upstream(always(PLAIN), server_tls=server_tls) as (server, client):
        with pytest.raises(UpstreamUnreachable, match="the certificate is not valid"):
            await post(client, server.url)

    assert server.requests == []
