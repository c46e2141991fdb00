"""What exists: providers, their deployments, entrypoints. Frozen; knows nothing of health.

Built once from ``providers.yaml`` by :mod:`router.catalog.load`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

__all__ = [
    "Capabilities",
    "Catalog",
    "Deployment",
    "EngineLaunch",
    "Entrypoint",
    "JudgeSettings",
    "Limits",
    "Price",
    "Provider",
    "ProviderKind",
    "Weights",
]


class ProviderKind(StrEnum):
    """How a provider is spoken to."""

    OPENAI = "openai"
    LITELLM = "litellm"
    ENGINE = "engine"
    SCRIPTED = "scripted"


@dataclass(frozen=True, slots=True)
class Price:
    """Integer micro-dollars per million tokens: 1 USD/M = 1,000,000.

    ``free`` marks a pool that costs nothing; its zero prices are then meant.
    """

    input_micros: int
    output_micros: int
    cached_input_micros: int | None = None
    cache_write_micros: int | None = None
    free: bool = False


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a deployment can do."""

    tools: bool = False
    parallel_tools: bool = False
    vision: bool = False
    json_schema: bool = False
    reasoning: bool = False
    prompt_cache: bool = False
    system_prompt: bool = True
    prefill: bool = True


@dataclass(frozen=True, slots=True)
class EngineLaunch:
    """How the gateway starts a local engine; ``model`` is a GGUF path or ``builtin:smollm2``.

    ``command`` replaces our own engine by any ``llama-server``-compatible one: its words may hold
    ``{host}``, ``{port}``, ``{model}``, ``{context}`` and ``{token}``. ``longest_wait_s`` bounds the wait for
    a slot where others could serve; ``join_grace_s`` and ``join_window_s`` say how long an answer is kept for
    a client that has left and may ask again.
    """

    model: str
    context_tokens: int
    threads: int | None = None
    command: tuple[str, ...] | None = None
    slots: int = 1
    queue_limit: int = 8
    longest_wait_s: float = 30.0
    join_grace_s: float = 10.0
    join_window_s: float = 120.0


@dataclass(frozen=True, slots=True)
class Provider:
    """An API family with an account. ``key_env`` names environment variables; keys never stand here."""

    name: str
    kind: ProviderKind
    base_url: str | None
    key_env: tuple[str, ...] = ()
    headers: Mapping[str, str] | None = None
    engine: EngineLaunch | None = None
    script: str | None = None
    local: bool = False
    needs_key: bool = True


@dataclass(frozen=True, slots=True)
class Deployment:
    """One concrete way to be served: a provider's model with its limits and price.

    ``id`` is the stable public name (also valid as a model name, pinned); ``upstream_model`` is what
    the provider calls it. ``quality`` per task kind lies in 0..1. ``short_only`` bounds what a slow
    bridge is given.
    """

    id: str
    provider: str
    upstream_model: str
    context_tokens: int
    max_output_tokens: int
    price: Price
    capabilities: Capabilities
    task_fit: Mapping[str, float]
    tokens_per_character: float = 0.3
    max_prompt_tokens: int | None = None
    tags: tuple[str, ...] = ()
    expected_ttft_s: float = 1.0
    expected_tokens_per_s: float = 60.0
    enabled: bool = True


@dataclass(frozen=True, slots=True)
class Weights:
    """How much each term of the score counts at one entrypoint; each term lies in 0..1."""

    health: float
    task_fit: float
    context_slack: float
    cost: float
    expected_time: float
    load: float

    @property
    def total(self) -> float:
        """Sum of the weights: the highest score there can be."""
        return self.health + self.task_fit + self.context_slack + self.cost + self.expected_time + self.load


@dataclass(frozen=True, slots=True)
class Entrypoint:
    """A virtual model. ``candidates`` are deployment ids; ``judged`` is true for ``auto`` alone.

    ``max_price_micros`` caps a candidate's output price (micro-dollars per million tokens).
    Windows below ``minimum_context_tokens`` take no part.
    """

    name: str
    description: str
    candidates: tuple[str, ...]
    weights: Weights
    judged: bool = False
    max_price_micros: int | None = None
    minimum_context_tokens: int = 0
    forbidden_tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class JudgeSettings:
    """Which deployments name the task for ``auto``; never a local one. Times are seconds."""

    candidates: tuple[str, ...]
    timeout_s: float = 3.0
    open_s: float = 30.0
    cache_s: float = 900.0


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds on one request, in seconds, bytes and counts.

    A stream whose first event takes longer than ``keep_alive_after_s`` gets a comment, and another one every
    ``keep_alive_every_s``.
    """

    max_body_bytes: int
    max_attempts: int
    connect_timeout_s: float
    first_event_timeout_s: float
    stall_timeout_s: float
    total_timeout_s: float
    keep_alive_after_s: float = 5.0
    keep_alive_every_s: float = 10.0


@dataclass(frozen=True, slots=True)
class Catalog:
    """Everything ``providers.yaml`` says, looked up by name. ``version`` is a hash of the file."""

    providers: Mapping[str, Provider]
    deployments: Mapping[str, Deployment]
    entrypoints: Mapping[str, Entrypoint]
    judge: JudgeSettings | None
    limits: Limits
    version: str

    def provider_of(self, deployment_id: str) -> Provider:
        """Return the provider behind a deployment.

        Raises
        ------
        KeyError
            No deployment has that id.

        """
        return self.providers[self.deployments[deployment_id].provider]
