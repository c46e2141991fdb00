"""Provider kinds → how one is built. An explicit table; nothing registers itself.

Knows every adapter by name; none of what they do.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Final, TypeAlias

import httpx

from router.catalog.catalog import Catalog, ProviderKind
from router.catalog.catalog import Provider as ProviderEntry
from router.clock import Clock
from router.errors import ConfigurationError, ConfigurationProblem, SourcePosition
from router.providers.base import Provider
from router.providers.credentials import ProviderKeys
from router.providers.direct_client import DirectClient
from router.providers.engine_command import engine_command
from router.providers.engine_process import EngineProcess
from router.providers.litellm_library import LiteLLMProvider
from router.providers.local_engine import LocalEngineProvider
from router.providers.openai_compatible import OpenAICompatibleProvider
from router.providers.restart_pauses import RestartPauses
from router.providers.script import parse_script
from router.providers.scripted import ScriptedProvider
from router.providers.transport import SharedTls, make_client
from router.providers.upstream_client import HttpxClient, UpstreamClient

__all__ = ["ProviderSurroundings", "build_provider", "build_providers"]

_EMPTY: Final[Mapping[str, str]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class ProviderSurroundings:
    """What providers need and do not make themselves.

    ``secrets`` holds the keys by the name of their environment variable, which is also their label;
    ``child_environment`` is what a started engine gets, and should hold none of them. Relative paths in
    ``providers.yaml`` are relative to ``base_directory``. ``transport`` replaces the network.
    """

    clock: Clock
    base_directory: Path
    secrets: Mapping[str, str] = field(default_factory=lambda: _EMPTY, repr=False)
    child_environment: Mapping[str, str] = field(default_factory=lambda: _EMPTY, repr=False)
    transport: httpx.AsyncBaseTransport | None = None
    rng: random.Random = field(default_factory=random.Random)
    tls: SharedTls = field(default_factory=SharedTls)


Builder: TypeAlias = Callable[[ProviderEntry, ProviderSurroundings], Provider]


def build_providers(catalog: Catalog, surroundings: ProviderSurroundings) -> dict[str, Provider]:
    """Build every provider of a catalog, by name. Starts nothing.

    Raises
    ------
    ConfigurationError
        A script cannot be read, or a kind is not supported here.

    """
    return {name: build_provider(entry, surroundings) for name, entry in catalog.providers.items()}


def build_provider(entry: ProviderEntry, surroundings: ProviderSurroundings) -> Provider:
    """Build one provider; see :func:`build_providers`."""
    builder = _BUILDERS.get(entry.kind)
    if builder is None:
        supported = ", ".join(sorted(_BUILDERS))
        problem = ConfigurationProblem(
            f"provider {entry.name}: the kind {entry.kind} is not supported",
            SourcePosition("providers.yaml"),
            f"use one of {supported}",
        )
        raise ConfigurationError((problem,))
    return builder(entry, surroundings)


def _keys_of(entry: ProviderEntry, surroundings: ProviderSurroundings) -> ProviderKeys:
    secrets = surroundings.secrets
    return ProviderKeys({name: secrets[name] for name in entry.key_env if secrets.get(name)})


def _openai(entry: ProviderEntry, surroundings: ProviderSurroundings) -> Provider:
    return OpenAICompatibleProvider(
        entry,
        keys=_keys_of(entry, surroundings),
        client=_client(entry, surroundings),
        clock=surroundings.clock,
    )


def _client(entry: ProviderEntry, surroundings: ProviderSurroundings) -> UpstreamClient:
    if surroundings.transport is not None:
        return HttpxClient(make_client(transport=surroundings.transport))
    if (entry.base_url or "").startswith("https:"):
        # Now, not while the first request waits.
        surroundings.tls.context()
    return DirectClient(surroundings.tls)


def _scripted(entry: ProviderEntry, surroundings: ProviderSurroundings) -> Provider:
    path = surroundings.base_directory / (entry.script or "")
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        problem = ConfigurationProblem(
            f"provider {entry.name}: the script cannot be read ({error})",
            SourcePosition(str(path)),
            "give the path of a YAML file, relative to providers.yaml",
        )
        raise ConfigurationError((problem,)) from error
    return ScriptedProvider(entry, parse_script(text, str(path)), clock=surroundings.clock)


def _litellm(entry: ProviderEntry, surroundings: ProviderSurroundings) -> Provider:
    return LiteLLMProvider(entry, keys=_keys_of(entry, surroundings), clock=surroundings.clock)


def _engine(entry: ProviderEntry, surroundings: ProviderSurroundings) -> Provider:
    launch = entry.engine
    if launch is None:
        problem = ConfigurationProblem(
            f"provider {entry.name}: the kind engine needs engine: {{model: ...}}",
            SourcePosition("providers.yaml"),
            "say which model it runs",
        )
        raise ConfigurationError((problem,))
    if not launch.model.startswith("builtin:"):
        launch = replace(launch, model=str(surroundings.base_directory / launch.model))
    client = make_client()
    process = EngineProcess(
        entry.name,
        lambda: engine_command(launch, surroundings.child_environment),
        client=client,
        pauses=RestartPauses(surroundings.rng),
    )
    return LocalEngineProvider(launch, process=process, client=client, clock=surroundings.clock)


_BUILDERS: Final[Mapping[ProviderKind, Builder]] = MappingProxyType(
    {
        ProviderKind.OPENAI: _openai,
        ProviderKind.ENGINE: _engine,
        ProviderKind.LITELLM: _litellm,
        ProviderKind.SCRIPTED: _scripted,
    }
)
