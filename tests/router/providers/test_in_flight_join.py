"""An identical request shares the generation that runs, or the answer nobody took; see decision 0008."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import pytest

from router.chat.types import Caller, ChatEvent, ChatRequest, TextDelta
from router.errors import UpstreamError
from router.providers.base import AttemptDeadlines, SlotStream
from router.providers.generation import Generation
from router.providers.local_engine import LocalEngineProvider
from tests.fakes.clock import VirtualTimeLoop
from tests.fakes.engine import SlowEngine, engine_provider
from tests.fakes.provider import make_deployment, make_request, text

pytestmark = pytest.mark.anyio

LOCAL = make_deployment("local/m", "local")
PATIENT = AttemptDeadlines(connect_s=5, first_event_s=60, stall_s=60, total_s=1_800)
WHOLE = "".join(f"1:{n} " for n in range(10))


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    return ("asyncio", {"loop_factory": VirtualTimeLoop})


def ask(
    content: str = "hello", *, who: str = "me", number: str = "req-1", may_join: bool = True, **body: Any
) -> ChatRequest:
    return make_request(
        body={"model": "chat", "messages": [{"role": "user", "content": content}], **body},
        caller=Caller(who, number, may_join=may_join),
    )


class Client:
    """Reads one stream in a task of its own."""

    def __init__(self, provider: LocalEngineProvider, request: ChatRequest, group: asyncio.TaskGroup) -> None:
        self.stream = provider.stream(request, LOCAL, PATIENT)
        self.text = ""
        self.error: UpstreamError | None = None
        self.task = group.create_task(self._read())

    @property
    def joined(self) -> str:
        assert isinstance(self.stream, SlotStream)
        return self.stream.joined

    async def leave(self) -> None:
        self.task.cancel()
        await asyncio.wait({self.task})

    async def _read(self) -> None:
        async with aclosing(self.stream):  # type: ignore[type-var]
            try:
                async for event in self.stream:
                    self.text += "".join(d.text for d in event.deltas if isinstance(d, TextDelta))
            except UpstreamError as error:
                self.error = error


async def test_a_request_joins_the_one_that_runs_and_gets_all_of_it() -> None:
    engine = SlowEngine()
    async with engine_provider(engine) as provider, asyncio.TaskGroup() as group:
        first = Client(provider, ask(), group)
        await asyncio.sleep(1.5)
        second = Client(provider, ask(number="req-2"), group)
        await asyncio.wait({first.task, second.task})

        assert first.text == second.text == WHOLE
        assert (first.joined, second.joined) == ("", "req-1")
        assert len(engine.bodies) == 1
        status = provider.status().lane
        assert status is not None
        assert (status.joined, status.kept, status.running) == (1, 0, 0)


async def test_one_who_gave_up_before_the_first_word_joins_his_own_request() -> None:
    engine = SlowEngine(prefill_s=20)
    async with engine_provider(engine) as provider, asyncio.TaskGroup() as group:
        first = Client(provider, ask(), group)
        await asyncio.sleep(10)
        await first.leave()
        assert engine.open == 1
        assert provider.joinable(ask()) == "local/m"
        await asyncio.sleep(2)
        second = Client(provider, ask(), group)
        await second.task

        assert second.text == WHOLE
        assert second.joined == "req-1"
        assert len(engine.bodies) == 1
        assert engine.open == 0


async def test_the_leader_leaves_and_the_follower_gets_everything() -> None:
    engine = SlowEngine()
    async with engine_provider(engine) as provider, asyncio.TaskGroup() as group:
        first = Client(provider, ask(), group)
        await asyncio.sleep(1.5)
        second = Client(provider, ask(), group)
        await asyncio.sleep(0.1)
        await first.leave()
        await second.task

        assert second.text == WHOLE
        assert len(engine.bodies) == 1


async def test_the_last_one_to_leave_ends_it() -> None:
    engine = SlowEngine()
    async with engine_provider(engine) as provider, asyncio.TaskGroup() as group:
        first, second = (Client(provider, ask(), group) for _ in range(2))
        await asyncio.sleep(1.5)
        await first.leave()
        assert engine.open == 1
        await second.leave()

        assert engine.open == 0


async def test_after_the_grace_it_is_given_up() -> None:
    engine = SlowEngine(prefill_s=60)
    async with engine_provider(engine, join_grace_s=10) as provider, asyncio.TaskGroup() as group:
        first = Client(provider, ask(), group)
        await asyncio.sleep(1)
        await first.leave()
        await asyncio.sleep(9.9)
        assert engine.open == 1
        await asyncio.sleep(0.2)

        assert engine.open == 0
        assert provider.joinable(ask()) is None


async def test_without_a_grace_leaving_ends_it_at_once() -> None:
    engine = SlowEngine(prefill_s=60)
    async with engine_provider(engine, join_grace_s=0) as provider, asyncio.TaskGroup() as group:
        first = Client(provider, ask(), group)
        await asyncio.sleep(1)
        await first.leave()

        assert engine.open == 0


async def test_what_is_kept_gives_way_to_another_request_at_once() -> None:
    engine = SlowEngine(prefill_s=5)
    async with engine_provider(engine, join_grace_s=100) as provider, asyncio.TaskGroup() as group:
        first = Client(provider, ask(), group)
        await asyncio.sleep(1)
        await first.leave()
        assert provider.status().expected_wait_s == 0
        began = asyncio.get_running_loop().time()
        other = Client(provider, ask("something else"), group)
        await other.task

        assert asyncio.get_running_loop().time() - began == pytest.approx(5 + 0.9, abs=0.05)
        assert other.text.startswith("2:0")
        assert engine.most_open == 1


async def test_nothing_is_kept_where_somebody_waits_already() -> None:
    engine = SlowEngine(prefill_s=5)
    async with engine_provider(engine, join_grace_s=100) as provider, asyncio.TaskGroup() as group:
        first = Client(provider, ask(), group)
        await asyncio.sleep(1)
        other = Client(provider, ask("something else"), group)
        await asyncio.sleep(1)
        await first.leave()
        await asyncio.sleep(0.1)

        assert len(engine.bodies) == 2
        await other.task


async def test_an_answer_finished_within_the_grace_is_kept_for_the_window() -> None:
    engine = SlowEngine(prefill_s=3)
    async with engine_provider(engine, join_window_s=120) as provider, asyncio.TaskGroup() as group:
        first = Client(provider, ask(), group)
        await asyncio.sleep(1)
        await first.leave()
        await asyncio.sleep(100)
        assert engine.finished == 1
        second = Client(provider, ask(), group)
        await second.task

        assert second.text == WHOLE
        assert len(engine.bodies) == 1
        # It has been delivered: who asks again wants another one.
        third = Client(provider, ask(), group)
        await third.task
        assert third.joined == ""
        assert len(engine.bodies) == 2


async def test_after_the_window_the_answer_is_gone() -> None:
    engine = SlowEngine(prefill_s=3)
    async with engine_provider(engine, join_window_s=120) as provider, asyncio.TaskGroup() as group:
        first = Client(provider, ask(), group)
        await asyncio.sleep(1)
        await first.leave()
        await asyncio.sleep(130)

        assert provider.joinable(ask()) is None
        status = provider.status().lane
        assert status is not None
        assert status.kept == 0


async def test_a_delivered_answer_is_not_given_twice() -> None:
    engine = SlowEngine()
    async with engine_provider(engine) as provider, asyncio.TaskGroup() as group:
        first = Client(provider, ask(), group)
        await first.task
        again = Client(provider, ask(), group)
        await again.task

        assert len(engine.bodies) == 2
        assert again.joined == ""


@pytest.mark.parametrize(
    "other",
    [
        ask(who="somebody else"),
        ask("another question"),
        ask(temperature=0.5),
        ask(may_join=False),
        ask(tools=[{"type": "function", "function": {"name": "f"}}]),
    ],
    ids=["another key", "another prompt", "another field", "asked not to", "other tools"],
)
async def test_answers_are_shared_by_nobody_else(other: ChatRequest) -> None:
    engine = SlowEngine()
    async with engine_provider(engine) as provider, asyncio.TaskGroup() as group:
        first = Client(provider, ask(), group)
        await asyncio.sleep(0.5)
        second = Client(provider, other, group)
        await asyncio.wait({first.task, second.task})

        assert second.joined == ""
        assert len(engine.bodies) == 2


async def test_several_choices_are_never_shared() -> None:
    engine = SlowEngine()
    async with engine_provider(engine) as provider, asyncio.TaskGroup() as group:
        for _ in range(2):
            Client(provider, ask(n=2), group)

    assert len(engine.bodies) == 2


async def test_where_the_leader_fails_the_follower_has_its_own_attempt() -> None:
    engine = SlowEngine()
    async with engine_provider(engine) as provider, asyncio.TaskGroup() as group:
        blocker = Client(provider, ask("blocks"), group)
        await asyncio.sleep(0.1)
        engine.failures = [500]
        first, second, third = (Client(provider, ask(number=f"req-{n}"), group) for n in range(3))
        await asyncio.wait({blocker.task, first.task, second.task, third.task})

        assert first.error is not None
        assert second.text == third.text
        assert second.text.startswith("3:0")
        assert (second.error, third.error) == (None, None)
        assert len(engine.bodies) == 3
        assert engine.open == 0


async def test_a_follower_of_an_answer_that_breaks_is_told_so() -> None:
    engine = SlowEngine(tokens=1_000)
    async with engine_provider(engine) as provider, asyncio.TaskGroup() as group:
        first, second = (Client(provider, ask(), group) for _ in range(2))
        await asyncio.sleep(1.5)
        await provider.aclose()
        await asyncio.wait({first.task, second.task})

        assert first.error is not None
        assert second.error is not None
        assert first.text == second.text != ""


async def test_a_client_that_gets_one_body_at_the_end_may_come_back_at_any_time() -> None:
    engine = SlowEngine(tokens=50)
    request = make_request(body={"model": "chat", "messages": []}, stream=False)
    async with engine_provider(engine) as provider, asyncio.TaskGroup() as group:
        first = Client(provider, request, group)
        await asyncio.sleep(3)
        await first.leave()
        assert engine.open == 1
        second = Client(provider, request, group)
        await second.task

        assert len(engine.bodies) == 1
        assert second.text.count(" ") == 50


async def test_one_who_waits_for_the_slot_is_joined_too() -> None:
    engine = SlowEngine()
    async with engine_provider(engine) as provider, asyncio.TaskGroup() as group:
        Client(provider, ask("runs"), group)
        await asyncio.sleep(0.1)
        first = Client(provider, ask(), group)
        await asyncio.sleep(0.1)
        second = Client(provider, ask(), group)
        await asyncio.sleep(0.1)
        await first.leave()
        await second.task

        assert second.text.startswith("2:0")
        assert len(engine.bodies) == 2


async def test_beyond_its_bound_a_generation_forgets_its_beginning_and_waits_for_the_slowest() -> None:
    event = text("x" * 800)
    generation = Generation(b"k", "r", "d", most_bytes=10_000)
    reader = generation.reader()
    published = 0

    async def publish() -> None:
        nonlocal published
        while published < 100:
            generation.publish(event)
            published += 1
            await generation.room()
        generation.end(None)

    async with asyncio.TaskGroup() as group:
        group.create_task(publish())
        await asyncio.sleep(1)
        assert published == 11
        assert generation.is_whole
        seen: list[ChatEvent] = [event async for event in _all(reader.next)]

    assert len(seen) == 100
    assert not generation.is_whole
    assert generation.delivered


async def _all(following: Any) -> AsyncIterator[ChatEvent]:
    while (event := await following()) is not None:
        yield event
