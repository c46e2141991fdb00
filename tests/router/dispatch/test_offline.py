"""Without a network: those that need none are asked, and nobody waits for a connection to hang."""

from __future__ import annotations

import asyncio

import anyio
import pytest

from router.errors import Exhausted, UpstreamUnreachable
from router.health.outcome import OutcomeKind
from tests.fakes.clock import VirtualTimeLoop
from tests.fakes.dispatch import FAILURES, Bench, kinds, read
from tests.fakes.provider import (
    ANSWER,
    HANG,
    FakeProvider,
    Step,
    make_catalog,
    make_deployment,
    metadata,
)

pytestmark = pytest.mark.anyio

REFUSED: list[Step] = [FAILURES["refused"][0]]
NAMES = "abcdefgh"


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    return ("asyncio", {"loop_factory": VirtualTimeLoop})


class FakeNetwork:
    def __init__(self, *, there: bool, is_gone: bool = False, is_proved: bool = False) -> None:
        self.there = there
        self.is_gone = is_gone
        self.is_proved = is_proved
        self.told: list[str] = []

    def heard(self) -> None:
        self.told.append("heard")

    def suspect(self) -> None:
        self.told.append("suspect")

    async def is_there(self) -> bool:
        self.told.append("asked")
        await asyncio.sleep(0.4)
        self.is_gone = not self.there
        return self.there


def make_bench(network: FakeNetwork | None, *behaviours: list[Step] | tuple[Step, ...]) -> Bench:
    """Providers a, b, … of two models each, the last one local."""
    names = NAMES[: len(behaviours)]
    catalog = make_catalog(
        *(make_deployment(f"{name}{number}", name) for name in names for number in (1, 2)),
        local=(names[-1],),
        max_attempts=64,
    )
    bench = Bench(*(FakeProvider(one) for one in behaviours), catalog=catalog)
    bench.dispatcher.network = network
    return bench


@pytest.mark.parametrize("failure", ["refused", "connect"])
async def test_two_providers_out_of_reach_and_the_local_one_is_next(failure: str) -> None:
    network = FakeNetwork(there=False)
    bench = make_bench(network, *[[FAILURES[failure][0]]] * 7, ANSWER)
    dispatch = bench.open()

    assert await read(dispatch) == "good"
    assert [attempt.deployment_id for attempt in dispatch.attempts] == ["a1", "b1", "h1"]
    assert network.told == ["suspect"]
    bench.assert_nothing_held()


async def test_somebody_who_was_heard_keeps_the_order() -> None:
    bench = make_bench(None, REFUSED, [FAILURES["429"][0]], REFUSED, ANSWER, ANSWER)
    dispatch = bench.open()

    assert await read(dispatch) == "good"
    assert dispatch.attempts[-1].deployment_id == "d1"


async def test_a_connection_that_hangs_is_given_up_where_nobody_else_can_be_reached() -> None:
    network = FakeNetwork(there=False)
    bench = make_bench(network, [HANG], [HANG], ANSWER)
    dispatch = bench.open()
    started = asyncio.get_running_loop().time()

    assert await read(dispatch) == "good"
    assert asyncio.get_running_loop().time() - started < 1.0
    assert kinds(dispatch) == [("a1", OutcomeKind.UNREACHABLE), ("c1", OutcomeKind.SUCCESS)]
    assert network.told == ["asked"]
    bench.assert_nothing_held()


async def test_a_slow_answer_over_a_network_that_is_there_is_waited_for() -> None:
    network = FakeNetwork(there=True)
    bench = make_bench(network, [metadata(), 20.0, *ANSWER], ANSWER)
    dispatch = bench.open()

    assert await read(dispatch) == "good"
    assert kinds(dispatch) == [("a1", OutcomeKind.SUCCESS)]
    assert network.told == ["asked", "heard"]


async def test_a_proved_network_is_not_asked_about() -> None:
    network = FakeNetwork(there=False, is_proved=True)
    bench = make_bench(network, [20.0, *ANSWER], ANSWER)

    assert await read(bench.open()) == "good"
    assert network.told == ["heard"]


async def test_where_nobody_local_waits_the_connection_gets_its_time() -> None:
    network = FakeNetwork(there=False)
    bench = make_bench(network, [20.0, *ANSWER], REFUSED)

    assert await read(bench.open("a1", "a2")) == "good"


async def test_while_the_network_is_gone_local_ones_come_first_and_the_others_after_them() -> None:
    network = FakeNetwork(there=False, is_gone=True)
    bench = make_bench(network, ANSWER, [FAILURES["503"][0]])
    dispatch = bench.open()

    assert await read(dispatch) == "good"
    assert [attempt.deployment_id for attempt in dispatch.attempts] == ["b1", "b2", "a1"]


async def test_a_failure_or_a_departure_during_the_doubt_is_what_it_is() -> None:
    network = FakeNetwork(there=True)
    bench = make_bench(network, [0.5, FAILURES["503"][0]], ANSWER)
    dispatch = bench.open()
    assert await read(dispatch) == "good"
    assert kinds(dispatch)[0] == ("a1", OutcomeKind.UPSTREAM_FAILURE)

    bench = make_bench(network, [HANG], ANSWER)
    dispatch = bench.open()
    with anyio.move_on_after(0.6):
        await read(dispatch)
    assert kinds(dispatch) == [("a1", OutcomeKind.CLIENT_LEFT)]
    bench.assert_nothing_held()


async def test_one_lost_connection_fails_no_request_while_the_provider_has_another_model() -> None:
    bench = make_bench(None, REFUSED)
    bench.providers["a"].behaviours.append(list(ANSWER))
    dispatch = bench.open()

    assert await read(dispatch) == "good"
    assert [attempt.deployment_id for attempt in dispatch.attempts] == ["a1", "a2"]


async def test_a_provider_gets_one_second_chance_only() -> None:
    catalog = make_catalog(*(make_deployment(f"a{number}", "a") for number in range(9)), max_attempts=64)
    bench = Bench(FakeProvider(REFUSED), catalog=catalog)
    dispatch = bench.open()
    with pytest.raises(Exhausted):
        await read(dispatch)

    assert len(dispatch.attempts) == 2
    assert isinstance(FAILURES["refused"][0], UpstreamUnreachable)
