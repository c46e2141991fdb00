"""A routing decision written down: as JSON for machines and the record, as a table for a person.

Pure; adds nothing to what the decision holds. Times are wall-clock seconds, scores lie in 0..1.
"""

from __future__ import annotations

from datetime import UTC, datetime

from router.chat.types import JsonValue
from router.routing.candidate import Candidate, Exclusion, RoutingDecision
from router.routing.verdict import TaskVerdict

__all__ = ["explain", "explanation_table", "verdict_fields"]

_DIGITS = 4


def explain(decision: RoutingDecision) -> dict[str, JsonValue]:
    """Return everything the decision holds, in JSON's own types.

    ``candidates`` come in the order in which they would be asked, each with its terms; ``exclusions`` say
    for every other deployment what keeps it out, and until when where that is known.
    """
    features = decision.features
    return {
        "entrypoint": decision.entrypoint,
        "judged_as": decision.judged_as,
        "verdict": verdict_fields(decision.verdict) if decision.verdict is not None else None,
        "decided_at": decision.decided_at,
        "panic": decision.panic,
        "features": {
            "model": features.model,
            "prompt_characters": features.prompt_characters,
            "wanted_output_tokens": features.wanted_output_tokens,
            "message_count": features.message_count,
            "stream": features.stream,
            "needs": _needs(decision),
        },
        "candidates": [
            _candidate(candidate, rank) for rank, candidate in enumerate(decision.candidates, start=1)
        ],
        "exclusions": [_exclusion(exclusion) for exclusion in decision.exclusions],
    }


def verdict_fields(verdict: TaskVerdict) -> dict[str, JsonValue]:
    """Return who named the task and from what; ``call`` is what that cost, in seconds, tokens and money."""
    call = verdict.call
    usage = call.usage if call is not None else None
    return {
        "task": verdict.kind.value,
        "source": verdict.source.value,
        "why": verdict.why or None,
        "basis": verdict.basis,
        "difficulty": verdict.difficulty.value if verdict.difficulty is not None else None,
        "needs": [need.value for need in verdict.needs],
        "call": None
        if call is None
        else {
            "deployment_id": call.deployment_id,
            "duration_s": round(call.duration_s, _DIGITS),
            "outcome": call.outcome,
            "prompt_tokens": usage.prompt_tokens if usage is not None else None,
            "completion_tokens": usage.completion_tokens if usage is not None else None,
            "usage_estimated": usage.estimated if usage is not None else None,
            "cost_micros": call.cost_micros,
        },
    }


def explanation_table(decision: RoutingDecision) -> str:
    """Return the decision as lines of text: the candidates with their terms, then who is left out."""
    judged = f", judged as {decision.judged_as}" if decision.judged_as else ""
    needs = _needs(decision)
    panic = " (panic: last resorts are offered)" if decision.panic else ""
    counts = f"{len(decision.candidates)} candidates, {len(decision.exclusions)} left out{panic}"
    wanted = ", ".join(str(need) for need in needs) or "nothing special"
    lines = [
        f"{decision.entrypoint}{judged}: {counts}",
        f"needs: {wanted}; {decision.features.prompt_characters} characters of prompt",
    ]
    if decision.verdict is not None:
        lines.append(f"task: {decision.verdict.label} ({decision.verdict.basis})")
    for rank, candidate in enumerate(decision.candidates, start=1):
        lines += _candidate_lines(candidate, rank)
    if decision.exclusions:
        lines += ["", "left out:"]
        width = max(len(exclusion.deployment_id) for exclusion in decision.exclusions)
        reasons = max(len(exclusion.reason.value) for exclusion in decision.exclusions)
        lines += [
            f"  {exclusion.deployment_id:<{width}}  {exclusion.reason.value:<{reasons}}  {exclusion.detail}"
            for exclusion in decision.exclusions
        ]
    return "\n".join(lines)


def _needs(decision: RoutingDecision) -> list[JsonValue]:
    features = decision.features
    wanted = (
        ("tools", features.needs_tools),
        ("parallel_tools", features.needs_parallel_tools),
        ("vision", features.needs_vision),
        ("json_schema", features.needs_json_schema),
        ("reasoning", features.needs_reasoning),
        ("system_prompt", features.has_system_prompt),
        ("prefill", features.needs_prefill),
    )
    return [name for name, needed in wanted if needed]


def _candidate(candidate: Candidate, rank: int) -> dict[str, JsonValue]:
    return {
        "rank": rank,
        "deployment_id": candidate.deployment_id,
        "score": round(candidate.score.total, _DIGITS),
        "last_resort": candidate.last_resort,
        "output_limit": candidate.output_limit,
        "terms": [
            {
                "name": term.name,
                "value": round(term.value, _DIGITS),
                "weight": term.weight,
                "contribution": round(term.contribution, _DIGITS),
                "basis": term.basis,
            }
            for term in candidate.score.terms
        ],
    }


def _exclusion(exclusion: Exclusion) -> dict[str, JsonValue]:
    until = exclusion.until
    return {
        "deployment_id": exclusion.deployment_id,
        "reason": exclusion.reason.value,
        "detail": exclusion.detail,
        "until": until,
        "until_text": None if until is None else datetime.fromtimestamp(until, UTC).isoformat(),
        "bench_kind": exclusion.bench_kind.value if exclusion.bench_kind is not None else None,
    }


def _candidate_lines(candidate: Candidate, rank: int) -> list[str]:
    marks = " (last resort)" if candidate.last_resort else ""
    if candidate.output_limit is not None:
        marks += f" (answer bounded to {candidate.output_limit} tokens)"
    lines = ["", f"{rank:>3}. {candidate.deployment_id}  {candidate.score.total:.3f}{marks}"]
    lines += [
        f"     {term.name:<14} {term.value:5.3f} x {term.weight:g} = {term.contribution:5.3f}  {term.basis}"
        for term in candidate.score.terms
    ]
    return lines
