"""Acts on a routing decision: asks one candidate after the other until one begins to answer.

Before the commit boundary (the first semantic event, or a complete answer) every failure goes on to the next
candidate at once; after it nobody else is asked. The one place that tells the health tracker what happened.
Knows attempts and deadlines; not scores, wires, records or clients.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import replace
from types import TracebackType
from typing import Final

import structlog

from router.catalog.catalog import Catalog
from router.chat.types import ChatEvent, ChatRequest
from router.clock import Clock
from router.dispatch.answer import Answer
from router.dispatch.attempt import Attempt
from router.dispatch.deadlines import attempt_deadlines
from router.dispatch.local_slot import joined_first, slot_wait_worth
from router.dispatch.retry_budget import RetryBudget
from router.dispatch.running_attempt import RunningAttempt
from router.dispatch.second_look import second_look
from router.dispatch.walk import Walk
from router.errors import Exhausted, StreamInterrupted, UpstreamError
from router.health.classify import classify
from router.health.outcome import Outcome, OutcomeKind, Scope
from router.health.tracker import HealthTracker, Permit
from router.providers.base import JoiningProvider, Provider
from router.providers.offline import Network, unless_offline
from router.routing.candidate import Candidate, RoutingDecision
from router.routing.exhaustion import exhausted

__all__ = ["Dispatch", "Dispatcher"]

_log = structlog.get_logger(__name__)

_DEFECT: Final = Outcome(OutcomeKind.GATEWAY_DEFECT, Scope.NONE, "a defect of the gateway's own, see its log")
_KEY_SCOPES: Final = frozenset({Scope.KEY, Scope.KEY_MODEL})
# The first attempt and two hops are free; what comes after them is paid from the budget.
_FREE_ATTEMPTS: Final = 3


class Dispatcher:
    """Holds what every dispatch needs. One for each catalog; the tracker and the providers may outlive it.

    The rotation of a provider's keys is the tracker's: a permit names the key to use.
    """

    def __init__(
        self,
        catalog: Catalog,
        providers: Mapping[str, Provider],
        *,
        tracker: HealthTracker,
        clock: Clock,
        network: Network | None = None,
    ) -> None:
        self.catalog = catalog
        self.providers = providers
        self.tracker = tracker
        self.clock = clock
        self.network = network
        self.budget = RetryBudget()
        self._joining = tuple(one for one in providers.values() if isinstance(one, JoiningProvider))

    def open(
        self,
        request: ChatRequest,
        decision: RoutingDecision,
        *,
        request_id: str = "",
        decide_again: Callable[[], RoutingDecision] | None = None,
    ) -> Dispatch:
        """Return the dispatch of one request, to be entered with ``async with``; the id is for the log.

        ``decide_again`` says who could be asked once everybody has failed: somebody may be back by then.
        """
        try:
            decision = joined_first(decision, request, self._joining)
        except Exception:  # noqa: BLE001 - a defect of ours costs a shared answer, not the request
            _log.exception("dispatch.join_failed", request_id=request_id)
        return Dispatch(self, request, decision, request_id, decide_again)


class Dispatch:
    """One request's way through its candidates: an asynchronous context manager, entered once.

    Entering returns the :class:`~router.dispatch.answer.Answer` at the commit boundary, and raises
    :class:`~router.errors.Exhausted` where nobody could serve. Leaving it, however that comes about, closes
    the upstream at once and gives the permit back. :attr:`attempts` can be read at any time, so also after
    ``Exhausted`` or a cancellation.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        request: ChatRequest,
        decision: RoutingDecision,
        request_id: str,
        decide_again: Callable[[], RoutingDecision] | None,
    ) -> None:
        self._catalog = dispatcher.catalog
        self._providers = dispatcher.providers
        self._tracker = dispatcher.tracker
        self._clock = dispatcher.clock
        self._network = dispatcher.network
        self._budget = dispatcher.budget
        self._request = request
        self._request_id = request_id
        self._decision = decision
        self._decide_again = decide_again
        self._offered: set[str] = set()
        self._walk = Walk(decision, dispatcher.catalog)
        self._attempts: list[Attempt] = []
        self._running: RunningAttempt | None = None
        self._began = 0.0

    @property
    def _log(self) -> structlog.stdlib.BoundLogger:
        log: structlog.stdlib.BoundLogger = _log.bind(request_id=self._request_id)
        return log

    @property
    def decision(self) -> RoutingDecision:
        """What was decided: with those who came back in the meantime, where everybody else failed."""
        return self._decision

    @property
    def attempts(self) -> tuple[Attempt, ...]:
        """The attempts that have ended, in order."""
        return tuple(self._attempts)

    async def __aenter__(self) -> Answer:
        self._began = self._clock.monotonic()
        self._budget.note_request(self._began)
        if self._network is not None:
            self._walk.offline = self._network.is_gone
        while self._time_is_left():
            candidate = self._walk.next_candidate()
            if candidate is None:
                if self._look_again():
                    continue
                break
            running = await self._ask(candidate)
            if running is not None:
                return Answer(running, self._next_event, lambda: self.attempts)
        raise self._exhausted()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._leave()

    async def _ask(self, candidate: Candidate) -> RunningAttempt | None:
        """Ask one candidate, with one key after the other; ``None`` where it gave no answer."""
        labels: set[str] = set()
        while self._walk.may_attempt and (permit := self._acquire(candidate)) is not None:
            if permit.key_label in labels:
                self._release(permit)
                return None
            labels.add(permit.key_label)
            outcome = await self._attempt(candidate, permit)
            if outcome is None:
                return self._running
            self._walk.note(candidate, outcome)
            self._tell_network(candidate, outcome)
            if outcome.scope not in _KEY_SCOPES:
                return None
        return None

    def _look_again(self) -> bool:
        """Look for somebody who may be asked now that the others have failed; whether there is one."""
        if self._decide_again is None or not self._walk.may_attempt:
            return False
        try:
            decision = self._decide_again()
        except Exception:  # noqa: BLE001 - a defect of ours must not end the request
            self._log.exception("routing.decide_failed")
            return False
        asked = {attempt.deployment_id for attempt in self._attempts}
        self._decision, back = second_look(self._decision, decision, asked, self._offered)
        self._offered.update(one.deployment_id for one in back)
        self._walk.extend(back)
        return bool(back)

    async def _attempt(self, candidate: Candidate, permit: Permit) -> Outcome | None:
        """Make one attempt; ``None`` where it reached the commit boundary and is now the running one."""
        running = RunningAttempt(
            len(self._attempts) + 1,
            candidate.deployment_id,
            lambda: self._stream(candidate, permit),
            permit,
            tracker=self._tracker,
            clock=self._clock,
            request_id=self._request_id,
        )
        self._running = running
        if len(self._attempts) >= _FREE_ATTEMPTS:
            self._budget.withdraw(self._clock.monotonic())
        try:
            await self._until_commit(running, candidate)
        except Exception as error:  # noqa: BLE001 - whatever an adapter raises, the next candidate is asked
            return await self._failed(running, error)
        except BaseException:
            # Entering failed, so nobody will call __aexit__.
            await self._leave()
            raise
        self._note_end(running)
        return None

    async def _until_commit(self, running: RunningAttempt, candidate: Candidate) -> None:
        network = self._network
        if network is None or self._is_local(candidate):
            await running.until_commit()
            return
        if network.is_proved or not self._walk.has_local_left:
            await running.until_commit()
        else:
            await unless_offline(running.until_commit, network)
        network.heard()

    def _tell_network(self, candidate: Candidate, outcome: Outcome) -> None:
        if self._network is None or self._is_local(candidate):
            return
        if outcome.http_status is not None:
            self._network.heard()
        elif self._network.is_gone:
            self._walk.offline = True
        elif self._walk.offline:
            self._network.suspect()

    def _is_local(self, candidate: Candidate) -> bool:
        return self._catalog.provider_of(candidate.deployment_id).local

    def _time_is_left(self) -> bool:
        """Whether an attempt could come to something: a deadline of nothing would blame the next one."""
        used = self._clock.monotonic() - self._began
        return used < self._catalog.limits.total_timeout_s

    def _stream(self, candidate: Candidate, permit: Permit) -> AsyncIterator[ChatEvent]:
        deployment = self._catalog.deployments[candidate.deployment_id]
        provider = self._providers[deployment.provider]
        used = self._clock.monotonic() - self._began
        deadlines = attempt_deadlines(
            self._catalog.limits,
            self._decision.features,
            deployment,
            is_local=self._catalog.providers[deployment.provider].local,
            expected_wait_s=provider.status().expected_wait_s,
            remaining_s=self._catalog.limits.total_timeout_s - used,
            slot_wait_s=slot_wait_worth(deployment, self._walk.alternative, self._catalog),
        )
        request = self._request
        if candidate.output_limit is not None:
            request = replace(request, max_output_tokens=candidate.output_limit)
        return provider.stream(request, deployment, deadlines, key_label=permit.key_label or None)

    async def _next_event(self) -> ChatEvent | None:
        running = self._running
        if running is None:
            return None
        try:
            event = await running.next()
        except Exception as error:
            outcome = await self._failed(running, error)
            said = outcome.detail or outcome.kind.value
            raise StreamInterrupted(
                f"{running.deployment_id} failed within its answer: {said}",
                retry_after_s=error.retry_after_s if isinstance(error, UpstreamError) else None,
            ) from error
        if event is None:
            self._note_end(running)
        return event

    async def _failed(self, running: RunningAttempt, error: Exception) -> Outcome:
        attempt = running.fail(self._outcome_of(error, running.deployment_id))
        self._note_end(running)
        await running.close()
        self._log.info(
            "attempt.failed",
            deployment=attempt.deployment_id,
            number=attempt.number,
            committed=attempt.committed,
            kind=attempt.outcome.kind.value,
            scope=attempt.outcome.scope.value,
            detail=attempt.outcome.detail,
        )
        return attempt.outcome

    async def _leave(self) -> None:
        """Give back whatever is still held."""
        running, self._running = self._running, None
        if running is not None:
            running.abandon()
            self._note_end(running)
            await running.close()

    def _note_end(self, running: RunningAttempt) -> None:
        ended = running.finished
        if ended is not None and ended not in self._attempts[-1:]:
            self._attempts.append(ended)
            if ended.outcome.succeeded:
                self._teach(running)

    def _teach(self, running: RunningAttempt) -> None:
        """Let the tracker learn how many tokens this model makes of a prompt's characters."""
        features, usage = self._decision.features, running.usage
        # An image has tokens but no characters; what frames the messages is counted apart.
        if usage is None or usage.estimated or features.needs_vision:
            return
        tokens = usage.prompt_tokens - features.fixed_tokens
        if tokens <= 0:
            return
        try:
            self._tracker.observe_usage(running.deployment_id, features.prompt_characters, tokens)
        except Exception:  # noqa: BLE001 - a defect of ours must not end the request
            self._log.exception("health.observe_failed", deployment=running.deployment_id)

    def _acquire(self, candidate: Candidate) -> Permit | None:
        try:
            return self._tracker.acquire(
                candidate.deployment_id,
                self._clock.wall(),
                prompt_tokens=self._prompt_tokens(candidate),
                last_resort=self._insists(candidate),
            )
        except Exception:  # noqa: BLE001 - a defect of ours must not end the request
            self._log.exception("health.acquire_failed", deployment=candidate.deployment_id)
            return None

    def _release(self, permit: Permit) -> None:
        try:
            self._tracker.release(permit)
        except Exception:  # noqa: BLE001 - a defect of ours must not end the request
            self._log.exception("health.release_failed", deployment=permit.deployment_id)

    def _insists(self, candidate: Candidate) -> bool:
        """Whether to ask though a breaker is open: not once too much has been asked in vain.

        Whoever is in good standing is asked all the same: no budget keeps a request from him.
        """
        if not (candidate.last_resort or candidate.within_floor):
            return False
        return len(self._attempts) < _FREE_ATTEMPTS or self._budget.has_any(self._clock.monotonic())

    def _prompt_tokens(self, candidate: Candidate) -> int:
        deployment = self._catalog.deployments[candidate.deployment_id]
        return self._decision.features.prompt_tokens(deployment.tokens_per_character)

    def _outcome_of(self, error: Exception, deployment_id: str) -> Outcome:
        if not isinstance(error, UpstreamError):
            self._log.error("provider.defect", deployment=deployment_id, exc_info=error)
            return _DEFECT
        try:
            provider = self._catalog.provider_of(deployment_id)
            return classify(error, now=self._clock.wall(), vendor=provider.name, local=provider.local)
        except Exception:  # noqa: BLE001 - a defect of ours must not end the request
            self._log.exception("health.classify_failed", deployment=deployment_id)
            return _DEFECT

    def _exhausted(self) -> Exhausted:
        try:
            return exhausted(self._decision, self._attempts, self._clock.wall())
        except Exception:  # noqa: BLE001 - the client gets an honest error all the same
            self._log.exception("routing.exhausted_failed")
            return Exhausted(
                "no candidate could serve the request",
                exhausted_status=503,
                exhausted_code="all_unavailable",
                trail=tuple(
                    f"{attempt.deployment_id}: {attempt.outcome.kind.value}" for attempt in self._attempts
                ),
            )
