"""The local slot is saturated with chat: the judge does not notice it, nor it the judge."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.fakes.clock import VirtualTimeLoop
from tests.fakes.judged import JUDGE_HOST, Behaviour, FakeNetwork, JudgedHouse, hangs, says, verdict

pytestmark = pytest.mark.anyio

CHATS, AUTOS = 60, 120
HOME = "{kind: openai, base_url: 'http://home.test/v1', local: true}"


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return "asyncio", {"loop_factory": VirtualTimeLoop}


class Slot:
    """A local engine with one slot: whoever comes waits until it is free."""

    def __init__(self, seconds: float) -> None:
        self._answer = says("from home", after=seconds)
        self._free = asyncio.Semaphore(1)
        self.longest_queue = 0
        self._waiting = 0

    async def __call__(self, call: Any) -> httpx.Response:
        self._waiting += 1
        self.longest_queue = max(self.longest_queue, self._waiting)
        try:
            async with self._free:
                return await self._answer(call)
        finally:
            self._waiting -= 1


def judge_calls(network: FakeNetwork, host: str) -> int:
    """Count the calls to ``host`` that carry anything of the judge's prompt."""
    marks = ("You sort requests for a gateway", "RECORD ", "seal: ")
    return sum(any(mark in str(call.body["messages"]) for mark in marks) for call in network.to(host))


async def saturated(
    folder: Path, judge: Behaviour
) -> tuple[JudgedHouse, Slot, list[httpx.Response], list[float]]:
    """Fill the slot for minutes, then ask ``auto``; return the answers, and when each was judged."""
    slot, judged_at = Slot(seconds=2.0), list[float]()

    async def noted(call: Any) -> httpx.Response:
        answer = await judge(call)
        judged_at.append(asyncio.get_running_loop().time())
        return answer

    network = FakeNetwork(judge=noted, home=slot, task=says("from the cloud"))
    house = JudgedHouse(
        folder, network, models=("home", "task"), entries={"home": HOME}, block="candidates: [judge/model]"
    )

    async def chat(number: int) -> None:
        messages = [{"role": "user", "content": f"chat {number}"}]
        await house.client.post("/v1/chat/completions", json={"model": "home/model", "messages": messages})

    async with asyncio.TaskGroup() as everybody:
        for number in range(CHATS):
            everybody.create_task(chat(number))
        await asyncio.sleep(1.0)
        autos = [everybody.create_task(house.auto(f"question {number}")) for number in range(AUTOS)]
    return house, slot, [task.result() for task in autos], judged_at


async def test_the_judge_is_as_fast_as_ever_and_the_engine_sees_none_of_it(tmp_path: Path) -> None:
    """The case H15: the slot is busy for a minute, and a judge is needed."""
    house, slot, answers, judged_at = await saturated(tmp_path, verdict("code", after=0.2))

    assert slot.longest_queue >= CHATS
    assert {answer.headers["x-roundhouse-task"] for answer in answers} == {"code; source=judge"}
    assert judge_calls(house.network, "home.test") == 0
    assert judge_calls(house.network, "task.test") == 0
    assert len(house.network.to(JUDGE_HOST)) == judge_calls(house.network, JUDGE_HOST) == AUTOS
    # They came when the slot was full for two minutes, and were judged a fifth of a second later.
    assert max(judged_at) < 1.3
    assert all(answer.status_code == 200 for answer in answers)


async def test_a_judge_that_is_gone_sends_nothing_to_the_slot_either(tmp_path: Path) -> None:
    house, _, answers, _ = await saturated(tmp_path, hangs())

    assert judge_calls(house.network, "home.test") == 0
    assert all("source=heuristic" in answer.headers["x-roundhouse-task"] for answer in answers)
    assert all(answer.status_code == 200 for answer in answers)
