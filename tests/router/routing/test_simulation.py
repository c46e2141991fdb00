"""Deciding and health together over random fault schedules, with a clock of numbers.

Requests overlap in simulated time; every fault schedule and every draw comes from the seed.
"""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Generator
from dataclasses import dataclass, field

import pytest

from router.catalog.catalog import Catalog
from router.errors import (
    GatewayError,
    TimeoutPhase,
    UpstreamBrokenStream,
    UpstreamStatus,
    UpstreamTimeout,
    UpstreamUnreachable,
)
from router.health.classify import classify
from router.health.outcome import Outcome, OutcomeKind, Scope
from router.health.snapshot import BreakerState
from router.health.tracker import HealthTracker
from router.routing.decide import decide
from router.routing.exhaustion import exhausted

from .conftest import NOW, catalog, deployment, features

SECONDS = 3_600.0
FAULTS = ("limit", "crash", "gone", "stall", "cut", "no balance", "flap")


@dataclass
class Asked:
    deployment_id: str
    outcome: Outcome


@dataclass
class World:
    """What the upstreams really do: per deployment, a list of (from, until, fault)."""

    rng: random.Random
    schedule: dict[str, list[tuple[float, float, str]]]
    told_until: dict[str, float] = field(default_factory=dict)

    def fault(self, name: str, now: float) -> str | None:
        for begin, end, fault in self.schedule[name]:
            if begin <= now < end:
                return fault if fault != "flap" or self.rng.random() < 0.5 else None
        return None

    def well_throughout(self, name: str, begin: float, end: float) -> bool:
        return all(until <= begin or since > end for since, until, _ in self.schedule[name])

    def answer(self, name: str, now: float) -> tuple[float, GatewayError | None]:
        fault = self.fault(name, now)
        if fault is None:
            return self.rng.uniform(0.2, 20.0), None
        if fault == "limit":
            wait = float(self.rng.randint(1, 40))
            return 0.01, UpstreamStatus("slow down", upstream_status=429, retry_after_s=wait)
        errors: dict[str, tuple[float, GatewayError]] = {
            "crash": (0.1, UpstreamStatus("oops", upstream_status=500)),
            "flap": (0.1, UpstreamStatus("oops", upstream_status=502)),
            "gone": (0.01, UpstreamUnreachable("connection refused")),
            "stall": (15.0, UpstreamTimeout("no first event", phase=TimeoutPhase.FIRST_EVENT)),
            "cut": (2.0, UpstreamBrokenStream("eof")),
            "no balance": (
                0.05,
                UpstreamStatus("Insufficient credits", upstream_status=402, retry_after_s=300),
            ),
        }
        return errors[fault]


class Simulation:
    def __init__(self, seed: int, requests: int) -> None:
        self.rng = random.Random(seed)  # noqa: S311 - a simulation
        names = [f"d{number}" for number in range(9)]
        self.catalog: Catalog = catalog(
            *(deployment(name, provider=f"p{number % 4}") for number, name in enumerate(names))
        )
        self.tracker = HealthTracker(self.catalog, rng=self.rng)
        schedule: dict[str, list[tuple[float, float, str]]] = {}
        for name in names:
            faults, at = [], NOW + self.rng.uniform(0, 300)
            while at < NOW + SECONDS * 0.8:
                length = self.rng.choice([1.0, 10.0, 60.0, 400.0])
                faults.append((at, at + length, self.rng.choice(FAULTS)))
                at += length + self.rng.expovariate(1 / 200)
            schedule[name] = faults
        self.world = World(self.rng, schedule)
        self.requests = requests
        self.counts: Counter[str] = Counter()
        self.now = NOW

    def run(self) -> None:
        queue: list[tuple[float, int, Generator[float, None, None]]] = []
        for number in range(self.requests):
            heapq.heappush(queue, (NOW + self.rng.uniform(0, SECONDS), number, self.request()))
        while queue:
            self.now, number, story = heapq.heappop(queue)
            wait = next(story, None)
            if wait is not None:
                heapq.heappush(queue, (self.now + wait, number, story))

    def request(self) -> Generator[float, None, None]:
        began = self.now
        snapshot = self.tracker.snapshot(began, {})
        decision = decide(
            features(prompt_characters=self.rng.randint(10, 40_000)),
            self.catalog.entrypoints["chat"],
            self.catalog,
            snapshot,
            now=began,
            rng=self.rng,
        )
        held = {one.deployment_id for one in decision.exclusions}
        assert len(held) + len(decision.candidates) == 9
        asked: list[Asked] = []
        refused: set[str] = set()
        for candidate in decision.candidates:
            name = candidate.deployment_id
            insists = candidate.last_resort or candidate.within_floor
            permit = self.tracker.acquire(name, self.now, last_resort=insists)
            if permit is None:
                refused.add(name)
                continue
            assert self.now >= self.world.told_until.get(name, 0.0), "asked within a stated limit"
            latency, error = self.world.answer(name, self.now)
            if self.rng.random() < 0.03:
                yield latency / 2
                self.tracker.release(permit)
                self.counts["left"] += 1
                return
            yield latency
            outcome = classify(error, now=self.now)
            if error is None:
                outcome = Outcome(OutcomeKind.SUCCESS, Scope.NONE, ttft_s=latency / 10, tokens_per_s=40.0)
            assert self.tracker.settle(permit, outcome, self.now)
            assert not self.tracker.settle(permit, outcome, self.now)
            if outcome.succeeded:
                self.counts["served"] += 1
                return
            if outcome.kind is OutcomeKind.RATE_LIMITED:
                known = self.world.told_until.get(name, 0.0)
                self.world.told_until[name] = max(known, self.now + outcome.bench_s)
            asked.append(Asked(name, outcome))
        self.failed(began, asked, held, refused)
        error_of_all = exhausted(decision, asked, self.now)
        assert error_of_all.http_status in {429, 502, 503}
        assert len(error_of_all.trail) == 9

    def failed(self, began: float, asked: list[Asked], held: set[str], refused: set[str]) -> None:
        self.counts["failed"] += 1
        tried = {one.deployment_id for one in asked}
        for name in self.catalog.deployments:
            if self.world.well_throughout(name, began, self.now) and name not in tried:
                assert name in held | refused, f"{name} was well, free and never asked"


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_no_request_fails_needlessly_and_everything_recovers(seed: int) -> None:
    simulation = Simulation(seed, requests=1_500)
    simulation.run()
    counts, tracker = simulation.counts, simulation.tracker

    assert sum(counts.values()) == simulation.requests
    assert counts["served"] > 0.9 * simulation.requests
    assert tracker.in_flight == 0
    later = simulation.now + 400.0
    seen = tracker.snapshot(later, {}).deployments
    assert all(one.in_flight == 0 for one in seen.values())
    for name, one in seen.items():
        assert one.breaker is not BreakerState.OPEN, name
        assert not one.probing, name
        permit = tracker.acquire(name, later)
        assert permit is not None, name
        tracker.settle(permit, Outcome(OutcomeKind.SUCCESS, Scope.NONE), later)
    again = tracker.snapshot(later + 1, {}).deployments
    assert all(one.breaker is BreakerState.CLOSED and one.bench_until is None for one in again.values())


def test_the_same_seed_gives_the_same_story() -> None:
    stories = []
    for _ in range(2):
        simulation = Simulation(7, requests=300)
        simulation.run()
        stories.append((simulation.counts, simulation.tracker.incidents(), simulation.now))

    assert stories[0] == stories[1]


def test_when_everybody_crashes_somebody_is_still_asked_and_recovery_is_noticed_at_once() -> None:
    simulation = Simulation(11, requests=0)
    crash_ends = NOW + 100.0
    simulation.world.schedule = {
        name: [(NOW, crash_ends, "crash")] for name in simulation.catalog.deployments
    }
    for second in range(100):
        simulation.now = NOW + second
        story = simulation.request()
        for wait in story:
            simulation.now += wait
    health = simulation.tracker.snapshot(crash_ends, {}).deployments

    assert simulation.counts["failed"] > 90
    assert all(one.breaker is not BreakerState.CLOSED for one in health.values())

    simulation.now = crash_ends + 1.0
    for wait in simulation.request():
        simulation.now += wait
    assert simulation.counts["served"] == 1
