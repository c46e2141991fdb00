"""The page: a request from its arrival to its record, in reading order.

    canonical request → features → judge → health snapshot → decision → dispatch → record

Knows no HTTP, no SQL and no vendor. A surface parses what came in, enters :meth:`Gateway.answer`, relays
the events, and leaves; how it leaves is what is recorded.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial

import structlog

from router.catalog.catalog import Catalog, Entrypoint
from router.chat.conversation import conversation_key, has_reasoning_history
from router.chat.features import RequestFeatures, read_features
from router.chat.types import ChatEvent, ChatRequest
from router.clock import Clock
from router.dispatch.dispatcher import Dispatcher
from router.errors import ClientDisconnected, GatewayError, InternalError
from router.health.jitter import Randomness
from router.health.snapshot import HealthSnapshot
from router.health.tracker import HealthTracker
from router.judge.lane import Judge
from router.providers.base import ProviderStatus
from router.recording.recorder import Recorder
from router.routing.candidate import RoutingDecision
from router.routing.conversations import Conversations
from router.routing.decide import decide
from router.routing.plain_order import plain_order
from router.routing.resolve import resolve
from router.routing.verdict import TaskVerdict
from router.story import ClientHints, Story, ToldEvents

__all__ = ["Gateway"]


class Gateway:
    """Serves canonical requests. Built once by the application, with everything it needs."""

    def __init__(
        self,
        *,
        catalog: Catalog,
        tracker: HealthTracker,
        statuses: Callable[[], Mapping[str, ProviderStatus]],
        judge: Judge,
        dispatcher: Dispatcher,
        recorder: Recorder,
        clock: Clock,
        rng: Randomness,
    ) -> None:
        self.catalog = catalog
        self.judge = judge
        self._tracker = tracker
        self._statuses = statuses
        self._dispatcher = dispatcher
        self._recorder = recorder
        self._clock = clock
        self._rng = rng
        self._conversations = Conversations()
        # Digests of conversations mean nothing outside this process.
        self._salt = rng.random().hex().encode()
        self._log = structlog.get_logger("gateway")

    def arrived(
        self, request_id: str, surface: str, session: str = "", hints: ClientHints | None = None
    ) -> Story:
        """Note that a request has come in now, at that surface, in the session that the client named."""
        now = self._clock.monotonic()
        return Story(request_id, surface, self._clock.wall(), now, session, hints or ClientHints())

    def snapshot(self) -> HealthSnapshot:
        """Return everybody's health now."""
        return self._tracker.snapshot(self._clock.wall(), self._statuses())

    def decide(self, request: ChatRequest, session: str = "") -> RoutingDecision:
        """Decide who may serve ``request``; asks nobody, not even the judge, so that it also explains.

        ``session`` is the client's own name for the conversation, where it has one.

        Raises
        ------
        UnknownModel
            Nothing has the name that the request asks for.

        """
        entrypoint = resolve(request.model, self.catalog)
        features = read_features(request)
        verdict = self.judge.recall(request, features) if entrypoint.judged else None
        return self._decide(request, entrypoint, features, verdict, self._conversation(request, session))

    def _decide(
        self,
        request: ChatRequest,
        entrypoint: Entrypoint,
        features: RequestFeatures,
        verdict: TaskVerdict | None,
        conversation: bytes,
    ) -> RoutingDecision:
        health = self.snapshot()
        previous = self._conversations.last(conversation, self._clock.monotonic())
        return decide(
            features,
            entrypoint,
            self.catalog,
            health,
            now=health.taken_at,
            rng=self._rng,
            verdict=verdict,
            previous_deployment=previous,
            reasoning_history=previous is not None and has_reasoning_history(request),
        )

    @asynccontextmanager
    async def answer(self, story: Story, request: ChatRequest) -> AsyncIterator[AsyncIterator[ChatEvent]]:
        """Have ``request`` served: enters with the events once a candidate has said its first word.

        Raises
        ------
        UnknownModel, Exhausted
            Before that: nobody has answered, and nobody will.
        StreamInterrupted
            From the events: it broke off after its first word.
        InternalError
            A defect of ours; the log has it.

        """
        story.request = request
        try:
            request = story.request = story.called(request)
            story.decision, conversation = await self._decided(story, request)
            story.dispatch = self._dispatcher.open(
                request,
                story.decision,
                request_id=story.request_id,
                decide_again=partial(self._decide_again, request, story.decision.verdict, conversation),
            )
            async with story.dispatch as story.answer:
                story.first_event_at = self._clock.monotonic()
                if conversation and request.model in self.catalog.entrypoints:
                    # A pinned request says nothing of where its conversation is at home.
                    now = story.first_event_at
                    self._conversations.remember(conversation, story.answer.deployment_id, now)
                yield ToldEvents(story.answer, story)
        except (asyncio.CancelledError, GeneratorExit):
            story.error = story.cut or ClientDisconnected("the client left")
            raise
        except GatewayError as error:
            story.error = error
            raise
        except Exception as error:
            self._log.exception("a request met a defect", request_id=story.request_id)
            story.error = InternalError("an internal error; the gateway's log has it under this request's id")
            raise story.error from error
        finally:
            self._keep(story)

    def refuse(self, story: Story, error: GatewayError) -> None:
        """Record a request that could not even be read."""
        story.error = error
        self._keep(story)

    def _decide_again(
        self, request: ChatRequest, verdict: TaskVerdict | None, conversation: bytes
    ) -> RoutingDecision:
        """Decide by everybody's health now; what the task was judged to be stands."""
        entrypoint = resolve(request.model, self.catalog)
        return self._decide(request, entrypoint, read_features(request), verdict, conversation)

    def _conversation(self, request: ChatRequest, session: str) -> bytes:
        return conversation_key(request, salt=self._salt, session=session, caller=request.caller.principal)

    async def _decided(self, story: Story, request: ChatRequest) -> tuple[RoutingDecision, bytes]:
        """Have the task judged, decide, and name the conversation.

        A defect of ours costs the order, not the answer.
        """
        try:
            conversation = self._conversation(request, story.session)
            entrypoint = resolve(request.model, self.catalog)
            features = read_features(request)
            verdict = await self.judge.name_task(request, features) if entrypoint.judged else None
            return self._decide(request, entrypoint, features, verdict, conversation), conversation
        except GatewayError:
            raise
        except Exception:  # noqa: BLE001 - whatever it was, candidates are asked and the log has it
            self._log.exception(
                "deciding met a defect; candidates are asked in the file's order", request_id=story.request_id
            )
        unconfigured = {name for name, status in self._statuses().items() if not status.configured}
        entrypoint = resolve(request.model, self.catalog)
        now = self._clock.wall()
        return plain_order(request, entrypoint, self.catalog, unconfigured=unconfigured, now=now), b""

    def _keep(self, story: Story) -> None:
        """Record what happened; whatever goes wrong here, the client has its answer."""
        try:
            self._recorder.put(story.record(self.catalog, self._clock.monotonic()))
        except Exception:  # noqa: BLE001 - recording never takes anything down with it
            self._log.exception("a request was not recorded", request_id=story.request_id)
