"""Thousands of requests over random faults in virtual time: what must hold whatever happens."""

from __future__ import annotations

import asyncio
import random
from collections import Counter

import pytest

from router.catalog.catalog import Catalog
from router.chat.types import TextDelta
from router.dispatch.dispatcher import Dispatch
from router.errors import Exhausted, StreamInterrupted
from router.health.outcome import OutcomeKind
from tests.fakes.clock import LoopClock, VirtualTimeLoop
from tests.fakes.dispatch import FAILURES, Bench
from tests.fakes.provider import (
    HANG,
    FakeProvider,
    Step,
    finish,
    make_catalog,
    make_decision,
    make_deployment,
    make_request,
    metadata,
    text,
    usage,
)

pytestmark = pytest.mark.anyio

REQUESTS = 2_000
NAMES = "abcdef"


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    return ("asyncio", {"loop_factory": VirtualTimeLoop})


def random_behaviour(rng: random.Random) -> list[Step]:
    """Return an answer, or one that fails or hangs at any point of it."""
    answer: list[Step] = [metadata(), rng.random() * 3, text("good"), rng.random(), finish(), usage()]
    fate = rng.random()
    if fate < 0.4:
        return answer
    cut = rng.randrange(len(answer) - 1)
    if fate < 0.9:
        return [*answer[:cut], rng.choice([error for error, _ in FAILURES.values()])]
    return [*answer[:cut], HANG]


class Tally:
    """What came of the requests."""

    def __init__(self) -> None:
        self.endings: Counter[str] = Counter()
        self.dispatches: list[Dispatch] = []


async def one_client(bench: Bench, rng: random.Random, tally: Tally) -> None:
    # Bursts within a minute, days apart, so that the longest benches end between them.
    await asyncio.sleep(rng.randrange(REQUESTS // 10) * 200_000 + rng.random() * 60)
    order = rng.sample(NAMES, len(NAMES))
    dispatch = bench.dispatcher.open(make_request(), make_decision(*order))
    tally.dispatches.append(dispatch)
    patience = rng.choice([1.0, 5.0, 60.0])
    try:
        async with asyncio.timeout(patience), dispatch as answer:
            events = [event async for event in answer.events]
        assert TextDelta(0, "good") in [delta for event in events for delta in event.deltas]
        tally.endings["answered"] += 1
    except TimeoutError:
        tally.endings["left"] += 1
    except StreamInterrupted:
        tally.endings["interrupted"] += 1
        assert dispatch.attempts[-1].committed
    except Exhausted:
        tally.endings["exhausted"] += 1
        asked = {attempt.deployment_id for attempt in dispatch.attempts}
        for name in set(NAMES) - asked:
            # Whoever was not asked is held back by a bench, a breaker or a probe under way.
            assert bench.tracker.acquire(name, LoopClock().wall()) is None


def make_bench(rng: random.Random) -> Bench:
    catalog: Catalog = make_catalog(*(make_deployment(name, name) for name in NAMES))
    providers = [FakeProvider(*(random_behaviour(rng) for _ in range(REQUESTS))) for _ in NAMES]
    return Bench(*providers, catalog=catalog)


@pytest.mark.parametrize("seed", [1, 2])
async def test_whatever_happens_everything_is_given_back_and_nothing_is_tried_twice(seed: int) -> None:
    rng = random.Random(seed)  # noqa: S311 - reproducible on purpose
    bench = make_bench(rng)
    tally = Tally()
    async with asyncio.TaskGroup() as group:
        for _ in range(REQUESTS):
            group.create_task(one_client(bench, rng, tally))

    bench.assert_nothing_held()
    assert tally.endings.total() == REQUESTS
    # Every kind of ending was met; otherwise the schedule has lost its teeth.
    assert min(tally.endings[kind] for kind in ("answered", "left", "interrupted")) > 50
    for dispatch in tally.dispatches:
        attempts = dispatch.attempts
        assert len({attempt.deployment_id for attempt in attempts}) == len(attempts)
        assert not any(attempt.committed for attempt in attempts[:-1])
        assert [attempt.number for attempt in attempts] == list(range(1, len(attempts) + 1))
        assert not any(attempt.outcome.succeeded for attempt in attempts[:-1])
    health = bench.tracker.snapshot(0.0, {}).deployments
    assert all(state.in_flight == 0 for state in health.values())
    # Nobody was benched for what the clients or the gateway did.
    kinds = Counter(attempt.outcome.kind for dispatch in tally.dispatches for attempt in dispatch.attempts)
    silent = kinds[OutcomeKind.CLIENT_LEFT] + kinds[OutcomeKind.GATEWAY_DEFECT] + kinds[OutcomeKind.SUCCESS]
    failures = sum(state.failures for state in health.values())
    assert failures == kinds.total() - silent
