from __future__ import annotations

from typing import Any

import pytest

from router.catalog.catalog import Capabilities, Deployment, Price
from router.chat.features import TaskKind
from router.health.snapshot import DeploymentHealth
from router.routing.candidate import Score, ScoreTerm
from router.routing.scoring import TERM_NAMES, Scorer

from .conftest import catalog, deployment, features

GOOD = DeploymentHealth(True, health=0.95, successes=40)


def terms(
    one: Deployment, health: DeploymentHealth = GOOD, *, prompt_tokens: int = 1_000, **how: Any
) -> dict[str, ScoreTerm]:
    request = features(**how.pop("request", {}))
    everything = catalog(one)
    scorer = Scorer(request, everything.entrypoints["chat"], TaskKind.CHAT, everything, **how)
    return {term.name: term for term in scorer.score(one, health, prompt_tokens).terms}


def total(
    one: Deployment, health: DeploymentHealth = GOOD, *, prompt_tokens: int = 1_000, **how: Any
) -> float:
    everything = catalog(one)
    scorer = Scorer(features(), everything.entrypoints["chat"], TaskKind.CHAT, everything, **how)
    return scorer.score(one, health, prompt_tokens).total


def test_the_total_is_the_weighted_mean_of_the_terms_it_explains() -> None:
    everything = catalog(deployment("a"))
    scorer = Scorer(
        features(), everything.entrypoints["chat"], TaskKind.CHAT, everything, previous_deployment="a"
    )
    score = scorer.score(everything.deployments["a"], GOOD, 1_000)

    assert score.total == pytest.approx(Score(score.terms).total)
    assert tuple(term.name for term in score.terms) == TERM_NAMES
    assert all(0.0 <= term.value <= 1.0 and term.basis for term in score.terms)


@pytest.mark.parametrize(
    ("name", "better", "worse"),
    [
        ("health", {"health": 0.9}, {"health": 0.3}),
        ("health", {"ramp": 1.0}, {"ramp": 0.1}),
        ("expected_time", {"ttft_s": 0.3}, {"ttft_s": 8.0}),
        ("expected_time", {"ttft_by_size_s": (0.3,) * 5}, {"ttft_by_size_s": (8.0,) * 5}),
        ("expected_time", {"tokens_per_s": 200.0}, {"tokens_per_s": 5.0}),
        ("expected_time", {"penalty_s": 0.0}, {"penalty_s": 20.0}),
        ("expected_time", {"expected_wait_s": 0.0}, {"expected_wait_s": 60.0}),
        ("load", {"in_flight": 0}, {"in_flight": 3}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_worse_scores_lower_in_its_own_term_only(
    name: str, better: dict[str, Any], worse: dict[str, Any]
) -> None:
    good = terms(deployment("a"), DeploymentHealth(True, **better))
    bad = terms(deployment("a"), DeploymentHealth(True, **worse))

    assert good[name].value > bad[name].value
    assert {key for key in good if good[key].value != bad[key].value} == {name}


def test_unknown_takes_the_priors_of_the_catalog_and_is_not_zero() -> None:
    slow = deployment("slow", expected_ttft_s=20.0, expected_tokens_per_s=5.0)
    fast = deployment("fast", expected_ttft_s=0.3, expected_tokens_per_s=200.0)
    unseen = DeploymentHealth(True)

    assert 0.0 < terms(slow, unseen)["expected_time"].value < terms(fast, unseen)["expected_time"].value
    assert "(prior)" in terms(slow, unseen)["expected_time"].basis
    assert terms(deployment("a", task_fit={}))["task_fit"].value == 0.5


def test_a_prompt_size_without_history_takes_the_prior_not_another_sizes_time() -> None:
    seen_small = DeploymentHealth(True, ttft_s=0.2, ttft_by_size_s=(0.2, None, None, None, None))
    one = deployment("a", expected_ttft_s=3.0, context_tokens=1_000_000)

    assert "TTFT 0.20 s" in terms(one, seen_small, prompt_tokens=500)["expected_time"].basis
    assert "TTFT 3.00 s" in terms(one, seen_small, prompt_tokens=50_000)["expected_time"].basis


def test_cost_is_logarithmic_and_free_is_best() -> None:
    def cost(**price: Any) -> float:
        return terms(deployment("a", price=Price(**price)), prompt_tokens=10_000)["cost"].value

    free = cost(input_micros=0, output_micros=0, free=True)
    cheap = cost(input_micros=100_000, output_micros=400_000)
    middle = cost(input_micros=1_000_000, output_micros=4_000_000)
    dear = cost(input_micros=10_000_000, output_micros=40_000_000)

    assert free == 1.0
    assert free > cheap > middle > dear > 0.0
    assert cheap - middle == pytest.approx(middle - dear)


def test_a_warm_prompt_cache_makes_the_previous_candidate_cheaper_and_sticky() -> None:
    one = deployment("a")
    cold = terms(one, prompt_tokens=20_000)
    warm = terms(one, prompt_tokens=20_000, previous_deployment="a")
    other = terms(one, prompt_tokens=20_000, previous_deployment="b")

    assert "stickiness" not in cold
    assert warm["cost"].value > cold["cost"].value
    assert warm["stickiness"].value > other["stickiness"].value == 0.0
    assert total(one, previous_deployment="a") > total(one, previous_deployment="b")


def test_stickiness_gives_way_to_bad_health() -> None:
    sick = DeploymentHealth(True, health=0.05, penalty_s=60.0)

    assert total(deployment("a"), sick, previous_deployment="a") < total(
        deployment("b"), GOOD, previous_deployment="a"
    )


def test_the_windows_last_fifth_costs_slack() -> None:
    one = deployment("a", context_tokens=10_000)
    values = [
        terms(one, prompt_tokens=tokens, request={"wanted_output_tokens": 10})["context_slack"].value
        for tokens in (100, 7_000, 9_000, 9_900)
    ]

    assert values[:2] == [1.0, 1.0]
    assert 1.0 > values[2] > values[3] > 0.0


def test_one_request_fills_a_local_slot() -> None:
    busy = DeploymentHealth(True, in_flight=1)

    assert terms(deployment("a"), busy)["load"].value == pytest.approx(0.8)
    assert terms(deployment("here", provider="local"), busy)["load"].value == pytest.approx(0.5)


def test_scores_do_not_depend_on_who_else_takes_part() -> None:
    one = deployment("a", capabilities=Capabilities())
    alone = catalog(one)
    among = catalog(one, deployment("b", price=Price(0, 0, free=True)))
    scores = [
        Scorer(features(), everything.entrypoints["chat"], TaskKind.CHAT, everything)
        .score(one, GOOD, 10)
        .total
        for everything in (alone, among)
    ]

    assert scores[0] == scores[1]


def test_a_stalled_speed_is_no_division_by_zero() -> None:
    assert terms(deployment("a"), DeploymentHealth(True, tokens_per_s=0.0))["expected_time"].value < 0.01
