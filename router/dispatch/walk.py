"""Which candidate comes next, from what the ones before it came to.

Pure: knows the order that was decided and the outcomes so far; not time, permits or providers.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from router.catalog.catalog import Catalog, Deployment
from router.health.outcome import Outcome, OutcomeKind, Scope
from router.routing.candidate import Candidate, RoutingDecision

__all__ = ["Walk"]

# A request that one upstream refuses for what it says may be to another's taste; a third is not bothered
# with it.
_MOST_REFUSALS: Final = 2
_REFUSALS: Final = frozenset({OutcomeKind.BAD_REQUEST, OutcomeKind.CONTENT_FILTERED})
# So many providers that cannot be reached, and nobody heard from: it is the network rather than they.
_DOUBTED_AT: Final = 2


class Walk:
    """Goes through a decision's candidates once, in order, within ``max_attempts``.

    Others of a provider that is down are put off to the end, where one of them is its second chance: a
    request must not fail on one lost connection. So are those without a free slot, who are well: they wait
    for it where nobody else is left. Where there seems to be no network, those that need none come first.
    """

    def __init__(self, decision: RoutingDecision, catalog: Catalog) -> None:
        self._waiting = list(decision.candidates)
        self._put_off: list[Candidate] = []
        self._catalog = catalog
        self._attempts = 0
        self._refusals = 0
        self._stopped = False
        self._second_chances = False
        self._providers_down: set[str] = set()
        self._spilled: set[str] = set()
        self._heard_from_outside = False
        self._window_too_small = 0
        self.offline = False

    @property
    def may_attempt(self) -> bool:
        """Whether one more attempt is allowed at all."""
        return not self._stopped and self._attempts < self._catalog.limits.max_attempts

    @property
    def has_local_left(self) -> bool:
        """Whether somebody waits who needs no network."""
        return any(self._is_local(candidate) for candidate in self._waiting)

    @property
    def alternative(self) -> Candidate | None:
        """Who would be asked in place of a local one without a free slot; ``None`` where there is nobody."""
        if self.offline:
            return None
        for candidate in self._waiting:
            deployment = self._catalog.deployments.get(candidate.deployment_id)
            if deployment is None or candidate.last_resort or self._is_local(candidate):
                continue
            if (
                deployment.provider not in self._providers_down
                and deployment.context_tokens > self._window_too_small
            ):
                return candidate
        return None

    def next_candidate(self) -> Candidate | None:
        """Return the next one worth asking, or ``None`` where the walk is over."""
        while self.may_attempt:
            if not self._waiting:
                if self._second_chances or not self._put_off:
                    return None
                self._begin_second_chances()
            candidate = self._take()
            deployment = self._catalog.deployments.get(candidate.deployment_id)
            if deployment is None or deployment.context_tokens <= self._window_too_small:
                continue
            if deployment.provider not in self._providers_down:
                return candidate
            self._put_off.append(candidate)
        return None

    def extend(self, candidates: Iterable[Candidate]) -> None:
        """Let these come next, after all who wait."""
        self._waiting.extend(candidates)

    def note(self, candidate: Candidate, outcome: Outcome) -> None:
        """Learn from a failed attempt."""
        self._attempts += 1
        deployment = self._catalog.deployments[candidate.deployment_id]
        if not outcome.try_next:
            self._stopped = True
        self._note_reach(deployment, outcome)
        spilled = outcome.kind is OutcomeKind.SLOT_BUSY and outcome.scope is Scope.SLOT
        if spilled and candidate.deployment_id not in self._spilled:
            self._spilled.add(candidate.deployment_id)
            self._put_off.append(candidate)
        if outcome.kind is OutcomeKind.CONTEXT_TOO_LONG:
            window = outcome.learned_context_tokens or deployment.context_tokens
            self._window_too_small = max(self._window_too_small, window)
        if outcome.kind in _REFUSALS:
            self._refusals += 1
            if self._refusals >= _MOST_REFUSALS:
                self._stopped = True

    def _note_reach(self, deployment: Deployment, outcome: Outcome) -> None:
        if outcome.scope is Scope.PROVIDER:
            self._providers_down.add(deployment.provider)
        if outcome.http_status is not None and not self._catalog.providers[deployment.provider].local:
            self._heard_from_outside = True
        outside = [name for name in self._providers_down if not self._catalog.providers[name].local]
        if len(outside) >= _DOUBTED_AT and not self._heard_from_outside:
            self.offline = True

    def _begin_second_chances(self) -> None:
        self._second_chances = True
        self._waiting, self._put_off = self._put_off, []
        self._providers_down.clear()

    def _take(self) -> Candidate:
        if self.offline:
            for place, candidate in enumerate(self._waiting):
                if self._is_local(candidate):
                    return self._waiting.pop(place)
        return self._waiting.pop(0)

    def _is_local(self, candidate: Candidate) -> bool:
        deployment = self._catalog.deployments.get(candidate.deployment_id)
        return deployment is not None and self._catalog.providers[deployment.provider].local
