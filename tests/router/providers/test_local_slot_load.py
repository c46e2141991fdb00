"""The local slot under many clients that come and go: no slot is lost and nobody starves."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import aclosing

import httpx
import pytest

from router.chat.types import Caller, ChatRequest, Priority, TextDelta
from router.errors import UpstreamError
from router.providers.base import AttemptDeadlines
from router.providers.local_engine import LocalEngineProvider
from tests.fakes.clock import VirtualTimeLoop
from tests.fakes.engine import SlowEngine, engine_provider
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


async def clients(
    provider: LocalEngineProvider, rng: random.Random, count: int
) -> AsyncIterator[asyncio.Task[str]]:
    async with asyncio.TaskGroup() as group:
        for n in range(count):
            priority = rng.choice(list(Priority))
            request = ask(f"{n % 7}" if rng.random() < 0.3 else f"client {n}", priority)
            deadlines = worth(rng.uniform(0.5, 20)) if rng.random() < 0.3 else PATIENT
            yield group.create_task(quietly(read(provider, request, deadlines)))


async def quietly(work: object) -> str:
    try:
        return await work  # type: ignore[misc, no-any-return]
    except UpstreamError:
        return ""


@pytest.mark.parametrize("seed", range(25))
async def test_whatever_comes_and_goes_no_slot_is_lost(seed: int) -> None:
    rng = random.Random(seed)  # noqa: S311 - chance, not secrets
    engine = SlowEngine(prefill_s=rng.uniform(0, 2), tokens=rng.randint(1, 40))
    slots = rng.choice([1, 1, 2])
    grace = rng.choice([0.0, 3.0])
    async with engine_provider(
        engine, slots=slots, queue_limit=rng.randint(0, 12), join_grace_s=grace
    ) as provider:
        async for task in clients(provider, rng, 60):
            if rng.random() < 0.4:
                asyncio.get_running_loop().call_later(rng.uniform(0, 6), task.cancel)
            if rng.random() < 0.05:
                engine.failures.append(rng.choice([500, 503, httpx.ReadError("cut")]))
            await asyncio.sleep(rng.uniform(0, 1.5))
        # Longer than an answer is kept.
        await asyncio.sleep(200)

        assert engine.most_open <= slots
        assert_free(provider, engine)
        assert await read(provider, ask("afterwards"))


async def test_twenty_clients_and_one_slot() -> None:
    """Nobody starves: a background request is overtaken for half a minute at most."""
    engine = SlowEngine(prefill_s=0.5, tokens=16)
    waits: dict[Priority, list[float]] = {one: [] for one in Priority}
    async with engine_provider(engine, queue_limit=20) as provider:

        async def client(number: int) -> None:
            priority = Priority.BACKGROUND if number % 4 == 0 else Priority.INTERACTIVE
            for turn in range(5):
                began = now()
                assert await read(provider, ask(f"{number}, turn {turn}", priority))
                waits[priority].append(now() - began)

        async with asyncio.TaskGroup() as group:
            for number in range(20):
                group.create_task(client(number))

        assert engine.most_open == 1
        assert engine.finished == 100
        assert_free(provider, engine)
    person, chore = (sorted(waits[one]) for one in (Priority.INTERACTIVE, Priority.BACKGROUND))
    # A round of all twenty takes forty seconds.
    assert max(chore) <= 40 + 30 + 5
    assert person[len(person) // 2] < chore[len(chore) // 2]
