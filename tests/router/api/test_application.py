"""What the application refuses, and what it shows to whoever looks around."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import orjson
import pytest

from router.settings import Secret
from tests.fakes.roundhouse import house_file, running_house

pytestmark = pytest.mark.anyio

GOOD = "steps: [{answer: hi}]"
SCOPE = {
    "type": "http",
    "asgi": {"version": "3.0"},
    "http_version": "1.1",
    "method": "POST",
    "scheme": "http",
    "path": "/v1/chat/completions",
    "raw_path": b"/v1/chat/completions",
    "query_string": b"",
    "root_path": "",
    "headers": [],
    "client": ("127.0.0.1", 1),
    "server": ("gateway", 80),
}


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/nothing", 404, "not_found"),
        ("GET", "/v1/nothing", 404, "not_found"),
        ("GET", "/v1/chat/completions", 405, "method_not_allowed"),
        ("POST", "/v1/models", 405, "method_not_allowed"),
    ],
)
async def test_what_is_not_there_is_refused_in_the_envelope(
    tmp_path: Path, method: str, path: str, status: int, code: str
) -> None:
    async with running_house(house_file(tmp_path, {"first": GOOD})) as house:
        answer = await house.client.request(method, path)

    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["origin"]) == (status, code, "client")
    assert error["type"] == "invalid_request_error"
    assert answer.headers["x-roundhouse-request-id"] == error["request_id"]


@pytest.mark.parametrize(
    ("body", "param"),
    [
        (b"", None),
        (b"[]", None),
        (b'{"model": 5, "messages": []}', "model"),
        (b'{"model": "chat"}', "messages"),
        (b'{"model": "chat", "messages": [{"role": "user", "content": 5}]}', "messages[0].content"),
        (b'{"model": "chat", "messages": [{"role": "user", "content": "x"}], "stream": "yes"}', "stream"),
    ],
)
async def test_a_body_that_is_not_a_chat_is_a_400_that_names_the_field(
    tmp_path: Path, body: bytes, param: str | None
) -> None:
    async with running_house(house_file(tmp_path, {"first": GOOD})) as house:
        answer = await house.client.post("/v1/chat/completions", content=body)

    error = answer.json()["error"]
    assert (answer.status_code, error["type"], error["param"]) == (400, "invalid_request_error", param)
    assert answer.headers["x-roundhouse-candidate"] == "none"
    assert answer.headers["x-roundhouse-attempts"] == "0"


async def test_a_body_over_the_files_limit_is_a_413(tmp_path: Path) -> None:
    path = house_file(tmp_path, {"first": GOOD}, limits="{max_body_bytes: 2048}")
    async with running_house(path) as house:
        answer = await house.chat(padding="x" * 3000)

    assert answer.status_code == 413


async def test_the_root_page_links_to_what_there_is_without_a_script(tmp_path: Path) -> None:
    async with running_house(house_file(tmp_path, {"first": GOOD})) as house:
        page = await house.client.get("/")
        links = [part.split('"')[0] for part in page.text.split('href="')[1:]]
        answers = [(await house.client.get(link)).status_code for link in links]

    assert page.headers["content-type"].startswith("text/html")
    assert "<script" not in page.text
    assert answers == [200] * len(links)
    assert "/v1/models" in links


async def test_the_api_describes_every_path_that_it_answers(tmp_path: Path) -> None:
    async with running_house(house_file(tmp_path, {"first": GOOD})) as house:
        document = (await house.client.get("/openapi.json")).json()

    assert {
        "/v1/chat/completions", "/v1/models", "/v1/models/{model}", "/admin/explain", "/health/live",
        "/health/ready", "/health/dashboard", "/metrics",
    } == set(document["paths"])  # fmt: skip


@pytest.mark.parametrize("path", ["/", "/health/live", "/health/ready"])
async def test_a_monitor_may_ask_for_the_head_alone(tmp_path: Path, path: str) -> None:
    async with running_house(house_file(tmp_path, {"first": GOOD})) as house:
        answer = await house.client.head(path)

    assert answer.status_code == 200


async def test_no_other_origin_may_call_unless_it_is_named(tmp_path: Path) -> None:
    path = house_file(tmp_path, {"first": GOOD})
    origin = {"origin": "https://page.test"}
    async with running_house(path) as house:
        closed = await house.client.get("/v1/models", headers=origin)
    async with running_house(path, cors_origins=("https://page.test",)) as house:
        opened = await house.client.get("/v1/models", headers=origin)

    assert "access-control-allow-origin" not in closed.headers
    assert opened.headers["access-control-allow-origin"] == "https://page.test"
    assert "x-roundhouse-candidate" in opened.headers["access-control-expose-headers"]


async def test_a_key_that_is_set_is_wanted_from_every_client(tmp_path: Path) -> None:
    async with running_house(house_file(tmp_path, {"first": GOOD}), api_key=Secret("open-sesame")) as house:
        without = await house.chat()
        house.client.headers["authorization"] = "Bearer open-sesame"
        with_key = await house.chat()

    assert (without.status_code, with_key.status_code) == (401, 200)


@pytest.mark.parametrize("stream", [True, False])
async def test_a_stop_ends_what_is_still_open_with_an_error_that_says_so(
    tmp_path: Path, stream: bool
) -> None:
    path = house_file(tmp_path, {"first": "steps: [role, {text: so}, stall]"})
    messages = [{"role": "user", "content": "x"}]
    body = orjson.dumps({"model": "chat", "stream": stream, "messages": messages})
    sent: list[dict[str, Any]] = []
    answering = asyncio.Event()

    async def receive() -> dict[str, Any]:
        if not answering.is_set():
            answering.set()
            return {"type": "http.request", "body": body, "more_body": False}
        return await asyncio.Future()

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    async with running_house(path) as house, asyncio.timeout(5), asyncio.TaskGroup() as tasks:
        serving = tasks.create_task(house.roundhouse.asgi(dict(SCOPE), receive, send))  # type: ignore[arg-type]
        tracker = house.roundhouse.tracker
        while not tracker.in_flight or (stream and len(sent) < 2):  # noqa: ASYNC110 - nothing tells when it stalls
            await asyncio.sleep(0)
        house.roundhouse.open_requests.interrupt()
        await serving
        (stored,) = await _stored(house)

    last = sent[-1]["body"].removeprefix(b"data: ")
    assert orjson.loads(last)["error"]["code"] == "shutting_down"
    assert sent[0]["status"] == (200 if stream else 503)
    assert (tracker.in_flight, stored.record.error_code) == (0, "shutting_down")


async def _stored(house: Any) -> Any:
    await house.roundhouse.recorder.flush()
    return await (await house.roundhouse.database.request_log()).latest()
