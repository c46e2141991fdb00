"""A busy local slot: the request goes to the next candidate, and comes back where nobody else can serve."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from router.catalog.catalog import Catalog, EngineLaunch, Provider, ProviderKind
from router.chat.types import ChatEvent, ChatRequest
from router.dispatch.local_slot import joined_first, slot_wait_worth
from router.errors import Exhausted, SlotBusy, UpstreamStatus, UpstreamUnreachable
from router.health.outcome import OutcomeKind
from router.providers.base import AttemptDeadlines, JoiningProvider
from router.routing.candidate import Candidate, Score
from tests.fakes.clock import VirtualTimeLoop
from tests.fakes.dispatch import Bench, kinds, read
from tests.fakes.provider import (
    ANSWER,
    HANG,
    FakeProvider,
    make_catalog,
    make_decision,
    make_deployment,
    make_request,
    text,
    usage,
)

pytestmark = pytest.mark.anyio

BUSY = [SlotBusy("the slot is taken", retry_after_s=7.0)]


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    return ("asyncio", {"loop_factory": VirtualTimeLoop})


class Expecting(Score):
    """A score that knows how long its candidate would take."""

    __slots__ = ("_seconds",)

    def __init__(self, seconds: float) -> None:
        super().__init__(())
        self._seconds = seconds

    @property
    def expected_s(self) -> float:
        return self._seconds


class Joining(FakeProvider):
    """One that works on a request already; its streams say that they are shared, or have waited."""

    working: str | None = None
    joined = ""
    waited_s = 0.0

    def joinable(self, request: ChatRequest) -> str | None:  # noqa: ARG002 - works on any
        return self.working

    def stream(self, *arguments: Any, **named: Any) -> AsyncIterator[ChatEvent]:
        return _Told(super().stream(*arguments, **named), self.joined, self.waited_s)


class _Told:
    def __init__(self, events: Any, joined: str, waited_s: float) -> None:
        self._events, self.joined, self.waited_s = events, joined, waited_s

    def __aiter__(self) -> _Told:
        return self

    async def __anext__(self) -> ChatEvent:
        event: ChatEvent = await anext(self._events)
        return event

    async def aclose(self) -> None:
        await self._events.aclose()


def catalog(*names: str, longest_wait_s: float = 30.0) -> Catalog:
    """Return deployments of providers of the same names; ``a`` is an engine of this machine."""
    plain = make_catalog(*(make_deployment(name, name) for name in names))
    engine = EngineLaunch("m", 8_192, longest_wait_s=longest_wait_s)
    local = Provider("a", ProviderKind.ENGINE, None, engine=engine, local=True)
    return replace(plain, providers={**plain.providers, "a": local})


def slot_waits(provider: FakeProvider) -> list[float | None]:
    deadlines: list[AttemptDeadlines] = [call[1] for call in provider.calls]
    return [one.slot_wait_s for one in deadlines]


async def test_a_busy_slot_sends_the_request_to_the_next_one_and_benches_nobody() -> None:
    local, cloud = FakeProvider(BUSY), FakeProvider()
    bench = Bench(local, cloud, catalog=catalog("a", "b"))
    dispatch = bench.open("a", Candidate("b", Expecting(4.0)))

    assert await read(dispatch) == "good"
    assert kinds(dispatch) == [("a", OutcomeKind.SLOT_BUSY), ("b", OutcomeKind.SUCCESS)]
    health = bench.tracker.snapshot(bench.dispatcher.clock.wall(), {}).deployments["a"]
    assert (health.bench_until, health.failures, health.penalty_s) == (None, 0, 0.0)
    assert health.health == pytest.approx(0.8)
    bench.assert_nothing_held()


async def test_waiting_is_worth_as_long_as_the_next_one_would_take() -> None:
    local = FakeProvider(BUSY)
    bench = Bench(local, FakeProvider(), catalog=catalog("a", "b"))
    await read(bench.open("a", Candidate("b", Expecting(4.0))))

    assert slot_waits(local) == [pytest.approx(4.0 * 1.25 + 1.0)]


async def test_the_last_one_waits_as_long_as_it_takes() -> None:
    local = FakeProvider(ANSWER)
    bench = Bench(local, catalog=catalog("a"))
    await read(bench.open())

    assert slot_waits(local) == [None]


async def test_where_all_others_fail_the_local_one_is_asked_again_and_waits() -> None:
    local = FakeProvider(BUSY, ANSWER)
    cloud = FakeProvider([UpstreamStatus("oops", upstream_status=500)])
    bench = Bench(local, cloud, catalog=catalog("a", "b"))
    dispatch = bench.open("a", Candidate("b", Expecting(4.0)))

    assert await read(dispatch) == "good"
    assert [name for name, _ in kinds(dispatch)] == ["a", "b", "a"]
    assert slot_waits(local)[1] is None


async def test_one_that_refuses_again_is_not_asked_for_ever() -> None:
    bench = Bench(FakeProvider(BUSY), catalog=catalog("a"))
    dispatch = bench.open()
    with pytest.raises(Exhausted) as caught:
        await read(dispatch)

    assert len(dispatch.attempts) == 2
    assert caught.value.http_status == 503
    assert caught.value.retry_after_s == 7
    bench.assert_nothing_held()


async def test_providers_that_are_down_are_nobody_to_go_to() -> None:
    local = FakeProvider(ANSWER)
    cloud = FakeProvider([UpstreamUnreachable("refused")])
    deployments = [make_deployment("a", "a"), make_deployment("b", "b"), make_deployment("c", "b")]
    whole = catalog("a", "b")
    whole = replace(whole, deployments={one.id: one for one in deployments})
    bench = Bench(local, cloud, catalog=whole)
    await read(bench.open("b", "a", "c"))

    assert slot_waits(local) == [None]


@pytest.mark.parametrize(
    ("alternative", "expected"),
    [
        (None, None),
        (Candidate("b", Expecting(4.0)), 6.0),
        (Candidate("b", Expecting(400.0)), 30.0),
        (Candidate("b", Score(())), 30.0),
    ],
)
def test_what_a_wait_is_worth(alternative: Candidate | None, expected: float | None) -> None:
    whole = catalog("a", "b")

    assert slot_wait_worth(whole.deployments["a"], alternative, whole) == expected
    assert slot_wait_worth(whole.deployments["b"], alternative, whole) is None


def test_who_works_on_the_same_request_comes_first() -> None:
    provider = Joining()
    assert isinstance(provider, JoiningProvider)
    decision = make_decision("a", "b", "c")
    provider.working = "c"
    moved = joined_first(decision, make_request(), [provider])

    assert [one.deployment_id for one in moved.candidates] == ["c", "a", "b"]
    provider.working = "not a candidate"
    assert joined_first(decision, make_request(), [provider]) is decision


async def test_a_shared_answer_teaches_nothing_of_speed() -> None:
    answer = [5.0, text("one"), 0.1, text("two"), usage(10, 500)]
    shared, own = Joining(answer), Joining(answer)
    shared.joined = "req-7"
    for provider in (shared, own):
        bench = Bench(provider, catalog=catalog("a"))
        async with bench.open() as got:
            assert [event async for event in got.events]
            assert got.joined == provider.joined
        health = bench.tracker.snapshot(bench.dispatcher.clock.wall(), {}).deployments["a"]
        assert health.successes == 1
        assert (health.ttft_s is None) == bool(provider.joined)
        assert (health.tokens_per_s is None) == bool(provider.joined)


async def test_the_wait_for_a_slot_is_no_time_of_the_models() -> None:
    provider = Joining([5.0, text("one"), 10.0, text("two"), usage(10, 101)])
    provider.waited_s = 4.0
    bench = Bench(provider, catalog=catalog("a"))
    async with bench.open() as got:
        assert [event async for event in got.events]

    assert got.ttft_s == pytest.approx(1.0)
    assert got.tokens_per_s == pytest.approx(10.0)


async def test_leaving_while_the_slot_is_waited_for_gives_everything_back() -> None:
    local = FakeProvider([HANG])
    bench = Bench(local, catalog=catalog("a"))
    task = asyncio.ensure_future(read(bench.open()))
    await asyncio.sleep(1)
    task.cancel()
    await asyncio.wait({task})

    bench.assert_nothing_held()
