"""The scripted provider in virtual time, alone and behind the dispatcher."""

from __future__ import annotations

import asyncio
import random

import pytest

from router.catalog.catalog import Provider as ProviderEntry
from router.catalog.catalog import ProviderKind
from router.chat.types import TextDelta
from router.dispatch.dispatcher import Dispatch, Dispatcher
from router.errors import (
    Exhausted,
    StreamInterrupted,
    TimeoutPhase,
    UpstreamBrokenStream,
    UpstreamError,
    UpstreamStatus,
    UpstreamTimeout,
    UpstreamUnreachable,
)
from router.health.outcome import OutcomeKind
from router.health.tracker import HealthTracker
from router.providers.base import AttemptDeadlines
from router.providers.script import parse_script
from router.providers.scripted import ScriptedProvider
from tests.fakes.clock import LoopClock, VirtualTimeLoop
from tests.fakes.provider import make_catalog, make_decision, make_deployment, make_request

pytestmark = pytest.mark.anyio

DEADLINES = AttemptDeadlines(connect_s=5, first_event_s=30, stall_s=20, total_s=600)


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    return ("asyncio", {"loop_factory": VirtualTimeLoop})


def scripted(text: str) -> ScriptedProvider:
    entry = ProviderEntry("p", ProviderKind.SCRIPTED, None, script="s.yaml")
    return ScriptedProvider(entry, parse_script(text, "s.yaml"), clock=LoopClock())


async def ask(provider: ScriptedProvider, model: str = "m") -> str:
    stream = provider.stream(make_request(), make_deployment("d", "p", upstream_model=model), DEADLINES)
    deltas = [delta async for event in stream for delta in event.deltas]
    return "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))


async def test_it_needs_no_key_and_answers_at_the_scripted_times() -> None:
    provider = scripted("steps: [{wait: 2}, {answer: {value: abc, pieces: 3, every: 0.5}}]")
    started = asyncio.get_running_loop().time()

    assert provider.status().ready
    assert await ask(provider) == "abc"
    assert asyncio.get_running_loop().time() - started == pytest.approx(3)
    assert provider.transport.open_answers == 0


@pytest.mark.parametrize(
    ("steps", "kind"),
    [
        ("[{no_connection: refused}]", UpstreamUnreachable),
        ("[{no_connection: unresolved}]", UpstreamUnreachable),
        ("[{no_connection: tls}]", UpstreamUnreachable),
        ("[reset]", UpstreamUnreachable),
        ("[cut]", UpstreamUnreachable),
        ("[head, reset]", UpstreamBrokenStream),
        ("[{text: a}, cut]", UpstreamBrokenStream),
        ("[{status: 503}]", UpstreamStatus),
    ],
)
async def test_faults_are_those_of_a_real_upstream(steps: str, kind: type[UpstreamError]) -> None:
    provider = scripted(f"steps: {steps}")
    with pytest.raises(kind):
        await ask(provider)

    assert provider.transport.open_answers == 0


@pytest.mark.parametrize(
    ("steps", "phase", "after"),
    [
        ("[{no_connection: timeout}]", TimeoutPhase.CONNECT, 5),
        ("[stall]", TimeoutPhase.FIRST_EVENT, 30),
        ("[role, stall]", TimeoutPhase.FIRST_EVENT, 30),
        ("[{wait: 29}, {text: a}, stall]", TimeoutPhase.STALL, 49),
        ("[{tokens: {count: 10000, every: 19}}]", TimeoutPhase.TOTAL, 600),
    ],
)
async def test_deadlines_pass_when_they_should(steps: str, phase: TimeoutPhase, after: float) -> None:
    provider = scripted(f"steps: {steps}")
    started = asyncio.get_running_loop().time()
    with pytest.raises(UpstreamTimeout) as caught:
        await ask(provider)

    assert caught.value.phase is phase
    assert asyncio.get_running_loop().time() - started == pytest.approx(after)
    assert provider.transport.open_answers == 0


async def test_models_have_scripts_of_their_own() -> None:
    provider = scripted("models: {good: {steps: [answer]}}")

    assert await ask(provider, "good") == "Hello."
    with pytest.raises(UpstreamStatus) as caught:
        await ask(provider, "other")
    assert caught.value.upstream_status == 404


class House:
    """Scripted providers ``a``, ``b``, … behind a dispatcher."""

    def __init__(self, *scripts: str) -> None:
        names = "abcdefgh"[: len(scripts)]
        self.catalog = make_catalog(*(make_deployment(name, name) for name in names))
        self.providers = {name: scripted(script) for name, script in zip(names, scripts, strict=True)}
        self.tracker = HealthTracker(self.catalog, rng=random.Random(1))  # noqa: S311 - jitter is no secret
        self.dispatcher = Dispatcher(self.catalog, self.providers, tracker=self.tracker, clock=LoopClock())

    def open(self) -> Dispatch:
        return self.dispatcher.open(make_request(), make_decision(*self.catalog.deployments))

    def open_answers(self) -> int:
        return sum(provider.transport.open_answers for provider in self.providers.values())


async def read(dispatch: Dispatch) -> str:
    async with dispatch as answer:
        deltas = [delta async for event in answer.events for delta in event.deltas]
    return "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))


@pytest.mark.parametrize(
    ("steps", "kind"),
    [
        pytest.param(
            "[{status: {code: 429, headers: {retry-after: 7}}}]", OutcomeKind.RATE_LIMITED, id="429"
        ),
        pytest.param("[{status: 402}]", OutcomeKind.NO_BALANCE, id="402"),
        pytest.param("[{status: 529}]", OutcomeKind.UPSTREAM_FAILURE, id="529"),
        pytest.param("[stall]", OutcomeKind.TIMED_OUT, id="black hole"),
        pytest.param("[head, role, stall]", OutcomeKind.TIMED_OUT, id="role, then silence"),
        pytest.param("[head, role, reset]", OutcomeKind.BROKEN_STREAM, id="role, then RST"),
        pytest.param("[role, {error: {code: 429, message: slow}}]", OutcomeKind.RATE_LIMITED, id="in band"),
        pytest.param("[role, finish, usage, done]", OutcomeKind.EMPTY_ANSWER, id="empty"),
        pytest.param("[{raw: '<html>'}]", OutcomeKind.BROKEN_STREAM, id="a page"),
        pytest.param("[{no_connection: refused}]", OutcomeKind.UNREACHABLE, id="refused"),
    ],
)
async def test_the_client_sees_only_the_one_who_answers(steps: str, kind: OutcomeKind) -> None:
    house = House(f"steps: {steps}", "steps: [{answer: good}]")
    dispatch = house.open()

    assert await read(dispatch) == "good"
    assert [attempt.outcome.kind for attempt in dispatch.attempts] == [kind, OutcomeKind.SUCCESS]
    assert house.open_answers() == house.tracker.in_flight == 0


@pytest.mark.parametrize("ending", ["reset", "cut", "eof", "done", "stall", "{error: late}"])
@pytest.mark.parametrize("begun", ["{text: half}", "{tool_call: {name: f, arguments: '{\"a\":'}}"])
async def test_what_breaks_after_the_first_content_is_told_and_not_repaired(begun: str, ending: str) -> None:
    house = House(f"steps: [role, {begun}, {ending}]", "steps: [answer]")
    dispatch = house.open()
    with pytest.raises(StreamInterrupted):
        await read(dispatch)

    assert house.providers["b"].player.served == 0
    assert len(dispatch.attempts) == 1
    assert house.open_answers() == house.tracker.in_flight == 0


async def test_nobody_is_asked_after_the_end() -> None:
    house = House("steps: [{status: 500}]", "steps: [{status: 500}]")
    with pytest.raises(Exhausted):
        await read(house.open())
    served = [provider.player.served for provider in house.providers.values()]
    await asyncio.sleep(3_600)

    assert served == [provider.player.served for provider in house.providers.values()] == [1, 1]


async def test_a_hundred_clients_that_leave_at_any_moment_leave_nothing_behind() -> None:
    steps = "[{wait: 1}, head, {wait: 1}, role, {wait: 1}, {tokens: {count: 5, every: 1}}, finish, done]"
    house = House(f"steps: {steps}", f"steps: {steps}")

    async def leave_after(seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await read(house.open())
        except TimeoutError:
            pass

    async with asyncio.TaskGroup() as group:
        for number in range(100):
            group.create_task(leave_after(0.1 * number))

    assert house.open_answers() == house.tracker.in_flight == 0
