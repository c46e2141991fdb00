"""The real ``litellm`` library against an upstream on 127.0.0.1, and the translation of its exceptions."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from router.catalog.catalog import Provider as ProviderEntry
from router.catalog.catalog import ProviderKind
from router.chat.types import ChatEvent, TextDelta, ToolCallDelta, UsageDelta
from router.clock import SystemClock
from router.errors import (
    TimeoutPhase,
    UpstreamBrokenStream,
    UpstreamEmpty,
    UpstreamError,
    UpstreamStatus,
    UpstreamTimeout,
    UpstreamUnreachable,
)
from router.providers.base import AttemptDeadlines
from router.providers.credentials import ProviderKeys
from router.providers.litellm_library import REQUIRED_ENVIRONMENT, LiteLLMProvider
from tests.fakes.provider import make_deployment, make_request
from tests.fakes.upstream import FakeUpstream

pytestmark = pytest.mark.anyio

PATIENT = AttemptDeadlines(connect_s=5, first_event_s=20, stall_s=20, total_s=40)
DEPLOYMENT = make_deployment("d", "p", upstream_model="openai/upstream-name")
ROOT = Path(__file__).parents[3]


def provider_for(url: str, **fields: Any) -> LiteLLMProvider:
    entry = ProviderEntry("p", ProviderKind.LITELLM, url, key_env=("P_KEY",), headers={"x-title": "house"})
    return LiteLLMProvider(
        entry, keys=ProviderKeys({"P_KEY": "topsecret-key-1"}), clock=SystemClock(), **fields
    )


@asynccontextmanager
async def upstream(script: str) -> AsyncIterator[tuple[FakeUpstream, LiteLLMProvider]]:
    async with FakeUpstream.of(script) as server:
        provider = provider_for(server.url)
        yield server, provider
        await provider.aclose()


async def ask(provider: LiteLLMProvider, deadlines: AttemptDeadlines = PATIENT) -> list[ChatEvent]:
    return [event async for event in provider.stream(make_request(), DEPLOYMENT, deadlines)]


def said(events: list[ChatEvent]) -> str:
    return "".join(delta.text for event in events for delta in event.deltas if isinstance(delta, TextDelta))


@pytest.fixture
def _quiet_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in REQUIRED_ENVIRONMENT.items():
        monkeypatch.setenv(name, value)


def with_library(test: Callable[..., object]) -> Callable[..., object]:
    """Mark a test that imports the real library; what that warns of is not ours to mend."""
    marks = (
        pytest.mark.slow,
        pytest.mark.filterwarnings("ignore"),
        pytest.mark.usefixtures("_quiet_environment"),
    )
    for mark in marks:
        test = mark(test)
    return test


@with_library
async def test_an_answer_comes_as_events_after_one_request() -> None:
    async with upstream("steps: [{answer: {value: 'Hello there.', pieces: 3}}]") as (server, provider):
        events = await ask(provider)

    assert said(events) == "Hello there."
    assert any(isinstance(delta, UsageDelta) for event in events for delta in event.deltas)
    assert len(server.requests) == 1
    assert server.requests[0].body["model"] == "upstream-name"
    assert server.requests[0].headers["authorization"] == "Bearer topsecret-key-1"
    assert server.requests[0].headers["x-title"] == "house"


@with_library
async def test_a_tool_call_survives() -> None:
    steps = "[{tool_call: {name: read, arguments: {a: 1}, pieces: 3}}, {finish: tool_calls}, done]"
    async with upstream(f"steps: {steps}") as (_, provider):
        deltas = [delta for event in await ask(provider) for delta in event.deltas]

    calls = [delta for delta in deltas if isinstance(delta, ToolCallDelta)]
    assert calls[0].name == "read"
    assert "".join(call.arguments for call in calls) == '{"a":1}'


@pytest.mark.parametrize(
    ("steps", "kind", "status"),
    [
        (
            "[{status: {code: 429, headers: {retry-after: 7}, body: {error: {message: slow}}}}]",
            UpstreamStatus,
            429,
        ),
        ("[{status: {code: 401, body: {error: {message: no}}}}]", UpstreamStatus, 401),
        ("[{status: {code: 503, body: {error: {message: busy}}}}]", UpstreamStatus, 503),
        ("[reset]", UpstreamUnreachable, None),
        ("[role, {text: half}, reset]", UpstreamBrokenStream, None),
        ("[role, {text: half}, eof]", UpstreamBrokenStream, None),
        ("[role, finish, done]", UpstreamEmpty, None),
    ],
)
@with_library
async def test_a_failure_is_ours_after_one_request(
    steps: str, kind: type[UpstreamError], status: int | None
) -> None:
    async with upstream(f"steps: {steps}") as (server, provider):
        with pytest.raises(kind) as caught:
            await ask(provider)

    assert getattr(caught.value, "upstream_status", None) == status
    assert len(server.requests) == 1
    if status == 429:
        assert caught.value.retry_after_s == 7


@with_library
async def test_a_context_that_is_too_long_keeps_its_code() -> None:
    body = "{error: {message: 'maximum context length is 10', code: context_length_exceeded}}"
    async with upstream(f"steps: [{{status: {{code: 400, body: {body}}}}}]") as (_, provider):
        with pytest.raises(UpstreamStatus) as caught:
            await ask(provider)

    assert caught.value.upstream_code == "context_length_exceeded"


@pytest.mark.parametrize(
    ("steps", "phase"),
    [("[stall]", TimeoutPhase.FIRST_EVENT), ("[role, {text: a}, stall]", TimeoutPhase.STALL)],
)
@with_library
async def test_deadlines_are_kept_and_the_connection_is_closed(steps: str, phase: TimeoutPhase) -> None:
    async with upstream(f"requests: [[answer], {steps}]") as (server, provider):
        await ask(provider)
        with pytest.raises(UpstreamTimeout) as caught:
            await ask(provider, AttemptDeadlines(connect_s=5, first_event_s=0.5, stall_s=0.5, total_s=5))
        async with asyncio.timeout(5):
            await server.requests[1].left_early.wait()

    assert caught.value.phase is phase


def test_importing_the_package_does_not_import_the_library() -> None:
    program = "import sys, router.providers.registry; sys.exit('litellm' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=False).returncode == 0


async def test_the_library_is_loaded_once_and_off_the_event_loop() -> None:
    loads = []

    def load() -> ModuleType:
        with pytest.raises(RuntimeError):
            asyncio.get_running_loop()
        loads.append(1)
        return SimpleNamespace(acompletion=refuse)  # type: ignore[return-value]

    async def refuse(**_: object) -> None:
        raise ZeroDivisionError

    provider = provider_for("http://p.test/v1", load=load)
    results = await asyncio.gather(*(ask(provider) for _ in range(5)), return_exceptions=True)

    assert loads == [1]
    assert [type(result) for result in results] == [ZeroDivisionError] * 5


def _library_error(name: str, bases: tuple[type[Exception], ...] = (), **fields: object) -> Exception:
    kind = type(name, bases or (Exception,), {"__module__": "litellm.exceptions", **fields})
    error: Exception = kind("litellm.Error: topsecret-key-1 was refused")
    return error


async def _failing_with(error: Exception) -> Exception:
    async def acompletion(**_: object) -> None:
        raise error

    provider = provider_for("http://p.test", load=lambda: SimpleNamespace(acompletion=acompletion))
    try:
        await ask(provider)
    except Exception as caught:  # noqa: BLE001 - which one it is is the question
        return caught
    raise AssertionError("it should have failed")


@pytest.mark.parametrize(
    ("name", "status", "code"),
    [
        ("ContextWindowExceededError", 400, "context_length_exceeded"),
        ("ContentPolicyViolationError", 400, "content_filter"),
        ("PaymentRequiredError", 402, "insufficient_quota"),
        ("AuthenticationError", 401, "invalid_api_key"),
        ("InternalServerError", 500, None),
    ],
)
async def test_the_librarys_classes_become_codes(name: str, status: int, code: str | None) -> None:
    error = await _failing_with(_library_error(name, status_code=status))

    assert isinstance(error, UpstreamStatus)
    assert (error.upstream_status, error.upstream_code) == (status, code)
    assert "topsecret" not in str(error) + error.body_excerpt


async def test_the_librarys_connection_errors_are_unreachable_and_its_timeouts_timeouts() -> None:
    connection = type("APIConnectionError", (Exception,), {"__module__": "openai"})
    timeout = type("APITimeoutError", (connection,), {"__module__": "openai"})

    assert isinstance(await _failing_with(connection("gone")), UpstreamUnreachable)
    assert isinstance(await _failing_with(timeout("slow")), UpstreamTimeout)


async def test_a_defect_that_is_not_the_librarys_stays_what_it_is() -> None:
    assert isinstance(await _failing_with(KeyError("ours")), KeyError)
