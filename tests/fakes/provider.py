"""A provider in a test's hand: each call does what the next behaviour says, and is counted.

A behaviour is a list of steps: an event is yielded, an exception raised, a number waited (seconds),
``HANG`` waits for ever, a callable is called. The end of the list is the end of the answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import TypeAlias

from router.catalog.catalog import (
    Capabilities,
    Catalog,
    Deployment,
    Limits,
    Price,
    ProviderKind,
)
from router.catalog.catalog import Provider as ProviderEntry
from router.chat.features import RequestFeatures
from router.chat.types import (
    ChatEvent,
    ChatRequest,
    FinishDelta,
    FinishReason,
    TextDelta,
    Usage,
    UsageDelta,
    WireFrame,
    WireName,
)
from router.providers.base import AttemptDeadlines, ProviderStatus
from router.routing.candidate import Candidate, RoutingDecision, Score

__all__ = [
    "ANSWER",
    "HANG",
    "FakeProvider",
    "Step",
    "finish",
    "make_catalog",
    "make_decision",
    "make_deployment",
    "make_request",
    "metadata",
    "text",
    "usage",
]

HANG = object()

Step: TypeAlias = "ChatEvent | BaseException | float | Callable[[], object] | object"


def _event(*deltas: object, data: bytes = b"{}") -> ChatEvent:
    return ChatEvent(deltas=deltas, frame=WireFrame(WireName.CHAT_COMPLETIONS, data))  # type: ignore[arg-type]


def text(value: str) -> ChatEvent:
    return _event(TextDelta(0, value), data=value.encode())


def metadata(data: bytes = b"{}") -> ChatEvent:
    return _event(data=data)


def finish(reason: FinishReason = FinishReason.STOP) -> ChatEvent:
    return _event(FinishDelta(0, reason))


def usage(prompt: int = 10, completion: int = 20, reasoning: int = 0) -> ChatEvent:
    return _event(
        UsageDelta(Usage(input_tokens=prompt, output_tokens=completion, reasoning_tokens=reasoning))
    )


ANSWER: tuple[Step, ...] = (text("good"), finish())


class FakeProvider:
    """Plays behaviours in order, the last one again and again."""

    def __init__(self, *behaviours: tuple[Step, ...] | list[Step]) -> None:
        self.behaviours = list(behaviours or [ANSWER])
        self.calls: list[tuple[str, AttemptDeadlines, str | None]] = []
        self.requests: list[ChatRequest] = []
        self.open_streams = 0
        self.expected_wait_s = 0.0

    def stream(
        self,
        request: ChatRequest,
        deployment: Deployment,
        deadlines: AttemptDeadlines,
        *,
        key_label: str | None = None,
    ) -> AsyncIterator[ChatEvent]:
        behaviour = self.behaviours[min(len(self.calls), len(self.behaviours) - 1)]
        self.calls.append((deployment.id, deadlines, key_label))
        self.requests.append(request)
        return self._play(behaviour)

    def status(self) -> ProviderStatus:
        return ProviderStatus(configured=True, ready=True, expected_wait_s=self.expected_wait_s)

    async def aclose(self) -> None:
        """Nothing to release."""

    async def _play(self, behaviour: tuple[Step, ...] | list[Step]) -> AsyncGenerator[ChatEvent]:
        self.open_streams += 1
        try:
            for step in behaviour:
                if isinstance(step, ChatEvent):
                    yield step
                elif isinstance(step, BaseException):
                    # The same object is raised again and again: it should not gather what came before.
                    raise step.with_traceback(None)
                elif isinstance(step, int | float):
                    await asyncio.sleep(step)
                elif step is HANG:
                    await asyncio.get_running_loop().create_future()
                elif callable(step):
                    step()
        finally:
            self.open_streams -= 1


def make_deployment(deployment_id: str, provider: str, **fields: object) -> Deployment:
    values: dict[str, object] = {
        "id": deployment_id,
        "provider": provider,
        "upstream_model": f"{deployment_id}-upstream",
        "context_tokens": 100_000,
        "max_output_tokens": 8_000,
        "price": Price(1_000_000, 2_000_000),
        "capabilities": Capabilities(tools=True),
        "task_fit": {},
    }
    return Deployment(**{**values, **fields})  # type: ignore[arg-type]


def make_catalog(*deployments: Deployment, local: tuple[str, ...] = (), **limits: float) -> Catalog:
    values: dict[str, float] = {
        "max_body_bytes": 1 << 20,
        "max_attempts": 6,
        "connect_timeout_s": 5.0,
        "first_event_timeout_s": 30.0,
        "stall_timeout_s": 20.0,
        "total_timeout_s": 600.0,
    }
    names = dict.fromkeys(deployment.provider for deployment in deployments)
    return Catalog(
        providers={
            name: ProviderEntry(name, ProviderKind.OPENAI, f"http://{name}.test/v1", local=name in local)
            for name in names
        },
        deployments={deployment.id: deployment for deployment in deployments},
        entrypoints={},
        judge=None,
        limits=Limits(**{**values, **limits}),  # type: ignore[arg-type]
        version="test",
    )


def make_request(**fields: object) -> ChatRequest:
    values: dict[str, object] = {
        "model": "chat",
        "stream": True,
        "include_usage": False,
        "max_output_tokens": None,
        "wire": WireName.CHAT_COMPLETIONS,
        "body": {"model": "chat", "messages": [{"role": "user", "content": "hello"}]},
        "body_bytes": 64,
    }
    return ChatRequest(**{**values, **fields})  # type: ignore[arg-type]


def make_decision(*candidates: str | Candidate, prompt_characters: int = 100) -> RoutingDecision:
    listed = tuple(
        candidate if isinstance(candidate, Candidate) else Candidate(candidate, Score(()))
        for candidate in candidates
    )
    features = RequestFeatures("chat", prompt_characters, None)
    return RoutingDecision("chat", features, listed, (), decided_at=0.0)
