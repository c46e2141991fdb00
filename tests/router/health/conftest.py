from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from router.catalog.catalog import (
    Capabilities,
    Catalog,
    Deployment,
    EngineLaunch,
    Entrypoint,
    Limits,
    Price,
    Provider,
    ProviderKind,
    Weights,
)
from router.health.tracker import HealthTracker

MakeCatalog = Callable[..., Catalog]


def deployment(deployment_id: str, provider: str, **changes: Any) -> Deployment:
    values: dict[str, Any] = {
        "id": deployment_id,
        "provider": provider,
        "upstream_model": deployment_id,
        "context_tokens": 100_000,
        "max_output_tokens": 8_000,
        "price": Price(1_000_000, 2_000_000),
        "capabilities": Capabilities(tools=True),
        "task_fit": {"chat": 0.7},
    }
    return Deployment(**{**values, **changes})


@pytest.fixture
def make_catalog() -> MakeCatalog:
    def make(*deployments: Deployment, keys: dict[str, tuple[str, ...]] | None = None) -> Catalog:
        names = dict.fromkeys(one.provider for one in deployments)
        weights = Weights(1, 1, 1, 1, 1, 1)
        ids = tuple(one.id for one in deployments)
        return Catalog(
            providers={
                name: Provider(
                    name,
                    ProviderKind.ENGINE if name == "local" else ProviderKind.OPENAI,
                    "http://127.0.0.1:1",
                    key_env=(keys or {}).get(name, ()),
                    engine=EngineLaunch("m", 4096) if name == "local" else None,
                    local=name == "local",
                    needs_key=name != "local",
                )
                for name in names
            },
            deployments={one.id: one for one in deployments},
            entrypoints={"chat": Entrypoint("chat", "", ids, weights)},
            judge=None,
            limits=Limits(1_000_000, 6, 5, 30, 30, 300),
            version="test",
        )

    return make


@pytest.fixture
def tracker(make_catalog: MakeCatalog) -> HealthTracker:
    catalog = make_catalog(
        deployment("a-big", "acme"),
        deployment("a-small", "acme"),
        deployment("b-big", "beta"),
        deployment("here", "local"),
    )
    return HealthTracker(catalog, rng=random.Random(3))  # noqa: S311 - jitter
