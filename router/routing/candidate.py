"""The values a decision is made of: candidates with their scores, exclusions with their reasons.

Pure values; how they are computed is :mod:`router.routing.scoring` and
:mod:`router.routing.eligibility`, and how they are written down is :mod:`router.routing.explanation`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from router.chat.features import RequestFeatures
from router.health.outcome import OutcomeKind
from router.routing.verdict import TaskVerdict

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
    LACKS_PREFILL = "lacks_prefill"
    PRICE_CAP = "price_cap"
    DATA_POLICY = "data_policy"


@dataclass(frozen=True, slots=True)
class Exclusion:
    """One deployment left out. ``until`` is the wall-clock time of its return where there is one.

    ``bench_kind`` is the outcome that benched it, where it is benched.
    """

    deployment_id: str
    reason: ExclusionReason
    detail: str
    until: float | None = None
    bench_kind: OutcomeKind | None = None


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


class Score:
    """A candidate's terms; the total is the weighted mean, so it lies in 0..1.

    Immutable. A subclass may know its total at once and make the terms with their texts only when somebody
    reads them (:meth:`_explain`): of fifty candidates one is asked, and building the others' explanations
    would cost more than deciding.
    """

    __slots__ = ("_terms", "_total")

    def __init__(self, terms: tuple[ScoreTerm, ...]) -> None:
        weight = sum(term.weight for term in terms)
        self._terms: tuple[ScoreTerm, ...] | None = terms
        self._total = sum(term.contribution for term in terms) / weight if weight else 0.0

    @property
    def total(self) -> float:
        """Weighted mean of the terms."""
        return self._total

    @property
    def terms(self) -> tuple[ScoreTerm, ...]:
        """Every term, in the order of the weights."""
        if self._terms is None:
            self._terms = self._explain()
        return self._terms

    @property
    def expected_s(self) -> float | None:
        """Seconds to the whole answer, waiting included, as the score had it; ``None`` where unknown."""
        return None

    def _explain(self) -> tuple[ScoreTerm, ...]:
        """Make the terms; only called where they were left for later."""
        return ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Score) and self.terms == other.terms

    def __hash__(self) -> int:
        return hash(self.terms)

    def __repr__(self) -> str:
        return f"Score(total={self._total:.3f})"


@dataclass(frozen=True, slots=True)
class Candidate:
    """A deployment that may serve this request, with its score.

    ``last_resort`` marks one that a breaker or a busy slot holds back and that is offered all the same
    because too few others are left; its permit must be asked for as a last resort. ``within_floor`` marks
    the last few of the order: should a breaker open for one of them between the decision and its turn,
    it is asked as a last resort too, for nobody comes after it. ``output_limit`` bounds the answer where
    the client's own bound does not fit.
    """

    deployment_id: str
    score: Score
    last_resort: bool = False
    output_limit: int | None = None
    within_floor: bool = False


@dataclass(frozen=True, slots=True)
class RoutingDecision:
    """Whom to ask, in order, and why everybody else is left out.

    ``panic``: too few were healthy, so the last candidates are last resorts. ``verdict`` is who named the
    task, and why, where the entrypoint is judged.
    """

    entrypoint: str
    features: RequestFeatures
    candidates: tuple[Candidate, ...]
    exclusions: tuple[Exclusion, ...]
    decided_at: float
    judged_as: str | None = None
    panic: bool = False
    verdict: TaskVerdict | None = None
