"""Knocking at doors on this machine: open ones, closed ones, and some that never answer."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Iterator

import pytest

from router.clock import SystemClock
from router.providers.network_sensor import NetworkSensor, addresses_of
from tests.fakes.clock import FakeClock

pytestmark = pytest.mark.anyio


@pytest.fixture
def mute_resolver(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """No name is ever resolved, as where the network has just gone; the event ends it."""
    over = threading.Event()

    def never(*_: object, **__: object) -> list[object]:
        over.wait(30)
        raise socket.gaierror(socket.EAI_AGAIN, "no answer")

    monkeypatch.setattr(socket, "getaddrinfo", never)
    return over


@pytest.fixture
def deaf_resolver(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> list[object]:
        raise socket.gaierror(socket.EAI_AGAIN, "no answer")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)


def test_addresses_are_read_from_base_urls() -> None:
    urls = ["https://api.a.test/v1", "http://b.test:8080/x", "https://api.a.test/v2", "nonsense", "ftp://c"]

    assert addresses_of(urls) == (("api.a.test", 443), ("b.test", 8080))


async def test_a_refusal_is_an_answer() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        sensor = NetworkSensor({"a": f"http://127.0.0.1:{closed.getsockname()[1]}"}, SystemClock())

        assert await sensor.is_there()
        assert sensor.is_proved
        assert not sensor.is_gone


async def test_one_open_door_among_mute_ones_is_enough() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, _full_server() as mute:
        urls = {"mute": f"http://127.0.0.1:{mute}", "open": f"http://127.0.0.1:{server.getsockname()[1]}"}

        assert await NetworkSensor(urls, SystemClock()).is_there()


async def test_without_an_address_nothing_is_concluded() -> None:
    assert await NetworkSensor({}, SystemClock()).is_there()


async def test_a_resolver_that_hangs_is_no_network_and_is_not_waited_for(
    mute_resolver: threading.Event,
) -> None:
    sensor = NetworkSensor({"a": "https://a.test", "b": "https://b.test"}, SystemClock())
    async with asyncio.timeout(5):
        assert not await sensor.is_there()
    mute_resolver.set()

    assert sensor.is_gone


@pytest.mark.usefixtures("deaf_resolver")
async def test_a_resolver_that_fails_is_no_network_and_being_heard_ends_it() -> None:
    sensor = NetworkSensor({"a": "https://a.test"}, FakeClock())

    assert not await sensor.is_there()
    assert sensor.is_gone
    sensor.heard()
    assert not sensor.is_gone
    assert await sensor.is_there(), "it was heard a moment ago"


async def test_the_return_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    sensor = NetworkSensor({"a": "https://a.test"}, FakeClock())
    answers = iter([False, False, True])
    back = asyncio.Event()

    async def knock() -> bool:
        return next(answers)

    monkeypatch.setattr(sensor, "heard", back.set)
    monkeypatch.setattr(sensor, "_knock", knock)
    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        watching = group.create_task(sensor.run())
        sensor.suspect()
        await back.wait()
        watching.cancel()

    assert next(answers, None) is None


@contextlib.contextmanager
def _full_server() -> Iterator[int]:
    """Listen on a port whose queue is full: a connection there neither comes about nor is refused."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        port = server.getsockname()[1]
        waiting = [socket.socket() for _ in range(4)]
        for one in waiting:
            one.setblocking(False)
            one.connect_ex(("127.0.0.1", port))
        try:
            yield port
        finally:
            for one in waiting:
                one.close()
