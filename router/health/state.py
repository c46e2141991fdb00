"""Health as it is saved over a restart: frozen values, and their JSON form.

Deadlines are wall-clock seconds, so that they mean the same to the next process. Reading is tolerant:
what is missing, of another version or not what it should be is left out, never an error: a gateway must
start with a damaged file as it starts without one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from router.chat.types import JsonValue
from router.health.averages import SavedAverages
from router.health.bench import Bench, BenchKey
from router.health.breaker import SavedBreaker
from router.health.outcome import OutcomeKind, Provenance, Scope

__all__ = [
    "HealthState",
    "SavedDeployment",
    "SavedProvider",
    "health_state_from_json",
    "health_state_to_json",
]

_VERSION = 1
_Json = Mapping[str, JsonValue]
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class SavedDeployment:
    """One deployment's breaker and averages, with the names they were learnt under."""

    deployment_id: str
    provider: str
    upstream_model: str
    breaker: SavedBreaker | None = None
    averages: SavedAverages = field(default_factory=lambda: SavedAverages({}))
    learned_context_tokens: int | None = None
    learned_until: float = 0.0


@dataclass(frozen=True, slots=True)
class SavedProvider:
    """One provider's breaker."""

    name: str
    breaker: SavedBreaker


@dataclass(frozen=True, slots=True)
class HealthState:
    """Everything that outlives a restart."""

    benches: tuple[Bench, ...] = ()
    deployments: tuple[SavedDeployment, ...] = ()
    providers: tuple[SavedProvider, ...] = ()


def health_state_to_json(state: HealthState) -> dict[str, JsonValue]:
    """Return ``state`` in JSON's own types."""
    return {
        "version": _VERSION,
        "benches": [_bench_to_json(bench) for bench in state.benches],
        "deployments": [_deployment_to_json(saved) for saved in state.deployments],
        "providers": [
            {"name": saved.name, "breaker": _breaker_to_json(saved.breaker)} for saved in state.providers
        ],
    }


def health_state_from_json(data: JsonValue) -> HealthState:
    """Return the state that ``data`` holds, as much of it as can be read."""
    if not isinstance(data, dict) or data.get("version") != _VERSION:
        return HealthState()
    return HealthState(
        benches=_each(data.get("benches"), _bench_from_json),
        deployments=_each(data.get("deployments"), _deployment_from_json),
        providers=_each(data.get("providers"), _provider_from_json),
    )


def _each(items: JsonValue, read: Callable[[_Json], _T]) -> tuple[_T, ...]:
    found: list[_T] = []
    for item in items if isinstance(items, list) else ():
        if isinstance(item, dict):
            try:
                found.append(read(item))
            except (KeyError, TypeError, ValueError):
                continue
    return tuple(found)


def _bench_to_json(bench: Bench) -> dict[str, JsonValue]:
    return {
        "scope": bench.key.scope.value,
        "provider": bench.key.provider,
        "key_id": bench.key.key_id,
        "model": bench.key.model,
        "until": bench.until,
        "since": bench.since,
        "kind": bench.kind.value,
        "reason": bench.reason,
        "provenance": bench.provenance.value,
        "strikes": bench.strikes,
    }


def _bench_from_json(item: _Json) -> Bench:
    return Bench(
        key=BenchKey(
            Scope(_text(item, "scope")), _text(item, "provider"), _text(item, "key_id"), _text(item, "model")
        ),
        until=_number(item, "until"),
        since=_number(item, "since"),
        kind=OutcomeKind(_text(item, "kind")),
        reason=_text(item, "reason"),
        provenance=Provenance(_text(item, "provenance")),
        strikes=max(1, int(_number(item, "strikes"))),
    )


def _breaker_to_json(breaker: SavedBreaker) -> dict[str, JsonValue]:
    return {
        "open_until": breaker.open_until,
        "opened_at": breaker.opened_at,
        "openings": breaker.openings,
    }


def _breaker_from_json(item: JsonValue) -> SavedBreaker:
    if not isinstance(item, dict):
        raise TypeError("a breaker is an object")
    return SavedBreaker(_number(item, "open_until"), _number(item, "opened_at"), _number(item, "openings"))


def _deployment_to_json(saved: SavedDeployment) -> dict[str, JsonValue]:
    return {
        "deployment_id": saved.deployment_id,
        "provider": saved.provider,
        "upstream_model": saved.upstream_model,
        "breaker": _breaker_to_json(saved.breaker) if saved.breaker is not None else None,
        "averages": {name: [value, at] for name, (value, at) in saved.averages.values.items()},
        "learned_context_tokens": saved.learned_context_tokens,
        "learned_until": saved.learned_until,
    }


def _deployment_from_json(item: _Json) -> SavedDeployment:
    breaker, averages = item.get("breaker"), item.get("averages")
    values: dict[str, tuple[float, float]] = {}
    for name, pair in averages.items() if isinstance(averages, dict) else ():
        if isinstance(pair, list) and len(pair) == 2:  # noqa: PLR2004 - a value and its time
            values[name] = (_finite(pair[0]), _finite(pair[1]))
    learned = item.get("learned_context_tokens")
    return SavedDeployment(
        deployment_id=_text(item, "deployment_id"),
        provider=_text(item, "provider"),
        upstream_model=_text(item, "upstream_model"),
        breaker=_breaker_from_json(breaker) if breaker is not None else None,
        averages=SavedAverages(values),
        learned_context_tokens=learned if isinstance(learned, int) and learned > 0 else None,
        learned_until=_number(item, "learned_until"),
    )


def _provider_from_json(item: _Json) -> SavedProvider:
    return SavedProvider(_text(item, "name"), _breaker_from_json(item["breaker"]))


def _text(item: _Json, name: str) -> str:
    value = item[name]
    if not isinstance(value, str):
        raise TypeError(f"{name} is a text")
    return value


def _number(item: _Json, name: str) -> float:
    return _finite(item[name])


def _finite(value: JsonValue) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError("a number is finite")
    return float(value)
