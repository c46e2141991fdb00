"""What the local slot means for one request: how long waiting for it is worth, and who is there to join.

Pure, but for asking a provider whether it works on the same request already. The slot is a resource with a
price in seconds: a request waits for it only as long as nobody else would be done meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from router.catalog.catalog import Catalog, Deployment
from router.chat.types import ChatRequest
from router.providers.base import JoiningProvider
from router.routing.candidate import Candidate, RoutingDecision

__all__ = ["joined_first", "slot_wait_worth"]

# The estimate of one who is asked over a network is a guess: this much better he must be.
_MARGIN: Final = 1.25
_LEAST_MARGIN_S: Final = 1.0


def slot_wait_worth(deployment: Deployment, alternative: Candidate | None, catalog: Catalog) -> float | None:
    """Return the longest wait for ``deployment``'s slot that is worth it, in seconds.

    That is as long as ``alternative`` would take to the whole answer, and a margin, and never longer than
    the engine's ``longest_wait_s``. ``None`` where nobody else could serve, or there is no slot to wait for.
    """
    engine = catalog.providers[deployment.provider].engine
    if engine is None or alternative is None:
        return None
    expected = alternative.score.expected_s
    if expected is None:
        return engine.longest_wait_s
    return min(engine.longest_wait_s, expected * _MARGIN + _LEAST_MARGIN_S)


def joined_first(
    decision: RoutingDecision, request: ChatRequest, providers: Sequence[JoiningProvider]
) -> RoutingDecision:
    """Return the decision with the one who works on this very request, where there is one, in front.

    He needs no slot for it; somebody else would begin anew. The order of the others stays.
    """
    for provider in providers:
        working = provider.joinable(request)
        if working is None:
            continue
        ours = [one for one in decision.candidates if one.deployment_id == working]
        others = [one for one in decision.candidates if one.deployment_id != working]
        if ours and others:
            return replace(decision, candidates=(*ours, *others))
    return decision
