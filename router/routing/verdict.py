"""What was said of a request's task, by whom, and what that may change.

Pure values. A verdict can come from text that somebody else wrote, so its power is bounded: it chooses one
of the four entrypoints behind ``auto``, and beyond that only moves weights.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from router.catalog.catalog import Weights
from router.chat.features import TaskKind
from router.chat.types import Usage

__all__ = ["Difficulty", "JudgeCall", "TaskNeed", "TaskVerdict", "VerdictSource", "weights_for"]


class VerdictSource(StrEnum):
    """Who named the task."""

    JUDGE = "judge"
    CACHE = "cache"
    HEURISTIC = "heuristic"


class Difficulty(StrEnum):
    """How much the task asks of whoever does it."""

    EASY = "easy"
    MEDIUM = "medium"
    HARD = "hard"


class TaskNeed(StrEnum):
    """What would help with the task and cannot be read off the request's fields."""

    REASONING = "reasoning"
    LONG_ANSWER = "long_answer"


@dataclass(frozen=True, slots=True)
class JudgeCall:
    """One call of the judge: seconds, tokens, micro-dollars. ``outcome`` is one word, ``success`` or why not.

    ``usage`` and ``cost_micros`` are ``None`` where no answer began. Not an attempt at the request.
    """

    deployment_id: str
    duration_s: float
    outcome: str
    usage: Usage | None = None
    cost_micros: int | None = None


@dataclass(frozen=True, slots=True)
class TaskVerdict:
    """What kind of work a request is, who said so, and what it was told from.

    ``why`` says in one word why the heuristic had to decide where a judge could have. ``call`` is the call
    that was made for this very request, also one that failed.
    """

    kind: TaskKind
    basis: str
    source: VerdictSource = VerdictSource.HEURISTIC
    difficulty: Difficulty | None = None
    needs: tuple[TaskNeed, ...] = ()
    why: str = ""
    call: JudgeCall | None = None

    @property
    def label(self) -> str:
        """The verdict on one line, as a header carries it: ``code; source=judge; difficulty=hard``."""
        parts = [self.kind.value, f"source={self.source.value}"]
        if self.why:
            parts.append(f"why={self.why}")
        if self.difficulty is not None:
            parts.append(f"difficulty={self.difficulty.value}")
        if self.needs:
            parts.append(f"needs={','.join(self.needs)}")
        return "; ".join(parts)


# Factors on weights: for easy work price and speed count more, for hard work what a candidate is good at.
_TILTS: Final[Mapping[Difficulty, tuple[float, float, float]]] = MappingProxyType(
    {Difficulty.EASY: (0.6, 1.6, 1.4), Difficulty.MEDIUM: (1.0, 1.0, 1.0), Difficulty.HARD: (1.6, 0.5, 0.7)}
)


def weights_for(weights: Weights, difficulty: Difficulty | None) -> Weights:
    """Return an entrypoint's weights as a task of that difficulty wants them."""
    if difficulty is None or difficulty is Difficulty.MEDIUM:
        return weights
    fit, cost, time = _TILTS[difficulty]
    return replace(
        weights,
        task_fit=weights.task_fit * fit,
        cost=weights.cost * cost,
        expected_time=weights.expected_time * time,
    )
