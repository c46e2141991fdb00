"""The judge: names the task of a request to ``auto``, or says at once why the heuristic has to.

A lane of its own: one call for a request, bounded by ``judge.timeout_s``, to the first candidate that may be
asked; no second one, no retry. It shares no state with those who serve requests and never asks a provider on
this machine, so it can neither bench a model nor take the local slot. Whatever goes wrong, the request goes
on with the heuristic's verdict.

Knows neither scores nor attempts. The order: cache → who may be asked → ask → read the answer → keep it.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final

import anyio
import structlog

from router.catalog.catalog import Catalog, Deployment
from router.catalog.pricing import cost_micros
from router.chat.features import RequestFeatures
from router.chat.types import ChatEvent, ChatRequest, TextDelta, Usage, UsageDelta
from router.clock import Clock
from router.errors import GatewayError, TimeoutPhase, UpstreamTimeout
from router.health.classify import classify
from router.health.jitter import Randomness
from router.health.outcome import Outcome, OutcomeKind, Scope
from router.judge.answer import MOST_ANSWER_CHARACTERS, JudgeAnswer, read_answer
from router.judge.cache import VerdictCache, VerdictKey, verdict_key
from router.judge.heuristic import heuristic_verdict
from router.judge.members import KeyTurns, members_of
from router.judge.prompt import Marks, judge_request
from router.judge.standing import MALFORMED, JudgePermit, JudgeStanding, LaneView
from router.providers.base import AttemptDeadlines, Provider, ProviderStatus
from router.providers.offline import Network, unless_offline
from router.routing.verdict import JudgeCall, TaskVerdict, VerdictSource

__all__ = ["Judge", "JudgeStatus"]

_CLOSING_S: Final = 0.5
_SUCCESS: Final = Outcome(OutcomeKind.SUCCESS, Scope.NONE)
_KEY_SCOPES: Final = frozenset({Scope.KEY, Scope.KEY_MODEL})
_NO_KEYS: Final[Mapping[str, Sequence[str]]] = MappingProxyType({})
_OFFLINE: Final = Outcome(OutcomeKind.UNREACHABLE, Scope.NONE, "there is no network")
_DEFECT: Final = Outcome(OutcomeKind.GATEWAY_DEFECT, Scope.NONE, "a defect of the gateway's own, see its log")

# Why nobody was asked; why nobody answered is the outcome of the call.
_NO_JUDGE: Final = "no_judge"
_UNAVAILABLE: Final = "judge_unavailable"
_NO_NETWORK: Final = "no_network"
_NOT_ASKED: Final = "not_asked"

_log = structlog.get_logger("judge")


@dataclass(frozen=True, slots=True)
class JudgeStatus:
    """How the judge goes: ``usable`` are those of its candidates that have a key and may see prompts.

    ``left_out`` are those that the configuration names and that may not judge, with the reason.
    """

    lane: LaneView
    usable: tuple[str, ...]
    left_out: Mapping[str, str]
    cached: int
    answered_from_cache: int
    heuristic: int


@dataclass(slots=True)
class _Heard:
    """What has come of an answer so far; read also where the call was cut short."""

    text: list[str] = field(default_factory=list)
    characters: int = 0
    usage: Usage | None = None

    def take(self, event: ChatEvent) -> None:
        for delta in event.deltas:
            if isinstance(delta, TextDelta) and delta.choice == 0:
                self.text.append(delta.text)
                self.characters += len(delta.text)
            elif isinstance(delta, UsageDelta):
                self.usage = delta.usage


class Judge:
    """Built once for a catalog.

    ``key_labels`` are the labels of each provider's keys; ``make_mark`` draws the numbers that fence a
    prompt.
    """

    def __init__(
        self,
        catalog: Catalog,
        providers: Mapping[str, Provider],
        statuses: Callable[[], Mapping[str, ProviderStatus]],
        key_labels: Mapping[str, Sequence[str]] = _NO_KEYS,
        *,
        clock: Clock,
        rng: Randomness,
        network: Network | None = None,
        make_mark: Callable[[], str] = lambda: secrets.token_hex(4),
    ) -> None:
        settings = catalog.judge
        self._catalog = catalog
        self._providers = providers
        self._statuses = statuses
        self._network = network
        self._clock = clock
        self._make_mark = make_mark
        self._timeout_s = settings.timeout_s if settings else 0.0
        self._members = members_of(catalog)
        self._keys = KeyTurns(key_labels)
        self._standing = JudgeStanding(
            tuple(self._members.eligible),
            open_s=settings.open_s if settings else 1.0,
            timeout_s=self._timeout_s,
            rng=rng,
        )
        self._cache = VerdictCache(settings.cache_s if settings else 0.0)
        self._from_cache = 0
        self._by_heuristic = 0

    async def name_task(self, request: ChatRequest, features: RequestFeatures) -> TaskVerdict:
        """Name the task of ``request``; takes ``timeout_s`` at most, and no time where nobody is asked.

        Raises nothing but a cancellation: then the call is closed and its permit given back.
        """
        by_structure = heuristic_verdict(request, features)
        try:
            verdict = await self._judged(request, features, by_structure)
        except Exception:  # noqa: BLE001 - naming a task never fails a request
            _log.exception("judge.defect")
            verdict = replace(by_structure, why=OutcomeKind.GATEWAY_DEFECT.value)
        if verdict.source is VerdictSource.HEURISTIC:
            self._by_heuristic += 1
        return verdict

    def recall(self, request: ChatRequest, features: RequestFeatures) -> TaskVerdict:
        """Return what :meth:`name_task` would say without asking anybody: for explanations."""
        by_structure = heuristic_verdict(request, features)
        if not self._usable():
            return replace(by_structure, why=_NO_JUDGE)
        kept = self._cache.get(verdict_key(request, by_structure.kind), self._clock.monotonic())
        return kept if kept is not None else replace(by_structure, why=_NOT_ASKED)

    def status(self) -> JudgeStatus:
        """Return how the judge goes."""
        return JudgeStatus(
            lane=self._standing.view(self._clock.wall()),
            usable=self._usable(),
            left_out=self._members.left_out,
            cached=len(self._cache),
            answered_from_cache=self._from_cache,
            heuristic=self._by_heuristic,
        )

    async def _judged(
        self, request: ChatRequest, features: RequestFeatures, by_structure: TaskVerdict
    ) -> TaskVerdict:
        usable = self._usable()
        if not usable:
            return replace(by_structure, why=_NO_JUDGE)
        key = verdict_key(request, by_structure.kind)
        kept = self._cache.get(key, self._clock.monotonic())
        if kept is not None:
            self._from_cache += 1
            return kept
        if self._network is not None and self._network.is_gone:
            return replace(by_structure, why=_NO_NETWORK)
        permit = self._standing.admit(self._clock.wall(), usable)
        if permit is None:
            return replace(by_structure, why=_UNAVAILABLE)
        answer, call = await self._ask(permit, request, features)
        if answer is None:
            return replace(by_structure, why=call.outcome, call=call)
        return self._keep(key, answer, call)

    def _keep(self, key: VerdictKey, answer: JudgeAnswer, call: JudgeCall) -> TaskVerdict:
        verdict = TaskVerdict(
            kind=answer.kind,
            basis=f"{call.deployment_id} said so",
            source=VerdictSource.JUDGE,
            difficulty=answer.difficulty,
            needs=answer.needs,
            call=call,
        )
        kept = replace(
            verdict,
            basis=f"{call.deployment_id} said so of this conversation before",
            source=VerdictSource.CACHE,
            call=None,
        )
        self._cache.put(key, kept, self._clock.monotonic())
        return verdict

    async def _ask(
        self, permit: JudgePermit, request: ChatRequest, features: RequestFeatures
    ) -> tuple[JudgeAnswer | None, JudgeCall]:
        """Make the one call; the permit is given back in every ending."""
        deployment = self._members.eligible[permit.deployment_id]
        marks = Marks(self._make_mark(), self._make_mark())
        heard, key_label = _Heard(), self._keys.label(deployment.provider)
        started = self._clock.monotonic()
        try:
            asked = judge_request(request, features, marks, reasons=deployment.capabilities.reasoning)
            outcome = await self._outcome(asked, deployment, heard, key_label)
        except BaseException:
            # The client left, or a defect before anybody was asked: nobody is to blame.
            self._standing.release(permit)
            raise
        if outcome.scope in _KEY_SCOPES and self._keys.refused(deployment.provider, key_label):
            outcome = replace(outcome, bench_s=0.0)
        answer = read_answer("".join(heard.text), marks.seal)
        word = self._settle(permit, outcome, answer)
        duration = self._clock.monotonic() - started
        usage = heard.usage or _estimate(asked, heard, deployment)
        cost = cost_micros(usage, deployment.price) if usage is not None else None
        return answer, JudgeCall(deployment.id, duration, word, usage, cost)

    def _settle(self, permit: JudgePermit, outcome: Outcome, answer: JudgeAnswer | None) -> str:
        """Tell how the call went, in one word too. A whole verdict counts, whatever came after it."""
        now = self._clock.wall()
        if answer is not None:
            self._standing.settle(permit, _SUCCESS, now)
            return OutcomeKind.SUCCESS.value
        if outcome is _OFFLINE:
            self._standing.release(permit)
            return _NO_NETWORK
        if outcome.succeeded:
            self._standing.malformed(permit, now)
            word, detail = MALFORMED, "the answer holds no verdict"
        else:
            self._standing.settle(permit, outcome, now)
            word, detail = outcome.kind.value, outcome.detail
        _log.info("judge.failed", deployment=permit.deployment_id, kind=word, detail=detail)
        return word

    async def _outcome(
        self, asked: ChatRequest, deployment: Deployment, heard: _Heard, key_label: str | None
    ) -> Outcome:
        """Read the answer into ``heard``; return how it ended."""
        error: GatewayError
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._read(asked, deployment, heard, key_label)
        except TimeoutError:
            error = UpstreamTimeout(f"no verdict within {self._timeout_s:g} s", phase=TimeoutPhase.TOTAL)
        except GatewayError as raised:
            error = raised
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            # Nobody asked for it: the adapter was cancelled from within.
            _log.exception("judge.provider_defect", deployment=deployment.id)
            return _DEFECT
        except Exception:  # noqa: BLE001 - whatever an adapter raises, the request goes on
            _log.exception("judge.provider_defect", deployment=deployment.id)
            return _DEFECT
        else:
            return _SUCCESS
        if self._network is not None and self._network.is_gone:
            return _OFFLINE
        return classify(error, now=self._clock.wall(), vendor=deployment.provider)

    async def _read(
        self, asked: ChatRequest, deployment: Deployment, heard: _Heard, key_label: str | None
    ) -> None:
        """Read the answer into ``heard``; give up at once where there turns out to be no network."""

        async def read() -> None:
            async with self._opened(asked, deployment, key_label) as events:
                async for event in events:
                    heard.take(event)
                    if heard.characters > MOST_ANSWER_CHARACTERS:
                        break

        network = self._network
        if network is None or network.is_proved:
            await read()
            return
        await unless_offline(read, network)
        network.heard()

    @asynccontextmanager
    async def _opened(
        self, asked: ChatRequest, deployment: Deployment, key_label: str | None
    ) -> AsyncIterator[AsyncIterator[ChatEvent]]:
        """Open the upstream's stream, and close it in every ending; a closing that hangs is left."""
        bound = self._timeout_s
        deadlines = AttemptDeadlines(connect_s=bound, first_event_s=bound, stall_s=bound, total_s=bound)
        events = self._providers[deployment.provider].stream(
            asked, deployment, deadlines, key_label=key_label
        )
        try:
            yield events
        finally:
            closing = getattr(events, "aclose", None)
            if closing is not None:
                with anyio.move_on_after(_CLOSING_S, shield=True):
                    await closing()

    def _usable(self) -> tuple[str, ...]:
        """Return those whose provider is ready, which takes a key, in order."""
        if not self._members.eligible:
            return ()
        statuses = self._statuses()
        return tuple(
            name
            for name, deployment in self._members.eligible.items()
            if (status := statuses.get(deployment.provider)) is not None
            and status.configured
            and status.ready
        )


def _estimate(asked: ChatRequest, heard: _Heard, deployment: Deployment) -> Usage | None:
    """Estimate the tokens of an answer that came without a count; ``None`` where none began."""
    if not heard.characters:
        return None
    ratio = deployment.tokens_per_character
    return Usage(
        input_tokens=round(asked.body_bytes * ratio),
        output_tokens=round(heard.characters * ratio),
        estimated=True,
    )
