"""Many requests over random faults, through the whole gateway in virtual time: what must always hold."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from router.dispatch.dispatcher import Dispatch
from router.errors import Exhausted, StreamInterrupted
from router.health.outcome import OutcomeKind
from router.health.snapshot import BreakerState
from router.routing.candidate import ExclusionReason
from router.story import Story
from tests.fakes.chaos import FAULTS, KEYS_OF_B, ChaosWorld
from tests.fakes.clock import VirtualTimeLoop
from tests.fakes.provider import make_request

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    return ("asyncio", {"loop_factory": VirtualTimeLoop})


@pytest.fixture
def _quiet() -> Iterator[None]:
    """Every fault is a line of the log: too many to write."""
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    yield
    structlog.configure(**before)


class Tally:
    """What came of the requests, and whatever should not have."""

    def __init__(self) -> None:
        self.endings: Counter[str] = Counter()
        self.wrong: list[str] = []


async def one_request(world: ChaosWorld, number: int, tally: Tally) -> None:
    request_id, rng = f"r{number}", world.rng
    model = rng.choice(("chat", "code", "auto"))
    request = make_request(model=model, body={"id": request_id, "messages": []})
    story = world.gateway.arrived(request_id, "chaos")
    patience = rng.uniform(0.0, 20.0) if rng.random() < 0.05 else None
    try:
        async with asyncio.timeout(patience), world.gateway.answer(story, request) as events:
            async for _ in events:
                pass
        tally.endings["answered"] += 1
    except TimeoutError:
        tally.endings["left"] += 1
    except StreamInterrupted:
        tally.endings["interrupted"] += 1
    except Exhausted as error:
        tally.endings["exhausted"] += 1
        check_failure(world, story, error, tally)
    check_attempts(world, story, tally)


def check_failure(world: ChaosWorld, story: Story, error: Exhausted, tally: Tally) -> None:
    """Whoever was well all the time was asked, or had said himself not to ask before a time."""
    assert story.dispatch is not None
    began, ended = story.started, asyncio.get_running_loop().time()
    asked = {attempt.deployment_id for attempt in story.dispatch.attempts}
    decision = story.dispatch.decision
    held = {one.deployment_id: one for one in decision.exclusions}
    last_resorts = {one.deployment_id for one in decision.candidates if one.last_resort}
    for name in world.catalog.deployments:
        if name in asked or not world.well_throughout(name, began, ended):
            continue
        exclusion = held.get(name)
        stated = exclusion is not None and exclusion.reason is ExclusionReason.BENCHED
        guessed = name in last_resorts or (
            exclusion is not None and exclusion.reason is ExclusionReason.BREAKER_OPEN
        )
        # A breaker's guess is only overruled as long as the budget lasts.
        dry = not world.gateway._dispatcher.budget.has_any(ended)
        if not (stated or (guessed and dry and len(story.dispatch.attempts) >= 3)):
            tally.wrong.append(f"{story.request_id}: {name} was well and not asked: {exclusion}")
    if error.http_status not in {400, 429, 502, 503, 404}:
        tally.wrong.append(f"{story.request_id}: status {error.http_status}")
    if {line.split(":")[0] for line in error.trail} != set(world.catalog.deployments):
        tally.wrong.append(f"{story.request_id}: the trail is not whole")


def check_attempts(world: ChaosWorld, story: Story, tally: Tally) -> None:
    dispatch: Dispatch | None = story.dispatch
    assert dispatch is not None
    assert story.decision is not None
    attempts = dispatch.attempts
    asked = [attempt.deployment_id for attempt in attempts]
    # Once with each key; and whoever had no free slot is well, and may be asked once more in the end.
    busy = {one.deployment_id for one in attempts if one.outcome.kind is OutcomeKind.SLOT_BUSY}
    most = {name: len(KEYS_OF_B) if name.startswith("b/") else 1 + (name in busy) for name in asked}
    if any(count > most[name] for name, count in Counter(asked).items()):
        tally.wrong.append(f"{story.request_id}: somebody was asked too often: {asked}")
    if world.calls[story.request_id] > len(asked):
        tally.wrong.append(f"{story.request_id}: {world.calls[story.request_id]} calls for {asked}")
    if any(attempt.committed or attempt.outcome.succeeded for attempt in attempts[:-1]):
        tally.wrong.append(f"{story.request_id}: somebody was asked after an answer had begun")
    ejected_by_us = [
        one
        for one in story.decision.exclusions
        if one.reason is not ExclusionReason.BENCHED or one.bench_kind is OutcomeKind.SLOT_BUSY
    ]
    if not story.decision.candidates and ejected_by_us:
        tally.wrong.append(f"{story.request_id}: everybody was ejected: {ejected_by_us}")
    if world.records[story.request_id] != 1:
        tally.wrong.append(f"{story.request_id}: {world.records[story.request_id]} records")


async def run(world: ChaosWorld) -> Tally:
    tally = Tally()
    async with asyncio.TaskGroup() as group:
        for number in range(world.requests):
            group.create_task(one_request(world, number, tally))
            await asyncio.sleep(world.rng.expovariate(world.per_s))
    return tally


def check_end(world: ChaosWorld, tally: Tally) -> None:
    now = world.roundhouse.gateway.snapshot().taken_at
    health = world.tracker.snapshot(now, {}).deployments

    assert tally.wrong[:10] == []
    assert tally.endings.total() == len(world.records) == world.requests
    assert world.late_calls == []
    assert world.permits.out == set()
    assert world.permits.twice == []
    assert world.permits.issued >= sum(world.calls.values())
    assert world.tracker.in_flight == 0
    assert all(state.in_flight == 0 for state in health.values())
    assert [provider.open_streams for provider in world.providers.values()] == [0] * 5
    # The schedule has teeth: every fault was met, and every ending.
    assert set(world.played) >= {*FAULTS, "answer"} - {"flap", "no model"}
    assert min(tally.endings[kind] for kind in ("answered", "left", "interrupted")) > world.requests / 2_000
    assert 0 < tally.endings["exhausted"] < world.requests / 5
    # Everybody is given another try in time.
    later = world.tracker.snapshot(now + 90_000.0, {}).deployments
    assert all(state.breaker is not BreakerState.OPEN for state in later.values())
    assert all(state.bench_until is None or state.bench_until <= now + 90_000.0 for state in later.values())


@pytest.mark.usefixtures("_quiet")
async def test_no_request_fails_needlessly_over_random_faults(tmp_path: Path) -> None:
    world = ChaosWorld(1, 20_000, tmp_path)

    check_end(world, await run(world))


@pytest.mark.slow
@pytest.mark.usefixtures("_quiet")
@pytest.mark.parametrize("seed", range(2, 12))
async def test_no_request_of_twenty_thousand_fails_needlessly(seed: int, tmp_path: Path) -> None:
    world = ChaosWorld(seed, 20_000, tmp_path)

    check_end(world, await run(world))
