"""What is known of one request so far, from its arrival on; at the end it folds into the record.

The gateway writes it, the surface reads from it what the answer's headers say. Knows no HTTP and no SQL.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, replace

import structlog

from router.catalog.catalog import Catalog
from router.catalog.pricing import cost_micros
from router.chat.finish_repair import FinishRepair
from router.chat.priority import priority_of
from router.chat.types import Caller, ChatEvent, ChatRequest, ReasoningDelta, TextDelta, ToolCallDelta, Usage
from router.dispatch.answer import Answer
from router.dispatch.dispatcher import Dispatch
from router.errors import ClientDisconnected, GatewayError
from router.recording.records import RequestRecord
from router.routing.candidate import RoutingDecision

__all__ = ["ClientHints", "Story", "ToldEvents"]

_log = structlog.get_logger("gateway")


@dataclass(frozen=True, slots=True)
class ClientHints:
    """What a client says beside its request: who it is (a digest of its key), how urgent its request is."""

    principal: str = ""
    priority: str = ""
    may_join: bool = True


_NO_HINTS = ClientHints()


@dataclass(slots=True)
class Story:
    """One request. ``received_at`` is wall-clock, ``started`` and ``first_event_at`` monotonic seconds.

    ``session`` is the client's own name for its conversation, where it has one; ``cut`` is why its serving
    was cancelled, where it was.
    """

    request_id: str
    surface: str
    received_at: float
    started: float
    session: str = ""
    hints: ClientHints = _NO_HINTS
    request: ChatRequest | None = None
    decision: RoutingDecision | None = None
    dispatch: Dispatch | None = None
    answer: Answer | None = None
    first_event_at: float | None = None
    output_characters: int = 0
    began_early: bool = False
    cut: GatewayError | None = None
    error: GatewayError | None = None

    @property
    def candidate(self) -> str | None:
        """Who answers; ``None`` as long as nobody does."""
        return self.answer.deployment_id if self.answer else None

    @property
    def task(self) -> str | None:
        """What the request was judged to be and by whom; ``None`` where nobody had to judge."""
        verdict = self.decision.verdict if self.decision else None
        return verdict.label if verdict is not None else None

    @property
    def joined(self) -> str:
        """The id of the request whose answer this one shares; empty where it has its own."""
        return self.answer.joined if self.answer else ""

    def called(self, request: ChatRequest) -> ChatRequest:
        """Return ``request`` with who asks, and how."""
        hints = self.hints
        priority = priority_of(request.body, hints.priority)
        return replace(request, caller=Caller(hints.principal, self.request_id, priority, hints.may_join))

    @property
    def attempts_made(self) -> int:
        """How many tries it took so far, the one that runs included."""
        ended = self.dispatch.attempts if self.dispatch else ()
        runs = self.answer is not None and not any(attempt.committed for attempt in ended)
        return len(ended) + runs

    def begin_early(self) -> None:
        """Note that the client got its 200 before anybody answered."""
        self.began_early = True

    def observe(self, event: ChatEvent) -> None:
        """Count what the answer says, for answers whose upstream does not."""
        for delta in event.deltas:
            if isinstance(delta, TextDelta | ReasoningDelta):
                self.output_characters += len(delta.text)
            elif isinstance(delta, ToolCallDelta):
                self.output_characters += len(delta.name or "") + len(delta.arguments)

    def record(self, catalog: Catalog, now: float) -> RequestRecord:
        """Fold into the record; ``now`` on the monotonic clock."""
        usage = self._usage(catalog)
        return RequestRecord(
            request_id=self.request_id,
            received_at=self.received_at,
            surface=self.surface,
            requested_model=self.request.model if self.request else "",
            stream=self.request.stream if self.request else False,
            status=self._status(),
            error_code=self.error.envelope_code if self.error else None,
            deployment_id=self.candidate,
            attempts=self.dispatch.attempts if self.dispatch else (),
            decision=self.dispatch.decision if self.dispatch else self.decision,
            usage=usage,
            cost_micros=self._cost(usage, catalog),
            ttft_s=self.first_event_at - self.started if self.first_event_at is not None else None,
            duration_s=now - self.started,
            catalog_version=catalog.version,
        )

    def _usage(self, catalog: Catalog) -> Usage | None:
        """Return the upstream's count, else an estimate from characters, said to be one."""
        if self.answer is None or self.decision is None:
            return None
        if self.answer.usage is not None:
            return self.answer.usage
        deployment = catalog.deployments.get(self.answer.deployment_id)
        ratio = deployment.tokens_per_character if deployment else 0.3
        return Usage(
            input_tokens=self.decision.features.prompt_tokens(ratio),
            output_tokens=round(self.output_characters * ratio),
            estimated=True,
        )

    def _cost(self, usage: Usage | None, catalog: Catalog) -> int | None:
        deployment = catalog.deployments.get(self.candidate) if self.candidate else None
        return cost_micros(usage, deployment.price) if usage and deployment else None

    def _status(self) -> int:
        """Return the status that the client saw: a stream had its 200 before it broke off."""
        if self.error is None:
            return 200
        streamed = (
            self.request is not None and self.request.stream and (self.began_early or self.answer is not None)
        )
        left = isinstance(self.error, ClientDisconnected)
        return 200 if streamed and not left else self.error.http_status


class ToldEvents:
    """The events as the client is to see them; the story notes on the way what they say."""

    __slots__ = ("_endings", "_events", "_story")

    def __init__(self, answer: Answer, story: Story) -> None:
        self._events = answer.events
        self._story = story
        self._endings = FinishRepair()

    def __aiter__(self) -> AsyncIterator[ChatEvent]:
        return self

    async def __anext__(self) -> ChatEvent:
        event = await anext(self._events)
        try:
            self._story.observe(event)
            return self._endings.repair(event)
        except Exception:  # noqa: BLE001 - a defect of ours must not end the answer
            _log.exception("an event was not understood", request_id=self._story.request_id)
            return event
