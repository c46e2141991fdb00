"""The way to an engine's slots: requests wait here, in the gateway, and the engine gets as many as it serves.

Owns who waits and what is known of the wait; the order is :mod:`router.providers.slot_queue`, the arithmetic
:mod:`router.providers.wait_estimate`. Knows no HTTP and no processes. Used from one event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from router.chat.types import ChatEvent, JsonValue, Priority, UsageDelta
from router.clock import Clock
from router.errors import SlotBusy
from router.providers.base import LaneFigures
from router.providers.slot_queue import SlotQueue
from router.providers.wait_estimate import Job, Progress, Speeds, remaining_s, service_s, wait_s

__all__ = ["EngineFigures", "LocalLane", "Place"]

# Nobody decides by less than this, and every new figure costs the health snapshot its reuse.
_STEP_S: Final = 0.25


@dataclass(frozen=True, slots=True)
class EngineFigures:
    """What an engine says of itself: rates, and how far the one that it runs is (``None``: nobody)."""

    prefill_tokens_per_s: float
    decode_tokens_per_s: float
    prompt_left: int | None = None
    output_left: int | None = None

    @classmethod
    def read(cls, health: Mapping[str, JsonValue]) -> EngineFigures | None:
        """Read the body of ``/health``; ``None`` where it holds no figures, as with other engines."""
        prefill, decode = health.get("prefill_tok_s"), health.get("decode_tok_s")
        if not isinstance(prefill, int | float) or not isinstance(decode, int | float):
            return None
        prompt_left = output_left = None
        match health.get("running"):
            case {"prompt_tokens": int(prompt), "computed": int(computed), "remaining": int(remaining)}:
                prompt_left, output_left = max(0, prompt - computed), remaining
        return cls(float(prefill), float(decode), prompt_left, output_left)


class Place:
    """One request in the lane; its times are seconds on the monotonic clock."""

    def __init__(self, job: Job, arrived: float, gives_way: Callable[[], bool]) -> None:
        self.job = job
        self.arrived = arrived
        self.gives_way = gives_way
        self.granted_at: float | None = None
        self.produced = 0
        self.turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._first_at: float | None = None
        self._last_at = 0.0
        self._usage_tokens: int | None = None

    @property
    def waited_s(self) -> float:
        """How long it waited for its slot; 0 while it does."""
        return 0.0 if self.granted_at is None else self.granted_at - self.arrived

    def observe(self, event: ChatEvent, now: float) -> None:
        """Note what the engine said: about a token each time it says something."""
        if event.is_semantic:
            self.produced += 1
            self._first_at = now if self._first_at is None else self._first_at
            self._last_at = now
        for delta in event.deltas:
            if isinstance(delta, UsageDelta):
                self._usage_tokens = delta.usage.completion_tokens

    def progress(self, now: float, speeds: Speeds) -> Progress:
        """Return how far it is, as far as can be told from outside the engine."""
        left = 0.0
        if self._first_at is None and self.granted_at is not None:
            left = max(0.0, self.job.prompt_tokens - (now - self.granted_at) * speeds.prefill)
        limit = self.job.output_limit
        output_left = max(0, limit - self.produced) if limit is not None else None
        return Progress(self.produced, left, output_left)

    def learnt(self, speeds: Speeds, *, complete: bool, rates_are_told: bool) -> Speeds:
        """Return ``speeds`` with what this one has shown."""
        tokens = self.produced if self._usage_tokens is None else self._usage_tokens
        if complete:
            speeds = speeds.after_answer(tokens)
        if rates_are_told or self._first_at is None or self.granted_at is None:
            return speeds
        speeds = speeds.after_prefill(self.job.prompt_tokens, self._first_at - self.granted_at)
        return speeds.after_decode(tokens - 1, self._last_at - self._first_at)


class LocalLane:
    """A bounded queue before ``slots`` slots. ``on_waiting`` is called whenever somebody has to wait."""

    def __init__(
        self, slots: int, queue_limit: int, *, clock: Clock, on_waiting: Callable[[], None] = lambda: None
    ) -> None:
        self._queue = SlotQueue(slots, queue_limit)
        self._places: dict[int, Place] = {}
        self._clock = clock
        self._on_waiting = on_waiting
        self._speeds = Speeds()
        self._figures: tuple[EngineFigures, float] | None = None
        self._busy = asyncio.Event()
        self.spilled = 0

    @property
    def is_contended(self) -> bool:
        """Whether somebody waits for a slot."""
        return bool(self._queue.waiting)

    @property
    def in_flight(self) -> int:
        """Requests that run or wait."""
        return len(self._places)

    @asynccontextmanager
    async def slot(
        self,
        job: Job,
        priority: Priority,
        *,
        worth_s: float | None,
        most_s: float,
        gives_way: Callable[[], bool] = lambda: False,
    ) -> AsyncIterator[Place]:
        """Wait for a slot and hold it; whichever way this is left, the next one has it at once.

        ``worth_s`` is the longest wait that is worth it (``None``: nobody else could serve, so any is), as
        expected and as it then turns out; ``most_s`` is what is left of the request's time. ``gives_way``
        says whether it would end for another one that waits.

        Raises
        ------
        SlotBusy
            The queue is full, or the wait is not worth it.

        """
        now = self._clock.monotonic()
        number, displaced = self._queue.enter(now, priority)
        if number is None:
            self.spilled += 1
            raise SlotBusy(
                "every slot is taken and the queue is full", retry_after_s=self._wait_s(now, priority)
            )
        place = self._places[number] = Place(job, now, gives_way)
        if displaced is not None:
            self._turn_away(displaced, now)
        try:
            if number in self._queue.running:
                self._grant(place, now)
            else:
                await self._until_turn(number, place, priority, worth_s=worth_s, most_s=most_s)
            yield place
        finally:
            self._leave(number)

    def complete(self, place: Place) -> None:
        """Learn from an answer that has come to its end."""
        self._speeds = place.learnt(self._speeds, complete=True, rates_are_told=self._figures is not None)

    def wait_s(self, priority: Priority = Priority.INTERACTIVE) -> float:
        """Estimate how long one more would wait, in steps of a quarter of a second."""
        return round(self._wait_s(self._clock.monotonic(), priority) / _STEP_S) * _STEP_S

    def take_figures(self, figures: EngineFigures) -> None:
        """Take over what the engine has just said of itself."""
        self._figures = figures, self._clock.monotonic()
        self._speeds = self._speeds.measured(figures.prefill_tokens_per_s, figures.decode_tokens_per_s)

    async def until_busy(self) -> None:
        """Wait until somebody has a slot."""
        await self._busy.wait()

    def figures(self) -> LaneFigures:
        """Return the state for people and machines that watch."""
        return LaneFigures(
            slots=self._queue.slots,
            running=len(self._queue.running),
            waiting=len(self._queue.waiting),
            queue_limit=self._queue.limit,
            prefill_tokens_per_s=self._speeds.prefill,
            decode_tokens_per_s=self._speeds.decode,
            typical_output_tokens=self._speeds.typical_output,
            spilled=self.spilled,
        )

    async def _until_turn(
        self, number: int, place: Place, priority: Priority, *, worth_s: float | None, most_s: float
    ) -> None:
        expected = self._wait_s(self._clock.monotonic(), priority, number)
        if worth_s is not None and expected > worth_s:
            self.spilled += 1
            raise SlotBusy(
                f"the slot is free in about {expected:.1f} s, and others are done in {worth_s:.1f} s",
                retry_after_s=expected,
            )
        self._on_waiting()
        bound = most_s if worth_s is None else min(worth_s, most_s)
        try:
            async with asyncio.timeout(bound):
                await place.turn
        except TimeoutError:
            self.spilled += 1
            wait = self._wait_s(self._clock.monotonic(), priority, number)
            raise SlotBusy(f"no slot within {bound:.1f} s", retry_after_s=wait) from None

    def _grant(self, place: Place, now: float) -> None:
        place.granted_at = now
        self._busy.set()
        if not place.turn.done():
            place.turn.set_result(None)

    def _turn_away(self, number: int, now: float) -> None:
        self.spilled += 1
        turn = self._places[number].turn
        if not turn.done():
            wait = self._wait_s(now, Priority.BACKGROUND)
            turn.set_exception(SlotBusy("the queue is full, and others have priority", retry_after_s=wait))

    def _leave(self, number: int) -> None:
        # A place that was turned away while its task was being cancelled leaves an error nobody reads.
        turn = self._places.pop(number).turn
        if turn.done() and not turn.cancelled():
            turn.exception()
        now = self._clock.monotonic()
        for granted in self._queue.leave(number):
            self._grant(self._places[granted], now)
        if not self._queue.running:
            self._busy.clear()

    def _wait_s(self, now: float, priority: Priority, number: int | None = None) -> float:
        running = [self._remaining_s(self._places[one], now) for one in self._queue.running]
        ahead = [
            service_s(self._places[one].job, self._speeds)
            for one in self._queue.ahead_of(number, now, priority)
        ]
        return wait_s(running, ahead, self._queue.slots)

    def _remaining_s(self, place: Place, now: float) -> float:
        if place.gives_way():
            return 0.0
        seen = place.progress(now, self._speeds)
        told = self._figures
        fresh = told is not None and place.granted_at is not None and told[1] > place.granted_at
        if told is None or not fresh or self._queue.slots > 1 or told[0].output_left is None:
            return remaining_s(seen, self._speeds)
        # The engine knows how much of the prompt its cache held, and where its window ends.
        figures, taken_at = told
        since = now - taken_at
        prompt_left = max(0.0, (figures.prompt_left or 0) - since * self._speeds.prefill)
        if place.produced:
            prompt_left = 0.0
        return remaining_s(Progress(seen.produced, prompt_left, figures.output_left), self._speeds)
