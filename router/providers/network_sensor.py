"""Whether there is a network at all, found out within half a second by knocking at the providers' doors.

A connection that does not come about says nothing of whose fault it is, and waiting it out costs seconds.
So while one hangs, others are opened to up to three providers: where none comes about either, the network is
gone, and whoever needs none should answer. Nothing is sent on these connections. Knows addresses; not
requests, candidates or health.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Final
from urllib.parse import urlsplit

import anyio
import structlog
from tenacity import AsyncRetrying, retry_if_result, wait_random_exponential

from router.clock import Clock

__all__ = ["NetworkSensor", "addresses_of"]

_DOORS: Final = 3
_KNOCKING_S: Final = 0.4
# Once somebody outside has been heard, the network is not doubted for so long.
_PROVED_FOR_S: Final = 10.0
_FIRST_PAUSE_S: Final = 0.5
_LONGEST_PAUSE_S: Final = 15.0

Address = tuple[str, int]

_log = structlog.get_logger("network")


def addresses_of(base_urls: Iterable[str]) -> tuple[Address, ...]:
    """Return where these are reached, each once; what is not an http address is left out."""
    found: dict[Address, None] = {}
    for url in base_urls:
        parts = urlsplit(url)
        if parts.hostname and parts.scheme in {"http", "https"}:
            found[parts.hostname, parts.port or (443 if parts.scheme == "https" else 80)] = None
    return tuple(found)


class NetworkSensor:
    """Knows whether the network is there, as far as anybody has noticed. Used from one event loop.

    ``provider_urls`` are the base URLs of providers outside this machine, by name. The application runs
    :meth:`run`, which notices that the network is back.
    """

    def __init__(self, provider_urls: Mapping[str, str], clock: Clock) -> None:
        self._addresses = addresses_of(provider_urls.values())
        self._clock = clock
        self._proved_until = 0.0
        self._suspected = asyncio.Event()
        self._checking: asyncio.Lock = asyncio.Lock()
        self.is_gone = False

    @property
    def is_proved(self) -> bool:
        """Whether somebody outside was heard a moment ago."""
        return self._clock.monotonic() < self._proved_until

    def heard(self) -> None:
        """Note that somebody outside was heard."""
        self._proved_until = self._clock.monotonic() + _PROVED_FOR_S
        self._set_gone(gone=False)

    def suspect(self) -> None:
        """Note that several could not be reached; :meth:`run` looks into it."""
        self._suspected.set()

    async def is_there(self) -> bool:
        """Knock now, for at most half a second; several callers share one knocking."""
        waited = self._checking.locked()
        async with self._checking:
            if waited or self.is_proved:
                return not self.is_gone
            found = await self._knock()
            if found:
                self.heard()
            else:
                self._set_gone(gone=True)
                self._suspected.set()
            return found

    async def run(self) -> None:
        """Once there is a doubt, look again with growing pauses until the network is there; for ever."""
        while True:
            await self._suspected.wait()
            self._suspected.clear()
            looking = AsyncRetrying(
                retry=retry_if_result(lambda found: not found),
                wait=wait_random_exponential(multiplier=_FIRST_PAUSE_S, max=_LONGEST_PAUSE_S),
                sleep=anyio.sleep,
            )
            await looking(self.is_there)
            self._suspected.clear()

    def _set_gone(self, *, gone: bool) -> None:
        if gone == self.is_gone:
            return
        self.is_gone = gone
        if gone:
            _log.warning("network.gone", advice="local candidates answer until it is back")
        else:
            _log.info("network.back")

    async def _knock(self) -> bool:
        """Whether anybody opens; without an address to knock at, the network is taken to be there."""
        if not self._addresses:
            return True
        opened = asyncio.Event()

        async def knock(address: Address) -> None:
            if await _opens(address):
                opened.set()
                doors.cancel_scope.cancel()

        with anyio.move_on_after(_KNOCKING_S):
            async with anyio.create_task_group() as doors:
                for address in self._addresses[:_DOORS]:
                    doors.start_soon(knock, address)
        return opened.is_set()


async def _opens(address: Address) -> bool:
    """Whether somebody at the other end answers, if only with a refusal."""
    try:
        stream = await anyio.connect_tcp(*address)
    except OSError as error:
        return _is_refusal(error)
    await stream.aclose()
    return True


def _is_refusal(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, ConnectionRefusedError):
            return True
        if isinstance(error, BaseExceptionGroup):
            return any(_is_refusal(one) for one in error.exceptions)
        error = error.__cause__
    return False
