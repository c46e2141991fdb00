"""``GET /v1/models``: the entrypoints and the candidates, with what a frontend needs to size its prompts.

OpenAI's list with the extra fields that other gateways have made usual: ``context_length``,
``max_output_tokens``, ``pricing`` (US dollars per token, as text), ``capabilities``. Knows no health beyond
whether a candidate is configured.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from decimal import Decimal

import orjson
from fastapi import APIRouter, Response

from router.catalog.catalog import Catalog, Deployment, Entrypoint, Price
from router.errors import UnknownModel
from router.gateway import Gateway
from router.health.snapshot import DeploymentHealth

__all__ = ["build_models_routes"]

_TOKENS_PER_PRICE = 1_000_000
_MICROS_PER_DOLLAR = 1_000_000


def build_models_routes(gateway: Gateway) -> APIRouter:
    """Return the two routes over ``gateway``'s catalog."""
    routes = APIRouter(tags=["models"])

    @routes.get("/v1/models")
    async def list_models() -> Response:
        """List the entrypoints first, then every candidate, in the file's order."""
        catalog, health = gateway.catalog, gateway.snapshot().deployments
        models = [_entrypoint(one, catalog, health) for one in catalog.entrypoints.values()]
        models += [_deployment(one, catalog, health) for one in catalog.deployments.values()]
        return _json({"object": "list", "data": models})

    @routes.get("/v1/models/{model:path}")
    async def retrieve_model(model: str) -> Response:
        """Return one entrypoint or candidate."""
        catalog, health = gateway.catalog, gateway.snapshot().deployments
        if model in catalog.entrypoints:
            return _json(_entrypoint(catalog.entrypoints[model], catalog, health))
        if model in catalog.deployments:
            return _json(_deployment(catalog.deployments[model], catalog, health))
        raise UnknownModel(f"no entrypoint and no candidate is called {model!r}", param="model")

    return routes


def _json(value: object) -> Response:
    return Response(orjson.dumps(value), media_type="application/json")


def _entrypoint(
    entrypoint: Entrypoint, catalog: Catalog, health: Mapping[str, DeploymentHealth]
) -> dict[str, object]:
    """Describe an entrypoint by the best that its usable candidates can do: the others are not asked."""
    listed = [catalog.deployments[name] for name in entrypoint.candidates if name in catalog.deployments]
    usable = [one for one in listed if one.enabled and _configured(one.id, health)] or listed
    return {
        "id": entrypoint.name,
        "object": "model",
        "created": 0,
        "owned_by": "roundhouse",
        "name": entrypoint.name,
        "description": entrypoint.description,
        "kind": "entrypoint",
        "context_length": max((one.context_tokens for one in usable), default=0),
        "max_output_tokens": max((one.max_output_tokens for one in usable), default=0),
        "capabilities": {
            name: any(getattr(one.capabilities, name) for one in usable) for name in _capability_names(listed)
        },
        "configured": any(_configured(one.id, health) for one in listed),
        "candidates": [one.id for one in listed],
    }


def _deployment(
    deployment: Deployment, catalog: Catalog, health: Mapping[str, DeploymentHealth]
) -> dict[str, object]:
    provider = catalog.providers[deployment.provider]
    return {
        "id": deployment.id,
        "object": "model",
        "created": 0,
        "owned_by": provider.name,
        "name": deployment.upstream_model,
        "kind": "candidate",
        "context_length": deployment.context_tokens,
        "max_output_tokens": deployment.max_output_tokens,
        "pricing": _pricing(deployment.price),
        "capabilities": asdict(deployment.capabilities),
        "configured": _configured(deployment.id, health),
        "local": provider.local,
        "tags": list(deployment.tags),
    }


def _configured(deployment_id: str, health: Mapping[str, DeploymentHealth]) -> bool:
    state = health.get(deployment_id)
    return state is not None and state.configured


def _capability_names(deployments: list[Deployment]) -> list[str]:
    return list(asdict(deployments[0].capabilities)) if deployments else []


def _pricing(price: Price) -> dict[str, object]:
    fields: dict[str, object] = {
        "prompt": _per_token(price.input_micros),
        "completion": _per_token(price.output_micros),
        "free": price.free,
    }
    if price.cached_input_micros is not None:
        fields["input_cache_read"] = _per_token(price.cached_input_micros)
    if price.cache_write_micros is not None:
        fields["input_cache_write"] = _per_token(price.cache_write_micros)
    return fields


def _per_token(micros_per_million: int) -> str:
    """Turn micro-dollars per million tokens into dollars per token, exactly, without an exponent."""
    return format(Decimal(micros_per_million) / _TOKENS_PER_PRICE / _MICROS_PER_DOLLAR, "f")
