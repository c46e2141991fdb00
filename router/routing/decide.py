"""Whom to ask, in which order, and why not the others: one pure function.

Three steps: leave out (:mod:`router.routing.eligibility`), score (:mod:`router.routing.scoring`),
order. Knows no clock, no network and no state: the same arguments and the same generator give the same
decision.

**The panic rule.** Ejecting must never leave an entrypoint without anybody to ask. Where fewer than
``FLOOR`` candidates are healthy, those that only a guess of ours holds back (an open breaker, a probe
under way, a busy slot) are appended as *last resorts*, soonest return first, and the decision says
``panic``. A bench that the upstream itself stated is never overruled: asking again before a rate limit
ends is what the limit punishes. Where nobody is left at all and only the wanted length of the answer
stands in the way, candidates whose window holds the prompt are offered with ``output_limit``.
"""

from __future__ import annotations

from dataclasses import replace

from router.catalog.catalog import Catalog, Deployment, Entrypoint
from router.chat.features import RequestFeatures, TaskKind
from router.health.jitter import Randomness
from router.health.snapshot import DeploymentHealth, HealthSnapshot
from router.routing.candidate import Candidate, Exclusion, ExclusionReason, RoutingDecision
from router.routing.eligibility import (
    Needs,
    exclusion_besides_size,
    exclusion_of,
    is_last_resort,
    output_limit,
)
from router.routing.scoring import Scorer
from router.routing.task import task_verdict
from router.routing.verdict import TaskVerdict, weights_for

__all__ = ["FLOOR", "decide"]

# Fewer healthy candidates than this, and last resorts are offered.
FLOOR = 2

# Scores nearer than this are a tie, which the generator breaks.
_TIE_DIGITS = 3

_UNSEEN = DeploymentHealth(configured=True)

_KIND_VALUES = frozenset(kind.value for kind in TaskKind)

_Out = tuple[Exclusion, Deployment, DeploymentHealth, int]


def decide(
    features: RequestFeatures,
    entrypoint: Entrypoint,
    catalog: Catalog,
    health: HealthSnapshot,
    *,
    now: float,
    rng: Randomness,
    verdict: TaskVerdict | None = None,
    previous_deployment: str | None = None,
    reasoning_history: bool = False,
) -> RoutingDecision:
    """Decide who may serve a request, best first.

    ``now`` is wall-clock seconds. At a judged entrypoint ``verdict`` names the task; without one the
    built-in heuristic does, from ``features`` alone. Then the entrypoint of that task serves, with its
    candidates, and with its weights as the difficulty wants them. ``previous_deployment`` served this
    conversation's last turn; ``reasoning_history``: the conversation carries its reasoning along, which is
    foreign to anybody else.

    Every candidate of the entrypoint is afterwards either in ``candidates`` or in ``exclusions``, once.
    """
    verdict = verdict or (task_verdict(features) if entrypoint.judged else None)
    kind, serving = _serving(entrypoint, catalog, verdict)
    needs = Needs.of(features, serving, now)
    wishes = verdict.needs if verdict is not None else ()
    scorer = Scorer(features, serving, kind, catalog, previous_deployment, reasoning_history, wishes)
    ranked: list[tuple[float, float, int, Candidate]] = []
    out: list[_Out] = []
    strangers: list[Exclusion] = []
    characters, fixed, known = features.prompt_characters, features.fixed_tokens + 1, health.deployments
    for deployment_id in dict.fromkeys(serving.candidates):
        deployment = catalog.deployments.get(deployment_id)
        if deployment is None:
            strangers.append(Exclusion(deployment_id, ExclusionReason.DISABLED, "not in the catalog"))
            continue
        state = known.get(deployment_id, _UNSEEN)
        ratio = state.tokens_per_character or deployment.tokens_per_character
        prompt_tokens = int(characters * ratio) + fixed
        exclusion = exclusion_of(deployment, state, needs, prompt_tokens)
        if exclusion is not None:
            out.append((exclusion, deployment, state, prompt_tokens))
            continue
        score = scorer.score(deployment, state, prompt_tokens)
        rank = -round(score.total, _TIE_DIGITS)
        ranked.append((rank, rng.random(), len(ranked), Candidate(deployment_id, score)))
    ranked.sort()
    candidates = [entry[3] for entry in ranked]
    panic = _keep_floor(candidates, out, scorer, needs)
    return RoutingDecision(
        entrypoint=entrypoint.name,
        features=features,
        candidates=tuple(candidates),
        exclusions=(*(entry[0] for entry in out), *strangers),
        decided_at=now,
        judged_as=kind.value if entrypoint.judged else None,
        verdict=verdict if entrypoint.judged else None,
        panic=panic,
    )


def _serving(
    entrypoint: Entrypoint, catalog: Catalog, verdict: TaskVerdict | None
) -> tuple[TaskKind, Entrypoint]:
    """Return the kind of work and the entrypoint whose candidates and weights count."""
    if not entrypoint.judged and entrypoint.name in _KIND_VALUES:
        return TaskKind(entrypoint.name), entrypoint
    if verdict is None:
        return TaskKind.CHAT, entrypoint
    serving = entrypoint
    if entrypoint.judged:
        named = catalog.entrypoints.get(verdict.kind.value)
        serving = entrypoint if named is None or named.judged else named
    if verdict.difficulty is not None:
        serving = replace(serving, weights=weights_for(serving.weights, verdict.difficulty))
    return verdict.kind, serving


def _soonest(entry: _Out) -> tuple[float, str]:
    until = entry[0].until
    return until if until is not None else 0.0, entry[1].id


def _keep_floor(candidates: list[Candidate], out: list[_Out], scorer: Scorer, needs: Needs) -> bool:
    """Fill up from ``out`` where too few are left; return whether last resorts had to be offered."""
    panic = len(candidates) < FLOOR and _add_last_resorts(candidates, out, scorer)
    if not candidates:
        _add_shortened(candidates, out, scorer, needs)
    # Others' results may open a breaker before its turn comes; the last ones are asked all the same.
    candidates[-FLOOR:] = [replace(candidate, within_floor=True) for candidate in candidates[-FLOOR:]]
    return panic


def _add_last_resorts(candidates: list[Candidate], out: list[_Out], scorer: Scorer) -> bool:
    """Move those that only a guess holds back from ``out`` to ``candidates``, up to the floor."""
    held = sorted((entry for entry in out if is_last_resort(entry[0])), key=_soonest)
    chosen = held[: FLOOR - len(candidates)]
    for entry in chosen:
        out.remove(entry)
        _, deployment, state, prompt_tokens = entry
        score = scorer.score(deployment, state, prompt_tokens)
        candidates.append(Candidate(deployment.id, score, last_resort=True))
    return bool(chosen)


def _add_shortened(candidates: list[Candidate], out: list[_Out], scorer: Scorer, needs: Needs) -> None:
    """Move those whose window holds the prompt, though not the wanted answer, to ``candidates``."""
    fitting: list[tuple[int, float, _Out]] = []
    for entry in out:
        exclusion, deployment, state, prompt_tokens = entry
        limit = output_limit(exclusion, deployment, state, prompt_tokens)
        if limit is not None and exclusion_besides_size(deployment, state, needs) is None:
            fitting.append((limit, scorer.score(deployment, state, prompt_tokens).total, entry))
    # The longest answer first: closest to what was wanted.
    fitting.sort(key=lambda item: (-item[0], -item[1], item[2][1].id))
    for limit, _, entry in fitting[: 2 * FLOOR]:
        out.remove(entry)
        _, deployment, state, prompt_tokens = entry
        score = scorer.score(deployment, state, prompt_tokens)
        candidates.append(Candidate(deployment.id, score, output_limit=limit))
