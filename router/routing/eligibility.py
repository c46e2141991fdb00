"""Who cannot take part in a request, and exactly why.

Pure: reads a deployment, its health and the request's needs. The checks run from the lasting to the
passing (switched off, no key, lacks a capability, too small; then benched, breaker open), so that
whoever is left out for a passing reason could otherwise have served: the panic rule relies on it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from router.catalog.catalog import Capabilities, Deployment, Entrypoint
from router.chat.features import RequestFeatures
from router.health.outcome import OutcomeKind
from router.health.snapshot import BreakerState, DeploymentHealth
from router.routing.candidate import Exclusion, ExclusionReason

__all__ = ["Needs", "exclusion_besides_size", "exclusion_of", "is_last_resort", "output_limit", "window_of"]

# Room for an answer where the client gave no bound, and the least that is worth serving at all.
_DEFAULT_OUTPUT_TOKENS = 512
_LEAST_OUTPUT_TOKENS = 64


@dataclass(frozen=True, slots=True)
class Needs:
    """What a request asks of a candidate, worked out once for all of them."""

    entrypoint: Entrypoint
    now: float
    wanted_output_tokens: int | None
    capabilities: tuple[tuple[str, ExclusionReason], ...]
    forbidden_tags: frozenset[str]

    @classmethod
    def of(cls, features: RequestFeatures, entrypoint: Entrypoint, now: float) -> Needs:
        """Work out the needs of ``features`` at ``entrypoint``."""
        wanted = (
            (features.needs_tools, "tools", ExclusionReason.LACKS_TOOLS),
            (features.needs_parallel_tools, "parallel_tools", ExclusionReason.LACKS_PARALLEL_TOOLS),
            (features.needs_vision, "vision", ExclusionReason.LACKS_VISION),
            (features.needs_json_schema, "json_schema", ExclusionReason.LACKS_JSON_SCHEMA),
            (features.needs_reasoning, "reasoning", ExclusionReason.LACKS_REASONING),
            (features.has_system_prompt, "system_prompt", ExclusionReason.LACKS_SYSTEM_PROMPT),
            (features.needs_prefill, "prefill", ExclusionReason.LACKS_PREFILL),
        )
        return cls(
            entrypoint=entrypoint,
            now=now,
            wanted_output_tokens=features.wanted_output_tokens,
            capabilities=tuple((name, reason) for needed, name, reason in wanted if needed),
            forbidden_tags=frozenset(entrypoint.forbidden_tags),
        )


def window_of(deployment: Deployment, health: DeploymentHealth) -> int:
    """Return the context window in tokens: the catalog's, or a smaller one that the upstream named."""
    learned, listed = health.learned_context_tokens, deployment.context_tokens
    return listed if learned is None or learned > listed else learned


def exclusion_of(
    deployment: Deployment, health: DeploymentHealth, needs: Needs, prompt_tokens: int
) -> Exclusion | None:
    """Return why ``deployment`` cannot serve the request now, or ``None`` where it can."""
    if not deployment.enabled:
        return Exclusion(deployment.id, ExclusionReason.DISABLED, "switched off in the configuration")
    if not health.configured:
        return Exclusion(
            deployment.id,
            ExclusionReason.UNCONFIGURED,
            health.unconfigured_reason or "its provider has no key",
        )
    if needs.capabilities:
        lacking = _lacking(deployment.capabilities, deployment.id, needs)
        if lacking is not None:
            return lacking
    return (
        _too_small(deployment, health, needs, prompt_tokens)
        or _against_policy(deployment, needs)
        or _held_back(deployment.id, health, needs.now)
    )


def exclusion_besides_size(
    deployment: Deployment, health: DeploymentHealth, needs: Needs
) -> Exclusion | None:
    """Return what else speaks against one whose window is too small for the wanted answer."""
    return _against_policy(deployment, needs) or _held_back(deployment.id, health, needs.now)


def output_limit(
    exclusion: Exclusion, deployment: Deployment, health: DeploymentHealth, prompt_tokens: int
) -> int | None:
    """Return the longest answer that would fit where only the wanted length stands in the way.

    ``max_tokens`` is an upper bound: a shorter answer keeps it. ``None`` where the prompt itself does not
    fit or the reason is another one.
    """
    if exclusion.reason not in {ExclusionReason.OUTPUT_TOO_LONG, ExclusionReason.CONTEXT_TOO_SMALL}:
        return None
    room = min(window_of(deployment, health) - prompt_tokens, deployment.max_output_tokens)
    return room if room >= _LEAST_OUTPUT_TOKENS else None


def is_last_resort(exclusion: Exclusion) -> bool:
    """Whether one left out may be asked all the same rather than fail the request.

    Only guesses of our own may be overruled: an open breaker, a probe under way, a busy slot, an engine that
    starts (it is waited for). What the upstream itself said (a rate limit, no balance, a refused key)
    stands.
    """
    busy = exclusion.bench_kind is OutcomeKind.SLOT_BUSY
    return (
        exclusion.reason is ExclusionReason.BREAKER_OPEN
        or (exclusion.reason is ExclusionReason.BENCHED and busy)
        or (exclusion.reason is ExclusionReason.NOT_READY and (busy or exclusion.bench_kind is None))
    )


def _lacking(capabilities: Capabilities, deployment_id: str, needs: Needs) -> Exclusion | None:
    for name, reason in needs.capabilities:
        if not getattr(capabilities, name):
            return Exclusion(deployment_id, reason, f"the request needs {name.replace('_', ' ')}")
    return None


def _too_small(
    deployment: Deployment, health: DeploymentHealth, needs: Needs, prompt_tokens: int
) -> Exclusion | None:
    bound = deployment.max_prompt_tokens
    if bound is not None and prompt_tokens > bound:
        detail = f"the prompt is about {prompt_tokens} tokens, given at most {bound}"
        return Exclusion(deployment.id, ExclusionReason.PROMPT_TOO_LONG, detail)
    window = window_of(deployment, health)
    least = needs.entrypoint.minimum_context_tokens
    if window < least:
        detail = f"its window is {window} tokens, {needs.entrypoint.name} wants at least {least}"
        return Exclusion(deployment.id, ExclusionReason.CONTEXT_TOO_SMALL, detail)
    output = needs.wanted_output_tokens
    if output is None:
        output = min(_DEFAULT_OUTPUT_TOKENS, deployment.max_output_tokens)
    if prompt_tokens + output > window:
        detail = f"about {prompt_tokens} + {output} tokens against a window of {window}"
        return Exclusion(deployment.id, ExclusionReason.CONTEXT_TOO_SMALL, detail)
    if output > deployment.max_output_tokens:
        detail = f"{output} tokens wanted, {deployment.max_output_tokens} is its longest answer"
        return Exclusion(deployment.id, ExclusionReason.OUTPUT_TOO_LONG, detail)
    return None


def _against_policy(deployment: Deployment, needs: Needs) -> Exclusion | None:
    cap = needs.entrypoint.max_price_micros
    if cap is not None and deployment.price.output_micros > cap:
        detail = f"{deployment.price.output_micros / 1e6:g} USD per million tokens, the cap is {cap / 1e6:g}"
        return Exclusion(deployment.id, ExclusionReason.PRICE_CAP, detail)
    if needs.forbidden_tags and not needs.forbidden_tags.isdisjoint(deployment.tags):
        tags = ", ".join(sorted(needs.forbidden_tags.intersection(deployment.tags)))
        return Exclusion(deployment.id, ExclusionReason.DATA_POLICY, f"tagged {tags}")
    return None


def _held_back(deployment_id: str, health: DeploymentHealth, now: float) -> Exclusion | None:
    if not health.ready:
        until = now + health.expected_wait_s if health.expected_wait_s > 0 else None
        detail = health.unconfigured_reason or "its provider is not ready yet"
        benched = health.bench_until is not None and health.bench_until > now
        kind = health.bench_kind if benched else None
        return Exclusion(deployment_id, ExclusionReason.NOT_READY, detail, until, kind)
    until = health.bench_until
    if until is not None and until > now:
        detail = f"until {_clock_text(until)}: {health.bench_reason or 'no reason kept'}"
        return Exclusion(deployment_id, ExclusionReason.BENCHED, detail, until, health.bench_kind)
    if health.breaker is BreakerState.OPEN and (health.breaker_until is None or health.breaker_until > now):
        until = health.breaker_until
        error = health.last_error or "repeated failures"
        detail = f"until {_clock_text(until) if until is not None else 'further notice'}: {error}"
        return Exclusion(deployment_id, ExclusionReason.BREAKER_OPEN, detail, until)
    if health.probing:
        return Exclusion(deployment_id, ExclusionReason.BREAKER_OPEN, "one probe is under way")
    return None


def _clock_text(wall: float) -> str:
    return datetime.fromtimestamp(wall, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
