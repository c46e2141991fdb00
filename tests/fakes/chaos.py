"""A world of upstreams that fail by a schedule, around a whole gateway in virtual time.

Everything comes from one seed: which upstream has which fault from when to when, when requests come, and
which clients leave. The gateway is the real one (decisions, health, dispatch, records); only the upstreams
and the writing of the records are stood in for.
"""

from __future__ import annotations

import asyncio
import bisect
import random
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from router.app import Roundhouse
from router.catalog.catalog import Catalog, Deployment, Entrypoint, Price, Weights
from router.chat.types import ChatEvent, ChatRequest
from router.errors import (
    GatewayError,
    TimeoutPhase,
    UpstreamBrokenStream,
    UpstreamEmpty,
    UpstreamInBandError,
    UpstreamStatus,
    UpstreamTimeout,
    UpstreamUnreachable,
)
from router.health.tracker import HealthTracker, Permit
from router.providers.base import AttemptDeadlines, ProviderStatus
from router.recording.records import RequestRecord
from router.settings import Settings
from tests.fakes.clock import LoopClock
from tests.fakes.provider import finish, make_catalog, make_deployment, metadata, text, usage

__all__ = ["FAULTS", "KEYS_OF_B", "ChaosWorld"]

KEYS_OF_B = ("B_FIRST", "B_SECOND")

_METADATA, _TEXT, _FINISH, _USAGE = metadata(), text("good"), finish(), usage(50, 20)
_PROVIDER_FAULTS = ("gone", "mute")
_DEPLOYMENT_FAULTS = (
    "limit", "crash", "stall", "cut", "empty", "in band", "no balance", "flap", "defect",
    "breaks", "hangs up late",
)  # fmt: skip
# Who has no such model is left alone for an hour: an upstream that says so often is soon not asked at all.
_MIX = (*_DEPLOYMENT_FAULTS * 4, "no model")
FAULTS = (*_PROVIDER_FAULTS, *_DEPLOYMENT_FAULTS, "no model")


@dataclass(frozen=True, slots=True)
class Fault:
    begin: float
    end: float
    kind: str


class Schedule:
    """The faults of one upstream, in order, none overlapping another."""

    def __init__(self, rng: random.Random, span_s: float, mean_pause_s: float, kinds: Iterator[str]) -> None:
        self._faults: list[Fault] = []
        at = rng.expovariate(1 / mean_pause_s)
        while at < span_s:
            length = rng.choice([1.0, 10.0, 60.0, 400.0])
            self._faults.append(Fault(at, at + length, next(kinds)))
            at += length + rng.expovariate(1 / mean_pause_s)
        self._begins = [fault.begin for fault in self._faults]

    def at(self, now: float) -> str | None:
        place = bisect.bisect_right(self._begins, now) - 1
        return self._faults[place].kind if place >= 0 and now < self._faults[place].end else None

    def is_clear(self, begin: float, end: float) -> bool:
        place = max(0, bisect.bisect_right(self._begins, begin) - 1)
        return not any(fault.begin <= end and fault.end > begin for fault in self._faults[place : place + 9])


def _deck(kinds: tuple[str, ...], rng: random.Random) -> Iterator[str]:
    """Draw without putting back, so that none is missing; shuffled anew each time round."""
    while True:
        yield from rng.sample(kinds, len(kinds))


class ChaosWorld:
    """The gateway, its upstreams, and what they saw."""

    def __init__(self, seed: int, requests: int, folder: Path, *, per_s: float = 5.0) -> None:
        self.rng = random.Random(seed)  # noqa: S311 - repeatable on purpose
        self.requests = requests
        self.per_s = per_s
        span_s = requests / per_s
        self.catalog = _catalog()
        provider_faults, faults = _deck(_PROVIDER_FAULTS, self.rng), _deck(_MIX, self.rng)
        self.provider_schedules = {
            name: Schedule(self.rng, span_s, 400.0, provider_faults) for name in self.catalog.providers
        }
        self.schedules = {
            name: Schedule(self.rng, span_s, 120.0, faults) for name in self.catalog.deployments
        }
        self.calls: Counter[str] = Counter()
        self.committed: set[str] = set()
        self.late_calls: list[str] = []
        self.played: Counter[str] = Counter()
        self.providers = {name: ChaosProvider(name, self) for name in self.catalog.providers}
        settings = Settings(folder / "none.yaml", folder, f"sqlite:///{folder}/none.db")
        self.roundhouse = Roundhouse(
            settings, self.catalog, self.providers, key_labels=(), clock=LoopClock(), rng=self.rng
        )
        self.gateway = self.roundhouse.gateway
        self.tracker = self.roundhouse.tracker
        self.tracker.configure_keys("b", KEYS_OF_B)
        self.permits = PermitBook(self.tracker)
        self.records: Counter[str] = Counter()
        self.roundhouse.recorder.put = self._put  # type: ignore[method-assign]

    def _put(self, record: RequestRecord) -> None:
        self.records[record.request_id] += 1

    def fault(self, provider: str, deployment_id: str, now: float) -> str | None:
        return self.provider_schedules[provider].at(now) or self.schedules[deployment_id].at(now)

    def well_throughout(self, deployment_id: str, begin: float, end: float) -> bool:
        provider = self.catalog.deployments[deployment_id].provider
        return self.provider_schedules[provider].is_clear(begin, end) and self.schedules[
            deployment_id
        ].is_clear(begin, end)


class PermitBook:
    """Watches a tracker: each permit is given back once, and only once."""

    def __init__(self, tracker: HealthTracker) -> None:
        self.out: set[int] = set()
        self.twice: list[int] = []
        self.issued = 0
        acquire, settle, release = tracker.acquire, tracker.settle, tracker.release

        def watched_acquire(*arguments: Any, **named: Any) -> Permit | None:
            permit = acquire(*arguments, **named)
            if permit is not None:
                self.issued += 1
                self.out.add(permit.number)
            return permit

        def back(permit: Permit) -> None:
            if permit.number not in self.out:
                self.twice.append(permit.number)
            self.out.discard(permit.number)

        def watched_settle(permit: Permit, *arguments: Any) -> bool:
            back(permit)
            return settle(permit, *arguments)

        def watched_release(permit: Permit) -> bool:
            back(permit)
            return release(permit)

        tracker.acquire = watched_acquire  # type: ignore[method-assign]
        tracker.settle = watched_settle  # type: ignore[method-assign]
        tracker.release = watched_release  # type: ignore[method-assign]


class ChaosProvider:
    """Answers, or does what the schedule says."""

    def __init__(self, name: str, world: ChaosWorld) -> None:
        self._name = name
        self._world = world
        self._status = ProviderStatus(configured=True, ready=True)
        self.open_streams = 0

    def stream(
        self,
        request: ChatRequest,
        deployment: Deployment,
        deadlines: AttemptDeadlines,
        *,
        key_label: str | None = None,  # noqa: ARG002 - there are no keys in this world
    ) -> AsyncIterator[ChatEvent]:
        return self._stream(str(request.body["id"]), deployment, deadlines)

    def status(self) -> ProviderStatus:
        return self._status

    async def aclose(self) -> None:
        """Nothing to release."""

    async def _stream(
        self, request_id: str, deployment: Deployment, deadlines: AttemptDeadlines
    ) -> AsyncGenerator[ChatEvent]:
        world, rng = self._world, self._world.rng
        world.calls[request_id] += 1
        if request_id in world.committed:
            world.late_calls.append(request_id)
        self.open_streams += 1
        try:
            fault = world.fault(self._name, deployment.id, asyncio.get_running_loop().time())
            if fault == "flap":
                fault = rng.choice([None, "crash"])
            world.played[fault or "answer"] += 1
            await asyncio.sleep(_delay(fault, deadlines) if fault else rng.uniform(0.1, 3.0))
            error = _error(fault, rng)
            if fault in {"cut", "in band"}:
                yield _METADATA
            if error is not None and fault not in {"breaks", "hangs up late"}:
                raise error
            world.committed.add(request_id)
            yield _TEXT
            if error is not None:
                raise error
            await asyncio.sleep(rng.uniform(0.1, 10.0))
            yield _FINISH
            yield _USAGE
        finally:
            self.open_streams -= 1


def _delay(fault: str, deadlines: AttemptDeadlines) -> float:
    if fault == "stall":
        return deadlines.first_event_s
    return deadlines.connect_s if fault == "mute" else 0.05


def _error(fault: str | None, rng: random.Random) -> Exception | None:
    return None if fault is None else _ERRORS[fault](rng)


def _limit(rng: random.Random) -> GatewayError:
    wait = float(rng.randint(1, 40)) if rng.random() < 0.7 else None
    return UpstreamStatus("slow down", upstream_status=429, retry_after_s=wait)


def _crash(rng: random.Random) -> GatewayError:
    return UpstreamStatus("oops", upstream_status=rng.choice([500, 502, 503]))


_ERRORS: dict[str, Callable[[random.Random], Exception]] = {
    "gone": lambda _: UpstreamUnreachable("refused"),
    "mute": lambda _: UpstreamTimeout("no connection", phase=TimeoutPhase.CONNECT),
    "limit": _limit,
    "crash": _crash,
    "no balance": lambda _: UpstreamStatus("Insufficient credits", upstream_status=402, retry_after_s=120),
    "no model": lambda _: UpstreamStatus("no such model", upstream_status=404),
    "stall": lambda _: UpstreamTimeout("no first event", phase=TimeoutPhase.FIRST_EVENT),
    "cut": lambda _: UpstreamBrokenStream("eof"),
    "breaks": lambda _: UpstreamBrokenStream("reset"),
    "hangs up late": lambda _: UpstreamTimeout("stall", phase=TimeoutPhase.STALL),
    "empty": lambda _: UpstreamEmpty("nothing"),
    "in band": lambda _: UpstreamInBandError("overloaded", upstream_status=529),
    "defect": lambda _: RuntimeError("a defect of an adapter"),
}


def _catalog() -> Catalog:
    deployments = [
        make_deployment(
            f"{provider}/{number}",
            provider,
            price=Price(1_000_000 * number, 4_000_000 * number),
            task_fit={"chat": 0.9 - 0.1 * number, "code": 0.5 + 0.1 * number},
        )
        for provider, count in (("a", 3), ("b", 2), ("c", 2), ("d", 1), ("local", 1))
        for number in range(1, count + 1)
    ]
    catalog = make_catalog(*deployments, local=("local",), max_attempts=64)
    everybody = tuple(deployment.id for deployment in deployments)
    weights = Weights(health=3, task_fit=3, context_slack=0.5, cost=2, expected_time=2, load=1)
    names = ("auto", "chat", "code", "build", "long")
    entrypoints = {name: Entrypoint(name, name, everybody, weights, judged=name == "auto") for name in names}
    return replace(catalog, entrypoints=entrypoints)
