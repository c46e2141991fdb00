"""Whom to ask where deciding itself has a defect: everybody, in the order of the configuration.

Pure, and simple on purpose: it uses nothing of what may just have failed. Breakers and benches still count,
since nobody is asked without a permit.
"""

from __future__ import annotations

from collections.abc import Container

from router.catalog.catalog import Catalog, Entrypoint
from router.chat.features import RequestFeatures
from router.chat.types import ChatRequest
from router.routing.candidate import Candidate, Exclusion, ExclusionReason, RoutingDecision, Score

__all__ = ["plain_order"]

_WHY = "not scored: deciding has failed"


def plain_order(
    request: ChatRequest,
    entrypoint: Entrypoint,
    catalog: Catalog,
    *,
    unconfigured: Container[str],
    now: float,
) -> RoutingDecision:
    """Return a decision of everybody who is switched on and whose provider is configured.

    ``unconfigured`` are names of providers; ``now`` is wall-clock seconds.
    """
    candidates: list[Candidate] = []
    exclusions: list[Exclusion] = []
    for deployment_id in dict.fromkeys(entrypoint.candidates):
        deployment = catalog.deployments.get(deployment_id)
        if deployment is None or not deployment.enabled:
            exclusions.append(Exclusion(deployment_id, ExclusionReason.DISABLED, _WHY))
        elif deployment.provider in unconfigured:
            exclusions.append(Exclusion(deployment_id, ExclusionReason.UNCONFIGURED, _WHY))
        else:
            candidates.append(Candidate(deployment_id, Score(()), within_floor=True))
    features = RequestFeatures(
        model=request.model,
        prompt_characters=request.body_bytes,
        wanted_output_tokens=request.max_output_tokens,
        stream=request.stream,
    )
    return RoutingDecision(entrypoint.name, features, tuple(candidates), tuple(exclusions), decided_at=now)
