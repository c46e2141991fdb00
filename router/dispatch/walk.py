"""Which candidate comes next, from what the ones before it came to.

Pure: knows the order that was decided and the outcomes so far; not time, permits or providers.
"""

from __future__ import annotations

from typing import Final

from router.catalog.catalog import Catalog
from router.health.outcome import Outcome, OutcomeKind, Scope
from router.routing.candidate import Candidate, RoutingDecision

__all__ = ["Walk"]

# A request that one upstream refuses for what it says may be to another's taste; a third is not bothered
# with it.
_MOST_REFUSALS: Final = 2
_REFUSALS: Final = frozenset({OutcomeKind.BAD_REQUEST, OutcomeKind.CONTENT_FILTERED})


class Walk:
    """Goes through a decision's candidates once, in order, within ``max_attempts``."""

    def __init__(self, decision: RoutingDecision, catalog: Catalog) -> None:
        self._candidates = iter(decision.candidates)
        self._catalog = catalog
        self._attempts = 0
        self._refusals = 0
        self._stopped = False
        self._providers_down: set[str] = set()
        self._window_too_small = 0

    @property
    def may_attempt(self) -> bool:
        """Whether one more attempt is allowed at all."""
        return not self._stopped and self._attempts < self._catalog.limits.max_attempts

    def next_candidate(self) -> Candidate | None:
        """Return the next one worth asking, or ``None`` where the walk is over."""
        if not self.may_attempt:
            return None
        for candidate in self._candidates:
            if self.is_worth_asking(candidate):
                return candidate
        return None

    def is_worth_asking(self, candidate: Candidate) -> bool:
        """Whether nothing learnt within this request speaks against ``candidate``."""
        deployment = self._catalog.deployments.get(candidate.deployment_id)
        if deployment is None:
            return False
        if deployment.provider in self._providers_down:
            return False
        return deployment.context_tokens > self._window_too_small

    def note(self, candidate: Candidate, outcome: Outcome) -> None:
        """Learn from a failed attempt."""
        self._attempts += 1
        deployment = self._catalog.deployments[candidate.deployment_id]
        if not outcome.try_next:
            self._stopped = True
        if outcome.scope is Scope.PROVIDER:
            self._providers_down.add(deployment.provider)
        if outcome.kind is OutcomeKind.CONTEXT_TOO_LONG:
            window = outcome.learned_context_tokens or deployment.context_tokens
            self._window_too_small = max(self._window_too_small, window)
        if outcome.kind in _REFUSALS:
            self._refusals += 1
            if self._refusals >= _MOST_REFUSALS:
                self._stopped = True
