from __future__ import annotations

from pathlib import Path

import pytest

from tests.fakes.roundhouse import house_file, running_house

pytestmark = pytest.mark.anyio

GOOD = "steps: [{answer: hi}]"


async def test_the_list_has_the_entrypoints_first_and_then_every_candidate(tmp_path: Path) -> None:
    async with running_house(house_file(tmp_path, {"first": GOOD, "second": GOOD})) as house:
        listed = (await house.client.get("/v1/models")).json()

    assert listed["object"] == "list"
    assert [one["id"] for one in listed["data"]] == [
        "auto", "chat", "code", "build", "long", "first/model", "second/model",
    ]  # fmt: skip
    assert all(one["object"] == "model" and isinstance(one["created"], int) for one in listed["data"])


async def test_a_candidate_says_its_window_limits_price_and_capabilities(tmp_path: Path) -> None:
    async with running_house(house_file(tmp_path, {"first": GOOD})) as house:
        model = (await house.client.get("/v1/models/first/model")).json()

    assert (model["owned_by"], model["context_length"], model["max_output_tokens"]) == (
        "first",
        100_000,
        8_000,
    )
    assert model["pricing"] == {"prompt": "0.000002", "completion": "0.00001", "free": False}
    assert model["capabilities"]["tools"] is True
    assert model["capabilities"]["vision"] is False
    assert model["configured"] is True


async def test_an_entrypoint_is_as_large_as_its_largest_usable_candidate(tmp_path: Path) -> None:
    providers = {"first": GOOD, "second": "{kind: openai, base_url: 'http://up.test/v1', key_env: A_KEY}"}
    path = house_file(tmp_path, providers)
    path.write_text(path.read_text().replace("100000", "8100", 1))
    async with running_house(path) as house:
        model = (await house.client.get("/v1/models/chat")).json()

    assert (model["context_length"], model["configured"]) == (8_100, True)
    assert model["candidates"] == ["first/model", "second/model"]


async def test_an_unknown_model_is_openais_404(tmp_path: Path) -> None:
    async with running_house(house_file(tmp_path, {"first": GOOD})) as house:
        looked_up = await house.client.get("/v1/models/gpt-99")
        asked = await house.chat("gpt-99")

    for answer in (looked_up, asked):
        assert answer.status_code == 404
        assert answer.json()["error"]["code"] == "model_not_found"
        assert answer.headers["x-roundhouse-request-id"] == answer.json()["error"]["request_id"]
