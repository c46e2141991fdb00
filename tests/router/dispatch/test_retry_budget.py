"""The budget of asking in vain, by hand and at the dispatcher."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.dispatch.retry_budget import RetryBudget
from router.errors import Exhausted, UpstreamStatus
from router.routing.candidate import Candidate, Score
from tests.fakes.clock import VirtualTimeLoop
from tests.fakes.dispatch import FAILURES, Bench, read
from tests.fakes.provider import ANSWER, FakeProvider


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    return ("asyncio", {"loop_factory": VirtualTimeLoop})


def drain(budget: RetryBudget, now: float) -> int:
    taken = 0
    while budget.withdraw(now):
        taken += 1
    return taken


def test_a_single_persons_budget_is_not_empty_and_fills_by_one_a_second() -> None:
    budget = RetryBudget()

    assert drain(budget, 0.0) == 10
    assert drain(budget, 0.9) == 0
    assert drain(budget, 3.1) == 3
    assert drain(budget, 1e6) == 10


def test_a_tenth_of_the_requests_is_earned_and_fades() -> None:
    budget = RetryBudget()
    drain(budget, 0.0)
    for _ in range(200):
        budget.note_request(0.0)

    assert drain(budget, 0.0) in {19, 20}
    for _ in range(200):
        budget.note_request(0.0)
    assert drain(budget, 100.0) == 10


@given(
    st.lists(st.tuples(st.floats(0, 5), st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=60),
)
def test_never_more_is_taken_than_was_earned(steps: list[tuple[float, int, int]]) -> None:
    budget, now, requests, taken = RetryBudget(), 0.0, 0, 0
    for passed, asked, wanted in steps:
        now += passed
        for _ in range(asked):
            budget.note_request(now)
        requests += asked
        taken += sum(budget.withdraw(now) for _ in range(wanted))

        assert taken <= 10 + now + 0.1 * requests + 1e-6


@pytest.mark.anyio
async def test_once_the_budget_is_empty_no_open_breaker_is_overruled_after_the_third_attempt() -> None:
    bench = Bench(*(FakeProvider([FAILURES["500"][0]]) for _ in range(5)))
    for _ in range(6):
        for name in "abcde":
            with pytest.raises(Exhausted):
                await read(bench.open(Candidate(name, Score(()), last_resort=True)))
    doubtful = [Candidate(name, Score(()), last_resort=True) for name in "abcde"]
    numbers = []
    for _ in range(12):
        dispatch = bench.open(*doubtful)
        with pytest.raises(Exhausted):
            await read(dispatch)
        numbers.append(len(dispatch.attempts))

    assert numbers[0] == 5
    assert numbers[-1] == 3


@pytest.mark.anyio
async def test_whoever_is_in_good_standing_is_asked_though_the_budget_is_empty() -> None:
    limited = UpstreamStatus("slow down", upstream_status=429, retry_after_s=1.0)
    bench = Bench(*(FakeProvider([limited]) for _ in range(7)), FakeProvider(ANSWER), max_attempts=64)
    while bench.dispatcher.budget.withdraw(0.0):
        pass

    assert await read(bench.open()) == "good"


@pytest.mark.anyio
async def test_no_attempt_begins_once_the_requests_time_is_over() -> None:
    bench = Bench(FakeProvider([100.0, FAILURES["503"][0]]), FakeProvider(), total_timeout_s=100.0)
    dispatch = bench.open()
    with pytest.raises(Exhausted):
        await read(dispatch)

    assert [attempt.deployment_id for attempt in dispatch.attempts] == ["a"]
