from __future__ import annotations

import itertools
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.catalog.catalog import Capabilities, Deployment, Price
from router.chat.features import RequestFeatures, TaskKind
from router.health.outcome import OutcomeKind
from router.health.snapshot import BreakerState, DeploymentHealth, HealthSnapshot
from router.routing.candidate import ExclusionReason, RoutingDecision
from router.routing.decide import FLOOR, decide
from router.routing.verdict import TaskVerdict

from .conftest import KINDS, NOW, catalog, deployment, features, snapshot

PLAIN = Capabilities()


def route(
    deployments: list[Deployment],
    health: HealthSnapshot | None = None,
    *,
    entrypoint: str = "chat",
    seed: int = 1,
    request: RequestFeatures | None = None,
    settings_of_entrypoint: dict[str, Any] | None = None,
    **how: Any,
) -> RoutingDecision:
    everything = catalog(*deployments, **(settings_of_entrypoint or {}))
    return decide(
        request or features(),
        everything.entrypoints[entrypoint],
        everything,
        health or HealthSnapshot(NOW, {}),
        now=NOW,
        rng=random.Random(seed),  # noqa: S311 - breaks ties
        **how,
    )


def names(decision: RoutingDecision) -> list[str]:
    return [candidate.deployment_id for candidate in decision.candidates]


def reasons(decision: RoutingDecision) -> dict[str, ExclusionReason]:
    return {exclusion.deployment_id: exclusion.reason for exclusion in decision.exclusions}


@pytest.mark.parametrize(
    ("change", "request_change", "reason"),
    [
        ({"enabled": False}, {}, ExclusionReason.DISABLED),
        ({"capabilities": PLAIN}, {"needs_tools": True}, ExclusionReason.LACKS_TOOLS),
        (
            {"capabilities": Capabilities(tools=True)},
            {"needs_tools": True, "needs_parallel_tools": True},
            ExclusionReason.LACKS_PARALLEL_TOOLS,
        ),
        ({"capabilities": PLAIN}, {"needs_vision": True}, ExclusionReason.LACKS_VISION),
        ({"capabilities": PLAIN}, {"needs_json_schema": True}, ExclusionReason.LACKS_JSON_SCHEMA),
        ({"capabilities": PLAIN}, {"needs_reasoning": True}, ExclusionReason.LACKS_REASONING),
        (
            {"capabilities": Capabilities(system_prompt=False)},
            {"has_system_prompt": True},
            ExclusionReason.LACKS_SYSTEM_PROMPT,
        ),
        (
            {"capabilities": Capabilities(prefill=False)},
            {"needs_prefill": True},
            ExclusionReason.LACKS_PREFILL,
        ),
        ({"context_tokens": 1_000}, {}, ExclusionReason.CONTEXT_TOO_SMALL),
        ({"context_tokens": 1_500}, {"wanted_output_tokens": 400}, ExclusionReason.CONTEXT_TOO_SMALL),
        ({"max_prompt_tokens": 1_000}, {}, ExclusionReason.PROMPT_TOO_LONG),
        ({"max_output_tokens": 512}, {"wanted_output_tokens": 513}, ExclusionReason.OUTPUT_TOO_LONG),
    ],
    ids=lambda value: value.value if isinstance(value, ExclusionReason) else "",
)
def test_whoever_cannot_serve_is_left_out_for_that_reason(
    change: dict[str, Any], request_change: dict[str, Any], reason: ExclusionReason
) -> None:
    decision = route([deployment("odd", **change), deployment("fit")], request=features(**request_change))

    assert names(decision) == ["fit"]
    assert reasons(decision) == {"odd": reason}
    assert decision.exclusions[0].detail


@pytest.mark.parametrize(
    ("entrypoint", "change", "reason"),
    [
        ({"max_price_micros": 1_000_000}, {}, ExclusionReason.PRICE_CAP),
        ({"forbidden_tags": ("trains",)}, {"tags": ("trains", "eu")}, ExclusionReason.DATA_POLICY),
        ({"minimum_context_tokens": 200_000}, {}, ExclusionReason.CONTEXT_TOO_SMALL),
    ],
    ids=["price", "policy", "window"],
)
def test_an_entrypoints_rules_leave_out(
    entrypoint: dict[str, Any], change: dict[str, Any], reason: ExclusionReason
) -> None:
    fit = deployment("fit", price=Price(0, 0, free=True), context_tokens=1_000_000)
    decision = route([deployment("odd", **change), fit], settings_of_entrypoint=entrypoint)

    assert names(decision) == ["fit"]
    assert reasons(decision)["odd"] is reason


@pytest.mark.parametrize(
    ("health", "reason", "until"),
    [
        (DeploymentHealth(False, unconfigured_reason="no key"), ExclusionReason.UNCONFIGURED, None),
        (DeploymentHealth(True, ready=False, expected_wait_s=9), ExclusionReason.NOT_READY, NOW + 9),
        (
            DeploymentHealth(True, bench_until=NOW + 42, bench_kind=OutcomeKind.RATE_LIMITED),
            ExclusionReason.BENCHED,
            NOW + 42,
        ),
        (
            DeploymentHealth(True, breaker=BreakerState.OPEN, breaker_until=NOW + 5),
            ExclusionReason.BREAKER_OPEN,
            NOW + 5,
        ),
        (
            DeploymentHealth(True, breaker=BreakerState.HALF_OPEN, probing=True),
            ExclusionReason.BREAKER_OPEN,
            None,
        ),
    ],
    ids=["unconfigured", "not ready", "benched", "open", "probing"],
)
def test_whoever_is_held_back_is_left_out_until_his_return(
    health: DeploymentHealth, reason: ExclusionReason, until: float | None
) -> None:
    fit = [deployment(f"fit{number}") for number in range(FLOOR)]
    decision = route([deployment("odd"), *fit], snapshot(odd=health))

    assert reasons(decision) == {"odd": reason}
    assert decision.exclusions[0].until == until
    assert decision.exclusions[0].bench_kind is health.bench_kind
    assert not decision.panic


def test_half_open_without_a_probe_and_an_expired_bench_may_be_asked() -> None:
    decision = route(
        [deployment("half"), deployment("back")],
        snapshot(
            half=DeploymentHealth(True, breaker=BreakerState.HALF_OPEN, breaker_until=NOW - 1),
            back=DeploymentHealth(True, bench_until=NOW, bench_kind=OutcomeKind.RATE_LIMITED),
        ),
    )

    assert sorted(names(decision)) == ["back", "half"]
    assert not any(candidate.last_resort for candidate in decision.candidates)


def test_when_all_breakers_are_open_the_soonest_are_last_resorts() -> None:
    open_for = {
        f"d{number}": DeploymentHealth(True, breaker=BreakerState.OPEN, breaker_until=NOW + 100 - number)
        for number in range(5)
    }
    decision = route([deployment(name) for name in open_for], snapshot(**open_for))

    assert decision.panic
    assert names(decision) == ["d4", "d3"]
    assert all(candidate.last_resort for candidate in decision.candidates)
    assert set(reasons(decision)) == {"d0", "d1", "d2"}


def test_one_healthy_candidate_comes_first_and_one_last_resort_behind_it() -> None:
    bad = DeploymentHealth(True, breaker=BreakerState.OPEN, breaker_until=NOW + 5)
    decision = route([deployment("bad"), deployment("good", task_fit={"chat": 0.0})], snapshot(bad=bad))

    assert names(decision) == ["good", "bad"]
    assert [candidate.last_resort for candidate in decision.candidates] == [False, True]


def test_the_last_of_the_order_are_asked_though_a_breaker_opens_before_their_turn() -> None:
    decision = route([deployment(f"d{number}") for number in range(4)])

    assert [candidate.within_floor for candidate in decision.candidates] == [False, False, True, True]


def test_a_stated_bench_is_never_overruled() -> None:
    kinds = [OutcomeKind.RATE_LIMITED, OutcomeKind.NO_BALANCE, OutcomeKind.BAD_CREDENTIALS]
    benched = {
        f"d{number}": DeploymentHealth(True, bench_until=NOW + 42 + number, bench_kind=kind)
        for number, kind in enumerate(kinds)
    }
    decision = route([deployment(name) for name in benched], snapshot(**benched))

    assert not decision.candidates
    assert not decision.panic
    assert min(exclusion.until or 0 for exclusion in decision.exclusions) == NOW + 42


def test_a_busy_slot_may_be_a_last_resort() -> None:
    busy = DeploymentHealth(True, bench_until=NOW + 3, bench_kind=OutcomeKind.SLOT_BUSY)
    decision = route([deployment("here", provider="local")], snapshot(here=busy))

    assert decision.candidates[0].last_resort


def test_an_engine_that_starts_is_a_last_resort_unless_the_upstream_said_otherwise() -> None:
    starting = DeploymentHealth(True, ready=False)
    limited = DeploymentHealth(
        True, ready=False, bench_until=NOW + 42, bench_kind=OutcomeKind.RATE_LIMITED, bench_reason="limit"
    )
    decision = route([deployment("here"), deployment("there")], snapshot(here=starting, there=limited))

    assert names(decision) == ["here"]
    assert decision.candidates[0].last_resort
    assert reasons(decision) == {"there": ExclusionReason.NOT_READY}


def test_where_only_the_wanted_length_is_too_much_a_shorter_answer_is_offered() -> None:
    small = deployment("small", context_tokens=4_000, max_output_tokens=1_000)
    tiny = deployment("tiny", context_tokens=1_000)
    decision = route([small, tiny], request=features(wanted_output_tokens=32_000))

    assert names(decision) == ["small"]
    assert decision.candidates[0].output_limit == 1_000
    assert reasons(decision) == {"tiny": ExclusionReason.CONTEXT_TOO_SMALL}


def test_a_shorter_answer_is_not_offered_where_somebody_can_serve_all_of_it() -> None:
    decision = route(
        [deployment("small", context_tokens=4_000), deployment("large")],
        request=features(wanted_output_tokens=8_000),
    )

    assert names(decision) == ["large"]


def test_a_benched_small_one_is_not_offered_shortened() -> None:
    health = DeploymentHealth(True, bench_until=NOW + 60, bench_kind=OutcomeKind.RATE_LIMITED)
    decision = route(
        [deployment("small", context_tokens=4_000)],
        snapshot(small=health),
        request=features(wanted_output_tokens=8_000),
    )

    assert not decision.candidates


def test_a_learnt_ratio_and_a_learnt_window_count() -> None:
    many = snapshot(odd=DeploymentHealth(True, tokens_per_character=2.0))
    named = snapshot(odd=DeploymentHealth(True, learned_context_tokens=1_000))
    for health in (many, named):
        decision = route([deployment("odd", context_tokens=8_000), deployment("fit")], health)

        assert reasons(decision) == {"odd": ExclusionReason.CONTEXT_TOO_SMALL}


@pytest.mark.parametrize("kind", list(TaskKind))
def test_auto_serves_with_the_judged_entrypoints_candidates(kind: TaskKind) -> None:
    best = deployment("best", task_fit={kind.value: 1.0})
    other = deployment(
        "other", task_fit={name: 1.0 for name in KINDS if name != kind.value} | {kind.value: 0.1}
    )
    decision = route([other, best], entrypoint="auto", verdict=TaskVerdict(kind, ""))

    assert decision.judged_as == kind.value
    assert decision.entrypoint == "auto"
    assert names(decision) == ["best", "other"]


def test_auto_without_a_verdict_names_the_task_itself() -> None:
    decision = route([deployment("a")], entrypoint="auto", request=features(prompt_characters=200_000))

    assert decision.judged_as == "long"
    assert route([deployment("a")]).judged_as is None


def test_ties_are_broken_by_the_generator_alone() -> None:
    same = [deployment(f"d{number}") for number in range(4)]
    orders = {tuple(names(route(same, seed=seed))) for seed in range(40)}

    assert len(orders) > 10
    assert names(route(same, seed=5)) == names(route(same, seed=5))


def test_a_candidate_named_twice_or_unknown_appears_once() -> None:
    everything = catalog(deployment("a"), candidates=("a", "ghost", "a"))
    decision = decide(
        features(),
        everything.entrypoints["chat"],
        everything,
        HealthSnapshot(NOW, {}),
        now=NOW,
        rng=random.Random(1),  # noqa: S311 - breaks ties
    )

    assert names(decision) == ["a"]
    assert reasons(decision) == {"ghost": ExclusionReason.DISABLED}


DEPLOYMENTS = st.lists(
    st.builds(
        deployment,
        st.integers(0, 30).map("d{}".format),
        context_tokens=st.sampled_from([1_000, 4_000, 100_000]),
        max_output_tokens=st.sampled_from([100, 8_000]),
        enabled=st.booleans(),
        capabilities=st.builds(Capabilities, tools=st.booleans(), vision=st.booleans()),
    ),
    min_size=1,
    max_size=12,
    unique_by=lambda one: one.id,
)
HEALTH = st.builds(
    DeploymentHealth,
    configured=st.booleans(),
    ready=st.booleans(),
    breaker=st.sampled_from(BreakerState),
    breaker_until=st.one_of(st.none(), st.floats(NOW - 100, NOW + 100)),
    bench_until=st.one_of(st.none(), st.floats(NOW - 100, NOW + 100)),
    bench_kind=st.sampled_from([OutcomeKind.RATE_LIMITED, OutcomeKind.SLOT_BUSY]),
    probing=st.booleans(),
    health=st.floats(0, 1),
    ttft_s=st.one_of(st.none(), st.floats(0.01, 100)),
    tokens_per_s=st.one_of(st.none(), st.floats(0.01, 500)),
    in_flight=st.integers(0, 10),
    ramp=st.floats(0.1, 1),
    penalty_s=st.floats(0, 60),
)


@given(
    DEPLOYMENTS, st.lists(HEALTH, min_size=12, max_size=12), st.integers(0, 10_000), st.booleans(), st.data()
)
@settings(max_examples=80, deadline=None)
def test_everybody_is_candidate_or_exclusion_once_and_only_last_resorts_are_held_back(
    deployments: list[Deployment],
    healths: list[DeploymentHealth],
    characters: int,
    tools: bool,
    data: st.DataObject,
) -> None:
    known = dict(zip((one.id for one in deployments), healths, strict=False))
    health = HealthSnapshot(NOW, known)
    request = features(
        prompt_characters=characters,
        needs_tools=tools,
        wanted_output_tokens=data.draw(st.one_of(st.none(), st.integers(1, 20_000))),
    )
    decision = route(deployments, health, request=request)
    seen = names(decision) + list(reasons(decision))

    assert sorted(seen) == sorted(one.id for one in deployments)
    assert decision == route(deployments, health, request=request)
    by_id = {one.id: one for one in deployments}
    totals = [
        one.score.total for one in decision.candidates if not one.last_resort and one.output_limit is None
    ]
    assert all(first >= second - 0.001 for first, second in itertools.pairwise(totals))
    for candidate in decision.candidates:
        one, state = by_id[candidate.deployment_id], known[candidate.deployment_id]
        assert one.enabled
        assert state.configured
        assert state.ready or candidate.last_resort
        assert one.capabilities.tools or not tools
        assert 0.0 <= candidate.score.total <= 1.0
        held = (
            (state.bench_until or 0) > NOW
            or state.probing
            or not state.ready
            or (
                state.breaker is BreakerState.OPEN
                and (state.breaker_until is None or state.breaker_until > NOW)
            )
        )
        assert candidate.last_resort == held
        if held and (state.bench_until or 0) > NOW:
            assert state.bench_kind is OutcomeKind.SLOT_BUSY
    if any(candidate.last_resort for candidate in decision.candidates):
        assert decision.panic
        assert len(decision.candidates) <= FLOOR
    if not decision.candidates:
        assert ExclusionReason.BREAKER_OPEN not in reasons(decision).values()
