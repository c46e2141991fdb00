"""The generations of one engine: who may join which, and when one that nobody reads is given up.

An impatient client hangs up and asks again. Its request is then found here, still at work or just finished,
and the slot is not taken twice. What is kept for that holds nobody up: it ends at once where another request
waits for the slot. See docs/decisions/0008. Owns the tasks; knows neither HTTP nor queues.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final, TypeAlias

import anyio

from router.chat.types import ChatEvent
from router.errors import UpstreamBrokenStream
from router.providers.generation import Generation, GenerationReader

__all__ = ["Generations", "JoinRules", "Source"]

Source: TypeAlias = Callable[[Generation], AsyncGenerator[ChatEvent]]
"""Generates the answer; notes in the generation when it has its slot."""

_MOST_KEPT: Final = 16
# Closing a connection takes no time; one whose closing hangs must not hold whoever leaves.
_CLOSING_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class JoinRules:
    """How long what nobody reads is kept: ``grace_s`` at work, ``window_s`` finished; ``most_bytes`` each."""

    grace_s: float = 10.0
    window_s: float = 120.0
    most_bytes: int = 1 << 20


class Generations:
    """Runs generations. ``is_contended`` says whether somebody waits for a slot."""

    def __init__(self, rules: JoinRules, *, is_contended: Callable[[], bool] = lambda: False) -> None:
        self._rules = rules
        self._is_contended = is_contended
        self._group: asyncio.TaskGroup | None = None
        self._tasks: dict[Generation, asyncio.Task[None]] = {}
        self._by_key: dict[bytes, Generation] = {}
        self._timers: dict[Generation, asyncio.TimerHandle] = {}
        self.joined = 0

    @property
    def running(self) -> int:
        """Generations at work."""
        return len(self._tasks)

    @property
    def kept(self) -> int:
        """Generations, at work or finished, that nobody reads at present."""
        return len(self._timers)

    async def run(self) -> None:
        """Be there for generations until cancelled; then every one of them has ended."""
        try:
            async with asyncio.TaskGroup() as self._group:
                await asyncio.get_running_loop().create_future()
        finally:
            self._group = None
            for timer in self._timers.values():
                timer.cancel()
            self._timers.clear()
            self._by_key.clear()

    def find(self, key: bytes | None) -> Generation | None:
        """Return the generation of that very request, where one can still be joined."""
        generation = self._by_key.get(key) if key is not None else None
        if generation is None or not generation.is_whole or generation.error is not None:
            return None
        return generation

    def join(self, generation: Generation) -> GenerationReader:
        """Return a reader of a generation that :meth:`find` returned."""
        self._stop_timer(generation)
        self.joined += 1
        return generation.reader()

    def start(
        self, key: bytes | None, request_id: str, deployment_id: str, source: Source
    ) -> GenerationReader:
        """Begin a generation and return its first reader; without a ``key`` nobody can join it.

        Raises
        ------
        UpstreamBrokenStream
            The engine's part of the gateway does not run.

        """
        if self._group is None:
            raise UpstreamBrokenStream("the local engine is being stopped")
        generation = Generation(key or b"", request_id, deployment_id, most_bytes=self._rules.most_bytes)
        if key is not None:
            self._by_key[key] = generation
        reader = generation.reader()
        self._tasks[generation] = self._group.create_task(self._generate(generation, source))
        return reader

    async def leave(self, reader: GenerationReader, *, may_return: bool) -> None:
        """Stop reading. The last one to leave ends the generation, upstream included, before this returns.

        ``may_return``: the client has seen nothing of the answer, so that it may well be impatience; then
        the generation is kept for a while, provided that it keeps nobody waiting.
        """
        generation = reader.generation
        generation.detach(reader)
        if generation.readers:
            return
        keeps = may_return and not generation.delivered and generation.error is None
        keeps = keeps and generation.is_whole and self._by_key.get(generation.key) is generation
        if generation.ended:
            self._keep(generation, self._rules.window_s if keeps else 0.0)
        elif keeps and generation.has_slot and not self._is_contended():
            self._keep(generation, self._rules.grace_s)
        else:
            self._keep(generation, 0.0)
        task = self._tasks.get(generation)
        if task is not None and generation not in self._timers:
            # Shielded: in a cancelled scope the wait would end at once, before the connection is closed.
            with anyio.CancelScope(shield=True):
                await asyncio.wait({task}, timeout=_CLOSING_S)

    def give_way(self) -> None:
        """End what nobody reads and still has a slot: somebody waits for it."""
        for generation in tuple(self._timers):
            if not generation.ended:
                self._give_up(generation)

    def _keep(self, generation: Generation, seconds: float) -> None:
        if seconds <= 0.0:
            self._give_up(generation)
            return
        loop = asyncio.get_running_loop()
        self._timers[generation] = loop.call_later(seconds, self._give_up, generation)
        while len(self._timers) > _MOST_KEPT:
            self._give_up(next(iter(self._timers)))

    def _give_up(self, generation: Generation) -> None:
        self._stop_timer(generation)
        self._forget(generation)
        task = self._tasks.get(generation)
        if task is not None:
            task.cancel()

    def _forget(self, generation: Generation) -> None:
        if self._by_key.get(generation.key) is generation:
            del self._by_key[generation.key]

    def _stop_timer(self, generation: Generation) -> None:
        timer = self._timers.pop(generation, None)
        if timer is not None:
            timer.cancel()

    async def _generate(self, generation: Generation, source: Source) -> None:
        error: Exception | None = UpstreamBrokenStream("the answer was given up half-way")
        try:
            async with aclosing(source(generation)) as events:
                async for event in events:
                    generation.publish(event)
                    await generation.room()
            error = None
        except Exception as failure:  # noqa: BLE001 - its readers get it; the other generations go on
            error = failure
        finally:
            generation.end(error)
            self._tasks.pop(generation, None)
            self._settle(generation)

    def _settle(self, generation: Generation) -> None:
        """Decide what becomes of one that has ended."""
        if generation.error is not None:
            self._stop_timer(generation)
            self._forget(generation)
        elif not generation.readers and generation in self._timers:
            self._stop_timer(generation)
            self._keep(generation, self._rules.window_s)
