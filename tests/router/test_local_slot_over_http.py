"""The local slot through the whole gateway: an engine's process behind it, clients that leave in front."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx
import orjson
import pytest

from router.health.snapshot import DeploymentHealth
from router.providers.engine_process import EnginePhase
from router.providers.local_engine import LocalEngineProvider
from tests.fakes.roundhouse import House, house_file, running_house

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(sys.platform == "win32", reason="ends processes the POSIX way"),
]

_STUB = str(Path(__file__).parents[1] / "fakes" / "engine_stub.py")
CLOUD = "steps: [{answer: from the cloud}]"


@asynccontextmanager
async def house(
    folder: Path,
    *,
    tokens: int = 6,
    prefill: float = 0.1,
    pace: float = 0.02,
    cloud: bool = False,
    engine: str = "",
) -> AsyncIterator[House]:
    """Run a gateway whose first choice is an engine with one slot."""
    words = [sys.executable, _STUB, "--mode", "llama", "--port", "{port}"]
    words += ["--tokens", str(tokens), "--prefill", str(prefill), "--pace", str(pace)]
    command = orjson.dumps(words).decode()
    block = f"{{model: m.gguf, command: {command}, context_tokens: 100000, queue_limit: 30{engine}}}"
    providers = {"local": f"{{kind: engine, engine: {block}}}"} | ({"cloud": CLOUD} if cloud else {})
    async with running_house(house_file(folder, providers)) as running:
        with anyio.fail_after(30):
            await provider(running).process.until(EnginePhase.READY)
        yield running


def provider(house: House) -> LocalEngineProvider:
    found = house.roundhouse.providers["local"]
    assert isinstance(found, LocalEngineProvider)
    return found


class Client:
    """One request, as a server would hand it in; :meth:`leave` closes the connection."""

    def __init__(self, house: House, group: asyncio.TaskGroup, text: str, **headers: str) -> None:
        body = {"model": "chat", "stream": True, "messages": [{"role": "user", "content": text}]}
        self._asgi = house.roundhouse.asgi
        self._body: bytes | None = orjson.dumps(body)
        self._headers = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
        self._left = asyncio.Event()
        self.sent: list[dict[str, Any]] = []
        self.begun = asyncio.Event()
        self.task = group.create_task(self._ask())

    @property
    def text(self) -> str:
        return b"".join(message.get("body", b"") for message in self.sent).decode()

    @property
    def headers(self) -> dict[str, str]:
        return {name.decode(): value.decode() for name, value in self.sent[0]["headers"]}

    async def leave(self) -> None:
        self._left.set()
        await asyncio.wait({self.task})

    async def _ask(self) -> None:
        scope = {
            "type": "http",
            "method": "POST",
            "path": "/v1/chat/completions",
            "raw_path": b"/v1/chat/completions",
            "query_string": b"",
            "headers": self._headers,
        }
        await self._asgi(scope, self._receive, self._send)  # type: ignore[arg-type]

    async def _receive(self) -> dict[str, Any]:
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        await self._left.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        self.sent.append(message)
        if b'"content"' in message.get("body", b""):
            self.begun.set()


async def counts(house: House) -> dict[str, int]:
    """Return what the engine has seen."""
    address = provider(house).process.address
    assert address is not None
    async with httpx.AsyncClient() as client:
        counted: dict[str, int] = (await client.get(address.url.removesuffix("/v1") + "/health")).json()
    return counted


async def until(house: House, seconds: float, **expected: int) -> None:
    """Wait until the engine counts that."""
    with anyio.fail_after(seconds):
        while not expected.items() <= (await counts(house)).items():
            await anyio.lowlevel.checkpoint()


async def lane(house: House) -> dict[str, Any]:
    dashboard = (await house.client.get("/health/dashboard")).json()
    found: dict[str, Any] = dashboard["engines"][0]["lane"]
    return found


def health(house: House) -> DeploymentHealth:
    return house.roundhouse.gateway.snapshot().deployments["local/model"]


async def test_leaving_closes_the_engines_connection_within_a_second_in_every_phase(tmp_path: Path) -> None:
    async with house(tmp_path, tokens=400, prefill=0.0) as running, asyncio.TaskGroup() as group:
        streaming = Client(running, group, "streams")
        await streaming.begun.wait()
        waiting = Client(running, group, "waits")
        with anyio.fail_after(5):
            while (await lane(running))["waiting"] != 1:
                await anyio.lowlevel.checkpoint()
        await waiting.leave()
        assert (await lane(running))["waiting"] == 0
        assert streaming.text
        await streaming.leave()
        await until(running, 1.0, asked=1, open=0)

        shown = await lane(running)
        assert (shown["running"], shown["waiting"], shown["kept"]) == (0, 0, 0)
        assert running.roundhouse.tracker.in_flight == 0


@pytest.mark.parametrize(("grace", "seconds"), [(0, 1.0), (0.5, 1.5)])
async def test_leaving_before_the_first_token_closes_it_too(
    tmp_path: Path, grace: float, seconds: float
) -> None:
    settings = f", join_grace_s: {grace}"
    async with house(tmp_path, prefill=30, engine=settings) as running, asyncio.TaskGroup() as group:
        client = Client(running, group, "reads for long")
        await until(running, 5, open=1)
        await client.leave()
        await until(running, seconds, open=0)

        assert (await lane(running))["running"] == 0
        assert health(running).failures == 0


async def test_a_resent_request_gets_the_answer_that_was_begun(tmp_path: Path) -> None:
    async with house(tmp_path, prefill=0.6) as running, asyncio.TaskGroup() as group:
        first = Client(running, group, "the same", authorization="Bearer one", x_request_id="first-1")
        await until(running, 5, open=1)
        await first.leave()
        stranger = Client(running, group, "the same", authorization="Bearer two")
        await stranger.task
        second = Client(running, group, "the same", authorization="Bearer one")
        await second.task

        # The stranger needed the slot, so that what nobody read has ended at once.
        assert "x-roundhouse-joined" not in stranger.headers
        assert "x-roundhouse-joined" not in second.headers
        assert (await counts(running))["asked"] == 3
        third = Client(running, group, "the same", authorization="Bearer one", x_request_id="third-1")
        await until(running, 5, open=1)
        await third.leave()
        fourth = Client(running, group, "the same", authorization="Bearer one")
        await fourth.task

        assert fourth.headers["x-roundhouse-joined"] == "third-1"
        assert fourth.text.count('"content"') == 6
        assert fourth.text.rstrip().endswith("[DONE]")
        assert (await counts(running))["asked"] == 4
        assert (await lane(running))["joined"] == 1


async def test_a_busy_slot_sends_the_next_request_to_the_cloud(tmp_path: Path) -> None:
    async with house(tmp_path, tokens=3_000, cloud=True, engine=", longest_wait_s: 0.2") as running:
        async with asyncio.TaskGroup() as group:
            long = Client(running, group, "long")
            await long.begun.wait()
            answer = await running.chat()
            shown = await lane(running)
            await long.leave()

        assert answer.headers["x-roundhouse-candidate"] == "cloud/model"
        assert shown["spilled"] == 1
        assert (health(running).bench_until, health(running).failures) == (None, 0)
        snapshot = running.roundhouse.gateway.snapshot().deployments["local/model"]
        assert snapshot.expected_wait_s == 0


async def test_background_waits_for_the_interactive_ones(tmp_path: Path) -> None:
    async with house(tmp_path) as running, asyncio.TaskGroup() as group:
        first = Client(running, group, "first")
        await first.begun.wait()
        chore = Client(running, group, "chore", x_roundhouse_priority="background")
        person = Client(running, group, "person")
        await person.task

        assert not chore.task.done()
        await chore.task
        assert (await counts(running))["most_open"] == 1


async def test_an_engine_that_dies_fails_one_request_and_holds_the_others(tmp_path: Path) -> None:
    async with house(tmp_path) as running, asyncio.TaskGroup() as group:
        first = Client(running, group, "first")
        await first.begun.wait()
        dies = Client(running, group, "die")
        others = [Client(running, group, f"waits {n}") for n in range(3)]
        with anyio.fail_after(30):
            await asyncio.wait({one.task for one in (first, dies, *others)})

        assert [one.text.count('"content"') for one in (first, *others)] == [6] * 4
        assert (await lane(running))["running"] == 0


async def test_twenty_clients_one_slot_and_no_trace_afterwards(tmp_path: Path) -> None:
    async with house(tmp_path, tokens=3, prefill=0.0, pace=0.005) as running:
        async with asyncio.TaskGroup() as group:
            clients = [
                Client(running, group, f"{n}", x_roundhouse_priority=("interactive", "background")[n % 2])
                for n in range(20)
            ]
            await clients[1].begun.wait()
            for leaving in clients[5:20:5]:
                group.create_task(leaving.leave())
        stayed = [one for n, one in enumerate(clients) if n < 5 or n % 5]

        assert [one.text.count('"content"') for one in stayed] == [3] * len(stayed)
        assert (await counts(running))["most_open"] == 1
        shown = await lane(running)
        assert (shown["running"], shown["waiting"]) == (0, 0)
        assert running.roundhouse.tracker.in_flight == 0
        await until(running, 2, open=0)
