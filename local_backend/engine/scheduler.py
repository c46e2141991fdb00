"""What to compute now. Pure: progress of sequences in, work out. Knows no arrays, text or clocks.

One slot: the running sequence is prefilled in chunks, so that a cancel is noticed soon, then decoded
token by token; the queue is served in order of arrival.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

__all__ = ["Admit", "Decode", "Prefill", "Progress", "Speed", "Work", "estimate_wait_s", "next_work"]


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a sequence is: ``computed`` of ``prompt_tokens`` are in the cache, ``remaining`` may follow."""

    request_id: str
    prompt_tokens: int
    computed: int
    remaining: int


@dataclass(frozen=True, slots=True)
class Admit:
    """Give the free slot to this waiting sequence."""

    request_id: str


@dataclass(frozen=True, slots=True)
class Prefill:
    """Compute ``count`` prompt tokens from ``start``; the ``last`` chunk yields the first new token."""

    request_id: str
    start: int
    count: int
    last: bool


@dataclass(frozen=True, slots=True)
class Decode:
    """Compute the newest token and choose the next."""

    request_id: str


Work: TypeAlias = Admit | Prefill | Decode


@dataclass(frozen=True, slots=True)
class Speed:
    """Measured rates in tokens per second; 0 where nothing was measured yet."""

    prefill: float = 0.0
    decode: float = 0.0


def next_work(running: Progress | None, waiting: Sequence[str], chunk: int) -> Work | None:
    """Decide the next step; ``None`` when there is nothing to do. ``chunk`` bounds prefill tokens."""
    if running is None:
        return Admit(waiting[0]) if waiting else None
    left = running.prompt_tokens - running.computed
    if left > 0:
        count = min(chunk, left)
        return Prefill(running.request_id, running.computed, count, last=count == left)
    return Decode(running.request_id)


def estimate_wait_s(ahead: Iterable[Progress], speed: Speed, *, unknown_s: float = 1.0) -> float:
    """Seconds until everything ahead is done, if each generates all it may.

    Where a rate was never measured the share counts ``unknown_s`` a sequence: an honest guess, no more.
    """
    total = 0.0
    for progress in ahead:
        prefill = max(0, progress.prompt_tokens - progress.computed)
        if not speed.prefill or not speed.decode:
            total += unknown_s
        if speed.prefill:
            total += prefill / speed.prefill
        if speed.decode:
            total += progress.remaining / speed.decode
    return total
