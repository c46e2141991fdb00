"""Plays a script as an httpx transport: the bytes take the same way into the gateway as a real upstream's.

Knows scripts and httpx; not what the bytes mean. Time passes through the ``sleep`` that was handed in.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from typing import Final, NoReturn, TypeAlias

import httpx
import orjson

from router.providers.script import Script
from router.providers.script_steps import (
    Action,
    Connection,
    Cut,
    Eof,
    Head,
    NoConnection,
    Reset,
    Stall,
    Wait,
    Write,
)

__all__ = ["ScriptPlayer", "ScriptedTransport", "Sleep"]

Sleep: TypeAlias = Callable[[float], Awaitable[None]]

_NO_CONNECTION: Final = {
    Connection.REFUSED: (httpx.ConnectError, "connection refused (scripted)"),
    Connection.UNRESOLVED: (httpx.ConnectError, "name or service not known (scripted)"),
    Connection.TLS: (httpx.ConnectError, "certificate verify failed (scripted)"),
}


class ScriptPlayer:
    """Counts requests per model and says what the next one gets, waits jittered with the script's seed."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self._random = random.Random(script.seed)  # noqa: S311 - reproducible on purpose
        self._numbers: Counter[str] = Counter()

    @property
    def served(self) -> int:
        """How many requests were begun."""
        return self._numbers.total()

    def next_actions(self, model: str) -> tuple[Action, ...]:
        """Return what the next request to ``model`` gets."""
        found = self._script.for_model(model)
        if found is None:
            body = orjson.dumps(
                {
                    "error": {
                        "message": f"no script for {model}",
                        "type": "invalid_request_error",
                        "code": "model_not_found",
                    }
                }
            )
            return (Head(404, (("content-type", "application/json"),)), Write(body), Eof())
        name, script = found
        number = self._numbers[name]
        self._numbers[name] += 1
        actions = script.actions(number)
        if not self._script.jitter:
            return actions
        return tuple(self._jittered(action) for action in actions)

    def _jittered(self, action: Action) -> Action:
        if not isinstance(action, Wait):
            return action
        return Wait(action.seconds * (1 + self._script.jitter * self._random.uniform(-1, 1)))


class ScriptedTransport(httpx.AsyncBaseTransport):
    """Answers every request by the script; ``open_answers`` counts the bodies that are not closed yet."""

    def __init__(self, player: ScriptPlayer, *, sleep: Sleep = asyncio.sleep) -> None:
        self._player = player
        self._sleep = sleep
        self.open_answers = 0

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Play up to the status line and headers; the rest is played as the body is read."""
        actions = iter(self._player.next_actions(_model_of(await request.aread())))
        for action in actions:
            match action:
                case Head(status, headers):
                    self.open_answers += 1
                    return httpx.Response(status, headers=list(headers), stream=_ScriptedBody(actions, self))
                case Wait(seconds):
                    await self._sleep(seconds)
                case NoConnection(Connection.TIMEOUT):
                    await self._pass_connect_timeout(request)
                case NoConnection(how):
                    kind, said = _NO_CONNECTION[how]
                    raise kind(said, request=request)
                case Stall():
                    await _forever()
                case _:
                    break
        raise httpx.RemoteProtocolError(
            "Server disconnected without sending a response. (scripted)", request=request
        )

    async def play(self, actions: Iterable[Action]) -> AsyncIterator[bytes]:
        """Yield the body's bytes, at the times and up to the fault that the actions say."""
        for action in actions:
            match action:
                case Write(data):
                    yield data
                case Wait(seconds):
                    await self._sleep(seconds)
                case Stall():
                    await _forever()
                case Reset():
                    raise httpx.ReadError("connection reset by peer (scripted)")
                case Cut():
                    raise httpx.RemoteProtocolError(
                        "peer closed connection without sending complete message body (scripted)"
                    )
                case _:
                    return

    async def _pass_connect_timeout(self, request: httpx.Request) -> NoReturn:
        timeout: float | None = request.extensions.get("timeout", {}).get("connect")
        if timeout is None:
            await _forever()
        else:
            await self._sleep(timeout)
        raise httpx.ConnectTimeout("no answer to the connection (scripted)", request=request)


class _ScriptedBody(httpx.AsyncByteStream):
    """The rest of a request's actions as a body."""

    def __init__(self, actions: Iterator[Action], transport: ScriptedTransport) -> None:
        self._actions = actions
        self._transport = transport
        self._is_open = True

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for data in self._transport.play(self._actions):
            yield data

    async def aclose(self) -> None:
        if self._is_open:
            self._is_open = False
            self._transport.open_answers -= 1


async def _forever() -> None:
    """Wait until cancelled."""
    await asyncio.get_running_loop().create_future()


def _model_of(body: bytes) -> str:
    try:
        decoded = orjson.loads(body)
    except orjson.JSONDecodeError:
        return ""
    model = decoded.get("model") if isinstance(decoded, dict) else None
    return model if isinstance(model, str) else ""
