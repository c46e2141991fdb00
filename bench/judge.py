"""What naming the task adds to a request to ``auto``: ``python bench/judge.py [--check]``.

Measures :meth:`router.judge.lane.Judge.name_task` without the network: where no judge is configured (the
heuristic alone), where the conversation's verdict is kept, where the lane is closed, and the making of the
prompt. Short requests, and conversations of a megabyte. Prints medians and 99th percentiles of the thread's
processor time in milliseconds; ``--check`` fails where a median misses its target.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from collections.abc import AsyncGenerator, Callable, Coroutine
from dataclasses import replace
from typing import Any

import orjson

from router.catalog.catalog import (
    Capabilities,
    Catalog,
    Deployment,
    JudgeSettings,
    Limits,
    Price,
    Provider,
    ProviderKind,
)
from router.chat.features import read_features
from router.chat.openai_wire import read_chat_request
from router.chat.types import ChatEvent, ChatRequest, FinishDelta, FinishReason, TextDelta
from router.clock import SystemClock
from router.errors import UpstreamUnreachable
from router.judge.lane import Judge
from router.judge.prompt import Marks, judge_request
from router.providers.base import ProviderStatus

CALLS = 400
TARGET_MS = 0.2
KINDS = ("p50", "p99")


class Judging:
    """A provider whose model knows the answer at once, or cannot be reached."""

    def __init__(self, *, reachable: bool) -> None:
        self._reachable = reachable

    async def stream(self, *_: object, **__: object) -> AsyncGenerator[ChatEvent]:
        """Say the verdict."""
        if not self._reachable:
            raise UpstreamUnreachable("refused")
        yield ChatEvent((TextDelta(0, '{"seal": "5ea1", "task": "code"}'), FinishDelta(0, FinishReason.STOP)))

    def status(self) -> ProviderStatus:
        """Say that it can be asked."""
        return ProviderStatus(configured=True, ready=True)

    async def aclose(self) -> None:
        """Nothing to close."""


def make_catalog() -> Catalog:
    deployment = Deployment("j", "p", "m", 100_000, 8_000, Price(100, 100), Capabilities(), {})
    return Catalog(
        providers={"p": Provider("p", ProviderKind.OPENAI, "http://127.0.0.1:1")},
        deployments={"j": deployment},
        entrypoints={},
        judge=JudgeSettings(("j",)),
        limits=Limits(1 << 25, 6, 5, 30, 30, 300),
        version="bench",
    )


def judge_of(catalog: Catalog, *, reachable: bool = True) -> Judge:
    provider = Judging(reachable=reachable)
    return Judge(
        catalog,
        {"p": provider},  # type: ignore[dict-item]  # its stream takes anything
        statuses=lambda: {"p": provider.status()},
        clock=SystemClock(),
        rng=random.Random(1),  # noqa: S311 - jitter
        make_mark=lambda: "5ea1",
    )


def requests() -> dict[str, ChatRequest]:
    def request(*messages: dict[str, Any]) -> ChatRequest:
        return read_chat_request(orjson.dumps({"model": "auto", "messages": messages}))

    turns = [
        {"role": role, "content": "def f(x):\n    return x\n" * 450} for role in ("user", "assistant") * 50
    ]
    return {
        "short": request({"role": "user", "content": "Why does this loop never end?"}),
        "megabyte": request({"role": "system", "content": "You are helpful. " * 600}, *turns, turns[0]),
    }


async def measured(work: Callable[[], Coroutine[Any, Any, object]]) -> tuple[float, float]:
    times = []
    for _ in range(CALLS):
        began = time.thread_time()
        await work()
        times.append(1_000 * (time.thread_time() - began))
    times.sort()
    return round(times[len(times) // 2], 4), round(times[int(len(times) * 0.99)], 4)


async def figures_of(request: ChatRequest) -> dict[str, tuple[float, float]]:
    features = read_features(request)
    without = judge_of(replace(make_catalog(), judge=None))
    kept, closed = judge_of(make_catalog()), judge_of(make_catalog(), reachable=False)
    await kept.name_task(request, features)
    await closed.name_task(request, features)

    async def make_prompt() -> object:
        return judge_request(request, features, Marks("fe9ce", "5ea1"))

    return {
        "no_judge": await measured(lambda: without.name_task(request, features)),
        "kept": await measured(lambda: kept.name_task(request, features)),
        "lane_closed": await measured(lambda: closed.name_task(request, features)),
        "prompt": await measured(make_prompt),
    }


async def main() -> int:
    missed = 0
    for name, request in requests().items():
        figures = await figures_of(request)
        missed += sum(p50 > TARGET_MS for p50, _ in figures.values())
        shown = {
            f"{case}_{kind}": value
            for case, pair in figures.items()
            for kind, value in zip(KINDS, pair, strict=True)
        }
        print(json.dumps({"request": name, "bytes": request.body_bytes, "target_ms": TARGET_MS, **shown}))
    return 1 if missed and "--check" in sys.argv else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
