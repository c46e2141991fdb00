from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from router.catalog.catalog import EngineLaunch, ProviderKind
from router.catalog.catalog import Provider as ProviderEntry
from router.clock import SystemClock
from router.errors import ConfigurationError
from router.providers.base import SupervisedProvider
from router.providers.litellm_library import LiteLLMProvider
from router.providers.local_engine import LocalEngineProvider
from router.providers.openai_compatible import OpenAICompatibleProvider
from router.providers.registry import ProviderSurroundings, build_provider, build_providers
from router.providers.scripted import ScriptedProvider
from tests.fakes.provider import make_catalog, make_deployment

ENTRY = ProviderEntry("p", ProviderKind.OPENAI, "http://p.test/v1", key_env=("P_KEY", "P_KEY_2", "P_KEY_3"))


def surroundings(folder: Path, **fields: object) -> ProviderSurroundings:
    return ProviderSurroundings(SystemClock(), folder, **fields)  # type: ignore[arg-type]


@pytest.mark.anyio
async def test_every_kind_has_a_builder(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text("steps: [answer]")
    entries = {
        ProviderKind.OPENAI: (ENTRY, OpenAICompatibleProvider),
        ProviderKind.LITELLM: (replace(ENTRY, kind=ProviderKind.LITELLM), LiteLLMProvider),
        ProviderKind.SCRIPTED: (
            replace(ENTRY, kind=ProviderKind.SCRIPTED, script="s.yaml"),
            ScriptedProvider,
        ),
        ProviderKind.ENGINE: (
            replace(ENTRY, kind=ProviderKind.ENGINE, engine=EngineLaunch("builtin:smollm2", 2048)),
            LocalEngineProvider,
        ),
    }
    for kind in ProviderKind:
        entry, kind_of_provider = entries[kind]
        provider = build_provider(entry, surroundings(tmp_path))
        assert isinstance(provider, kind_of_provider)
        assert isinstance(provider, SupervisedProvider) is (kind is ProviderKind.ENGINE)
        await provider.aclose()


@pytest.mark.anyio
async def test_a_provider_gets_its_own_keys_in_order_and_shows_none(tmp_path: Path) -> None:
    secrets = {"P_KEY_2": "two-two-two", "P_KEY": "one-one-one", "OTHER": "not-this"}
    provider = build_provider(ENTRY, given := surroundings(tmp_path, secrets=secrets))
    await provider.aclose()

    assert isinstance(provider, OpenAICompatibleProvider)
    assert provider._keys.labels == ("P_KEY", "P_KEY_2")
    assert "one-one-one" not in repr(provider) + repr(given)


@pytest.mark.anyio
async def test_all_providers_of_a_catalog(tmp_path: Path) -> None:
    catalog = make_catalog(make_deployment("a", "x"), make_deployment("b", "y"))
    providers = build_providers(catalog, surroundings(tmp_path))
    for provider in providers.values():
        await provider.aclose()

    assert list(providers) == ["x", "y"]


def test_a_script_that_is_missing_is_named(tmp_path: Path) -> None:
    entry = replace(ENTRY, kind=ProviderKind.SCRIPTED, script="gone.yaml")
    with pytest.raises(ConfigurationError, match=r"gone\.yaml.*cannot be read"):
        build_provider(entry, surroundings(tmp_path))


def test_an_engine_without_a_launch_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="say which model it runs"):
        build_provider(replace(ENTRY, kind=ProviderKind.ENGINE), surroundings(tmp_path))


def test_an_unknown_kind_is_told_what_is_supported(tmp_path: Path) -> None:
    entry = replace(ENTRY, kind="telepathy")
    with pytest.raises(ConfigurationError, match="use one of engine, litellm, openai, scripted"):
        build_provider(entry, surroundings(tmp_path))
