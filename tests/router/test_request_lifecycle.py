"""One request from the client to its record, through the real application; the upstreams play scripts."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest

from router.storage.request_log import StoredRequest
from tests.fakes.roundhouse import House, house_file, running_house

pytestmark = pytest.mark.anyio

GOOD = "steps: [{answer: {value: 'Hello there.', pieces: 3}}]"
LIMITED = "steps: [{status: {code: 429, headers: {retry-after: 7}, body: {error: {message: slow down}}}}]"
_CHOICE = {"index": 0, "message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}
BREAKS = "steps: [role, {text: half an ans}, reset]"


async def test_a_plain_request_gets_one_completion_and_headers_that_say_who_served_it(tmp_path: Path) -> None:
    async with running_house(house_file(tmp_path, {"first": GOOD})) as house:
        answer = await house.chat()

    completion = answer.json()
    assert answer.status_code == 200
    assert completion["object"] == "chat.completion"
    assert completion["choices"][0]["message"]["content"] == "Hello there."
    assert completion["usage"]["total_tokens"] > 0
    assert answer.headers["x-roundhouse-candidate"] == "first/model"
    assert answer.headers["x-roundhouse-attempts"] == "1"
    assert answer.headers["x-roundhouse-request-id"].startswith("req_")


async def test_a_streamed_request_gets_the_upstreams_own_frames_and_an_ending(tmp_path: Path) -> None:
    async with running_house(house_file(tmp_path, {"first": GOOD})) as house:
        answer = await house.chat(stream=True)

    frames = _frames(answer.content)
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.headers["x-roundhouse-candidate"] == "first/model"
    assert _text(frames) == "Hello there."
    assert frames[-1] == "[DONE]"


@pytest.mark.parametrize("asked", [True, False])
async def test_the_usage_chunk_is_shown_to_those_who_asked_for_it(tmp_path: Path, asked: bool) -> None:
    fields = {"stream_options": {"include_usage": True}} if asked else {}
    async with running_house(house_file(tmp_path, {"first": GOOD})) as house:
        answer = await house.chat(stream=True, **fields)

    usages = [frame for frame in _frames(answer.content) if frame != "[DONE]" and not frame.get("choices")]
    assert bool(usages) is asked


async def test_unknown_fields_and_the_key_reach_the_upstream_under_its_own_models_name(
    tmp_path: Path,
) -> None:
    seen: list[httpx.Request] = []

    def upstream(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(
            200, json={"choices": [_CHOICE], "usage": {"prompt_tokens": 1, "completion_tokens": 1}}
        )

    path = house_file(tmp_path, {"first": "{kind: openai, base_url: 'http://up.test/v1', key_env: A_KEY}"})
    transport = httpx.MockTransport(upstream)
    async with running_house(path, keys={"A_KEY": "sk-very-secret"}, transport=transport) as house:
        answer = await house.chat(some_new_field={"deep": [1, 2]})

    body = orjson.loads(seen[0].content)
    assert answer.json()["choices"][0]["message"]["content"] == "hi"
    assert (body["model"], body["some_new_field"]) == ("upstream-name", {"deep": [1, 2]})
    assert seen[0].headers["authorization"] == "Bearer sk-very-secret"


@pytest.mark.parametrize("stream", [False, True])
async def test_a_failure_before_the_first_word_falls_over_and_the_client_does_not_notice(
    tmp_path: Path, stream: bool
) -> None:
    async with running_house(house_file(tmp_path, {"first": LIMITED, "second": GOOD})) as house:
        answer = await house.chat(stream=stream)
        (stored,) = await _stored(house)

    assert answer.status_code == 200
    assert answer.headers["x-roundhouse-candidate"] == "second/model"
    assert answer.headers["x-roundhouse-attempts"] == "2"
    assert [(one.deployment_id, one.outcome.kind.value) for one in stored.record.attempts] == [
        ("first/model", "rate_limited"),
        ("second/model", "success"),
    ]


async def test_a_benched_candidate_is_left_out_of_the_next_request(tmp_path: Path) -> None:
    async with running_house(house_file(tmp_path, {"first": LIMITED, "second": GOOD})) as house:
        await house.chat()
        answer = await house.chat()

    assert answer.headers["x-roundhouse-attempts"] == "1"


async def test_a_stream_that_breaks_after_its_first_word_ends_with_an_error_and_no_done(
    tmp_path: Path,
) -> None:
    async with running_house(house_file(tmp_path, {"first": BREAKS, "second": GOOD})) as house:
        answer = await house.chat(stream=True)
        (stored,) = await _stored(house)

    frames = _frames(answer.content)
    assert _text(frames) == "half an ans"
    assert frames[-1]["error"]["code"] == "stream_interrupted"
    assert frames[-1]["error"]["request_id"] == answer.headers["x-roundhouse-request-id"]
    assert "[DONE]" not in frames
    assert (stored.record.status, stored.record.error_code) == (200, "stream_interrupted")
    assert [one.deployment_id for one in stored.record.attempts] == ["first/model"]


async def test_a_plain_answer_that_breaks_off_is_an_error_never_half_an_answer(tmp_path: Path) -> None:
    async with running_house(house_file(tmp_path, {"first": BREAKS})) as house:
        answer = await house.chat()

    assert answer.status_code == 502
    assert answer.json()["error"]["code"] == "stream_interrupted"
    assert answer.headers["x-roundhouse-candidate"] == "first/model"


async def test_when_nobody_is_left_the_client_learns_when_to_come_back_and_why(tmp_path: Path) -> None:
    async with running_house(house_file(tmp_path, {"first": LIMITED, "second": LIMITED})) as house:
        answer = await house.chat()
        (stored,) = await _stored(house)

    error = answer.json()["error"]
    assert answer.status_code == 429
    assert int(answer.headers["retry-after"]) >= 1
    assert error["type"] == "rate_limit_error"
    assert len(error["trail"]) == 2
    assert answer.headers["x-roundhouse-candidate"] == "none"
    assert answer.headers["x-roundhouse-attempts"] == "2"
    assert (stored.record.status, len(stored.record.attempts)) == (429, 2)


async def test_every_request_leaves_one_row_with_tokens_cost_and_times(tmp_path: Path) -> None:
    async with running_house(house_file(tmp_path, {"first": GOOD})) as house:
        answer = await house.chat("auto")
        (stored,) = await _stored(house)

    record = stored.record
    assert record.request_id == answer.headers["x-roundhouse-request-id"]
    assert (record.requested_model, record.deployment_id, record.status) == ("auto", "first/model", 200)
    assert record.usage is not None
    assert record.usage.completion_tokens > 0
    assert record.cost_micros is not None
    assert record.cost_micros > 0
    assert record.ttft_s is not None
    assert 0 <= record.ttft_s <= record.duration_s
    assert (stored.entrypoint, stored.judged_as) == ("auto", "chat")


async def test_a_request_that_could_not_be_read_leaves_a_row_too(tmp_path: Path) -> None:
    async with running_house(house_file(tmp_path, {"first": GOOD})) as house:
        answer = await house.client.post("/v1/chat/completions", content=b"{not json")
        (stored,) = await _stored(house)

    assert answer.status_code == 400
    assert (stored.record.status, stored.decision) == (400, None)


async def test_a_client_that_leaves_takes_the_upstream_with_it(tmp_path: Path) -> None:
    path = house_file(tmp_path, {"first": "steps: [role, {text: so}, stall]"})
    async with running_house(path) as house:
        left = asyncio.Event()
        sent: list[dict[str, Any]] = []

        async def send(message: dict[str, Any]) -> None:
            sent.append(message)
            if b"so" in message.get("body", b""):
                left.set()

        async with asyncio.timeout(1):
            await house.roundhouse.asgi(_scope(), _receive(left), send)  # type: ignore[arg-type]
            (stored,) = await _stored(house)
        upstream = house.roundhouse.providers["first"].transport  # type: ignore[attr-defined]
        in_flight = house.roundhouse.tracker.in_flight

    assert upstream.open_answers == 0
    assert (stored.record.status, stored.record.error_code) == (499, "client_disconnected")
    assert stored.record.attempts[-1].outcome.kind == "client_left"
    assert in_flight == 0


async def test_a_client_that_leaves_before_the_first_word_takes_the_upstream_with_it(tmp_path: Path) -> None:
    path = house_file(tmp_path, {"first": "steps: [head, stall]"})
    async with running_house(path) as house:
        left = asyncio.Event()
        left.set()

        async with asyncio.timeout(1):
            await house.roundhouse.asgi(_scope(), _receive(left), _drop)
            (stored,) = await _stored(house)
        upstream = house.roundhouse.providers["first"].transport  # type: ignore[attr-defined]

    assert upstream.open_answers == 0
    assert stored.record.status == 499


async def test_a_broken_database_costs_no_request(tmp_path: Path) -> None:
    path = house_file(tmp_path, {"first": GOOD})
    (tmp_path / "data").write_text("a file where the folder should be")

    async with running_house(path) as house:
        answer = await house.chat()

    assert answer.status_code == 200


async def test_a_bench_outlives_a_restart(tmp_path: Path) -> None:
    path = house_file(tmp_path, {"first": LIMITED, "second": GOOD})
    async with running_house(path) as house:
        await house.chat()
    async with running_house(path) as house:
        answer = await house.chat()

    assert answer.headers["x-roundhouse-candidate"] == "second/model"
    assert answer.headers["x-roundhouse-attempts"] == "1"


def _frames(body: bytes) -> list[Any]:
    data = [event.removeprefix(b"data: ") for event in body.strip().split(b"\n\n")]
    return [one.decode() if one == b"[DONE]" else orjson.loads(one) for one in data]


def _text(frames: list[Any]) -> str:
    return "".join(
        choice["delta"].get("content") or ""
        for frame in frames
        if frame != "[DONE]"
        for choice in frame.get("choices", ())
    )


async def _stored(house: House) -> tuple[StoredRequest, ...]:
    """Read the rows once the recorder has written all that it was handed."""
    async with asyncio.timeout(2):
        await house.roundhouse.recorder.flush()
    return await (await house.roundhouse.database.request_log()).latest()


def _scope() -> dict[str, Any]:
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": "/v1/chat/completions",
        "raw_path": b"/v1/chat/completions",
        "query_string": b"",
        "root_path": "",
        "headers": [(b"content-type", b"application/json")],
        "client": ("127.0.0.1", 1),
        "server": ("gateway", 80),
        "state": {},
    }


def _receive(left: asyncio.Event) -> Any:
    body = orjson.dumps({"model": "chat", "stream": True, "messages": [{"role": "user", "content": "hello"}]})
    messages = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> dict[str, Any]:
        if messages:
            return messages.pop()
        await left.wait()
        return {"type": "http.disconnect"}

    return receive


async def _drop(_message: Any) -> None:
    return None
