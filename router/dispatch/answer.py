"""An answer that has begun: who gives it, and its events.

What the gateway is handed at the commit boundary. Nobody else is asked from here on: a failure is a
:class:`~router.errors.StreamInterrupted` out of :attr:`Answer.events`. Knows no other candidates and no wire.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

from router.chat.types import ChatEvent, Usage
from router.dispatch.attempt import Attempt
from router.dispatch.running_attempt import RunningAttempt

__all__ = ["Answer", "AnswerEvents"]


class AnswerEvents:
    """The events, once: those held before the boundary, then the others as they come.

    Raises
    ------
    StreamInterrupted
        The upstream failed; the attempt is recorded with its own outcome.

    """

    __slots__ = ("_next",)

    def __init__(self, next_event: Callable[[], Awaitable[ChatEvent | None]]) -> None:
        self._next = next_event

    def __aiter__(self) -> AsyncIterator[ChatEvent]:
        return self

    async def __anext__(self) -> ChatEvent:
        event = await self._next()
        if event is None:
            raise StopAsyncIteration
        return event


class Answer:
    """One answer; ``usage``, ``tokens_per_s`` and its attempt are known once ``events`` is at its end."""

    def __init__(
        self,
        running: RunningAttempt,
        next_event: Callable[[], Awaitable[ChatEvent | None]],
        attempts: Callable[[], tuple[Attempt, ...]],
    ) -> None:
        self._running = running
        self._attempts = attempts
        self.events = AnswerEvents(next_event)

    @property
    def deployment_id(self) -> str:
        """Who answers."""
        return self._running.deployment_id

    @property
    def attempts(self) -> tuple[Attempt, ...]:
        """Attempts that have ended, in order: the failed ones before, and this one once it is over."""
        return self._attempts()

    @property
    def usage(self) -> Usage | None:
        """The upstream's latest count of tokens; ``None`` while, or where, it gave none."""
        return self._running.usage

    @property
    def ttft_s(self) -> float | None:
        """Seconds from this attempt's start to its first semantic event; ``None`` where there was none."""
        return self._running.ttft_s

    @property
    def joined(self) -> str:
        """The id of the request whose generation this answer shares; empty where it is its own."""
        return self._running.joined

    @property
    def tokens_per_s(self) -> float | None:
        """Tokens per second after the first; ``None`` where that cannot be known."""
        return self._running.tokens_per_s
