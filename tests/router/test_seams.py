"""An exception at any seam: the request goes on to somebody else, or ends in an honest envelope.

Every case runs through the real application. Afterwards nothing is held, the request has its one record where
recording itself is not what failed, and the log has the incident under the request's id.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
import structlog

from router.health.tracker import HealthTracker
from tests.fakes.provider import FakeProvider, metadata, text
from tests.fakes.roundhouse import House, house_file, running_house

pytestmark = pytest.mark.anyio

GOOD = "steps: [{answer: {value: 'Hello there.', pieces: 3}}]"
LIMITED = "steps: [{status: {code: 429, headers: {retry-after: 7}}}]"
REQUEST_ID = "req_seam"


class Injected(RuntimeError):
    """What is injected."""


def raising(*_: object, **__: object) -> Any:
    raise Injected("injected")


async def ask(house: House, *, stream: bool, model: str = "chat") -> tuple[int, str]:
    """Return the status, and what the client was told: the text, or the error's code."""
    body = {"model": model, "stream": stream, "messages": [{"role": "user", "content": "hello"}]}
    answer = await house.client.post("/v1/chat/completions", json=body, headers={"x-request-id": REQUEST_ID})
    assert answer.headers["x-roundhouse-request-id"] == REQUEST_ID
    if not stream or answer.headers["content-type"] == "application/json":
        told = answer.json()
        if "error" in told:
            assert told["error"]["request_id"] == REQUEST_ID
            return answer.status_code, told["error"]["code"]
        return answer.status_code, told["choices"][0]["message"]["content"]
    pieces: list[str] = []
    for event in answer.content.strip().split(b"\n\n"):
        data = event.removeprefix(b"data: ")
        frame = {} if data == b"[DONE]" else orjson.loads(data)
        if "error" in frame:
            assert frame["error"]["request_id"] == REQUEST_ID
            return answer.status_code, frame["error"]["code"]
        pieces += [choice["delta"].get("content") or "" for choice in frame.get("choices", ())]
    return answer.status_code, "".join(pieces)


async def assert_even(house: House, *, records: int = 1) -> None:
    """Nothing is held, and every request has its record."""
    assert house.roundhouse.tracker.in_flight == 0
    health = house.roundhouse.tracker.snapshot(0.0, {}).deployments
    assert [one.in_flight for one in health.values()] == [0] * len(health)
    assert len(house.roundhouse.open_requests) == 0
    async with asyncio.timeout(2):
        await house.roundhouse.recorder.flush()
    assert len(await (await house.roundhouse.database.request_log()).latest()) == records


def has_incident(logs: list[Any]) -> bool:
    return any(
        entry.get("request_id") == REQUEST_ID and entry["log_level"] in {"error", "warning"} for entry in logs
    )


DECIDING = [
    "router.gateway.read_features",
    "router.gateway.conversation_key",
    "router.gateway.has_reasoning_history",
    "router.gateway.decide",
    "router.health.tracker.HealthTracker.snapshot",
    "router.routing.scoring.Scorer.score",
    "router.routing.decide.exclusion_of",
    "router.routing.conversations.Conversations.last",
]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("seam", DECIDING)
async def test_a_defect_in_deciding_costs_the_order_and_not_the_answer(
    seam: str, stream: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_house(house_file(tmp_path, {"first": LIMITED, "second": GOOD})) as house:
        if seam.endswith("has_reasoning_history"):
            await ask(house, stream=False)
        with monkeypatch.context() as patch, structlog.testing.capture_logs() as logs:
            patch.setattr(seam, raising)
            assert await ask(house, stream=stream) == (200, "Hello there.")

        assert has_incident(logs)
        await assert_even(house, records=2 if seam.endswith("has_reasoning_history") else 1)


async def test_a_judge_with_a_defect_judges_nothing_and_the_request_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_house(house_file(tmp_path, {"first": GOOD})) as house:
        monkeypatch.setattr(house.roundhouse.gateway.judge, "name_task", raising)
        with structlog.testing.capture_logs() as logs:
            assert await ask(house, stream=False, model="auto") == (200, "Hello there.")

        assert has_incident(logs)
        await assert_even(house)


PROVIDER: dict[str, Callable[[], Any]] = {
    "raises when asked": lambda: raising,
    "raises at once": lambda: FakeProvider([Injected("injected")]).stream,
    "raises after metadata": lambda: FakeProvider([metadata(), Injected("injected")]).stream,
    "is cancelled from within": lambda: FakeProvider([metadata(), asyncio.CancelledError()]).stream,
    "returns no stream": lambda: lambda *_, **__: None,
    "says what is no event": lambda: lambda *_, **__: _nonsense(),
}


async def _nonsense() -> AsyncIterator[Any]:
    yield "this is no event"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("fault", PROVIDER)
async def test_a_defect_of_an_adapter_goes_on_to_the_next(
    fault: str, stream: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_house(house_file(tmp_path, {"first": GOOD, "second": GOOD})) as house:
        monkeypatch.setattr(house.roundhouse.providers["first"], "stream", PROVIDER[fault]())
        with structlog.testing.capture_logs() as logs:
            assert await ask(house, stream=stream) == (200, "Hello there.")

        assert has_incident(logs)
        await assert_even(house)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("fault", [Injected("injected"), asyncio.CancelledError()])
async def test_a_defect_within_an_answer_ends_it_with_an_error(
    fault: BaseException, stream: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_house(house_file(tmp_path, {"first": GOOD, "second": GOOD})) as house:
        broken = FakeProvider([_chunk("half"), fault])
        monkeypatch.setattr(house.roundhouse.providers["first"], "stream", broken.stream)
        status = 200 if stream else 502

        assert await ask(house, stream=stream) == (status, "stream_interrupted")
        assert broken.open_streams == 0
        await assert_even(house)


def _chunk(said: str) -> Any:
    return text(orjson.dumps({"choices": [{"index": 0, "delta": {"content": said}}]}).decode())


async def test_a_provider_whose_status_cannot_be_read_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_house(house_file(tmp_path, {"first": GOOD, "second": GOOD})) as house:
        monkeypatch.setattr(house.roundhouse.providers["first"], "status", raising)

        assert await ask(house, stream=True) == (200, "Hello there.")
        assert (await house.client.get("/health/ready")).status_code == 200
        await assert_even(house)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("seam", ["acquire", "settle", "release", "observe_first_event", "observe_usage"])
async def test_a_defect_in_the_health_costs_no_answer(
    seam: str, stream: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = getattr(HealthTracker, seam)
    failures = iter([True])

    def once(*arguments: object, **named: object) -> object:
        # What is counted must be undone all the same: the defect comes after it.
        result = real(*arguments, **named) if seam in {"settle", "release"} else None
        return raising() if next(failures, False) else result or real(*arguments, **named)

    async with running_house(house_file(tmp_path, {"first": LIMITED, "second": GOOD})) as house:
        monkeypatch.setattr(HealthTracker, seam, once)

        assert await ask(house, stream=stream) == (200, "Hello there.")
        await assert_even(house)


RULES = ["router.dispatch.dispatcher.classify", "router.dispatch.dispatcher.exhausted"]


@pytest.mark.parametrize("seam", [*RULES, "router.dispatch.dispatcher.attempt_deadlines"])
async def test_a_defect_in_the_rules_ends_with_the_ladder(
    seam: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_house(house_file(tmp_path, {"first": LIMITED, "second": LIMITED})) as house:
        with structlog.testing.capture_logs() as logs:
            monkeypatch.setattr(seam, raising)
            assert await ask(house, stream=True) == (503, "all_unavailable")

        assert has_incident(logs)
        await assert_even(house)


RECORDING = [
    "router.recording.recorder.Recorder.put",
    "router.story.Story.record",
    "router.story.Story._usage",
]


@pytest.mark.parametrize("seam", RECORDING)
async def test_a_defect_in_recording_costs_the_record_alone(
    seam: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_house(house_file(tmp_path, {"first": GOOD})) as house:
        with monkeypatch.context() as patch, structlog.testing.capture_logs() as logs:
            patch.setattr(seam, raising)
            assert await ask(house, stream=True) == (200, "Hello there.")

        assert has_incident(logs)
        await assert_even(house, records=0)


@pytest.mark.parametrize("seam", ["router.story.Story.observe", "router.story.FinishRepair.repair"])
async def test_a_defect_beside_the_events_lets_them_pass(
    seam: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_house(house_file(tmp_path, {"first": GOOD})) as house:
        with structlog.testing.capture_logs() as logs:
            monkeypatch.setattr(seam, raising)
            assert await ask(house, stream=True) == (200, "Hello there.")

        assert has_incident(logs)
        await assert_even(house)


ELSEWHERE = {
    "router.api.chat_completions.accumulate": False,
    "router.dispatch.dispatcher.Dispatcher.open": True,
    "router.dispatch.walk.Walk.next_candidate": True,
    "router.dispatch.retry_budget.RetryBudget.note_request": True,
}


@pytest.mark.parametrize("seam", ELSEWHERE)
async def test_a_defect_anywhere_else_is_an_envelope_with_the_requests_id(
    seam: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_house(house_file(tmp_path, {"first": GOOD})) as house:
        with structlog.testing.capture_logs() as logs:
            monkeypatch.setattr(seam, raising)
            assert await ask(house, stream=ELSEWHERE[seam]) == (500, "internal_error")

        assert has_incident(logs)
        await assert_even(house)
