"""The local engine's slot: who waits, who goes elsewhere, and that it is given back in every ending."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest

from router.chat.types import Caller, ChatRequest, Priority, TextDelta
from router.errors import SlotBusy, UpstreamError, UpstreamStatus
from router.health.classify import classify
from router.health.outcome import OutcomeKind, Scope
from router.providers.base import AttemptDeadlines, SlotStream
from router.providers.engine_process import EnginePhase
from router.providers.local_engine import LocalEngineProvider
from tests.fakes.clock import VirtualTimeLoop
from tests.fakes.engine import FakeProcess, SlowEngine, engine_provider
from tests.fakes.provider import make_deployment, make_request

pytestmark = pytest.mark.anyio

LOCAL = make_deployment("local/m", "local", max_output_tokens=512)
PATIENT = AttemptDeadlines(connect_s=5, first_event_s=60, stall_s=60, total_s=1_800)


def worth(seconds: float) -> AttemptDeadlines:
    """Return deadlines of a request that somebody else could serve within that time."""
    return AttemptDeadlines(5, 60, 60, 1_800, slot_wait_s=seconds)


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    return ("asyncio", {"loop_factory": VirtualTimeLoop})


def now() -> float:
    return asyncio.get_running_loop().time()


def ask(text: str, priority: Priority = Priority.INTERACTIVE, **fields: object) -> ChatRequest:
    body = {"model": "chat", "messages": [{"role": "user", "content": text}]}
    caller = Caller("someone", f"req-{text}", priority)
    return make_request(body=body, caller=caller, **fields)


async def read(
    provider: LocalEngineProvider, request: ChatRequest, deadlines: AttemptDeadlines = PATIENT
) -> str:
    stream = provider.stream(request, LOCAL, deadlines)
    async with aclosing(stream):  # type: ignore[type-var]
        deltas = [delta async for event in stream for delta in event.deltas]
    return "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))


def assert_free(provider: LocalEngineProvider, engine: SlowEngine) -> None:
    lane = provider.status().lane
    assert lane is not None
    assert (lane.running, lane.waiting, lane.kept) == (0, 0, 0)
    assert engine.open == 0
    assert provider.status().expected_wait_s == 0


async def test_the_engine_gets_as_many_as_it_has_slots_and_all_are_served() -> None:
    engine = SlowEngine()
    async with engine_provider(engine, slots=2) as provider, asyncio.TaskGroup() as group:
        answers = [group.create_task(read(provider, ask(f"question {n}"))) for n in range(6)]
        await asyncio.wait(answers)

        assert engine.most_open == 2
        assert engine.finished == 6
        assert_free(provider, engine)


async def test_two_models_of_one_engine_take_turns_and_none_is_cut() -> None:
    engine = SlowEngine()
    other = make_deployment("local/other", "local")
    async with engine_provider(engine) as provider, asyncio.TaskGroup() as group:

        async def one(n: int) -> None:
            stream = provider.stream(ask(f"{n}"), LOCAL if n % 2 else other, PATIENT)
            assert [event async for event in stream]

        for n in range(6):
            group.create_task(one(n))

    assert [body["model"] for body in engine.bodies] == [
        f"local/{name}-upstream" for name in ("other", "m") * 3
    ]
    assert (engine.most_open, engine.finished) == (1, 6)


async def test_interactive_requests_are_served_before_background_ones() -> None:
    engine = SlowEngine()
    order: list[str] = []
    async with engine_provider(engine) as provider, asyncio.TaskGroup() as group:

        async def one(name: str, priority: Priority) -> None:
            await read(provider, ask(name, priority))
            order.append(name)

        for name in ("first", "title", "person"):
            kind = Priority.BACKGROUND if name == "title" else Priority.INTERACTIVE
            group.create_task(one(name, kind))
            await asyncio.sleep(0.01)

    assert order == ["first", "person", "title"]


async def test_a_wait_that_is_not_worth_it_is_refused_at_once_and_benches_nobody() -> None:
    engine = SlowEngine(tokens=1_000)
    async with engine_provider(engine) as provider, asyncio.TaskGroup() as group:
        long = group.create_task(read(provider, ask("long")))
        await asyncio.sleep(5)
        began = now()
        with pytest.raises(SlotBusy) as caught:
            await read(provider, ask("short"), worth(3.0))

        assert now() == began
        assert len(engine.bodies) == 1
        assert provider.status().expected_wait_s > 3
        long.cancel()
    outcome = classify(caught.value, now=0.0, local=True)
    assert (outcome.kind, outcome.scope, outcome.bench_s) == (OutcomeKind.SLOT_BUSY, Scope.SLOT, 0.0)
    assert outcome.try_next
    assert outcome.retry_after_s
    assert outcome.breaker_weight == 0


async def test_a_wait_that_turns_out_longer_than_it_is_worth_ends() -> None:
    engine = SlowEngine(tokens=100_000, interval_s=0.001)
    async with engine_provider(engine) as provider, asyncio.TaskGroup() as group:
        long = group.create_task(read(provider, ask("long")))
        # It is expected to be over within some seconds, and is not.
        await asyncio.sleep(1.1)
        began = now()
        with pytest.raises(SlotBusy, match="no slot within"):
            await read(provider, ask("short"), worth(20.0))

        assert now() - began == pytest.approx(20, abs=0.5)
        long.cancel()


async def test_one_that_nobody_else_could_serve_waits_as_long_as_it_takes() -> None:
    engine = SlowEngine(tokens=3_000)
    async with engine_provider(engine) as provider, asyncio.TaskGroup() as group:
        group.create_task(read(provider, ask("long")))
        await asyncio.sleep(1)
        stream = provider.stream(ask("short"), LOCAL, PATIENT)
        events = [event async for event in stream]

        assert events
        assert isinstance(stream, SlotStream)
        assert stream.waited_s == pytest.approx(300, abs=5)


async def test_a_full_queue_refuses_and_says_when_to_come_back() -> None:
    engine = SlowEngine()
    async with engine_provider(engine, queue_limit=1) as provider, asyncio.TaskGroup() as group:
        for name in ("runs", "waits"):
            group.create_task(read(provider, ask(name)))
        await asyncio.sleep(0.1)
        with pytest.raises(SlotBusy, match="queue is full") as caught:
            await read(provider, ask("too many"))

        assert caught.value.retry_after_s is not None
        assert caught.value.retry_after_s > 0


async def test_the_wait_is_told_by_what_the_engine_says_of_itself() -> None:
    engine = SlowEngine(tokens=1_000, interval_s=1.0)
    engine.health = {
        "prefill_tok_s": 50.0,
        "decode_tok_s": 4.0,
        "running": {"prompt_tokens": 200, "computed": 200, "remaining": 40},
    }
    async with engine_provider(engine) as provider, asyncio.TaskGroup() as group:
        long = group.create_task(read(provider, ask("long")))
        await asyncio.sleep(3)
        status = provider.status()

        # At most forty tokens more at four a second.
        assert status.expected_wait_s == pytest.approx(10, abs=1)
        assert status.lane is not None
        assert (status.lane.prefill_tokens_per_s, status.lane.decode_tokens_per_s) == (50, 4)
        long.cancel()


async def test_the_engine_is_asked_for_figures_only_while_it_works() -> None:
    engine = SlowEngine()
    async with engine_provider(engine) as provider:
        await asyncio.sleep(100)
        assert engine.health_asked == 0
        await read(provider, ask("hello"))
        await asyncio.sleep(100)

        assert 1 <= engine.health_asked <= 4


@pytest.mark.parametrize(
    "nonsense",
    [
        [],
        "ok",
        {"prefill_tok_s": "fast", "decode_tok_s": None},
        {"prefill_tok_s": -5, "decode_tok_s": 0, "running": "yes"},
        {"prefill_tok_s": 10, "decode_tok_s": 10, "running": {"prompt_tokens": 1.5}},
        {"prefill_tok_s": 1e400, "decode_tok_s": 10},
    ],
)
async def test_figures_that_make_no_sense_take_nothing_down(nonsense: object) -> None:
    engine = SlowEngine(tokens=50)
    engine.health = nonsense
    async with engine_provider(engine) as provider, asyncio.TaskGroup() as group:
        runs = group.create_task(read(provider, ask("long")))
        await asyncio.sleep(2.5)
        assert provider.status().expected_wait_s >= 0
        assert await runs
        assert await read(provider, ask("again"))


async def test_a_conversations_next_turn_is_expected_to_cost_its_last_messages_only() -> None:
    engine = SlowEngine(tokens=1)
    async with engine_provider(engine) as provider:
        first = [{"role": "user", "content": "x" * 20_000}]
        await read(provider, make_request(body={"model": "chat", "messages": first}))
        again = make_request(
            body={"model": "chat", "messages": [*first, {"role": "user", "content": "and now?"}]}
        )
        other = make_request(body={"model": "chat", "messages": [{"role": "user", "content": "y" * 20_000}]})

        assert provider._memory.look(again).tokens_to_compute(0.3) < 60
        assert provider._memory.look(other).tokens_to_compute(0.3) > 5_900


@pytest.mark.parametrize("leaves_at", [0.5, 1.5, 2.5, 3.4])
async def test_leaving_frees_the_slot_and_the_queue_in_every_phase(leaves_at: float) -> None:
    engine = SlowEngine()
    async with engine_provider(engine, join_grace_s=0) as provider, asyncio.TaskGroup() as group:
        group.create_task(read(provider, ask("first")))
        await asyncio.sleep(0.01)
        leaving = group.create_task(read(provider, ask("leaves")))
        third = group.create_task(read(provider, ask("third")))
        await asyncio.sleep(leaves_at)
        leaving.cancel()
        await asyncio.wait({leaving})
        assert engine.open <= 1
        await third

        assert engine.most_open == 1
        assert_free(provider, engine)


async def test_one_who_has_seen_a_part_and_leaves_closes_the_upstream_at_once() -> None:
    engine = SlowEngine(tokens=100)
    async with engine_provider(engine, join_grace_s=10) as provider:
        stream = provider.stream(ask("stop"), LOCAL, PATIENT)
        async for event in stream:
            if event.is_semantic:
                break
        await stream.aclose()  # type: ignore[attr-defined]

        assert_free(provider, engine)


async def test_an_answer_without_a_bound_gets_the_deployments() -> None:
    engine = SlowEngine()
    async with engine_provider(engine) as provider:
        await read(provider, ask("no bound"))
        bounded = make_request(
            body={"model": "chat", "messages": [{"role": "user", "content": "x"}], "max_tokens": 7},
            max_output_tokens=7,
        )
        await read(provider, bounded)

    assert [body.get("max_tokens") for body in engine.bodies] == [512, 7]
    assert [body.get("fit_max_tokens") for body in engine.bodies] == [True, None]


async def test_a_request_within_a_restart_is_held_and_served() -> None:
    engine = SlowEngine()
    async with engine_provider(engine) as provider, asyncio.TaskGroup() as group:
        process = provider.process
        assert isinstance(process, FakeProcess)
        await process.enter(EnginePhase.STARTING, "the engine is starting")
        held = group.create_task(read(provider, ask("held")))
        await asyncio.sleep(8)
        assert not engine.bodies
        await process.enter(EnginePhase.READY)

        assert await held
        assert_free(provider, engine)


async def test_a_request_within_a_restart_goes_elsewhere_where_it_can() -> None:
    engine = SlowEngine()
    async with engine_provider(engine) as provider:
        process = provider.process
        assert isinstance(process, FakeProcess)
        await process.enter(EnginePhase.STARTING, "the engine is starting")
        began = now()
        with pytest.raises(UpstreamStatus, match="starting"):
            await read(provider, ask("goes"), worth(20.0))

        assert now() == began


async def test_an_engine_that_does_not_come_back_fails_the_request_in_the_end() -> None:
    engine = SlowEngine()
    async with engine_provider(engine) as provider:
        process = provider.process
        assert isinstance(process, FakeProcess)
        await process.enter(EnginePhase.LOADING, "the engine is loading the model")
        with pytest.raises(UpstreamStatus, match="loading"):
            await read(provider, ask("held"))

        assert now() == pytest.approx(60, abs=1)
        assert_free(provider, engine)


async def test_stopping_ends_every_request_and_holds_nothing() -> None:
    engine = SlowEngine(tokens=1_000)
    async with engine_provider(engine) as provider, asyncio.TaskGroup() as group:
        runs = [group.create_task(fails(provider, ask(name))) for name in ("runs", "waits")]
        await asyncio.sleep(3)
        await provider.aclose()

        assert all([await one for one in runs])
        assert engine.open == 0


async def fails(provider: LocalEngineProvider, request: ChatRequest) -> bool:
    try:
        await read(provider, request)
    except UpstreamError:
        return True
    return False
