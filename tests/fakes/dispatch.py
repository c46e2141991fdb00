"""A dispatcher between fake providers and the real health tracker, for tests in virtual time."""

from __future__ import annotations

import random

from router.catalog.catalog import Catalog
from router.chat.types import TextDelta
from router.dispatch.dispatcher import Dispatch, Dispatcher
from router.errors import (
    TimeoutPhase,
    UpstreamBrokenStream,
    UpstreamEmpty,
    UpstreamInBandError,
    UpstreamStatus,
    UpstreamTimeout,
    UpstreamUnreachable,
)
from router.health.outcome import OutcomeKind
from router.health.tracker import HealthTracker
from router.routing.candidate import Candidate
from tests.fakes.clock import LoopClock
from tests.fakes.provider import FakeProvider, make_catalog, make_decision, make_deployment, make_request

__all__ = ["FAILURES", "Bench", "kinds", "read"]


class Bench:
    """Deployments ``a``, ``b``, … of providers of the same names, asked in that order."""

    def __init__(self, *providers: FakeProvider, catalog: Catalog | None = None, **limits: float) -> None:
        names = "abcdefgh"[: len(providers)]
        self.catalog = catalog or make_catalog(*(make_deployment(name, name) for name in names), **limits)
        self.providers = dict(zip(self.catalog.providers, providers, strict=True))
        self.tracker = HealthTracker(self.catalog, rng=random.Random(1))  # noqa: S311 - jitter is no secret
        self.dispatcher = Dispatcher(self.catalog, self.providers, tracker=self.tracker, clock=LoopClock())

    def open(self, *candidates: str | Candidate, **fields: object) -> Dispatch:
        decision = make_decision(*(candidates or self.catalog.deployments))
        return self.dispatcher.open(make_request(**fields), decision)

    def assert_nothing_held(self) -> None:
        assert self.tracker.in_flight == 0
        assert [provider.open_streams for provider in self.providers.values()] == [0] * len(self.providers)


def kinds(dispatch: Dispatch) -> list[tuple[str, OutcomeKind]]:
    return [(attempt.deployment_id, attempt.outcome.kind) for attempt in dispatch.attempts]


async def read(dispatch: Dispatch) -> str:
    async with dispatch as answer:
        deltas = [delta async for event in answer.events for delta in event.deltas]
    return "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))


FAILURES = {
    "429": (UpstreamStatus("slow down", upstream_status=429, retry_after_s=47.0), OutcomeKind.RATE_LIMITED),
    "402": (UpstreamStatus("no credits", upstream_status=402), OutcomeKind.NO_BALANCE),
    "401": (UpstreamStatus("bad key", upstream_status=401), OutcomeKind.BAD_CREDENTIALS),
    "404": (UpstreamStatus("no model", upstream_status=404), OutcomeKind.MODEL_NOT_FOUND),
    "500": (UpstreamStatus("oops", upstream_status=500), OutcomeKind.UPSTREAM_FAILURE),
    "503": (UpstreamStatus("overloaded", upstream_status=503), OutcomeKind.UPSTREAM_FAILURE),
    "refused": (UpstreamUnreachable("refused"), OutcomeKind.UNREACHABLE),
    "first event": (UpstreamTimeout("quiet", phase=TimeoutPhase.FIRST_EVENT), OutcomeKind.TIMED_OUT),
    "connect": (UpstreamTimeout("quiet", phase=TimeoutPhase.CONNECT), OutcomeKind.TIMED_OUT),
    "broken": (UpstreamBrokenStream("EOF"), OutcomeKind.BROKEN_STREAM),
    "in band": (UpstreamInBandError("limit", upstream_status=429), OutcomeKind.RATE_LIMITED),
    "empty": (UpstreamEmpty("nothing"), OutcomeKind.EMPTY_ANSWER),
    "defect": (RuntimeError("defect"), OutcomeKind.GATEWAY_DEFECT),
}
