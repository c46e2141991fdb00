"""A gateway whose judge and models are one fake network: each call does what the host's behaviour says.

``JudgedHouse`` serves over ASGI without a socket, a database or a thread, so that a virtual clock can run it.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import httpx
import orjson

from router.app import Roundhouse, build_roundhouse
from router.catalog.load import load_catalog
from router.clock import Clock
from router.settings import Secret, read_settings
from tests.fakes.clock import LoopClock
from tests.fakes.roundhouse import house_file

__all__ = [
    "JUDGE_HOST",
    "Behaviour",
    "FakeNetwork",
    "JudgedHouse",
    "asgi_scope",
    "echoes",
    "hangs",
    "refuses",
    "says",
    "stalls_after",
    "verdict",
]

JUDGE_HOST = "judge.test"

Behaviour: TypeAlias = "Callable[[Call], Awaitable[httpx.Response]]"


@dataclass(frozen=True, slots=True)
class Call:
    """One request that came in; ``seal`` is the one of a prompt to the judge, empty elsewhere."""

    host: str
    body: dict[str, Any]

    @property
    def prompt(self) -> str:
        content = self.body["messages"][-1]["content"]
        return content if isinstance(content, str) else ""

    @property
    def seal(self) -> str:
        found = re.search(r"^seal: (\w+)$", self.prompt, re.MULTILINE)
        return found[1] if found else ""


class FakeNetwork(httpx.AsyncBaseTransport):
    """Hosts with their behaviours; ``calls`` are those that came in, ``open`` those that wait."""

    def __init__(self, **behaviours: Behaviour) -> None:
        self.behaviours = {f"{name}.test": one for name, one in behaviours.items()}
        self.calls: list[Call] = []
        self.open = 0

    def to(self, host: str) -> list[Call]:
        return [call for call in self.calls if call.host == host]

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        call = Call(request.url.host, orjson.loads(await request.aread()))
        self.calls.append(call)
        self.open += 1
        try:
            return await self.behaviours[call.host](call)
        finally:
            self.open -= 1


def _frames(text: str, usage: dict[str, int] | None) -> bytes:
    chunk = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    frames: list[dict[str, Any]] = [
        {**chunk, "choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None}]},
        {**chunk, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
    ]
    if usage is not None:
        frames.append({**chunk, "choices": [], "usage": usage})
    return b"".join(b"data: " + orjson.dumps(frame) + b"\n\n" for frame in frames) + b"data: [DONE]\n\n"


def _answer(text: str, usage: dict[str, int] | None = None) -> httpx.Response:
    return httpx.Response(200, headers={"content-type": "text/event-stream"}, content=_frames(text, usage))


def says(text: str, *, after: float = 0.0, usage: dict[str, int] | None = None) -> Behaviour:
    """Answer ``text`` with SEAL replaced by the seal of the prompt."""

    async def behave(call: Call) -> httpx.Response:
        await asyncio.sleep(after)
        return _answer(text.replace("SEAL", call.seal), usage)

    return behave


def verdict(task: str, *, after: float = 0.0, **fields: Any) -> Behaviour:
    """Answer with a whole verdict."""
    said = orjson.dumps({"seal": "SEAL", "task": task, **fields}).decode()
    return says(said, after=after, usage={"prompt_tokens": 400, "completion_tokens": 30})


def echoes() -> Behaviour:
    """Answer with what was asked: what an obedient or a confused model says."""

    async def behave(call: Call) -> httpx.Response:
        turns = [orjson.loads(line) for line in call.prompt.splitlines() if line.startswith("{")]
        return _answer("\n".join(turn.get("text", "") for turn in turns) + "\n" + call.prompt)

    return behave


def refuses(status: int, **headers: str) -> Behaviour:
    async def behave(_call: Call) -> httpx.Response:
        body = {"error": {"message": "slow down", "code": "rate_limit_exceeded" if status == 429 else "x"}}
        return httpx.Response(status, headers={k.replace("_", "-"): v for k, v in headers.items()}, json=body)

    return behave


def hangs() -> Behaviour:
    async def behave(_call: Call) -> httpx.Response:
        await asyncio.get_running_loop().create_future()
        raise AssertionError

    return behave


def stalls_after(text: str) -> Behaviour:
    """Begin to answer, and never end."""

    async def behave(call: Call) -> httpx.Response:
        async def body() -> AsyncIterator[bytes]:
            yield _frames(text.replace("SEAL", call.seal), None).split(b"\n\n", 1)[0] + b"\n\n"
            await asyncio.get_running_loop().create_future()

        return httpx.Response(200, headers={"content-type": "text/event-stream"}, content=body())

    return behave


@dataclass(slots=True)
class JudgedHouse:
    """``models`` are hosts of candidates for requests, in order of preference; ``judge.test`` judges, as the
    YAML of ``block`` says.
    """

    folder: Path
    network: FakeNetwork
    block: str = "candidates: [judge/model]"
    models: tuple[str, ...] = ("task",)
    clock: Clock = field(default_factory=LoopClock)
    entries: dict[str, str] = field(default_factory=dict)
    keys: tuple[str, ...] = ("A_KEY", "JUDGE_KEY")
    roundhouse: Roundhouse = field(init=False)
    client: httpx.AsyncClient = field(init=False)

    def __post_init__(self) -> None:
        entries = {
            name: f"{{kind: openai, base_url: 'http://{name}.test/v1', key_env: A_KEY}}"
            for name in self.models
        }
        entries["judge"] = "{kind: openai, base_url: 'http://judge.test/v1', key_env: JUDGE_KEY}"
        path = house_file(
            self.folder, {**entries, **self.entries}, judge=f"{{{self.block}}}" if self.block else ""
        )
        settings = read_settings({"config": str(path), "data_dir": str(self.folder / "data")}, {})
        keys = {name: Secret(f"secret-of-{name}") for name in self.keys}
        catalog = load_catalog(path)
        self.roundhouse = build_roundhouse(
            settings, catalog, keys=keys, seed=7, transport=self.network, clock=self.clock
        )
        transport = httpx.ASGITransport(self.roundhouse.asgi)
        self.client = httpx.AsyncClient(transport=transport, base_url="http://gateway")

    async def auto(self, text: str = "hello", **fields: Any) -> httpx.Response:
        body = {"model": "auto", "messages": [{"role": "user", "content": text}], **fields}
        return await self.client.post("/v1/chat/completions", json=body)

    async def lane(self) -> dict[str, Any]:
        shown = (await self.client.get("/health/dashboard")).json()["judge"]
        assert isinstance(shown, dict)
        return shown


def asgi_scope(path: str = "/v1/chat/completions") -> dict[str, Any]:
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [(b"content-type", b"application/json")],
        "client": ("127.0.0.1", 1),
        "server": ("gateway", 80),
        "state": {},
    }
