"""How long one decision takes: ``python bench/decide.py [--check]``.

Measures :func:`router.routing.decide.decide` at 47 and at 1,000 candidates, half of them with a history, a
tenth held back, without building any explanation: that is what every request pays. Prints the median and
the 99th percentile over single calls, of the thread's processor time (what the code costs) and of the wall
clock (what it takes on this machine as busy as it is now); ``--check`` fails where the median of the
former misses its target.
"""

from __future__ import annotations

import gc
import json
import random
import sys
import time

from router.catalog.catalog import (
    Capabilities,
    Catalog,
    Deployment,
    Entrypoint,
    Limits,
    Price,
    Provider,
    ProviderKind,
    Weights,
)
from router.chat.features import RequestFeatures
from router.health.outcome import Outcome, OutcomeKind, Scope
from router.health.tracker import HealthTracker
from router.routing.decide import decide

NOW = 1_800_000_000.0
# Candidates, target of the median in milliseconds, calls measured.
CASES = ((47, 0.3, 2_000), (1_000, 5.0, 200))


def make_catalog(count: int) -> Catalog:
    deployments = {
        f"d{number}": Deployment(
            id=f"d{number}",
            provider=f"p{number % 15}",
            upstream_model=f"m{number}",
            context_tokens=32_000 * (1 + number % 8),
            max_output_tokens=8_192,
            price=Price(100_000 * (number % 30), 400_000 * (number % 30), 10_000 * (number % 30)),
            capabilities=Capabilities(tools=True, parallel_tools=True, prompt_cache=number % 2 == 0),
            task_fit={"chat": 0.5 + number % 5 / 10, "code": 0.6},
        )
        for number in range(count)
    }
    return Catalog(
        providers={
            f"p{number}": Provider(f"p{number}", ProviderKind.OPENAI, "http://127.0.0.1:1")
            for number in range(15)
        },
        deployments=deployments,
        entrypoints={"chat": Entrypoint("chat", "", tuple(deployments), Weights(3, 3, 1, 2, 2, 1))},
        judge=None,
        limits=Limits(1_000_000, 6, 5, 30, 30, 300),
        version="bench",
    )


def with_history(catalog: Catalog, rng: random.Random) -> HealthTracker:
    tracker = HealthTracker(catalog, rng=rng)
    fine = Outcome(OutcomeKind.SUCCESS, Scope.NONE, ttft_s=0.7, tokens_per_s=55.0)
    limited = Outcome(OutcomeKind.RATE_LIMITED, Scope.KEY_MODEL, "slow down", bench_s=600.0, http_status=429)
    for number, name in enumerate(catalog.deployments):
        outcome = limited if number % 10 == 0 else fine
        if number % 2 == 0 and (permit := tracker.acquire(name, NOW, prompt_tokens=2_000)):
            tracker.settle(permit, outcome, NOW)
    return tracker


def milliseconds(count: int, calls: int) -> dict[str, float]:
    rng = random.Random(1)  # noqa: S311 - breaks ties
    catalog = make_catalog(count)
    tracker = with_history(catalog, rng)
    features = RequestFeatures("chat", 8_000, 1_000, needs_tools=True)
    entrypoint = catalog.entrypoints["chat"]
    times: dict[str, list[float]] = {"decide": [], "decide_wall": [], "snapshot": []}
    gc.collect()
    for call in range(calls):
        now = NOW + call / 1_000
        began = time.thread_time()
        health = tracker.snapshot(now, {})
        seen, seen_wall = time.thread_time(), time.perf_counter()
        decide(features, entrypoint, catalog, health, now=now, rng=rng, previous_deployment="d3")
        times["decide_wall"].append(time.perf_counter() - seen_wall)
        times["decide"].append(time.thread_time() - seen)
        times["snapshot"].append(seen - began)
    found: dict[str, float] = {}
    for name, taken in times.items():
        taken.sort()
        found[f"{name}_p50"] = round(taken[len(taken) // 2] * 1e3, 4)
        found[f"{name}_p99"] = round(taken[len(taken) * 99 // 100] * 1e3, 4)
    return found


def main() -> int:
    missed = False
    for count, target, calls in CASES:
        found = milliseconds(count, calls)
        missed = missed or found["decide_p50"] > target
        print(json.dumps({"candidates": count, "target_ms": target, **found}))
    return 1 if missed and "--check" in sys.argv[1:] else 0


if __name__ == "__main__":
    raise SystemExit(main())
