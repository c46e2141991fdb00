"""Who has come back while the others failed is asked before the request fails."""

from __future__ import annotations

import pytest

from router.errors import Exhausted
from router.routing.candidate import Candidate, Exclusion, ExclusionReason, RoutingDecision, Score
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
    bench = Bench(failing(), failing(), FakeProvider())
    again = make_decision("a", "b", Candidate("c", Score(()), last_resort=True))
    looks: list[RoutingDecision] = []

    def decide_again() -> RoutingDecision:
        looks.append(again)
        left_out = (Exclusion("c", ExclusionReason.BENCHED, "for a while"),)
        return RoutingDecision(
            "chat", again.features, again.candidates[: len(looks)], left_out, decided_at=0.0
        )

    dispatch = bench.dispatcher.open(make_request(), make_decision("a"), decide_again=decide_again)
    with pytest.raises(Exhausted) as caught:
        await read(dispatch)

    assert [attempt.deployment_id for attempt in dispatch.attempts] == ["a"]
    assert len(looks) == 1
    assert [line.split(":")[0] for line in caught.value.trail] == ["a", "c"]


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
