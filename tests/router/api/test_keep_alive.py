"""A stream that takes long to begin is kept alive by comments, through the real application."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import orjson
import pytest

from router.api.keep_alive import KeepAlive, comment
from tests.fakes.roundhouse import house_file, running_house

pytestmark = pytest.mark.anyio

SLOW = "steps: [{wait: 0.3}, {answer: {value: 'Hello.', pieces: 2}}]"
SLOW_TO_FAIL = "steps: [{wait: 0.3}, {status: 500}]"
SOON = "{keep_alive_after_s: 0.02, keep_alive_every_s: 0.05}"


async def test_a_slow_start_is_bridged_by_comments_and_then_names_the_candidate(tmp_path: Path) -> None:
    async with running_house(house_file(tmp_path, {"first": SLOW}, limits=SOON)) as house:
        answer = await house.chat(stream=True)

    events = answer.content.strip().split(b"\n\n")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.headers["x-roundhouse-candidate"] == "pending"
    assert events[:2] == [b": keep-alive"] * 2
    first_data = next(place for place, event in enumerate(events) if event.startswith(b"data: "))
    assert events[first_data - 1] == b": roundhouse candidate=first/model attempts=1"
    assert all(event.startswith(b"data: ") for event in events[first_data:])
    assert events[-1] == b"data: [DONE]"


async def test_a_failure_after_the_comments_is_an_error_in_the_stream(tmp_path: Path) -> None:
    async with running_house(house_file(tmp_path, {"first": SLOW_TO_FAIL}, limits=SOON)) as house:
        answer = await house.chat(stream=True)
        await house.roundhouse.recorder.flush()
        (stored,) = await (await house.roundhouse.database.request_log()).latest()

    events = answer.content.strip().split(b"\n\n")
    error = orjson.loads(events[-1].removeprefix(b"data: "))["error"]
    assert answer.status_code == 200
    assert error["code"] == "all_unavailable"
    assert error["request_id"] == answer.headers["x-roundhouse-request-id"]
    assert b"data: [DONE]" not in events
    assert (stored.record.status, stored.record.error_code) == (200, "all_unavailable")


async def test_what_fails_or_begins_soon_keeps_its_status_and_headers(tmp_path: Path) -> None:
    for script, status in (("steps: [{status: 500}]", 503), ("steps: [{answer: hi}]", 200)):
        async with running_house(house_file(tmp_path, {"first": script})) as house:
            answer = await house.chat(stream=True)

        assert answer.status_code == status
        assert answer.headers["x-roundhouse-candidate"] != "pending"
        assert b"keep-alive" not in answer.content


async def test_a_plain_answer_is_never_begun_early(tmp_path: Path) -> None:
    async with running_house(house_file(tmp_path, {"first": SLOW}, limits=SOON)) as house:
        answer = await house.chat()

    assert answer.json()["choices"][0]["message"]["content"] == "Hello."
    assert answer.headers["x-roundhouse-candidate"] == "first/model"


async def test_once_it_has_ended_nothing_more_is_sent_and_what_was_begun_is_whole() -> None:
    sent: list[Any] = []
    slowly = asyncio.Event()

    async def send(message: Any) -> None:
        await slowly.wait()
        sent.append(message)

    async with asyncio.TaskGroup() as group:
        kept = KeepAlive(group, send, {"type": "head"}, after_s=0.001, every_s=0.001)
        async with asyncio.timeout(5):
            while not kept.began:  # noqa: ASYNC110 - the timer is the loop's own
                await asyncio.sleep(0)
            group.create_task(asyncio.sleep(0)).add_done_callback(lambda _: slowly.set())
            await kept.end()
        count = len(sent)
        await kept.end()

    assert [message["type"] for message in sent] in (["head"], ["head", "http.response.body"])
    assert len(sent) == count


def test_a_comment_is_one_line() -> None:
    assert comment("a\nb\r\n: c") == b": a b : c\n\n"


async def test_a_client_that_leaves_between_comments_takes_the_upstream_with_it(tmp_path: Path) -> None:
    path = house_file(tmp_path, {"first": "steps: [head, stall]"}, limits=SOON)
    body = orjson.dumps({"model": "chat", "stream": True, "messages": [{"role": "user", "content": "hello"}]})
    incoming = [{"type": "http.request", "body": body, "more_body": False}]
    seen: list[dict[str, Any]] = []
    left = asyncio.Event()

    async def receive() -> Any:
        if incoming:
            return incoming.pop()
        await left.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        seen.append(message)
        if len(seen) == 3:
            left.set()

    scope = {
        "type": "http",
        "method": "POST",
        "path": "/v1/chat/completions",
        "raw_path": b"/v1/chat/completions",
        "query_string": b"",
        "headers": [(b"content-type", b"application/json")],
        "http_version": "1.1",
        "scheme": "http",
        "server": ("gateway", 80),
        "client": ("127.0.0.1", 1),
    }
    async with running_house(path) as house:
        async with asyncio.timeout(2):
            await house.roundhouse.asgi(scope, receive, send)
            await house.roundhouse.recorder.flush()
        (stored,) = await (await house.roundhouse.database.request_log()).latest()
        upstream = house.roundhouse.providers["first"].transport  # type: ignore[attr-defined]

    assert [message["type"] for message in seen][:2] == ["http.response.start", "http.response.body"]
    assert (stored.record.status, stored.record.error_code) == (499, "client_disconnected")
    assert upstream.open_answers == 0
    assert house.roundhouse.tracker.in_flight == 0
