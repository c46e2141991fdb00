"""Who has come back while the others failed is asked before the request fails."""

from __future__ import annotations

from dataclasses import replace

import pytest

from router.errors import Exhausted
from router.health.outcome import OutcomeKind
from router.routing.candidate import Exclusion, ExclusionReason, RoutingDecision
from tests.fakes.clock import VirtualTimeLoop
from tests.fakes.dispatch import FAILURES, Bench, read
from tests.fakes.provider import FakeProvider, make_decision, make_request

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    return ("asyncio", {"loop_factory": VirtualTimeLoop})


def failing() -> FakeProvider:
    return FakeProvider([FAILURES["500"][0]])


async def test_somebody_who_is_back_is_asked() -> None:
    bench = Bench(failing(), FakeProvider())
    dispatch = bench.dispatcher.open(
        make_request(), make_decision("a"), decide_again=lambda: make_decision("a", "b")
    )

    assert await read(dispatch) == "good"
    assert [attempt.deployment_id for attempt in dispatch.attempts] == ["a", "b"]
    assert [candidate.deployment_id for candidate in dispatch.decision.candidates] == ["a", "b"]


async def test_nobody_is_asked_twice_and_the_trail_names_everybody_once() -> None:
    bench = Bench(failing(), FakeProvider())
    said = Exclusion("b", ExclusionReason.BENCHED, "for a while", 9.0, OutcomeKind.RATE_LIMITED)
    again = replace(make_decision("a"), exclusions=(said,))
    dispatch = bench.dispatcher.open(make_request(), make_decision("a"), decide_again=lambda: again)
    with pytest.raises(Exhausted) as caught:
        await read(dispatch)

    assert [attempt.deployment_id for attempt in dispatch.attempts] == ["a"]
    assert [line.split(":")[0] for line in caught.value.trail] == ["a", "b"]


async def test_a_look_that_fails_ends_with_the_ladder() -> None:
    def defect() -> RoutingDecision:
        raise RuntimeError("defect")

    dispatch = Bench(failing()).dispatcher.open(make_request(), make_decision("a"), decide_again=defect)
    with pytest.raises(Exhausted) as caught:
        await read(dispatch)

    assert caught.value.http_status == 503


async def test_time_that_is_over_allows_no_look() -> None:
    bench = Bench(FakeProvider([50.0, FAILURES["500"][0]]), FakeProvider(), total_timeout_s=50.0)
    dispatch = bench.dispatcher.open(
        make_request(), make_decision("a"), decide_again=lambda: make_decision("b")
    )
    with pytest.raises(Exhausted):
        await read(dispatch)

    assert len(dispatch.attempts) == 1


async def test_then_those_are_asked_whom_only_a_guess_holds_back_one_by_one_soonest_first() -> None:
    bench = Bench(failing(), failing(), FakeProvider(), FakeProvider())
    left_out = (
        Exclusion("d", ExclusionReason.BENCHED, "it said so", 1.0, OutcomeKind.RATE_LIMITED),
        Exclusion("c", ExclusionReason.BREAKER_OPEN, "failures", 20.0),
        Exclusion("b", ExclusionReason.BREAKER_OPEN, "failures", 10.0),
    )
    now = replace(make_decision("a"), exclusions=left_out)
    dispatch = bench.dispatcher.open(make_request(), make_decision("a"), decide_again=lambda: now)

    assert await read(dispatch) == "good"
    assert [attempt.deployment_id for attempt in dispatch.attempts] == ["a", "b", "c"]
