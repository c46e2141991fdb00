"""How long a request would wait for a slot: what runs, what waits before it, and how fast the engine is.

Pure arithmetic; rates are tokens per second, times are seconds. Where an answer's length is not known, what
is left of it is guessed from the usual length; one that is longer already is expected to go on for half as
long again (the longer it has run, the longer it will).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

__all__ = ["Job", "Progress", "Speeds", "remaining_s", "service_s", "wait_s"]

# How much one new measurement moves a rate.
_LEARNING: Final = 0.3
_FEWEST_TOKENS: Final = 8


@dataclass(frozen=True, slots=True)
class Job:
    """What one request asks of the engine: prompt tokens still to be computed, and its answer's bound."""

    prompt_tokens: int
    output_limit: int | None = None


@dataclass(frozen=True, slots=True)
class Progress:
    """How far one is: ``produced`` tokens of answer, ``prompt_left`` tokens to compute before the first.

    ``output_left`` is the most that may still follow, where that is known.
    """

    produced: int
    prompt_left: float
    output_left: int | None = None


@dataclass(frozen=True, slots=True)
class Speeds:
    """Rates and the usual length of an answer. First guesses are those of a small model on two cores."""

    prefill: float = 150.0
    decode: float = 20.0
    typical_output: float = 250.0

    def measured(self, prefill: float, decode: float) -> Speeds:
        """Take over what the engine itself measured; what is not above zero it has not measured."""
        return replace(
            self,
            prefill=prefill if prefill > 0.0 else self.prefill,
            decode=decode if decode > 0.0 else self.decode,
        )

    def after_prefill(self, tokens: int, seconds: float) -> Speeds:
        """Learn from a prompt of ``tokens`` that took ``seconds`` to the first token."""
        if tokens < _FEWEST_TOKENS or seconds <= 0.0:
            return self
        return replace(self, prefill=_blend(self.prefill, tokens / seconds))

    def after_decode(self, tokens: int, seconds: float) -> Speeds:
        """Learn from ``tokens`` that followed the first within ``seconds``."""
        if tokens < _FEWEST_TOKENS or seconds <= 0.0:
            return self
        return replace(self, decode=_blend(self.decode, tokens / seconds))

    def after_answer(self, tokens: int) -> Speeds:
        """Learn the usual length from a complete answer."""
        moved = self.typical_output + _LEARNING * (tokens - self.typical_output)
        return replace(self, typical_output=max(1.0, moved))


def _blend(rate: float, measured: float) -> float:
    # Seconds per token are blended, not the rate: it is time that adds up.
    return 1.0 / ((1.0 - _LEARNING) / rate + _LEARNING / measured)


def service_s(job: Job, speeds: Speeds) -> float:
    """Return how long a job takes once it has the slot."""
    output = speeds.typical_output
    if job.output_limit is not None:
        output = min(output, job.output_limit)
    return job.prompt_tokens / speeds.prefill + output / speeds.decode


def remaining_s(progress: Progress, speeds: Speeds) -> float:
    """Return how long one that runs still needs."""
    left = max(speeds.typical_output - progress.produced, progress.produced / 2)
    if progress.output_left is not None:
        left = min(left, progress.output_left)
    return max(0.0, progress.prompt_left) / speeds.prefill + max(0.0, left) / speeds.decode


def wait_s(running: Iterable[float], ahead: Sequence[float], slots: int) -> float:
    """Return when a slot is free for one more, from now.

    ``running`` is what each that has a slot still needs, ``ahead`` what each that waits before it will take.
    """
    free_at = sorted(running)
    free_at = [0.0] * max(0, slots - len(free_at)) + free_at
    heapq.heapify(free_at)
    for taken in ahead:
        heapq.heapreplace(free_at, free_at[0] + taken)
    return free_at[0] if free_at else 0.0
