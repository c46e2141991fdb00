"""The dispatcher between fake providers and the real health tracker, in virtual time."""

from __future__ import annotations

import asyncio

import pytest

from router.chat.types import FinishReason, TextDelta
from router.errors import Exhausted, StreamInterrupted, UpstreamStatus
from router.health.outcome import OutcomeKind
from router.routing.candidate import Candidate, Score
from tests.fakes.clock import LoopClock, VirtualTimeLoop
from tests.fakes.dispatch import FAILURES, Bench, kinds, read
from tests.fakes.provider import (
    ANSWER,
    FakeProvider,
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


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    return ("asyncio", {"loop_factory": VirtualTimeLoop})


async def test_an_answer_is_replayed_from_its_first_event() -> None:
    bench = Bench(FakeProvider([metadata(), text("one "), text("two"), finish(), usage()]))
    dispatch = bench.open()
    async with dispatch as answer:
        assert answer.deployment_id == "a"
        assert answer.attempts == ()
        events = [event async for event in answer.events]

    assert [len(event.deltas) for event in events] == [0, 1, 1, 1, 1]
    assert answer.usage is not None
    assert kinds(dispatch) == [("a", OutcomeKind.SUCCESS)]
    assert dispatch.attempts[0].committed
    bench.assert_nothing_held()


@pytest.mark.parametrize(("error", "kind"), FAILURES.values(), ids=FAILURES)
@pytest.mark.parametrize("before", [(), (metadata(),)], ids=["at once", "after metadata"])
async def test_before_the_first_semantic_event_every_failure_falls_over(
    error: Exception, kind: OutcomeKind, before: tuple[object, ...]
) -> None:
    bench = Bench(FakeProvider([*before, error]), FakeProvider())
    dispatch = bench.open()

    assert await read(dispatch) == "good"
    assert kinds(dispatch) == [("a", kind), ("b", OutcomeKind.SUCCESS)]
    bench.assert_nothing_held()


async def test_falling_over_takes_no_time() -> None:
    bench = Bench(FakeProvider([FAILURES["429"][0]]), FakeProvider([FAILURES["503"][0]]), FakeProvider())
    started = asyncio.get_running_loop().time()

    assert await read(bench.open()) == "good"
    assert asyncio.get_running_loop().time() == started


@pytest.mark.parametrize(("error", "kind"), FAILURES.values(), ids=FAILURES)
async def test_after_the_first_semantic_event_nobody_else_is_asked(
    error: Exception, kind: OutcomeKind
) -> None:
    bench = Bench(FakeProvider([text("half"), error]), FakeProvider())
    dispatch = bench.open()
    async with dispatch as answer:
        assert await anext(answer.events) == text("half")
        with pytest.raises(StreamInterrupted) as caught:
            await anext(answer.events)

    assert caught.value.__cause__ is error
    assert kinds(dispatch) == [("a", kind)]
    assert dispatch.attempts[0].committed
    assert bench.providers["b"].calls == []
    bench.assert_nothing_held()


async def test_a_complete_answer_without_content_is_an_answer() -> None:
    bench = Bench(FakeProvider([finish(FinishReason.LENGTH)]), FakeProvider())
    dispatch = bench.open()

    assert await read(dispatch) == ""
    assert kinds(dispatch) == [("a", OutcomeKind.SUCCESS)]


async def test_when_all_are_out_the_ladder_speaks_and_the_attempts_can_be_read() -> None:
    bench = Bench(FakeProvider([FAILURES["429"][0]]), FakeProvider([FAILURES["429"][0]]))
    dispatch = bench.open()
    with pytest.raises(Exhausted) as caught:
        await read(dispatch)

    assert caught.value.http_status == 429
    assert caught.value.retry_after_s == 47.0
    assert len(caught.value.trail) == 2
    assert kinds(dispatch) == [("a", OutcomeKind.RATE_LIMITED), ("b", OutcomeKind.RATE_LIMITED)]
    bench.assert_nothing_held()


async def test_attempts_are_bounded() -> None:
    bench = Bench(*(FakeProvider([FAILURES["500"][0]]) for _ in range(5)), max_attempts=3)
    dispatch = bench.open()
    with pytest.raises(Exhausted):
        await read(dispatch)

    assert [attempt.number for attempt in dispatch.attempts] == [1, 2, 3]


async def test_a_request_that_is_refused_as_such_is_offered_to_one_more_only() -> None:
    refusal = UpstreamStatus("messages.0: unknown role", upstream_status=400)
    bench = Bench(*(FakeProvider([refusal]) for _ in range(4)))
    dispatch = bench.open()
    with pytest.raises(Exhausted) as caught:
        await read(dispatch)

    assert caught.value.http_status == 400
    assert len(dispatch.attempts) == 2


async def test_other_candidates_of_a_provider_that_is_down_are_not_tried() -> None:
    catalog = make_catalog(make_deployment("a1", "a"), make_deployment("a2", "a"), make_deployment("b", "b"))
    bench = Bench(FakeProvider([FAILURES["refused"][0]]), FakeProvider(), catalog=catalog)
    dispatch = bench.open()

    assert await read(dispatch) == "good"
    assert [attempt.deployment_id for attempt in dispatch.attempts] == ["a1", "b"]


async def test_after_a_prompt_was_too_long_only_larger_windows_are_tried() -> None:
    too_long = UpstreamStatus("too long", upstream_status=400, upstream_code="context_length_exceeded")
    catalog = make_catalog(
        make_deployment("small", "a", context_tokens=8_000),
        make_deployment("same", "b", context_tokens=8_000),
        make_deployment("large", "c", context_tokens=64_000),
    )
    bench = Bench(FakeProvider([too_long]), FakeProvider(), FakeProvider(), catalog=catalog)
    dispatch = bench.open()

    assert await read(dispatch) == "good"
    assert [attempt.deployment_id for attempt in dispatch.attempts] == ["small", "large"]


async def test_another_key_of_the_same_provider_is_tried_before_another_candidate() -> None:
    bench = Bench(FakeProvider([FAILURES["429"][0]], ANSWER), FakeProvider())
    bench.tracker.configure_keys("a", ["FIRST", "SECOND"])
    dispatch = bench.open()

    assert await read(dispatch) == "good"
    assert [attempt.deployment_id for attempt in dispatch.attempts] == ["a", "a"]
    assert {label for _, _, label in bench.providers["a"].calls} == {"FIRST", "SECOND"}
    bench.assert_nothing_held()


async def test_every_key_is_tried_once() -> None:
    bench = Bench(FakeProvider([FAILURES["429"][0]]), FakeProvider())
    bench.tracker.configure_keys("a", ["FIRST", "SECOND"])
    dispatch = bench.open()

    assert await read(dispatch) == "good"
    assert [attempt.deployment_id for attempt in dispatch.attempts] == ["a", "a", "b"]


async def test_a_candidate_without_a_permit_is_passed_over() -> None:
    bench = Bench(FakeProvider([FAILURES["429"][0]]), FakeProvider())
    assert await read(bench.open()) == "good"
    dispatch = bench.open()

    assert await read(dispatch) == "good"
    assert [attempt.deployment_id for attempt in dispatch.attempts] == ["b"]


async def test_the_tracker_learns_tokens_per_character_from_the_upstreams_count() -> None:
    bench = Bench(FakeProvider([text("a"), finish(), usage(prompt=5_000)]))
    decision = make_decision("a", prompt_characters=10_000)
    for _ in range(50):
        assert await read(bench.dispatcher.open(make_request(), decision)) == "a"

    health = bench.tracker.snapshot(LoopClock().wall(), {}).deployments["a"]
    assert health.tokens_per_character == pytest.approx(0.5, abs=0.05)


async def test_times_and_speed_are_measured() -> None:
    bench = Bench(
        FakeProvider([2, metadata(), 1, text("a"), 1, text("b"), 1, text("c"), finish(), usage(10, 41)])
    )
    dispatch = bench.open()
    async with dispatch as answer:
        assert answer.ttft_s == pytest.approx(3)
        async for _ in answer.events:
            pass

    outcome = dispatch.attempts[0].outcome
    assert outcome.ttft_s == pytest.approx(3)
    assert answer.tokens_per_s == outcome.tokens_per_s == pytest.approx(40 / 2)
    assert dispatch.attempts[0].duration_s == pytest.approx(5)


async def test_the_speed_of_an_answer_in_one_piece_is_not_known() -> None:
    bench = Bench(FakeProvider([2, text("all at once"), finish(), usage(10, 500)]))
    async with bench.open() as answer:
        async for _ in answer.events:
            pass

    assert answer.tokens_per_s is None


async def test_hidden_reasoning_does_not_count_as_speed_after_the_first_event() -> None:
    bench = Bench(FakeProvider([9, text("a"), 1, text("b"), finish(), usage(10, 11, reasoning=1_000)]))
    async with bench.open() as answer:
        async for _ in answer.events:
            pass

    assert answer.tokens_per_s == pytest.approx(10)


async def test_the_time_of_the_whole_request_bounds_later_attempts() -> None:
    first = FakeProvider([70, FAILURES["503"][0]])
    second = FakeProvider()
    bench = Bench(first, second, total_timeout_s=100.0)

    assert await read(bench.open()) == "good"
    assert first.calls[0][1].total_s == pytest.approx(100)
    assert second.calls[0][1].total_s == pytest.approx(30)


async def test_a_last_resort_is_asked_though_its_breaker_is_open() -> None:
    bench = Bench(FakeProvider(*[[FAILURES["500"][0]]] * 20, ANSWER))
    for _ in range(20):
        with pytest.raises(Exhausted):
            await read(bench.open(Candidate("a", Score(()), last_resort=True)))

    assert await read(bench.open(Candidate("a", Score(()), last_resort=True))) == "good"
    bench.assert_nothing_held()


async def test_an_output_limit_of_the_decision_reaches_the_provider() -> None:
    bench = Bench(FakeProvider())

    assert await read(bench.open(Candidate("a", Score(()), output_limit=77), max_output_tokens=900)) == "good"
    assert bench.providers["a"].requests[0].max_output_tokens == 77


async def test_metadata_is_held_within_bounds_and_the_rest_is_waited_out() -> None:
    flood = [metadata(b"x" * 1_000)] * 10_000
    bench = Bench(FakeProvider([*flood, text("good"), finish()]))
    async with bench.open() as answer:
        events = [event async for event in answer.events]

    assert len(events) == 64 + 2
    assert events[-2].deltas == (TextDelta(0, "good"),)
