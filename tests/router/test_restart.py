"""What was learnt outlives a restart, and deadlines are the wall clock's: the application runs repeatedly."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from router.app import Roundhouse, build_roundhouse
from router.catalog.load import load_catalog
from router.settings import read_settings
from tests.fakes.roundhouse import house_file

pytestmark = pytest.mark.anyio

GOOD = "steps: [{answer: {value: 'Hello there.', pieces: 3}}]"
LIMITED = "steps: [{status: {code: 429, headers: {retry-after: 100}}}]"
FAILING = "steps: [{status: 500}]"
# Five characters make three tokens here; the catalog takes 0.3 tokens for a character.
COUNTING = "steps: [role, {text: hi}, finish, {usage: {prompt_tokens: 6004, completion_tokens: 1}}, done]"


class MovedClock:
    """The machine's clock, with the wall's time moved by ``ahead_s``."""

    def __init__(self) -> None:
        self.ahead_s = 0.0

    def monotonic(self) -> float:
        return time.monotonic()

    def wall(self) -> float:
        return time.time() + self.ahead_s


@asynccontextmanager
async def life(path: Path, clock: MovedClock) -> AsyncIterator[tuple[Roundhouse, httpx.AsyncClient]]:
    """Run the gateway once, from its start to its end."""
    settings = read_settings({"config": str(path), "data_dir": str(path.parent / "data")}, {})
    roundhouse = build_roundhouse(settings, load_catalog(path), keys={}, clock=clock, seed=7)
    async with roundhouse.running():
        transport = httpx.ASGITransport(roundhouse.asgi)
        async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as client:
            yield roundhouse, client


async def ask(client: httpx.AsyncClient, content: str = "hello") -> httpx.Response:
    body = {"model": "chat", "messages": [{"role": "user", "content": content}]}
    return await client.post("/v1/chat/completions", json=body)


async def excluded(client: httpx.AsyncClient, content: str = "hello") -> dict[str, Any]:
    """Return who is left out of such a request, by id."""
    body = {"model": "chat", "messages": [{"role": "user", "content": content}]}
    told = (await client.post("/admin/explain", json=body)).json()
    return {one["deployment_id"]: one for one in told["exclusions"]}


async def test_tokens_per_character_are_learnt_from_answers_count_for_eligibility_and_are_kept(
    tmp_path: Path,
) -> None:
    path = house_file(tmp_path, {"first": COUNTING, "second": GOOD})
    long_prompt = "x" * 250_000
    async with life(path, MovedClock()) as (roundhouse, client):
        assert "first/model" not in await excluded(client, long_prompt)

        assert (await ask(client, "y" * 10_000)).headers["x-roundhouse-candidate"] == "first/model"
        health = roundhouse.gateway.snapshot().deployments["first/model"]
        left_out = await excluded(client, long_prompt)

    assert health.tokens_per_character == pytest.approx(0.6, rel=0.01)
    assert left_out["first/model"]["reason"] == "context_too_small"
    assert "second/model" not in left_out

    async with life(path, MovedClock()) as (_, client):
        assert (await excluded(client, long_prompt))["first/model"]["reason"] == "context_too_small"


async def test_a_bench_ends_when_the_wall_clock_says_so_however_often_the_gateway_is_restarted(
    tmp_path: Path,
) -> None:
    path = house_file(tmp_path, {"first": LIMITED, "second": GOOD, "third": GOOD})
    clock = MovedClock()
    async with life(path, clock) as (_, client):
        await ask(client)
        stated = (await excluded(client))["first/model"]

    for _ in range(3):
        clock.ahead_s += 30.0
        async with life(path, clock) as (_, client):
            assert (await excluded(client))["first/model"] == stated

    clock.ahead_s += 11.0
    async with life(path, clock) as (_, client):
        assert await excluded(client) == {}
    assert stated["reason"] == "benched"
    assert stated["bench_kind"] == "rate_limited"


async def test_an_open_breaker_stays_open_over_a_restart_and_half_opens_in_time(tmp_path: Path) -> None:
    path = house_file(tmp_path, {"first": FAILING, "second": GOOD, "third": GOOD})
    clock = MovedClock()
    async with life(path, clock) as (_, client):
        for number in range(5):
            await ask(client, f"question {number}")
        opened = (await excluded(client))["first/model"]

    async with life(path, clock) as (_, client):
        assert (await excluded(client))["first/model"]["until"] == opened["until"]
    clock.ahead_s = 13.0
    async with life(path, clock) as (_, client):
        assert await excluded(client) == {}
        assert (await ask(client)).headers["x-roundhouse-attempts"] == "2", "one probe"
        assert (await excluded(client))["first/model"]["reason"] == "breaker_open"
    assert opened["reason"] == "breaker_open"


async def test_averages_are_kept_and_drift_on_while_nothing_runs(tmp_path: Path) -> None:
    path = house_file(tmp_path, {"first": FAILING, "second": GOOD})
    clock = MovedClock()
    async with life(path, clock) as (roundhouse, client):
        for _ in range(3):
            await ask(client)
        before = roundhouse.gateway.snapshot().deployments["first/model"].health

    async with life(path, clock) as (roundhouse, _):
        after = roundhouse.gateway.snapshot().deployments["first/model"].health
    clock.ahead_s = 300.0
    async with life(path, clock) as (roundhouse, _):
        later = roundhouse.gateway.snapshot().deployments["first/model"].health

    assert before < 0.8
    assert after == pytest.approx(before, abs=0.01)
    assert 0.8 - later == pytest.approx((0.8 - before) / 2, abs=0.01)


async def test_a_clock_that_was_set_back_leaves_nobody_out_for_ever(tmp_path: Path) -> None:
    path = house_file(tmp_path, {"first": LIMITED, "second": GOOD, "third": GOOD})
    clock = MovedClock()
    clock.ahead_s = 400 * 86_400.0
    async with life(path, clock) as (_, client):
        await ask(client)
        assert "first/model" in await excluded(client)

    clock.ahead_s = 0.0
    async with life(path, clock) as (_, client):
        left_out = await excluded(client)
    held_for_s = left_out["first/model"]["until"] - time.time() if left_out else 0.0
    assert held_for_s <= 31 * 86_400.0
