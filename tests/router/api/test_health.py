from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from tests.fakes.roundhouse import house_file, running_house

pytestmark = pytest.mark.anyio

GOOD = "steps: [{answer: hi}]"
LIMITED = "steps: [{status: {code: 429, headers: {retry-after: 70}, body: {error: {message: slow down}}}}]"
KEYED = "{kind: openai, base_url: 'http://up.test/v1', key_env: A_KEY}"


async def test_live_and_ready_answer_and_ready_counts_who_can_serve(tmp_path: Path) -> None:
    async with running_house(house_file(tmp_path, {"first": GOOD, "second": KEYED})) as house:
        live = await house.client.get("/health/live")
        ready = await house.client.get("/health/ready")
    async with httpx.AsyncClient(transport=httpx.ASGITransport(house.roundhouse.asgi)) as client:
        stopped = await client.get("http://gateway/health/ready")

    assert (live.status_code, live.json()) == (200, {"status": "live"})
    assert (ready.status_code, ready.json()["usable_candidates"]) == (200, 1)
    assert (stopped.status_code, stopped.json()["status"]) == (503, "stopping")


async def test_the_dashboard_shows_every_candidate_with_its_state_and_why(tmp_path: Path) -> None:
    path = house_file(tmp_path, {"limited": LIMITED, "good": GOOD, "keyless": KEYED})
    async with running_house(path) as house:
        await house.chat()
        shown = (await house.client.get("/health/dashboard")).json()

    states = {one["id"]: one for one in shown["candidates"]}
    assert shown["schema_version"] == 1
    assert shown["catalog_version"]
    assert {name: one["state"] for name, one in states.items()} == {
        "limited/model": "benched",
        "good/model": "healthy",
        "keyless/model": "unconfigured",
    }
    assert states["limited/model"]["bench"]["kind"] == "rate_limited"
    assert states["limited/model"]["bench"]["until"].endswith("Z")
    assert "slow down" in states["limited/model"]["last_error"]
    assert "A_KEY" in states["keyless/model"]["unconfigured_reason"]
    assert states["good/model"]["successes"] == 1
    assert states["good/model"]["ttft_s"] is not None
    assert states["good/model"]["breaker"] == {"state": "closed", "until": None, "probing": False}


async def test_the_dashboard_shows_entrypoints_incidents_and_how_recording_goes(tmp_path: Path) -> None:
    async with running_house(house_file(tmp_path, {"limited": LIMITED, "good": GOOD})) as house:
        await house.chat()
        await house.roundhouse.recorder.flush()
        shown = (await house.client.get("/health/dashboard")).json()

    chat = next(one for one in shown["entrypoints"] if one["name"] == "chat")
    assert (chat["usable"], chat["configured"], chat["candidates"]) == (1, 2, ["limited/model", "good/model"])
    assert shown["incidents"][-1]["candidate"] == "limited/model"
    assert shown["recording"] == {"written": 1, "lost": 0, "waiting": 0, "degraded": None}


async def test_metrics_count_the_request_its_attempts_and_candidates(tmp_path: Path) -> None:
    async with running_house(house_file(tmp_path, {"limited": LIMITED, "good": GOOD})) as house:
        await house.chat()
        answer = await house.client.get("/metrics")

    lines = answer.text.splitlines()
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert 'roundhouse_requests_total{entrypoint="chat",status="200"} 1' in lines
    assert 'roundhouse_attempts_total{candidate="limited/model",outcome="rate_limited"} 1' in lines
    assert 'roundhouse_attempts_total{candidate="good/model",outcome="success"} 1' in lines
    assert 'roundhouse_candidate_in_flight{candidate="good/model"} 0' in lines
