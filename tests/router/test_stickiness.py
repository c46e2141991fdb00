"""A conversation stays with whoever serves it, through the real application, and explain shows it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.roundhouse import House, house_file, running_house

pytestmark = pytest.mark.anyio

GOOD = "steps: [{answer: {value: 'Hello there.', pieces: 3}}]"
FAILS_ONCE = "requests: [[{status: 500}], [{answer: ok}]]"


def house_of(tmp_path: Path, providers: dict[str, str]) -> Path:
    """Write a house whose first provider is preferred by a little."""
    path = house_file(tmp_path, providers)
    fits = iter(["0.55"] * 4 + ["0.5"] * 40)
    path.write_text(re.sub(r"(?<=: )0\.\d+(?=[,}])", lambda _: next(fits), path.read_text()))
    return path


async def ask(house: House, *turns: str, **headers: str) -> str:
    body: dict[str, Any] = {
        "model": "chat",
        "messages": [{"role": "user", "content": turn} for turn in turns],
    }
    answer = await house.client.post("/v1/chat/completions", json=body, headers=headers)
    assert answer.status_code == 200
    return answer.headers["x-roundhouse-candidate"]


async def test_a_conversation_stays_with_the_one_that_served_it(tmp_path: Path) -> None:
    async with running_house(house_of(tmp_path, {"first": FAILS_ONCE, "second": GOOD})) as house:
        assert await ask(house, "one") == "second/model"
        assert await ask(house, "another") == "first/model"

        assert await ask(house, "one", "and then?") == "second/model"
        assert await ask(house, "another", "and then?") == "first/model"


async def test_a_session_that_the_client_names_is_a_conversation(tmp_path: Path) -> None:
    async with running_house(house_of(tmp_path, {"first": FAILS_ONCE, "second": GOOD})) as house:
        assert await ask(house, "one", **{"X-Session-Id": "mine"}) == "second/model"

        assert await ask(house, "something else", **{"X-Session-Id": "mine"}) == "second/model"
        assert await ask(house, "something else") == "first/model"


async def test_two_callers_share_no_conversation(tmp_path: Path) -> None:
    async with running_house(house_of(tmp_path, {"first": FAILS_ONCE, "second": GOOD})) as house:
        assert await ask(house, "one", authorization="Bearer a") == "second/model"

        assert await ask(house, "one", authorization="Bearer b") == "first/model"
        assert await ask(house, "one", authorization="Bearer a") == "second/model"


async def test_explain_shows_who_served_the_conversation(tmp_path: Path) -> None:
    async with running_house(house_of(tmp_path, {"a": GOOD, "b": GOOD})) as house:
        served = await ask(house, "hello", **{"x-session-affinity": "s"})
        body = {"model": "chat", "messages": [{"role": "user", "content": "next"}]}
        told = await house.client.post("/admin/explain", json=body, headers={"x-session-affinity": "s"})
        other = await house.client.post("/admin/explain", json=body)

    first = told.json()["candidates"][0]
    assert first["deployment_id"] == served
    assert first["terms"][-1]["name"] == "stickiness"
    assert first["terms"][-1]["basis"] == "served this conversation before"
    assert "stickiness" not in other.text
