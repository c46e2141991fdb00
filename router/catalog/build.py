"""Checked blocks → the frozen catalog: defaults filled in, dollars made micro-dollars, names resolved.

Judges nothing: it is only given what the schema and :mod:`router.catalog.semantics` let through.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from types import MappingProxyType
from typing import Final

from router.catalog.catalog import (
    Capabilities,
    Catalog,
    Deployment,
    EngineLaunch,
    Entrypoint,
    JudgeSettings,
    Limits,
    Price,
    Provider,
    Weights,
)
from router.catalog.schema import (
    CandidateSpec,
    CapabilityName,
    DefaultsSpec,
    EngineSpec,
    EntrypointSpec,
    PriceSpec,
    ProvidersFile,
    ProviderSpec,
)
from router.catalog.semantics import ENTRYPOINT_NAMES, JUDGED_ENTRYPOINT, entrypoint_candidates, is_local

__all__ = ["build_catalog", "micros"]

_MICROS_PER_USD: Final = 1_000_000
_BUILT_IN: Final = "builtin:"
_TOKENS_PER_CHARACTER: Final = 0.3
_TTFT_S: Final = 1.0
_TOKENS_PER_S: Final = 60.0


def build_catalog(file: ProvidersFile, version: str, directory: Path | None = None) -> Catalog:
    """Return the catalog; relative paths in the file are resolved against ``directory`` where given."""
    entrypoints = {name: getattr(file.entrypoints, name) for name in ENTRYPOINT_NAMES}
    return Catalog(
        providers=MappingProxyType(
            {name: _provider(name, spec, directory) for name, spec in file.providers.items()}
        ),
        deployments=MappingProxyType(
            {spec.id: _deployment(spec, file.providers[spec.provider].defaults) for spec in file.candidates}
        ),
        entrypoints=MappingProxyType(
            {name: _entrypoint(name, spec, entrypoints) for name, spec in entrypoints.items()}
        ),
        judge=_judge(file, entrypoints),
        limits=Limits(
            max_body_bytes=file.limits.max_body_bytes,
            max_attempts=file.limits.max_attempts,
            connect_timeout_s=file.limits.connect_timeout_s,
            first_event_timeout_s=file.limits.first_event_timeout_s,
            stall_timeout_s=file.limits.stall_timeout_s,
            total_timeout_s=file.limits.total_timeout_s,
            keep_alive_after_s=file.limits.keep_alive_after_s,
            keep_alive_every_s=file.limits.keep_alive_every_s,
        ),
        version=version,
    )


def micros(usd: float) -> int:
    """Return dollars as integer micro-dollars, exactly (``0.0605`` is 60,500)."""
    return int(Decimal(str(usd)) * _MICROS_PER_USD)


def _optional_micros(usd: float | None) -> int | None:
    return None if usd is None else micros(usd)


def _provider(name: str, spec: ProviderSpec, directory: Path | None) -> Provider:
    return Provider(
        name=name,
        kind=spec.kind,
        base_url=spec.base_url,
        key_env=tuple(spec.key_env),
        headers=MappingProxyType(dict(spec.headers)) if spec.headers else None,
        engine=_engine(spec.engine, directory) if spec.engine is not None else None,
        script=_resolved(spec.script, directory) if spec.script is not None else None,
        local=is_local(spec),
        needs_key=bool(spec.key_env),
    )


def _engine(spec: EngineSpec, directory: Path | None) -> EngineLaunch:
    return EngineLaunch(
        model=spec.model if spec.model.startswith(_BUILT_IN) else _resolved(spec.model, directory),
        context_tokens=spec.context_tokens,
        threads=spec.threads,
        command=tuple(spec.command) if spec.command is not None else None,
        slots=spec.slots,
        queue_limit=spec.queue_limit,
        longest_wait_s=spec.longest_wait_s,
        join_grace_s=spec.join_grace_s,
        join_window_s=spec.join_window_s,
    )


def _resolved(path: str, directory: Path | None) -> str:
    if directory is None:
        return path
    return str(directory / Path(path).expanduser())


def _price(spec: PriceSpec) -> Price:
    return Price(
        input_micros=micros(spec.input or 0.0),
        output_micros=micros(spec.output or 0.0),
        cached_input_micros=_optional_micros(spec.cached_input),
        cache_write_micros=_optional_micros(spec.cache_write),
        free=spec.free,
    )


def _capabilities(names: list[CapabilityName]) -> Capabilities:
    return Capabilities(
        tools=CapabilityName.TOOLS in names,
        parallel_tools=CapabilityName.PARALLEL_TOOLS in names,
        vision=CapabilityName.VISION in names,
        json_schema=CapabilityName.JSON_SCHEMA in names,
        reasoning=CapabilityName.REASONING in names,
        prompt_cache=CapabilityName.PROMPT_CACHE in names,
        system_prompt=CapabilityName.NO_SYSTEM_PROMPT not in names,
        prefill=CapabilityName.NO_PREFILL not in names,
    )


def _first(*values: float | None, otherwise: float) -> float:
    return next((value for value in values if value is not None), otherwise)


def _deployment(spec: CandidateSpec, defaults: DefaultsSpec) -> Deployment:
    capabilities = spec.capabilities if spec.capabilities is not None else defaults.capabilities
    tags = spec.tags if spec.tags is not None else defaults.tags
    prompt = spec.max_prompt_tokens if spec.max_prompt_tokens is not None else defaults.max_prompt_tokens
    return Deployment(
        id=spec.id,
        provider=spec.provider,
        upstream_model=spec.model,
        context_tokens=spec.context_tokens,
        max_output_tokens=spec.max_output_tokens,
        price=_price(spec.price),
        capabilities=_capabilities(capabilities or []),
        task_fit=MappingProxyType(spec.task_fit.model_dump()),
        tokens_per_character=_first(
            spec.tokens_per_character, defaults.tokens_per_character, otherwise=_TOKENS_PER_CHARACTER
        ),
        max_prompt_tokens=prompt,
        tags=tuple(tags or ()),
        expected_ttft_s=_first(spec.expected_ttft_s, defaults.expected_ttft_s, otherwise=_TTFT_S),
        expected_tokens_per_s=_first(
            spec.expected_tokens_per_s, defaults.expected_tokens_per_s, otherwise=_TOKENS_PER_S
        ),
        enabled=spec.enabled,
    )


def _entrypoint(name: str, spec: EntrypointSpec, all_of_them: Mapping[str, EntrypointSpec]) -> Entrypoint:
    return Entrypoint(
        name=name,
        description=spec.description,
        candidates=entrypoint_candidates(name, all_of_them),
        weights=Weights(**spec.weights.model_dump()),
        judged=name == JUDGED_ENTRYPOINT,
        max_price_micros=_optional_micros(spec.max_price),
        minimum_context_tokens=spec.minimum_context_tokens,
        forbidden_tags=tuple(spec.forbidden_tags),
    )


def _judge(file: ProvidersFile, entrypoints: Mapping[str, EntrypointSpec]) -> JudgeSettings | None:
    if file.judge is None:
        return None
    expanded = [
        one
        for name in file.judge.candidates
        for one in (entrypoint_candidates(name, entrypoints) if name in ENTRYPOINT_NAMES else (name,))
    ]
    return JudgeSettings(
        candidates=tuple(dict.fromkeys(expanded)),
        timeout_s=file.judge.timeout_s,
        open_s=file.judge.open_s,
        cache_s=file.judge.cache_s,
    )
