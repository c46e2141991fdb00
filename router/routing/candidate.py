"""The values a decision is made of: candidates with their scores, exclusions with their reasons.

Pure values; how they are computed is :mod:`router.routing.scoring` and
:mod:`router.routing.eligibility`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from router.chat.features import RequestFeatures

__all__ = ["Candidate", "Exclusion", "ExclusionReason", "RoutingDecision", "Score", "ScoreTerm"]


class ExclusionReason(StrEnum):
    """Why a deployment does not take part in this request."""

    DISABLED = "disabled"
    UNCONFIGURED = "unconfigured"
    NOT_READY = "not_ready"
    BENCHED = "benched"
    BREAKER_OPEN = "breaker_open"
    CONTEXT_TOO_SMALL = "context_too_small"
    PROMPT_TOO_LONG = "prompt_too_long"
    OUTPUT_TOO_LONG = "output_too_long"
    LACKS_TOOLS = "lacks_tools"
    LACKS_PARALLEL_TOOLS = "lacks_parallel_tools"
    LACKS_VISION = "lacks_vision"
    LACKS_JSON_SCHEMA = "lacks_json_schema"
    LACKS_REASONING = "lacks_reasoning"
    LACKS_SYSTEM_PROMPT = "lacks_system_prompt"
    PRICE_CAP = "price_cap"
    DATA_POLICY = "data_policy"


@dataclass(frozen=True, slots=True)
class Exclusion:
    """One deployment left out. ``until`` is the wall-clock time of its return where there is one."""

    deployment_id: str
    reason: ExclusionReason
    detail: str
    until: float | None = None


@dataclass(frozen=True, slots=True)
class ScoreTerm:
    """One term: ``value`` on its fixed 0..1 scale, times ``weight``; ``basis`` says what it was made from."""

    name: str
    value: float
    weight: float
    basis: str

    @property
    def contribution(self) -> float:
        """What the term adds to the score."""
        return self.value * self.weight


@dataclass(frozen=True, slots=True)
class Score:
    """A candidate's terms; the total is the weighted mean, so it lies in 0..1."""

    terms: tuple[ScoreTerm, ...]

    @property
    def total(self) -> float:
        """Weighted mean of the terms."""
        weight = sum(term.weight for term in self.terms)
        return sum(term.contribution for term in self.terms) / weight if weight else 0.0


@dataclass(frozen=True, slots=True)
class Candidate:
    """A deployment that may serve this request, with its score."""

    deployment_id: str
    score: Score


@dataclass(frozen=True, slots=True)
class RoutingDecision:
    """Whom to ask, in order, and why everybody else is left out."""

    entrypoint: str
    features: RequestFeatures
    candidates: tuple[Candidate, ...]
    exclusions: tuple[Exclusion, ...]
    decided_at: float
    judged_as: str | None = None
    panic: bool = False
