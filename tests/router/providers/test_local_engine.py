"""The provider of kind ``engine`` with a real child process that plays an engine."""

from __future__ import annotations

import asyncio
import os
import random
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from router.catalog.catalog import EngineLaunch
from router.chat.types import ChatEvent, TextDelta
from router.clock import SystemClock
from router.errors import UpstreamError, UpstreamStatus
from router.health.classify import classify
from router.health.outcome import OutcomeKind, Scope
from router.providers.base import AttemptDeadlines, SupervisedProvider
from router.providers.engine_command import EngineCommand
from router.providers.engine_process import EnginePhase, EngineProcess
from router.providers.local_engine import LocalEngineProvider
from router.providers.restart_pauses import RestartPauses
from router.providers.transport import make_client
from tests.fakes.provider import make_deployment, make_request

_STUB = str(Path(__file__).parents[2] / "fakes" / "engine_stub.py")
DEADLINES = AttemptDeadlines(connect_s=5, first_event_s=5, stall_s=5, total_s=10)


@asynccontextmanager
async def engine(
    mode: str = "serve",
    *,
    token: str = "t",  # noqa: S107 - a fake
) -> AsyncIterator[LocalEngineProvider]:
    environment = {**os.environ, "ROUNDHOUSE_ENGINE_TOKEN": token}
    client = make_client()
    process = EngineProcess(
        "stub",
        lambda: EngineCommand((sys.executable, _STUB, "--mode", mode), environment, "t"),
        client=client,
        pauses=RestartPauses(random.Random(1), first_s=0.01),  # noqa: S311 - pauses are no secrets
    )
    launch = EngineLaunch("m", 512, queue_limit=1)
    provider = LocalEngineProvider(launch, process=process, client=client, clock=SystemClock())
    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        group.create_task(provider.run())
        yield provider
        await provider.aclose()


async def ask(
    provider: LocalEngineProvider, content: str = "hi", deadlines: AttemptDeadlines = DEADLINES
) -> list[ChatEvent]:
    request = make_request(body={"model": "m", "messages": [{"role": "user", "content": content}]})
    return [event async for event in provider.stream(request, make_deployment("d", "p"), deadlines)]


@pytest.mark.anyio
async def test_an_answer_comes_from_the_child() -> None:
    async with engine() as provider:
        await provider.process.until(EnginePhase.READY)

        assert provider.status().ready
        assert isinstance(provider, SupervisedProvider)
        assert (await ask(provider))[0].deltas == (TextDelta(0, "hello"),)


@pytest.mark.anyio
async def test_closing_the_provider_ends_the_child() -> None:
    async with engine() as provider:
        await provider.process.until(EnginePhase.READY)
        await provider.aclose()

        assert provider.process.phase is EnginePhase.STOPPED
        assert provider.process.pid is None


@pytest.mark.anyio
async def test_a_child_that_dies_within_a_request_fails_it_and_serves_the_next() -> None:
    async with engine() as provider:
        await provider.process.until(EnginePhase.READY)
        with pytest.raises(UpstreamError):
            await ask(provider, "die")
        await provider.process.until(EnginePhase.STARTING)
        await provider.process.until(EnginePhase.READY)

        assert (await ask(provider))[0].deltas == (TextDelta(0, "hello"),)


@pytest.mark.anyio
async def test_while_the_model_loads_requests_are_the_slots_matter() -> None:
    async with engine("load") as provider:
        await provider.process.until(EnginePhase.LOADING)
        with pytest.raises(UpstreamStatus, match="loading the model") as caught:
            await ask(provider, deadlines=replace(DEADLINES, slot_wait_s=30))

        status = provider.status()
        assert (status.configured, status.ready) == (True, False)
        assert status.detail == "the engine is loading the model"
    outcome = classify(caught.value, now=0.0, local=True)
    assert (outcome.kind, outcome.scope) == (OutcomeKind.SLOT_BUSY, Scope.SLOT)


@pytest.mark.anyio
async def test_a_request_while_a_child_is_started_anew_is_held_and_served() -> None:
    async with engine() as provider:
        await provider.process.until(EnginePhase.READY)
        with pytest.raises(UpstreamError):
            await ask(provider, "die")
        await provider.process.until(EnginePhase.STARTING)

        assert (await ask(provider))[0].deltas == (TextDelta(0, "hello"),)


@pytest.mark.anyio
async def test_the_status_says_why_a_model_cannot_be_had() -> None:
    async with engine("fail") as provider:
        await provider.process.until(EnginePhase.PAUSED)

        assert "wrong magic" in provider.status().detail


@pytest.mark.anyio
async def test_the_token_is_needed() -> None:
    async with engine(token="another") as provider:
        await provider.process.until(EnginePhase.READY)
        with pytest.raises(UpstreamStatus) as caught:
            await ask(provider)

    assert caught.value.upstream_status == 401
