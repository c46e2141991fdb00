"""The provider against an upstream on a real socket that plays scripts."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import httpx
import orjson
import pytest
import respx

from router.catalog.catalog import Provider as ProviderEntry
from router.catalog.catalog import ProviderKind
from router.chat.types import ChatEvent, TextDelta, UsageDelta
from router.clock import SystemClock
from router.errors import (
    TimeoutPhase,
    UpstreamBrokenStream,
    UpstreamEmpty,
    UpstreamError,
    UpstreamInBandError,
    UpstreamStatus,
    UpstreamTimeout,
    UpstreamUnreachable,
)
from router.providers.base import AttemptDeadlines
from router.providers.credentials import ProviderKeys
from router.providers.direct_client import DirectClient
from router.providers.openai_compatible import OpenAICompatibleProvider
from router.providers.transport import make_client
from router.providers.upstream_client import HttpxClient, UpstreamClient
from tests.fakes.provider import make_deployment, make_request
from tests.fakes.upstream import FakeUpstream

pytestmark = pytest.mark.anyio

PATIENT = AttemptDeadlines(connect_s=5, first_event_s=5, stall_s=5, total_s=10)
DEPLOYMENT = make_deployment("d", "p", upstream_model="upstream-name", max_output_tokens=100)
SECRET = "topsecret-key-1"


def new_client() -> UpstreamClient:
    return DirectClient()


@pytest.fixture(params=["direct", "httpx"], autouse=True)
def _each_client(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hold both clients to the same behaviour."""
    if request.param == "httpx":
        monkeypatch.setattr(request.module, "new_client", lambda: HttpxClient(make_client()))


def provider_for(url: str, **fields: object) -> OpenAICompatibleProvider:
    entry = ProviderEntry("p", ProviderKind.OPENAI, url, key_env=("P_KEY",), **fields)  # type: ignore[arg-type]
    keys = ProviderKeys({"P_KEY": SECRET, "P_KEY_2": "topsecret-key-2"})
    return OpenAICompatibleProvider(entry, keys=keys, client=new_client(), clock=SystemClock())


@asynccontextmanager
async def upstream(script: str) -> AsyncIterator[tuple[FakeUpstream, OpenAICompatibleProvider]]:
    async with FakeUpstream.of(script) as server:
        provider = provider_for(server.url)
        yield server, provider
        await provider.aclose()


async def ask(
    provider: OpenAICompatibleProvider, deadlines: AttemptDeadlines = PATIENT, **fields: object
) -> list[ChatEvent]:
    return [event async for event in provider.stream(make_request(**fields), DEPLOYMENT, deadlines)]


def said(events: list[ChatEvent]) -> str:
    return "".join(delta.text for event in events for delta in event.deltas if isinstance(delta, TextDelta))


async def test_a_good_answer_comes_as_events_with_their_usage() -> None:
    async with upstream("steps: [{answer: {value: 'Hello there.', pieces: 4}}]") as (_, provider):
        events = await ask(provider)

    assert said(events) == "Hello there."
    assert any(isinstance(delta, UsageDelta) for event in events for delta in event.deltas)


async def test_what_is_sent() -> None:
    async with upstream("steps: [answer]") as (server, provider):
        body = {
            "model": "chat",
            "messages": [{"role": "user", "content": "hi"}],
            "top_k": 3,
            "max_tokens": 900,
        }
        await ask(provider, body=body, stream=False, max_output_tokens=900)

    sent = server.requests[0]
    assert (sent.method, sent.path) == ("POST", "/v1/chat/completions")
    assert sent.headers["authorization"] == f"Bearer {SECRET}"
    assert sent.headers["accept-encoding"] == "identity"
    assert sent.body == {
        **body,
        "model": "upstream-name",
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_tokens": 100,
    }


async def test_the_key_is_chosen_by_its_label_and_extra_headers_are_sent() -> None:
    async with FakeUpstream.of("steps: [answer]") as server:
        provider = provider_for(server.url + "/", headers={"X-Title": "house"})
        async for _ in provider.stream(make_request(), DEPLOYMENT, PATIENT, key_label="P_KEY_2"):
            pass
        await provider.aclose()

    assert server.requests[0].headers["authorization"] == "Bearer topsecret-key-2"
    assert server.requests[0].headers["x-title"] == "house"


async def test_the_connection_is_used_again_after_a_whole_answer() -> None:
    async with upstream("steps: [answer]") as (server, provider):
        for _ in range(3):
            await ask(provider)

        assert server.connections == 1


@pytest.mark.parametrize(
    ("steps", "kind", "match"),
    [
        pytest.param("[reset]", UpstreamUnreachable, "before an answer", id="reset before the status"),
        pytest.param("[head, reset]", UpstreamBrokenStream, "within the answer", id="reset after the head"),
        pytest.param(
            "[{text: half}, reset]", UpstreamBrokenStream, "within the answer", id="reset in the stream"
        ),
        pytest.param(
            "[{text: half}, cut]", UpstreamBrokenStream, "within the answer", id="FIN in the stream"
        ),
        pytest.param("[{text: half}, eof]", UpstreamBrokenStream, "without its ending", id="end of the body"),
        pytest.param("[{text: half}, done]", UpstreamBrokenStream, "finish reason", id="DONE alone"),
        pytest.param("[role, eof]", UpstreamBrokenStream, "without its ending", id="role only"),
        pytest.param("[role, finish, done]", UpstreamEmpty, "without text", id="empty"),
        pytest.param(
            "[role, {error: {message: slow, code: 429}}]", UpstreamInBandError, "slow", id="in band"
        ),
        pytest.param("[{text: a}, {finish: error}, done]", UpstreamInBandError, "error", id="finish error"),
        pytest.param(
            "[{json: {error: {message: no credits, code: 402}}}]",
            UpstreamInBandError,
            "no credits",
            id="JSON",
        ),
        pytest.param("[{raw: '<html>login</html>'}]", UpstreamBrokenStream, "markup", id="HTML"),
        pytest.param("[{raw: 'data: {\"a\"'}, eof]", UpstreamBrokenStream, "not JSON", id="half a frame"),
    ],
)
async def test_every_fault_has_its_class(steps: str, kind: type[UpstreamError], match: str) -> None:
    async with upstream(f"steps: {steps}") as (_, provider):
        with pytest.raises(kind, match=match):
            await ask(provider)


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param("[role, {text: Hello}, finish]", id="no DONE"),
        pytest.param("[role, {text: Hello}, finish, cut]", id="FIN after the finish reason"),
        pytest.param("[role, {text: Hello}, finish, reset]", id="RST after the finish reason"),
        pytest.param("[{split: 3}, {comment: hm}, {answer: Hello}]", id="split anywhere"),
        pytest.param(
            "[{json: {choices: [{message: {content: Hello}, finish_reason: stop}]}}]", id="one JSON body"
        ),
    ],
)
async def test_these_are_whole_answers(steps: str) -> None:
    async with upstream(f"steps: {steps}") as (_, provider):
        assert said(await ask(provider)) == "Hello"


@pytest.mark.parametrize("ending", ["cut", "reset"])
async def test_what_came_before_a_break_is_handed_on(ending: str) -> None:
    async with upstream(f"steps: [{{text: half}}, {{wait: 0.01}}, {ending}]") as (_, provider):
        stream = provider.stream(make_request(), DEPLOYMENT, PATIENT)
        assert said([await anext(stream)]) == "half"
        with pytest.raises(UpstreamBrokenStream):
            await anext(stream)


async def test_a_status_keeps_code_type_excerpt_and_retry_after() -> None:
    body = '{error: {message: "Slow down, topsecret-key-1", type: rate, code: rpm}}'
    async with upstream(f"steps: [{{status: {{code: 429, headers: {{retry-after: 7}}, body: {body}}}}}]") as (
        _,
        provider,
    ):
        with pytest.raises(UpstreamStatus) as caught:
            await ask(provider)

    error = caught.value
    assert (error.upstream_status, error.upstream_code, error.upstream_type) == (429, "rpm", "rate")
    assert error.retry_after_s == 7
    assert orjson.loads(error.body_excerpt)["error"]["message"] == "Slow down, [removed]"
    assert SECRET not in str(error)


async def test_a_huge_error_body_is_cut_and_an_endless_one_not_waited_for() -> None:
    head = "{head: {code: 500, headers: {content-type: text/plain}}}"
    steps = f"[{head}, {{tokens: {{count: 3000, text: aaaaaaaaaaaa}}}}, stall]"
    async with upstream(f"steps: {steps}") as (server, provider):
        started = time.monotonic()
        with pytest.raises(UpstreamStatus) as caught:
            await ask(provider)
        await server.until_no_connection()

    assert len(caught.value.body_excerpt) <= 2_000
    assert time.monotonic() - started < 4


async def test_a_redirect_is_not_followed() -> None:
    steps = "[{status: {code: 307, headers: {location: 'http://elsewhere.test/v1'}}}]"
    async with upstream(f"steps: {steps}") as (server, provider):
        with pytest.raises(UpstreamStatus, match="write the final address into base_url"):
            await ask(provider)

    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("steps", "deadlines", "phase"),
    [
        pytest.param("[stall]", {"first_event_s": 0.05}, TimeoutPhase.FIRST_EVENT, id="no status"),
        pytest.param("[head, stall]", {"first_event_s": 0.05}, TimeoutPhase.FIRST_EVENT, id="headers only"),
        pytest.param("[role, stall]", {"first_event_s": 0.05}, TimeoutPhase.FIRST_EVENT, id="metadata only"),
        pytest.param(
            "[head, {tokens: {count: 900, every: 0.01, text: ''}}]",
            {"first_event_s": 0.05},
            TimeoutPhase.FIRST_EVENT,
            id="empty chunks are no progress",
        ),
        pytest.param("[{text: a}, stall]", {"stall_s": 0.05}, TimeoutPhase.STALL, id="stall"),
        pytest.param(
            "[{text: a}, comment, {wait: 0.04}, comment, {wait: 0.04}, comment, {wait: 0.04}, stall]",
            {"stall_s": 0.06},
            TimeoutPhase.STALL,
            id="comments are no progress",
        ),
        pytest.param(
            "[{tokens: {count: 900, every: 0.01}}]", {"total_s": 0.05}, TimeoutPhase.TOTAL, id="total"
        ),
        pytest.param("[{raw: '{'}, stall]", {"total_s": 0.05}, TimeoutPhase.TOTAL, id="JSON body"),
    ],
)
async def test_a_deadline_closes_the_connection(
    steps: str, deadlines: dict[str, float], phase: TimeoutPhase
) -> None:
    bounds = AttemptDeadlines(
        **{"connect_s": 5, "first_event_s": 5, "stall_s": 5, "total_s": 10, **deadlines}
    )
    async with upstream(f"steps: {steps}") as (server, provider):
        with pytest.raises(UpstreamTimeout) as caught:
            await ask(provider, bounds)
        await server.until_no_connection()

    assert caught.value.phase is phase


async def test_a_slow_first_token_is_no_stall() -> None:
    bounds = AttemptDeadlines(connect_s=5, first_event_s=5, stall_s=0.05, total_s=10)
    async with upstream("steps: [head, {wait: 0.2}, answer]") as (_, provider):
        assert said(await ask(provider, bounds)) == "Hello."


async def test_a_slow_reader_is_no_stall() -> None:
    bounds = AttemptDeadlines(connect_s=5, first_event_s=5, stall_s=0.05, total_s=10)
    async with upstream("steps: [{text: a}, {text: b}, {wait: 0.02}, {text: c}, finish, done]") as (
        _,
        provider,
    ):
        events = []
        async for event in provider.stream(make_request(), DEPLOYMENT, bounds):
            events.append(event)
            await asyncio.sleep(0.08)

    assert said(events) == "abc"


async def test_after_the_finish_reason_the_rest_is_not_waited_for_long() -> None:
    bounds = AttemptDeadlines(connect_s=5, first_event_s=5, stall_s=0.05, total_s=10)
    async with upstream("steps: [{text: Hello}, finish, stall]") as (_, provider):
        assert said(await ask(provider, bounds)) == "Hello"


@pytest.mark.parametrize(
    "steps", ["[stall]", "[head, stall]", "[role, stall]", "[{text: a}, stall]", "[{status: 200}, stall]"]
)
async def test_leaving_closes_the_connection_at_once(steps: str) -> None:
    async with upstream(f"steps: {steps}") as (server, provider):
        async with asyncio.TaskGroup() as group:
            task = group.create_task(ask(provider))
            await server.until_received(1)
            task.cancel()
        await server.until_no_connection()

        assert server.requests[0].left_early.is_set()


async def test_leaving_in_a_cancelled_scope_closes_the_connection_too() -> None:
    async with upstream("steps: [{text: a}, stall]") as (server, provider):
        with anyio.CancelScope() as scope:
            async for _ in provider.stream(make_request(), DEPLOYMENT, PATIENT):
                scope.cancel()
        await server.until_no_connection()


async def test_closing_the_iterator_closes_the_connection() -> None:
    async with upstream("steps: [{text: a}, stall]") as (server, provider):
        stream = provider.stream(make_request(), DEPLOYMENT, PATIENT)
        await anext(stream)
        await stream.aclose()  # type: ignore[attr-defined]
        await server.until_no_connection()


async def test_a_refused_connection_is_unreachable() -> None:
    async with FakeUpstream.of("steps: [answer]") as server:
        url = server.url
    provider = provider_for(url)
    with pytest.raises(UpstreamUnreachable, match="the connection was refused"):
        await ask(provider)
    await provider.aclose()


async def test_a_name_that_does_not_resolve_is_unreachable() -> None:
    provider = provider_for("http://no-such-host.invalid/v1")
    with pytest.raises(UpstreamUnreachable, match="cannot be resolved"):
        await ask(provider)
    await provider.aclose()


async def test_tls_that_fails_is_unreachable() -> None:
    def answer_in_clear(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(answer_in_clear, "127.0.0.1", 0) as server:
        provider = provider_for(f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1")
        with pytest.raises(UpstreamUnreachable, match="TLS failed"):
            await ask(provider)
        await provider.aclose()


async def test_a_base_url_that_is_none_is_said_so() -> None:
    provider = provider_for("ftp://files.test/v1")
    with pytest.raises(UpstreamUnreachable, match="base_url cannot be used"):
        await ask(provider)
    await provider.aclose()


@respx.mock
async def test_a_connection_that_times_out_is_a_connect_timeout() -> None:
    respx.post("http://p.test/v1/chat/completions").mock(side_effect=httpx.ConnectTimeout("slow"))
    entry = ProviderEntry("p", ProviderKind.OPENAI, "http://p.test/v1")
    provider = OpenAICompatibleProvider(
        entry, keys=ProviderKeys({}), client=make_client(), clock=SystemClock()
    )
    with pytest.raises(UpstreamTimeout) as caught:
        await ask(provider)
    await provider.aclose()

    assert caught.value.phase is TimeoutPhase.CONNECT
    assert isinstance(caught.value.__cause__, httpx.ConnectTimeout)


def test_nothing_that_can_be_printed_holds_a_key() -> None:
    provider = provider_for("http://p.test/v1")

    assert "P_KEY" in repr(provider)
    assert "topsecret" not in repr(provider) + repr(provider._keys) + str(vars(provider))


def test_a_provider_without_its_key_is_unconfigured() -> None:
    entry = ProviderEntry("p", ProviderKind.OPENAI, "http://p.test/v1", key_env=("P_KEY",))
    provider = OpenAICompatibleProvider(
        entry, keys=ProviderKeys({}), client=make_client(), clock=SystemClock()
    )

    status = provider.status()
    assert (status.configured, status.ready) == (False, False)
    assert "P_KEY" in status.detail
