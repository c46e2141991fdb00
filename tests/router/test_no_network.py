"""With no network at all the local candidate answers every entrypoint, after at most two tries elsewhere.

How long that takes is measured by ``bench/offline.py``; here the tries are counted: a machine may be slow.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.fakes.offline import LOCAL, shipped_house

pytestmark = pytest.mark.anyio

ENTRYPOINTS = ("auto", "chat", "code", "build", "long")


async def ask(client: httpx.AsyncClient, model: str) -> tuple[int, str, int]:
    body = {"model": model, "messages": [{"role": "user", "content": "hello"}]}
    async with asyncio.timeout(20):
        answer = await client.post("/v1/chat/completions", json=body)
    headers = answer.headers
    return answer.status_code, headers["x-roundhouse-candidate"], int(headers["x-roundhouse-attempts"])


@pytest.fixture
def closed_port() -> Iterator[str]:
    """A port of this machine that is bound and not listened at: connections are refused."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{bound.getsockname()[1]}/v1"


@pytest.mark.parametrize("model", ENTRYPOINTS)
async def test_where_connections_are_refused_the_local_one_is_third(
    model: str, closed_port: str, tmp_path: Path
) -> None:
    async with shipped_house(tmp_path, closed_port) as (_, client):
        status, candidate, attempts = await ask(client, model)

    assert (status, candidate) == (200, LOCAL)
    assert attempts <= 3


async def test_where_no_name_is_resolved_the_second_request_asks_nobody_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> list[object]:
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")

    async with shipped_house(tmp_path) as (_, client):
        monkeypatch.setattr(socket, "getaddrinfo", refuse)
        first = await ask(client, "chat")
        # Behind the requests somebody looks into it, at his own pace.
        async with asyncio.timeout(10):
            while (await ask(client, "chat"))[2] != 1:
                pass
        later = [await ask(client, model) for model in ENTRYPOINTS]

    assert first[:2] == (200, LOCAL)
    assert first[2] <= 3
    assert later == [(200, LOCAL, 1)] * 5


@pytest.mark.parametrize(("model", "attempts"), [("chat", 2), ("auto", 1)])
async def test_where_the_resolver_hangs_one_call_is_given_up_and_the_next_request_makes_none(
    model: str, attempts: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    over = threading.Event()

    def never(*_: object, **__: object) -> list[object]:
        over.wait(30)
        raise socket.gaierror(socket.EAI_AGAIN, "no answer")

    async with shipped_house(tmp_path) as (roundhouse, client):
        monkeypatch.setattr(socket, "getaddrinfo", never)
        try:
            # The one call of `auto` is the judge's.
            first = await ask(client, model)
            second = await ask(client, "code")
        finally:
            over.set()
        in_flight = roundhouse.tracker.in_flight

    assert first == (200, LOCAL, attempts)
    assert second == (200, LOCAL, 1)
    assert in_flight == 0
