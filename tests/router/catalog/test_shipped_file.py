"""The providers.yaml that comes along, and the page about it."""

from __future__ import annotations

import time
from decimal import Decimal
from pathlib import Path

import pytest

from router.catalog.catalog import Catalog, ProviderKind
from router.catalog.documentation import EXAMPLE, configuration_page
from router.catalog.load import catalog_version, load_catalog, parse_catalog
from router.catalog.schema import json_schema

ROOT = Path(__file__).parents[3]
SHIPPED = ROOT / "providers.yaml"


@pytest.fixture(scope="module")
def shipped() -> Catalog:
    return load_catalog(SHIPPED)


def test_it_has_47_candidates_and_the_five_entrypoints(shipped: Catalog) -> None:
    assert len(shipped.deployments) == 47
    assert tuple(shipped.entrypoints) == ("auto", "chat", "code", "build", "long")
    assert [name for name, entry in shipped.entrypoints.items() if entry.judged] == ["auto"]
    assert shipped.version == catalog_version(SHIPPED.read_bytes())


def test_every_candidate_is_reachable_through_an_entrypoint(shipped: Catalog) -> None:
    listed = {
        one for name in ("chat", "code", "build", "long") for one in shipped.entrypoints[name].candidates
    }

    assert listed == set(shipped.deployments)
    assert set(shipped.entrypoints["auto"].candidates) == listed


def test_every_entrypoint_ends_with_the_local_model(shipped: Catalog) -> None:
    for name in ("chat", "code", "build", "long"):
        entrypoint = shipped.entrypoints[name]
        assert shipped.provider_of(entrypoint.candidates[-1]).local
        assert sum(shipped.provider_of(one).local for one in entrypoint.candidates) == 1
        assert entrypoint.minimum_context_tokens <= 8_192


def test_the_cloud_candidates_suit_their_entrypoint(shipped: Catalog) -> None:
    def cloud(name: str) -> list[str]:
        return [one for one in shipped.entrypoints[name].candidates if not shipped.provider_of(one).local]

    assert all(shipped.deployments[one].capabilities.tools for one in cloud("build"))
    assert all(shipped.deployments[one].context_tokens >= 400_000 for one in cloud("long"))


def test_the_judge_is_never_local(shipped: Catalog) -> None:
    assert shipped.judge is not None
    assert len(shipped.judge.candidates) >= 3
    assert not any(shipped.provider_of(one).local for one in shipped.judge.candidates)


def test_numbers_are_plausible(shipped: Catalog) -> None:
    for one in shipped.deployments.values():
        assert 0 < one.max_output_tokens <= one.context_tokens
        assert set(one.task_fit) == {"chat", "code", "build", "long"}
        assert one.price.free == (one.price.input_micros == 0)
        assert one.price.output_micros >= one.price.input_micros
        cached = one.price.cached_input_micros
        assert cached is None or cached < one.price.input_micros


def test_prices_are_exact_micro_dollars(shipped: Catalog) -> None:
    assert shipped.deployments["groq/gpt-oss-20b"].price.cached_input_micros == 37_500
    assert shipped.deployments["xiaomi/mimo-v2.6-flash"].price.cached_input_micros == 2_800
    assert shipped.deployments["openai/gpt-6-astra"].price.output_micros == Decimal(50) * 1_000_000


def test_defaults_of_a_provider_hold_where_the_candidate_says_nothing(shipped: Catalog) -> None:
    plain, own = shipped.deployments["openai/gpt-6.1-sol"], shipped.deployments["openai/gpt-6-luna"]

    assert (plain.expected_ttft_s, plain.expected_tokens_per_s) == (0.9, 90)
    assert (own.expected_ttft_s, own.expected_tokens_per_s) == (0.6, 160)
    assert plain.capabilities.vision
    assert plain.capabilities.prompt_cache
    assert not shipped.deployments["deepseek/v4-pro"].capabilities.vision
    assert not shipped.deployments["anthropic/claude-opus-5-5"].capabilities.prefill
    assert "may-train-on-prompts" in shipped.deployments["openrouter/inkling"].tags


def test_the_local_model_needs_neither_key_nor_network(shipped: Catalog) -> None:
    local = shipped.provider_of("local/smollm2")

    assert local.kind is ProviderKind.ENGINE
    assert not local.needs_key
    assert local.engine is not None
    assert local.engine.model == "builtin:smollm2"
    assert all(one.needs_key for one in shipped.providers.values() if not one.local)


def test_loading_takes_under_a_tenth_of_a_second(shipped: Catalog) -> None:
    del shipped  # warm
    best = min(_seconds_to_load() for _ in range(3))

    assert best < 0.2  # twice the aim, so that a busy machine passes


def _seconds_to_load() -> float:
    start = time.process_time()
    load_catalog(SHIPPED)
    return time.process_time() - start


def test_the_configuration_page_is_up_to_date() -> None:
    """Else: python -m router.catalog.documentation docs/configuration.md."""
    assert (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8") == configuration_page()


def test_the_example_on_the_page_works() -> None:
    catalog = parse_catalog(EXAMPLE.encode())

    assert list(catalog.deployments) == ["local/smollm2", "groq/gpt-oss-20b"]
    assert catalog.entrypoints["auto"].candidates == ("groq/gpt-oss-20b", "local/smollm2")


def test_the_schema_for_editors_knows_every_block() -> None:
    schema = json_schema()

    assert schema["additionalProperties"] is False
    assert set(schema["properties"]) == {"limits", "judge", "entrypoints", "providers", "candidates"}
    assert {"CandidateSpec", "PriceSpec", "ProviderSpec", "WeightsSpec"} <= set(schema["$defs"])
