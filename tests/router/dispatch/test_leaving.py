"""Every way of leaving an answer gives everything back."""

from __future__ import annotations

import asyncio

import anyio
import pytest

from router.health.outcome import OutcomeKind
from tests.fakes.clock import VirtualTimeLoop
from tests.fakes.dispatch import Bench, kinds, read
from tests.fakes.provider import (
    HANG,
    FakeProvider,
    finish,
    metadata,
    text,
    usage,
)

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    return ("asyncio", {"loop_factory": VirtualTimeLoop})


async def test_the_clients_leaving_closes_the_upstream_while_the_first_event_is_awaited() -> None:
    bench = Bench(FakeProvider([metadata(), HANG]), FakeProvider())
    dispatch = bench.open()
    with anyio.move_on_after(3):
        await read(dispatch)

    assert kinds(dispatch) == [("a", OutcomeKind.CLIENT_LEFT)]
    bench.assert_nothing_held()


async def test_the_clients_leaving_within_the_answer_closes_the_upstream() -> None:
    bench = Bench(FakeProvider([text("half"), HANG]))
    dispatch = bench.open()
    with anyio.move_on_after(3):
        await read(dispatch)

    assert kinds(dispatch) == [("a", OutcomeKind.CLIENT_LEFT)]
    assert dispatch.attempts[0].committed
    assert dispatch.attempts[0].duration_s == pytest.approx(3)
    bench.assert_nothing_held()


async def test_cancelling_the_task_gives_everything_back() -> None:
    bench = Bench(FakeProvider([text("half"), HANG]))
    dispatch = bench.open()
    async with asyncio.TaskGroup() as group:
        task = group.create_task(read(dispatch))
        await asyncio.sleep(1)
        task.cancel()

    assert kinds(dispatch) == [("a", OutcomeKind.CLIENT_LEFT)]
    bench.assert_nothing_held()


@pytest.mark.parametrize("events", [0, 1, 2])
async def test_leaving_without_reading_to_the_end_benches_nobody(events: int) -> None:
    bench = Bench(FakeProvider([text("one"), text("two"), text("three"), HANG]))
    dispatch = bench.open()
    async with dispatch as answer:
        for _ in range(events):
            await anext(answer.events)

    assert kinds(dispatch) == [("a", OutcomeKind.CLIENT_LEFT)]
    bench.assert_nothing_held()
    assert bench.tracker.acquire("a", 0.0) is not None


async def test_an_answer_that_was_whole_is_a_success_though_its_end_was_not_read() -> None:
    bench = Bench(FakeProvider([text("all"), finish(), usage(), HANG]))
    dispatch = bench.open()
    async with dispatch as answer:
        for _ in range(3):
            await anext(answer.events)

    assert kinds(dispatch) == [("a", OutcomeKind.SUCCESS)]
    bench.assert_nothing_held()


async def test_an_error_of_the_callers_own_gives_everything_back() -> None:
    bench = Bench(FakeProvider([text("half"), HANG]))
    dispatch = bench.open()
    with pytest.raises(ZeroDivisionError):
        async with dispatch:
            raise ZeroDivisionError

    bench.assert_nothing_held()
    assert kinds(dispatch) == [("a", OutcomeKind.CLIENT_LEFT)]


async def test_a_provider_whose_closing_hangs_holds_nobody() -> None:
    class Stuck:
        def __aiter__(self) -> Stuck:
            return self

        async def __anext__(self) -> object:
            return text("half")

        async def aclose(self) -> None:
            await asyncio.get_running_loop().create_future()

    provider = FakeProvider()
    bench = Bench(provider)
    provider.stream = lambda *_, **__: Stuck()  # type: ignore[assignment, method-assign, return-value]
    started = asyncio.get_running_loop().time()
    async with bench.open():
        pass

    assert asyncio.get_running_loop().time() - started == pytest.approx(2)
    assert bench.tracker.in_flight == 0
