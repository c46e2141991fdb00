from __future__ import annotations

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
from router.chat.features import RequestFeatures
from router.health.snapshot import DeploymentHealth, HealthSnapshot

NOW = 1_798_761_600.0  # 2027-01-01T00:00:00Z
WEIGHTS = Weights(health=3, task_fit=3, context_slack=1, cost=2, expected_time=2, load=1)
KINDS = ("chat", "code", "build", "long")


def deployment(deployment_id: str, **changes: Any) -> Deployment:
    values: dict[str, Any] = {
        "id": deployment_id,
        "provider": "acme",
        "upstream_model": deployment_id,
        "context_tokens": 100_000,
        "max_output_tokens": 8_000,
        "price": Price(1_000_000, 4_000_000, cached_input_micros=100_000),
        "capabilities": Capabilities(
            tools=True,
            parallel_tools=True,
            vision=True,
            json_schema=True,
            reasoning=True,
            prompt_cache=True,
        ),
        "task_fit": dict.fromkeys(KINDS, 0.7),
    }
    return Deployment(**{**values, **changes})


def features(**changes: Any) -> RequestFeatures:
    values: dict[str, Any] = {"model": "chat", "prompt_characters": 4_000, "wanted_output_tokens": None}
    return RequestFeatures(**{**values, **changes})


def catalog(*deployments: Deployment, **entrypoint: Any) -> Catalog:
    ids = tuple(one.id for one in deployments)
    values: dict[str, Any] = {"description": "", "candidates": ids, "weights": WEIGHTS}
    names = dict.fromkeys(one.provider for one in deployments)
    return Catalog(
        providers={
            name: Provider(
                name,
                ProviderKind.ENGINE if name == "local" else ProviderKind.OPENAI,
                "http://127.0.0.1:1",
                engine=EngineLaunch("m", 4096) if name == "local" else None,
                local=name == "local",
            )
            for name in names
        },
        deployments={one.id: one for one in deployments},
        entrypoints={
            "auto": Entrypoint("auto", "", ids, WEIGHTS, judged=True),
            **{kind: Entrypoint(kind, **{**values, **entrypoint}) for kind in KINDS},
        },
        judge=None,
        limits=Limits(1_000_000, 6, 5, 30, 30, 300),
        version="test",
    )


def snapshot(**deployments: DeploymentHealth) -> HealthSnapshot:
    return HealthSnapshot(NOW, {name.replace("_", "-"): one for name, one in deployments.items()})


@pytest.fixture
def nobody_known() -> HealthSnapshot:
    return HealthSnapshot(NOW, {})
