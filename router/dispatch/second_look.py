"""Who may still be asked once everybody has failed. Pure: two decisions and who was asked.

First those who have come back while the others failed, which may have taken minutes. Then, one by one, those
that only a guess of ours holds back: what the upstream itself said stands.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import replace

from router.routing.candidate import Candidate, RoutingDecision, Score
from router.routing.eligibility import is_last_resort

__all__ = ["second_look"]


def second_look(
    first: RoutingDecision, now: RoutingDecision, asked: Container[str], offered: Container[str]
) -> tuple[RoutingDecision, tuple[Candidate, ...]]:
    """Return what is true of both decisions together, and whom it adds to ask next.

    ``offered`` are those whom an earlier look has added: nobody is offered twice, asked or not.
    """
    fresh = [one for one in now.candidates if one.deployment_id not in asked]
    back = [one for one in fresh if not one.last_resort and one.deployment_id not in offered]
    if not back:
        held = [one for one in fresh if one.last_resort]
        guessed = [one for one in now.exclusions if is_last_resort(one) and one.deployment_id not in asked]
        guessed.sort(key=lambda one: one.until or 0.0)
        held += [Candidate(one.deployment_id, Score(()), last_resort=True) for one in guessed]
        back = [one for one in held if one.deployment_id not in offered][:1]
    known = {one.deployment_id for one in back}
    before = [one for one in first.candidates if one.deployment_id in asked]
    others = [one for one in fresh if one.deployment_id not in known]
    left_out = tuple(
        one for one in now.exclusions if one.deployment_id not in asked and one.deployment_id not in known
    )
    return replace(now, candidates=(*before, *back, *others), exclusions=left_out), tuple(back)
