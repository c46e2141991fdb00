"""The shape of providers.yaml: pydantic models with the words a person reads in docs and errors.

Only what one value or one block can be judged by stands here; what needs two places of the file
(references between names, the judge) is :mod:`router.catalog.semantics`. Knows no positions.
"""

from __future__ import annotations

import re
from decimal import Decimal
from enum import StrEnum
from typing import Annotated, Any, Final
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    model_validator,
)
from pydantic_core import PydanticCustomError

from router.catalog.catalog import ProviderKind

__all__ = [
    "CandidateSpec",
    "CapabilityName",
    "DefaultsSpec",
    "EngineSpec",
    "EntrypointSpec",
    "EntrypointsSpec",
    "JudgeSpec",
    "LimitsSpec",
    "PriceSpec",
    "ProviderSpec",
    "ProvidersFile",
    "Spec",
    "TaskFitSpec",
    "WeightsSpec",
    "json_schema",
]

MAXIMUM_TOKENS: Final = 20_000_000
MAXIMUM_PRICE_USD: Final = 2_000


class CapabilityName(StrEnum):
    """What a candidate can do, as written in the file."""

    TOOLS = "tools"
    PARALLEL_TOOLS = "parallel_tools"
    VISION = "vision"
    JSON_SCHEMA = "json_schema"
    REASONING = "reasoning"
    PROMPT_CACHE = "prompt_cache"
    NO_SYSTEM_PROMPT = "no_system_prompt"
    NO_PREFILL = "no_prefill"


def _as_list(value: Any) -> Any:  # noqa: ANN401 - whatever the file holds; pydantic judges the result
    return [value] if isinstance(value, str) else value


def _as_kind(value: Any) -> Any:  # noqa: ANN401 - as above
    return ProviderKind(value) if isinstance(value, str) and value in set(ProviderKind) else value


def _as_capability(value: Any) -> Any:  # noqa: ANN401 - as above
    return CapabilityName(value) if isinstance(value, str) and value in set(CapabilityName) else value


def _checked_url(value: str) -> str:
    """Return the URL without a trailing slash, or say what is wrong with it (never repeating it)."""
    url = urlsplit(value)
    try:
        has_bad_port = url.port == 0
    except ValueError:
        has_bad_port = True
    if url.scheme not in {"http", "https"} or not url.hostname or has_bad_port or re.search(r"\s", value):
        raise PydanticCustomError("url", "is not an http or https address such as https://api.example.com/v1")
    if url.username is not None or url.password is not None:
        raise PydanticCustomError("url", "must not carry a user name or password; name the key in key_env")
    if url.query or url.fragment:
        raise PydanticCustomError("url", "must not carry a query or fragment")
    if url.path.rstrip("/").endswith(("/chat/completions", "/completions", "/models", "/responses")):
        raise PydanticCustomError("url", "must end before the endpoint: leave /chat/completions out")
    return value.rstrip("/")


def _price(value: float) -> float:
    if (Decimal(str(value)) * 1_000_000) % 1 != 0:
        raise PydanticCustomError("price", "is finer than a millionth of a dollar per million tokens")
    return value


Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,127}$", strict=True)]
EnvironmentName = Annotated[str, StringConstraints(pattern=r"^[A-Z][A-Z0-9_]{0,127}$", strict=True)]
Text = Annotated[str, StringConstraints(min_length=1, max_length=1_000, strict=True)]
Url = Annotated[Text, AfterValidator(_checked_url)]
Tokens = Annotated[int, Field(ge=1, le=MAXIMUM_TOKENS, strict=True)]
Usd = Annotated[float, Field(ge=0, le=MAXIMUM_PRICE_USD, allow_inf_nan=False), AfterValidator(_price)]
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Weight = Annotated[float, Field(ge=0, le=100, allow_inf_nan=False)]
Seconds = Annotated[float, Field(gt=0, le=86_400, allow_inf_nan=False)]
Pause = Annotated[float, Field(ge=0, le=86_400, allow_inf_nan=False)]
Speed = Annotated[float, Field(gt=0, le=100_000, allow_inf_nan=False)]
Ratio = Annotated[float, Field(gt=0, le=4, allow_inf_nan=False)]
Capability = Annotated[CapabilityName, BeforeValidator(_as_capability)]
Names = Annotated[list[Name], BeforeValidator(_as_list, json_schema_input_type=Name | list[Name])]
Tag = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9-]{0,63}$", strict=True)]


class Spec(BaseModel):
    """Base of all blocks: unknown fields are refused, nothing is converted silently."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class PriceSpec(Spec):
    """What a candidate costs, in USD per million tokens. A price of 0 needs ``free: true``."""

    input: Usd | None = Field(default=None, description="Tokens of the prompt.")
    output: Usd | None = Field(default=None, description="Tokens of the answer, reasoning included.")
    cached_input: Usd | None = Field(
        default=None, description="Tokens of the prompt read from the provider's cache; default: as `input`."
    )
    cache_write: Usd | None = Field(
        default=None, description="Tokens of the prompt written to the cache; default: as `input`."
    )
    free: bool = Field(
        default=False, description="A pool that costs nothing; then no price may be given but 0."
    )

    @model_validator(mode="after")
    def _price_or_free(self) -> PriceSpec:
        prices = (self.input, self.output, self.cached_input, self.cache_write)
        if self.free:
            if any(prices):
                raise PydanticCustomError("price", "says free: true and a price above 0; drop one of them")
            return self
        if self.input is None or self.output is None:
            raise PydanticCustomError("price", "needs input and output, or free: true")
        if not self.input or not self.output:
            raise PydanticCustomError(
                "price", "has a price of 0; write free: true if it costs nothing, else the true price"
            )
        return self


class TaskFitSpec(Spec):
    """How well a candidate does each kind of work, 0 (useless) to 1 (nothing better is known)."""

    chat: Share = Field(description="Conversation, questions, writing.")
    code: Share = Field(description="Single code edits and explanations.")
    build: Share = Field(description="Agents: many tool calls over a long run.")
    long: Share = Field(description="Reading and reasoning over very long prompts.")


class EngineSpec(Spec):
    """The local engine that the gateway starts and watches (providers of kind `engine`)."""

    model: Text = Field(description="A GGUF file (relative to this file), or `builtin:smollm2`.")
    context_tokens: Tokens = Field(default=8_192, description="Context window to allocate, in tokens.")
    threads: Annotated[int, Field(ge=1, le=1_024)] | None = Field(
        default=None, description="Worker threads; default: the engine decides from the physical cores."
    )
    command: Annotated[list[Text], Field(min_length=1)] | None = Field(
        default=None,
        description="Start this `llama-server`-compatible program instead of our own engine; its words may "
        "hold `{host}`, `{port}`, `{model}`, `{context}` and `{token}`.",
    )
    slots: Annotated[int, Field(ge=1, le=256)] = Field(
        default=1, description="Requests served at the same time."
    )
    queue_limit: Annotated[int, Field(ge=0, le=10_000)] = Field(
        default=8, description="Requests that may wait for a slot; more are sent to the next candidate."
    )
    longest_wait_s: Pause = Field(
        default=30.0, description="Longest wait for a slot, in seconds, where another candidate could serve."
    )
    join_grace_s: Pause = Field(
        default=10.0,
        description="Seconds for which an answer goes on after its client left without having seen any, "
        "so that the same request can join it; it ends at once where another one waits. 0: never.",
    )
    join_window_s: Pause = Field(
        default=120.0,
        description="Seconds for which a finished, undelivered answer awaits the same request. 0: never.",
    )


class DefaultsSpec(Spec):
    """Values that every candidate of the provider has unless it says otherwise."""

    capabilities: list[Capability] | None = Field(default=None, description="See the candidate's field.")
    tags: list[Tag] | None = Field(default=None, description="See the candidate's field.")
    tokens_per_character: Ratio | None = Field(default=None, description="See the candidate's field.")
    expected_ttft_s: Seconds | None = Field(default=None, description="See the candidate's field.")
    expected_tokens_per_s: Speed | None = Field(default=None, description="See the candidate's field.")
    max_prompt_tokens: Tokens | None = Field(default=None, description="See the candidate's field.")


class ProviderSpec(Spec):
    """An API family with an account, or a local engine."""

    kind: Annotated[ProviderKind, BeforeValidator(_as_kind)] = Field(
        description="How it is spoken to: `openai` (any OpenAI-compatible endpoint), `litellm` (through the"
        " litellm library), `engine` (started and watched by the gateway), `scripted` "
        "(deterministic, for tests and demos)."
    )
    base_url: Url | None = Field(default=None, description="Address up to and without `/chat/completions`.")
    key_env: Annotated[
        list[EnvironmentName],
        BeforeValidator(_as_list, json_schema_input_type=EnvironmentName | list[EnvironmentName]),
    ] = Field(
        default_factory=list,
        description="Environment variable (or several) that holds the key. Without a value there the "
        "provider is unconfigured: shown, never tried. Leave out for a server that needs no "
        "key.",
    )
    headers: dict[str, Text] | None = Field(default=None, description="Extra request headers; never keys.")
    engine: EngineSpec | None = Field(default=None, description="Only for kind `engine`.")
    script: Text | None = Field(
        default=None, description="Only for kind `scripted`: a YAML file (relative to this one)."
    )
    local: bool | None = Field(
        default=None,
        description="Whether it runs on this machine and so competes for its slot. Default: true for kind "
        "`engine` and for a loopback `base_url`. The judge is never sent to a local provider.",
    )
    defaults: DefaultsSpec = Field(default_factory=DefaultsSpec, description="Defaults of its candidates.")

    @model_validator(mode="after")
    def _one_kind(self) -> ProviderSpec:
        blocks = {
            ProviderKind.OPENAI: ("base_url", self.base_url),
            ProviderKind.ENGINE: ("engine", self.engine),
            ProviderKind.SCRIPTED: ("script", self.script),
        }
        for kind, (field, value) in blocks.items():
            if self.kind is kind and value is None:
                raise PydanticCustomError("kind", f"is of kind {kind} and needs {field}")
            optional = kind is ProviderKind.OPENAI and self.kind is ProviderKind.LITELLM
            if self.kind is not kind and value is not None and not optional:
                raise PydanticCustomError(
                    "kind", f"is of kind {self.kind} and must not have {field} ({kind} only)"
                )
        return self


class CandidateSpec(Spec):
    """One concrete way to be served: a provider's model with its limits and its price."""

    id: Name = Field(description="Stable public name; also valid as a model name, then pinned to it.")
    provider: Name = Field(description="A name under `providers`.")
    model: Text = Field(description="What the provider calls it.")
    context_tokens: Tokens = Field(description="Whole window: prompt and answer together.")
    max_output_tokens: Tokens = Field(
        description="Longest answer; larger wishes of clients are clamped to it."
    )
    price: PriceSpec = Field(description="USD per million tokens.")
    capabilities: list[Capability] | None = Field(
        default=None,
        description="What it can do: `tools`, `parallel_tools`, `vision`, `json_schema`, `reasoning`, "
        "`prompt_cache`, and `no_system_prompt`, `no_prefill` (refuses to continue an answer "
        "begun by the client). Replaces the provider's default list.",
    )
    task_fit: TaskFitSpec = Field(description="Editorial judgement per kind of work, 0 to 1.")
    tokens_per_character: Ratio | None = Field(
        default=None,
        description="First guess of tokens per character of prompt; learnt from usage later. Default 0.3.",
    )
    max_prompt_tokens: Tokens | None = Field(
        default=None,
        description="Short-only: never sent a prompt longer than this (slow bridges, small free pools).",
    )
    tags: list[Tag] | None = Field(default=None, description="Free words for policies, such as `free-pool`.")
    expected_ttft_s: Seconds | None = Field(
        default=None,
        description="First guess of the seconds to the first token; measured later. Default 1.0.",
    )
    expected_tokens_per_s: Speed | None = Field(
        default=None, description="First guess of the speed; measured later. Default 60."
    )
    enabled: bool = Field(default=True, description="False: listed, never tried.")


class WeightsSpec(Spec):
    """How much each term of the score counts; only their relation matters."""

    health: Weight = Field(default=3.0, description="Recent successes against failures.")
    task_fit: Weight = Field(default=3.0, description="The candidate's `task_fit` for this entrypoint.")
    context_slack: Weight = Field(default=0.5, description="Room left in the window.")
    cost: Weight = Field(default=2.0, description="Expected price of this request.")
    expected_time: Weight = Field(default=2.0, description="Expected seconds to the whole answer.")
    load: Weight = Field(default=1.0, description="Requests in flight there.")

    @model_validator(mode="after")
    def _some_weight(self) -> WeightsSpec:
        if not any(
            (self.health, self.task_fit, self.context_slack, self.cost, self.expected_time, self.load)
        ):
            raise PydanticCustomError("weights", "are all 0; give at least one term some weight")
        return self


class EntrypointSpec(Spec):
    """A virtual model that clients ask for by name."""

    description: Text = Field(description="One line for people, shown in `/v1/models`.")
    candidates: Names | None = Field(
        default=None,
        description="Candidate ids. The order decides only where scores are equal. `auto` may leave it out:"
        " then it has every candidate of the other four.",
    )
    weights: WeightsSpec = Field(default_factory=WeightsSpec, description="Weights of the score.")
    max_price: Usd | None = Field(
        default=None,
        description="Leave out candidates whose output price (USD per million tokens) is above this.",
    )
    minimum_context_tokens: Annotated[int, Field(ge=0, le=MAXIMUM_TOKENS)] = Field(
        default=0,
        description="Smaller windows take no part here (a candidate listed all the same is an error).",
    )
    forbidden_tags: list[Tag] = Field(
        default_factory=list,
        description="Leave out candidates that carry one of these tags, such as `may-train-on-prompts`.",
    )


class EntrypointsSpec(Spec):
    """The five virtual models."""

    auto: EntrypointSpec = Field(description="The judge names the task, then one of the other four serves.")
    chat: EntrypointSpec = Field(description="Conversation.")
    code: EntrypointSpec = Field(description="Code edits and explanations.")
    build: EntrypointSpec = Field(description="Agents with tools.")
    long: EntrypointSpec = Field(description="Long documents.")


class JudgeSpec(Spec):
    """Who names the task for `auto`. Leave the block out to use the built-in heuristic alone."""

    candidates: Annotated[Names, Field(min_length=1)] = Field(
        description="Candidate ids (or an entrypoint, meaning all of its candidates), tried in order; never"
        " local ones."
    )
    timeout_s: Annotated[float, Field(gt=0, le=30)] = Field(default=3.0, description="Seconds it may take.")
    open_s: Seconds = Field(default=30.0, description="Seconds it is left alone after a failure.")
    cache_s: Annotated[float, Field(ge=0, le=86_400, allow_inf_nan=False)] = Field(
        default=900.0, description="Seconds a verdict holds for its conversation; 0: it is asked every time."
    )


class LimitsSpec(Spec):
    """Bounds on one request."""

    max_body_bytes: Annotated[int, Field(ge=1_024, le=1 << 30)] = Field(
        default=32 << 20, description="Largest request body, in bytes."
    )
    max_attempts: Annotated[int, Field(ge=1, le=100)] = Field(
        default=64,
        description="Most tries for one request; fewer than there are candidates may fail it early.",
    )
    connect_timeout_s: Seconds = Field(default=5.0, description="To a connection with the provider.")
    first_event_timeout_s: Seconds = Field(default=60.0, description="To the first piece of the answer.")
    stall_timeout_s: Seconds = Field(default=45.0, description="Between two pieces of the answer.")
    total_timeout_s: Seconds = Field(default=1_800.0, description="For the whole answer.")
    keep_alive_after_s: Seconds = Field(
        default=5.0,
        description="A stream without a first event for so long begins with comments, which keep proxies from"
        " cutting it. From then on its status is 200, and a comment names the candidate instead of a header.",
    )
    keep_alive_every_s: Seconds = Field(default=10.0, description="Between two such comments.")


class ProvidersFile(Spec):
    """Root of providers.yaml."""

    limits: LimitsSpec = Field(default_factory=LimitsSpec, description="Bounds on one request.")
    judge: JudgeSpec | None = Field(default=None, description="Who names the task for `auto`.")
    entrypoints: EntrypointsSpec = Field(description="The five virtual models.")
    providers: Annotated[dict[Name, ProviderSpec], Field(min_length=1)] = Field(
        description="API families and engines, by name."
    )
    candidates: Annotated[list[CandidateSpec], Field(min_length=1)] = Field(
        description="Concrete models; `id` is unique."
    )


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of providers.yaml, for editors."""
    schema = ProvidersFile.model_json_schema()
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["title"] = "Roundhouse providers.yaml"
    return schema
