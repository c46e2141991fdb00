"""What every answer carries, whatever is behind the edge."""

from __future__ import annotations

import httpx
import orjson
import pytest
from starlette.types import ASGIApp, Receive, Scope, Send

from router.api.middleware import Edge, request_id_of
from router.api.reply import read_body, send_json
from router.clock import SystemClock
from router.errors import Exhausted

pytestmark = pytest.mark.anyio


async def _echo(scope: Scope, receive: Receive, send: Send) -> None:
    body = await read_body(receive, 100)
    await send_json(send, 200, orjson.dumps({"id": request_id_of(scope), "size": len(body)}))


async def _defect(_scope: Scope, _receive: Receive, _send: Send) -> None:
    raise RuntimeError("something secret")


async def _exhausted(_scope: Scope, _receive: Receive, _send: Send) -> None:
    raise Exhausted(
        "all at their limit",
        exhausted_status=429,
        exhausted_code="all_rate_limited",
        trail=("a: tried",),
        retry_after_s=2.2,
    )


def _client(app: ASGIApp, api_key: str = "") -> httpx.AsyncClient:
    edge = Edge(app, clock=SystemClock(), max_body_bytes=100, api_key=api_key)
    return httpx.AsyncClient(transport=httpx.ASGITransport(edge), base_url="http://gateway")


async def test_an_answer_carries_the_requests_id_and_a_handler_sees_the_same_one() -> None:
    async with _client(_echo) as client:
        answer = await client.post("/v1/anything")

    assert answer.headers["x-roundhouse-request-id"] == answer.json()["id"]
    assert answer.headers["x-roundhouse-candidate"] == "none"
    assert answer.headers["x-roundhouse-attempts"] == "0"


@pytest.mark.parametrize("name", ["x-request-id", "x-roundhouse-request-id"])
async def test_a_harmless_id_of_the_clients_own_is_kept(name: str) -> None:
    async with _client(_echo) as client:
        answer = await client.post("/", headers={name: "trace-1.2:3"})

    assert answer.headers["x-roundhouse-request-id"] == "trace-1.2:3"


@pytest.mark.parametrize("offered", ["", "a b", "x" * 65, "ünïcode", "<script>"])
async def test_any_other_id_is_replaced(offered: str) -> None:
    async with _client(_echo) as client:
        answer = await client.post("/", headers={"x-request-id": offered.encode()})

    assert answer.headers["x-roundhouse-request-id"].startswith("req_")


async def test_a_body_over_the_limit_is_refused_by_its_announced_length_and_by_its_real_one() -> None:
    async def pieces() -> object:
        for _ in range(11):
            yield b"x" * 10

    async with _client(_echo) as client:
        announced = await client.post("/v1/x", content=b"x" * 101)
        chunked = await client.post("/v1/x", content=pieces())  # type: ignore[arg-type]

    for answer in (announced, chunked):
        assert answer.status_code == 413
        assert answer.json()["error"]["code"] == "request_too_large"
        assert "x-roundhouse-request-id" in answer.headers


async def test_a_defect_is_a_500_in_the_envelope_that_tells_nothing_but_the_id() -> None:
    async with _client(_defect) as client:
        answer = await client.get("/v1/x")

    error = answer.json()["error"]
    assert answer.status_code == 500
    assert (error["code"], error["origin"]) == ("internal_error", "gateway")
    assert error["request_id"] == answer.headers["x-roundhouse-request-id"]
    assert "secret" not in answer.text


async def test_exhaustion_has_its_own_status_the_trail_and_a_whole_number_to_wait() -> None:
    async with _client(_exhausted) as client:
        answer = await client.get("/v1/x")

    error = answer.json()["error"]
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "3")
    assert (error["type"], error["code"], error["trail"]) == (
        "rate_limit_error",
        "all_rate_limited",
        ["a: tried"],
    )


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"authorization": "Bearer wrong"}, 401),
        ({"authorization": "Basic right"}, 401),
        ({"authorization": "Bearer right"}, 200),
        ({"authorization": "bearer right"}, 200),
        ({"x-api-key": "right"}, 200),
    ],
)
async def test_a_key_opens_everything_but_the_probes(headers: dict[str, str], status: int) -> None:
    async with _client(_echo, api_key="right") as client:
        asked = await client.post("/v1/x", headers=headers)
        probe = await client.get("/health/live")

    assert (asked.status_code, probe.status_code) == (status, 200)
    if status == 401:
        assert asked.headers["www-authenticate"] == "Bearer"
        assert asked.json()["error"]["type"] == "authentication_error"
