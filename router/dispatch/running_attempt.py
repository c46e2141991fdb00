"""One attempt while it runs: its permit, its stream, its times.

Owns what must be given back: the permit is settled or released exactly once and the stream closed, in every
ending. Knows one provider's stream; not the other candidates, not who is benched for what.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Final

import anyio
import structlog

from router.chat.types import ChatEvent, FinishDelta, ReasoningDelta, Usage, UsageDelta
from router.clock import Clock
from router.dispatch.attempt import Attempt
from router.dispatch.held_events import HeldEvents
from router.health.outcome import Outcome, OutcomeKind, Scope
from router.health.tracker import HealthTracker, Permit
from router.providers.base import SlotStream

__all__ = ["CLIENT_LEFT", "RunningAttempt"]

CLIENT_LEFT: Final = Outcome(OutcomeKind.CLIENT_LEFT, Scope.NONE, "the client left", try_next=False)

# Closing a connection takes no time; a provider whose closing hangs must not hold the client's task.
_CLOSING_S: Final = 2.0
# Below these a speed says nothing: the answer came in one piece.
_SHORTEST_MEASURED_S: Final = 0.05
_FEWEST_MEASURED_TOKENS: Final = 8

_log = structlog.get_logger(__name__)


async def _read(stream: AsyncIterator[ChatEvent]) -> ChatEvent | None:
    """Return the next event, ``None`` after the last. A cancellation that nobody asked for is a defect."""
    try:
        return await anext(stream, None)
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        raise RuntimeError("the provider was cancelled from within") from error


class RunningAttempt:
    """Reads one stream; ``number`` counts from 1. Not to be read by two tasks at once."""

    def __init__(
        self,
        number: int,
        deployment_id: str,
        open_stream: Callable[[], AsyncIterator[ChatEvent]],
        permit: Permit,
        *,
        tracker: HealthTracker,
        clock: Clock,
        request_id: str = "",
    ) -> None:
        self.deployment_id = deployment_id
        self.finished: Attempt | None = None
        self.usage: Usage | None = None
        self.ttft_s: float | None = None
        self.committed = False
        self._number = number
        self._request_id = request_id
        self._open_stream = open_stream
        self._stream: AsyncIterator[ChatEvent] | None = None
        self._slot: SlotStream | None = None
        self._permit = permit
        self._tracker = tracker
        self._clock = clock
        self._held = HeldEvents()
        self._started_at = clock.wall()
        self._started = clock.monotonic()
        self._first_content: float | None = None
        self._last_content: float | None = None
        self._reasoned = False
        self._choices: dict[int, bool] = {}

    async def until_commit(self) -> None:
        """Read until the first semantic event, or a complete answer; what was read is held for :meth:`next`.

        Raises whatever the provider raises.
        """
        self._stream = stream = self._open_stream()
        # Once: asking what a stream has costs more than reading an event from it.
        self._slot = stream if isinstance(stream, SlotStream) else None
        while not self.committed:
            event = await _read(stream)
            if event is None:
                self.committed = True
                self._succeed()
                return
            self._observe(event)
            self._held.add(event, self._clock.monotonic())
            self.committed = event.is_semantic

    async def next(self) -> ChatEvent | None:
        """Return the next event, the held ones first; ``None`` after the last, which is then a success.

        Raises whatever the provider raises.
        """
        held = self._held.pop()
        if held is not None:
            return held
        if self._stream is None or self.finished is not None:
            return None
        event = await _read(self._stream)
        if event is None:
            self._succeed()
            return None
        self._observe(event)
        return event

    def fail(self, outcome: Outcome) -> Attempt:
        """End as ``outcome`` says and tell the tracker. A second ending changes nothing."""
        return self._end(outcome, tell=True)

    def abandon(self) -> Attempt:
        """End because the client left: nobody is benched. An answer that was whole stays a success."""
        if self._choices and all(self._choices.values()):
            self._succeed()
        return self._end(CLIENT_LEFT, tell=False)

    async def close(self) -> None:
        """Close the stream, and with it the upstream connection; never raises but for a cancellation."""
        closing = getattr(self._stream, "aclose", None)
        if closing is None:
            return
        try:
            # Shielded: in a cancelled scope the closing itself would be cancelled at its first wait.
            with anyio.move_on_after(_CLOSING_S, shield=True) as scope:
                await closing()
            if scope.cancelled_caught:
                self._log.warning("provider.close_hangs", deployment=self.deployment_id, seconds=_CLOSING_S)
        except Exception:  # noqa: BLE001 - closing comes after the outcome, which stands
            self._log.exception("provider.close_failed", deployment=self.deployment_id)

    @property
    def _log(self) -> structlog.stdlib.BoundLogger:
        log: structlog.stdlib.BoundLogger = _log.bind(request_id=self._request_id)
        return log

    def _observe(self, event: ChatEvent) -> None:
        now = self._clock.monotonic()
        for delta in event.deltas:
            if isinstance(delta, UsageDelta):
                self.usage = delta.usage
            elif isinstance(delta, FinishDelta):
                self._choices[delta.choice] = True
            else:
                self._choices.setdefault(delta.choice, False)
                self._reasoned = self._reasoned or isinstance(delta, ReasoningDelta)
        if event.is_semantic:
            if self._first_content is None:
                self._first_content = now
                self._note_first_content(now)
            self._last_content = now

    @property
    def joined(self) -> str:
        """The id of the request whose generation this one shares; empty where it is its own."""
        return self._slot.joined if self._slot is not None else ""

    def _note_first_content(self, now: float) -> None:
        """Learn how long the model took: not how long its slot was waited for, nor what others began."""
        waited = self._slot.waited_s if self._slot is not None else 0.0
        if not self.joined:
            self.ttft_s = now - self._started - waited
            self._tell_first_event(self.ttft_s)

    def _tell_first_event(self, ttft_s: float) -> None:
        try:
            self._tracker.observe_first_event(self._permit, ttft_s, self._clock.wall())
        except Exception:  # noqa: BLE001 - a defect of ours must not end the request
            self._log.exception("health.observe_failed", deployment=self.deployment_id)

    @property
    def tokens_per_s(self) -> float | None:
        """Speed after the first token, from the upstream's own count; ``None`` where it cannot be known."""
        if self.usage is None or self._first_content is None or self._last_content is None or self.joined:
            return None
        # Reasoning that is not shown was done before the first event.
        tokens = self.usage.completion_tokens if self._reasoned else self.usage.output_tokens
        seconds = self._last_content - self._first_content
        if tokens < _FEWEST_MEASURED_TOKENS or seconds < _SHORTEST_MEASURED_S:
            return None
        return (tokens - 1) / seconds

    def _succeed(self) -> None:
        outcome = Outcome(
            OutcomeKind.SUCCESS,
            Scope.NONE,
            try_next=False,
            ttft_s=self.ttft_s,
            tokens_per_s=self.tokens_per_s,
        )
        self._end(outcome, tell=True)

    def _end(self, outcome: Outcome, *, tell: bool) -> Attempt:
        if self.finished is not None:
            return self.finished
        duration = self._clock.monotonic() - self._started
        outcome = replace(outcome, duration_s=duration)
        self.finished = Attempt(
            number=self._number,
            deployment_id=self.deployment_id,
            started_at=self._started_at,
            duration_s=duration,
            outcome=outcome,
            ttft_s=self.ttft_s,
            committed=self.committed,
        )
        try:
            if tell:
                self._tracker.settle(self._permit, outcome, self._clock.wall())
            else:
                self._tracker.release(self._permit)
        except Exception:  # noqa: BLE001 - a defect of ours must not end the request
            self._log.exception("health.settle_failed", deployment=self.deployment_id)
        return self.finished
