from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.catalog.catalog import Capabilities, Deployment, Price, Weights
from router.chat.features import TaskKind
from router.health.snapshot import HealthSnapshot
from router.routing.candidate import RoutingDecision
from router.routing.decide import decide
from router.routing.verdict import Difficulty, TaskNeed, TaskVerdict, VerdictSource, weights_for

from .conftest import NOW, catalog, deployment, features

KINDS = st.sampled_from(TaskKind)
VERDICTS = st.builds(
    TaskVerdict,
    KINDS,
    st.just("said so"),
    st.sampled_from(VerdictSource),
    st.none() | st.sampled_from(Difficulty),
    st.lists(st.sampled_from(TaskNeed), unique=True).map(tuple),
)


def judged(deployments: list[Deployment], verdict: TaskVerdict | None) -> RoutingDecision:
    everything = catalog(*deployments)
    return decide(
        features(),
        everything.entrypoints["auto"],
        everything,
        HealthSnapshot(NOW, {}),
        now=NOW,
        rng=random.Random(1),  # noqa: S311 - breaks ties
        verdict=verdict,
    )


def said(difficulty: Difficulty | None = None, *needs: TaskNeed) -> TaskVerdict:
    return TaskVerdict(TaskKind.CODE, "said so", VerdictSource.JUDGE, difficulty, needs)


def order(deployments: list[Deployment], verdict: TaskVerdict) -> list[str]:
    return [one.deployment_id for one in judged(deployments, verdict).candidates]


def test_hard_work_goes_to_who_is_good_at_it_and_easy_work_to_who_is_cheap() -> None:
    good = deployment("good", task_fit={"code": 0.95}, price=Price(8_000_000, 30_000_000))
    cheap = deployment("cheap", task_fit={"code": 0.65}, price=Price(100_000, 300_000))

    assert order([good, cheap], said(Difficulty.HARD)) == ["good", "cheap"]
    assert order([good, cheap], said(Difficulty.EASY)) == ["cheap", "good"]


def test_where_reasoning_helps_those_come_first_who_can_and_nobody_is_left_out() -> None:
    quick = deployment("quick", task_fit={"code": 0.85}, capabilities=Capabilities(reasoning=False))
    thinker = deployment("thinker", task_fit={"code": 0.75}, capabilities=Capabilities(reasoning=True))

    assert order([quick, thinker], said()) == ["quick", "thinker"]
    assert order([quick, thinker], said(None, TaskNeed.REASONING)) == ["thinker", "quick"]
    decision = judged([quick, thinker], said(None, TaskNeed.REASONING))
    basis = {term.name: term.basis for term in decision.candidates[1].score.terms}
    assert basis["task_fit"] == "code quality 0.85, less for not reasoning"


def test_a_long_answer_is_expected_to_take_and_to_cost_more() -> None:
    def terms(verdict: TaskVerdict) -> dict[str, float]:
        (only,) = judged([deployment("a", price=Price(2_000_000, 10_000_000))], verdict).candidates
        return {term.name: term.value for term in only.score.terms}

    usual, long = terms(said()), terms(said(None, TaskNeed.LONG_ANSWER))

    assert long["cost"] < usual["cost"]
    assert long["expected_time"] < usual["expected_time"]


@given(VERDICTS)
def test_no_verdict_leaves_anybody_out(verdict: TaskVerdict) -> None:
    everybody = [deployment("a"), deployment("b", capabilities=Capabilities()), deployment("c", task_fit={})]

    decision = judged(everybody, verdict)

    assert sorted(one.deployment_id for one in decision.candidates) == ["a", "b", "c"]
    assert decision.judged_as == verdict.kind.value
    assert decision.verdict == verdict


@pytest.mark.parametrize("difficulty", [None, Difficulty.MEDIUM])
def test_usual_work_takes_the_weights_as_they_are(difficulty: Difficulty | None) -> None:
    weights = Weights(3.0, 3.0, 0.5, 2.0, 2.0, 1.0)

    assert weights_for(weights, difficulty) == weights


def test_without_a_verdict_the_heuristic_names_the_task_and_says_so() -> None:
    decision = judged([deployment("a")], None)

    assert decision.verdict is not None
    assert decision.verdict.source is VerdictSource.HEURISTIC


@given(VERDICTS)
def test_the_label_fits_a_header(verdict: TaskVerdict) -> None:
    assert verdict.label.isascii()
    assert verdict.label.isprintable()
    assert verdict.label.startswith(f"{verdict.kind.value}; source=")
