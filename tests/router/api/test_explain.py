from __future__ import annotations

from pathlib import Path

import pytest

from tests.fakes.roundhouse import house_file, running_house

pytestmark = pytest.mark.anyio

GOOD = "steps: [{answer: hi}]"
KEYED = "{kind: openai, base_url: 'http://up.test/v1', key_env: A_KEY}"
BODY = {"model": "auto", "messages": [{"role": "user", "content": "hello"}]}


async def test_a_body_is_explained_with_every_term_and_every_exclusion_and_nothing_is_sent(
    tmp_path: Path,
) -> None:
    async with running_house(house_file(tmp_path, {"first": GOOD, "keyless": KEYED})) as house:
        explained = (await house.client.post("/admin/explain", json=BODY)).json()
        served = house.roundhouse.providers["first"].player.served  # type: ignore[attr-defined]

    assert served == 0
    assert (explained["entrypoint"], explained["judged_as"]) == ("auto", "chat")
    (candidate,) = explained["candidates"]
    assert {term["name"] for term in candidate["terms"]} == {
        "health", "task_fit", "context_slack", "cost", "expected_time", "load",
    }  # fmt: skip
    assert [(one["deployment_id"], one["reason"]) for one in explained["exclusions"]] == [
        ("keyless/model", "unconfigured")
    ]


async def test_auto_reads_the_last_turn_and_the_tools(tmp_path: Path) -> None:
    tools = [
        {"type": "function", "function": {"name": name, "parameters": {}}}
        for name in ("bash", "edit_file", "grep")
    ]
    code = "```python\ndef f(x):\n    return x\n```\nTraceback (most recent call last): why, in main.py?"
    async with running_house(house_file(tmp_path, {"first": GOOD})) as house:
        agent = await house.client.post("/admin/explain", json={**BODY, "tools": tools})
        coder = await house.client.post(
            "/admin/explain", json={**BODY, "messages": [{"role": "user", "content": code}]}
        )

    assert agent.json()["judged_as"] == "build"
    assert coder.json()["judged_as"] == "code"


async def test_whoever_asks_for_text_gets_a_table(tmp_path: Path) -> None:
    async with running_house(house_file(tmp_path, {"first": GOOD})) as house:
        answer = await house.client.post("/admin/explain", json=BODY, headers={"accept": "text/plain"})

    assert answer.headers["content-type"].startswith("text/plain")
    assert "first/model" in answer.text


async def test_a_body_that_cannot_be_read_is_refused_as_the_surface_would(tmp_path: Path) -> None:
    async with running_house(house_file(tmp_path, {"first": GOOD})) as house:
        answer = await house.client.post("/admin/explain", json={"messages": []})

    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "model"
