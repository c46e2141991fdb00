"""What the judge did is recorded and counted, apart from the request's own attempts, tokens and cost."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from router.storage.request_log import StoredRequest
from tests.fakes.judged import Behaviour, FakeNetwork, refuses, says, verdict
from tests.fakes.roundhouse import House, house_file, running_house

pytestmark = pytest.mark.anyio

ENTRY = "{{kind: openai, base_url: 'http://{name}.test/v1', key_env: A_KEY}}"


async def _served(folder: Path, judge: Behaviour) -> tuple[StoredRequest, str]:
    network = FakeNetwork(judge=judge, task=says("hi", usage={"prompt_tokens": 7, "completion_tokens": 3}))
    entries = {name: ENTRY.format(name=name) for name in ("task", "judge")}
    path = house_file(folder, entries, judge="{candidates: [judge/model]}")
    async with running_house(path, keys={"A_KEY": "k"}, transport=network) as house:
        answer = await house.chat("auto")
        stored = await _stored(house)
        metrics = (await house.client.get("/metrics")).text

    assert answer.status_code == 200
    return stored, metrics


async def _stored(house: House) -> StoredRequest:
    async with asyncio.timeout(2):
        await house.roundhouse.recorder.flush()
    (stored,) = await (await house.roundhouse.database.request_log()).latest()
    return stored


async def test_tokens_and_cost_of_the_call_stand_in_the_record_beside_the_requests_own(
    tmp_path: Path,
) -> None:
    stored, metrics = await _served(tmp_path, verdict("code", difficulty="easy", needs=["long_answer"]))

    record, decision = stored.record, stored.decision
    assert decision is not None
    told = decision["verdict"]
    assert isinstance(told, dict)
    call = told.pop("call")
    assert told == {
        "task": "code",
        "source": "judge",
        "why": None,
        "basis": "judge/model said so",
        "difficulty": "easy",
        "needs": ["long_answer"],
    }
    assert isinstance(call, dict)
    assert (call["prompt_tokens"], call["completion_tokens"], call["outcome"]) == (400, 30, "success")
    assert call["cost_micros"] == 400 * 3 + 30 * 10
    assert [attempt.deployment_id for attempt in record.attempts] == ["task/model"]
    assert record.cost_micros == 7 * 2 + 3 * 10
    assert stored.judged_as == "code"
    lines = metrics.splitlines()
    assert 'roundhouse_judged_total{task="code",source="judge"} 1' in lines
    assert 'roundhouse_judge_calls_total{candidate="judge/model",outcome="success"} 1' in lines
    assert 'roundhouse_judge_tokens_total{candidate="judge/model",kind="prompt"} 400' in lines
    assert 'roundhouse_judge_cost_micro_dollars_total{candidate="judge/model"} 1500' in lines
    assert not [
        line for line in lines if line.startswith('roundhouse_attempts_total{candidate="judge/model"')
    ]


async def test_a_call_that_failed_is_recorded_with_its_reason(tmp_path: Path) -> None:
    stored, metrics = await _served(tmp_path, refuses(429, retry_after="9"))

    assert stored.decision is not None
    told = stored.decision["verdict"]
    assert isinstance(told, dict)
    assert (told["source"], told["why"]) == ("heuristic", "rate_limited")
    assert isinstance(told["call"], dict)
    assert told["call"]["cost_micros"] is None
    assert 'roundhouse_judge_calls_total{candidate="judge/model",outcome="rate_limited"} 1' in metrics
