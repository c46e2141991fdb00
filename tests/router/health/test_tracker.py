from __future__ import annotations

import json
import random
from dataclasses import replace
from typing import Any

import pytest

from router.errors import UpstreamStatus, UpstreamUnreachable
from router.health.classify import classify
from router.health.outcome import Outcome, OutcomeKind, Provenance, Scope
from router.health.snapshot import BreakerState, DeploymentHealth, ProviderCondition
from router.health.state import HealthState, health_state_from_json, health_state_to_json
from router.health.tracker import HealthTracker, Permit

from .conftest import MakeCatalog, deployment

SUCCESS = Outcome(OutcomeKind.SUCCESS, Scope.NONE, try_next=False, ttft_s=0.4, tokens_per_s=50.0)
CRASH = Outcome(OutcomeKind.UPSTREAM_FAILURE, Scope.MODEL, "HTTP 500", breaker_weight=1.0, http_status=500)
GONE = classify(UpstreamUnreachable("connection refused"), now=0.0)
LEFT = Outcome(OutcomeKind.CLIENT_LEFT, Scope.NONE, try_next=False)


def limited(seconds: float, scope: Scope = Scope.KEY_MODEL) -> Outcome:
    return Outcome(
        OutcomeKind.RATE_LIMITED,
        scope,
        "slow down",
        bench_s=seconds,
        http_status=429,
        bench_from=Provenance.STATED,
    )


def take(tracker: HealthTracker, name: str, now: float, **how: Any) -> Permit:
    permit = tracker.acquire(name, now, **how)
    assert permit is not None
    return permit


def health(tracker: HealthTracker, name: str, now: float) -> DeploymentHealth:
    return tracker.snapshot(now, {}).deployments[name]


def crash(tracker: HealthTracker, name: str, now: float, outcome: Outcome = CRASH, times: int = 5) -> None:
    for _ in range(times):
        tracker.settle(take(tracker, name, now), outcome, now)


def test_a_permit_is_settled_exactly_once(tracker: HealthTracker) -> None:
    permit = take(tracker, "a-big", 0.0)

    assert health(tracker, "a-big", 0.0).in_flight == 1
    assert tracker.settle(permit, SUCCESS, 1.0)
    assert not tracker.settle(permit, CRASH, 1.0)
    assert not tracker.release(permit)
    seen = health(tracker, "a-big", 1.0)
    assert (seen.in_flight, seen.successes, seen.failures) == (0, 1, 0)
    assert tracker.in_flight == 0


def test_a_client_that_leaves_benches_nobody(tracker: HealthTracker) -> None:
    before = health(tracker, "a-big", 0.0)
    tracker.release(take(tracker, "a-big", 0.0))
    tracker.settle(take(tracker, "a-big", 0.0), LEFT, 1.0)

    assert health(tracker, "a-big", 0.0) == before


def test_an_unknown_deployment_gets_no_permit(tracker: HealthTracker) -> None:
    assert tracker.acquire("nobody", 0.0) is None


def test_a_rate_limit_benches_key_and_model_but_no_sibling_and_no_breaker(tracker: HealthTracker) -> None:
    for _ in range(20):
        permit = tracker.acquire("a-big", 0.0)
        if permit is not None:
            tracker.settle(permit, limited(42.0), 0.0)

    assert tracker.acquire("a-big", 41.9) is None
    assert take(tracker, "a-small", 1.0)
    seen = health(tracker, "a-big", 1.0)
    assert seen.breaker is BreakerState.CLOSED
    assert (seen.bench_until, seen.bench_kind) == (42.0, OutcomeKind.RATE_LIMITED)


def test_a_second_shorter_limit_never_shortens_the_bench(tracker: HealthTracker) -> None:
    first, second = take(tracker, "a-big", 0.0), take(tracker, "a-big", 0.0)
    tracker.settle(first, limited(60.0), 1.0)
    tracker.settle(second, limited(1.0), 2.0)

    assert health(tracker, "a-big", 2.0).bench_until == 61.0


def test_after_a_bench_exactly_one_probe_then_all(tracker: HealthTracker) -> None:
    tracker.settle(take(tracker, "a-big", 0.0), limited(10.0), 0.0)

    probe = take(tracker, "a-big", 10.0)
    assert probe.probe
    assert tracker.acquire("a-big", 10.0) is None
    assert health(tracker, "a-big", 10.0).probing
    tracker.settle(probe, SUCCESS, 12.0)
    assert not take(tracker, "a-big", 12.0).probe
    assert health(tracker, "a-big", 12.0).bench_until is None


def test_first_content_proves_a_probe_long_before_its_end(tracker: HealthTracker) -> None:
    crash(tracker, "a-big", 0.0)
    until = health(tracker, "a-big", 0.0).breaker_until or 0.0
    probe = take(tracker, "a-big", until)
    tracker.observe_first_event(probe, 0.5, until + 0.5)

    assert health(tracker, "a-big", until + 0.5).breaker is BreakerState.CLOSED
    assert take(tracker, "a-big", until + 0.5)
    for _ in range(4):
        tracker.settle(take(tracker, "a-big", until + 1), CRASH, until + 1)
    tracker.settle(probe, CRASH, until + 60)
    assert health(tracker, "a-big", until + 60).breaker is BreakerState.OPEN


def test_two_keys_take_turns_and_one_limit_benches_one_key(make_catalog: MakeCatalog) -> None:
    catalog = make_catalog(deployment("a", "acme"), deployment("b", "acme"), keys={"acme": ("K1", "K2")})
    tracker = HealthTracker(catalog, rng=random.Random(1))  # noqa: S311 - jitter
    tracker.configure_keys("acme", ["K1", "K2"])
    used = []
    for _ in range(4):
        permit = take(tracker, "a", 0.0)
        used.append(permit.key_label)
        tracker.settle(permit, SUCCESS, 0.0)

    assert used == ["K1", "K2", "K1", "K2"]

    tracker.settle(take(tracker, "a", 1.0), limited(30.0), 1.0)
    assert {take(tracker, "a", 2.0).key_label for _ in range(3)} == {"K2"}
    assert health(tracker, "a", 2.0).bench_until is None
    assert {take(tracker, "b", 2.0).key_label for _ in range(3)} >= {"K1"}

    tracker.settle(take(tracker, "a", 3.0), limited(10.0), 3.0)
    assert tracker.acquire("a", 4.0) is None
    assert health(tracker, "a", 4.0).bench_until == 13.0
    assert take(tracker, "a", 13.0).key_label == "K2"


def test_what_is_forgotten_is_dropped_from_the_book(tracker: HealthTracker) -> None:
    tracker.settle(take(tracker, "a-big", 0.0), limited(10.0), 0.0)
    tracker.snapshot(1.0, {})
    assert tracker.export().benches

    tracker.snapshot(10_000.0, {})
    assert not tracker.export().benches


def test_a_refused_key_benches_every_model_of_it_and_no_other_provider(tracker: HealthTracker) -> None:
    refused = classify(UpstreamStatus("no", upstream_status=401), now=0.0)
    tracker.settle(take(tracker, "a-big", 0.0), refused, 0.0)

    assert tracker.acquire("a-small", 1.0) is None
    assert take(tracker, "b-big", 1.0)
    assert health(tracker, "a-small", 1.0).bench_kind is OutcomeKind.BAD_CREDENTIALS


def test_no_balance_is_benched_to_the_stated_date(tracker: HealthTracker) -> None:
    now = 1_798_761_600.0
    error = UpstreamStatus(
        "You have reached your specified API usage limits. You will regain access on 2027-01-16.",
        upstream_status=400,
    )
    tracker.settle(take(tracker, "a-big", now), classify(error, now=now), now)

    assert health(tracker, "a-big", now + 1).bench_until == now + 15 * 86_400.0


def test_a_breaker_is_one_models_and_an_unreachable_provider_opens_for_all_its_models(
    tracker: HealthTracker,
) -> None:
    crash(tracker, "a-big", 0.0)
    assert health(tracker, "a-big", 0.0).breaker is BreakerState.OPEN
    assert health(tracker, "a-small", 0.0).breaker is BreakerState.CLOSED

    crash(tracker, "a-small", 0.0, GONE, times=3)
    tracker.settle(take(tracker, "b-big", 0.0), GONE, 0.0)
    assert health(tracker, "a-small", 0.0).breaker is BreakerState.CLOSED
    crash(tracker, "a-small", 0.0, GONE, times=2)
    assert health(tracker, "a-small", 0.0).breaker is BreakerState.OPEN
    assert health(tracker, "b-big", 0.0).breaker is BreakerState.CLOSED


def test_a_fast_refusal_feeds_the_penalty_and_no_speed(tracker: HealthTracker) -> None:
    tracker.settle(take(tracker, "a-big", 0.0), limited(1.0), 0.005)
    seen = health(tracker, "a-big", 0.01)

    assert seen.penalty_s == pytest.approx(5.0, abs=0.01)
    assert seen.ttft_s is None
    assert seen.tokens_per_s is None


def test_a_success_is_measured_in_its_prompts_bucket(tracker: HealthTracker) -> None:
    tracker.settle(take(tracker, "a-big", 0.0, prompt_tokens=20_000), SUCCESS, 1.0)
    seen = health(tracker, "a-big", 1.0)

    assert seen.ttft_by_size_s[3] == pytest.approx(0.4)
    assert seen.ttft_by_size_s[0] is None
    assert seen.tokens_per_s == pytest.approx(50.0)


def test_a_busy_local_engine_is_back_in_five_seconds(tracker: HealthTracker) -> None:
    timeout = Outcome(OutcomeKind.TIMED_OUT, Scope.MODEL, "slow", breaker_weight=0.5)
    for _ in range(2):
        tracker.settle(take(tracker, "here", 0.0, last_resort=True), timeout, 0.0)
    seen = health(tracker, "here", 0.0)

    assert seen.bench_until is not None
    assert seen.bench_until <= 5.0
    assert seen.bench_kind is not OutcomeKind.RATE_LIMITED
    assert take(tracker, "here", 5.0)


def test_a_last_resort_passes_breaker_and_busy_slot_but_no_stated_limit(tracker: HealthTracker) -> None:
    crash(tracker, "a-big", 0.0)
    tracker.settle(take(tracker, "b-big", 0.0), limited(60.0), 0.0)
    tracker.settle(take(tracker, "here", 0.0), limited(60.0), 0.0)

    assert tracker.acquire("a-big", 1.0) is None
    assert take(tracker, "a-big", 1.0, last_resort=True).last_resort
    assert tracker.acquire("here", 1.0) is None
    assert take(tracker, "here", 1.0, last_resort=True)
    assert tracker.acquire("b-big", 1.0, last_resort=True) is None


def test_a_named_window_is_learnt_for_a_day(tracker: HealthTracker) -> None:
    error = UpstreamStatus(
        "This model's maximum context length is 8192 tokens. However, you requested 9000.",
        upstream_status=400,
    )
    tracker.settle(take(tracker, "a-big", 0.0), classify(error, now=0.0), 0.0)

    assert health(tracker, "a-big", 1.0).learned_context_tokens == 8192
    assert health(tracker, "a-big", 1.0).bench_until is None
    assert health(tracker, "a-big", 90_000.0).learned_context_tokens is None


def test_tokens_per_character_is_learnt_from_usage(tracker: HealthTracker) -> None:
    tracker.observe_usage("a-big", 4000, 1000)
    tracker.observe_usage("nobody", 4000, 1000)

    assert health(tracker, "a-big", 0.0).tokens_per_character == 0.25


def test_statuses_say_who_is_configured_and_ready(tracker: HealthTracker) -> None:
    statuses = {
        "acme": ProviderCondition(configured=False, detail="ACME_KEY is not set"),
        "local": ProviderCondition(ready=False, detail="loading", expected_wait_s=12.0),
    }
    seen = tracker.snapshot(0.0, statuses).deployments

    assert not seen["a-big"].configured
    assert seen["a-big"].unconfigured_reason == "ACME_KEY is not set"
    assert (seen["here"].ready, seen["here"].expected_wait_s) == (False, 12.0)
    assert seen["b-big"].configured
    assert tracker.snapshot(0.01, {}).deployments["a-big"].configured


def test_a_provider_told_to_have_no_keys_is_unconfigured(tracker: HealthTracker) -> None:
    tracker.configure_keys("acme", [])
    tracker.configure_keys("local", [])

    assert not health(tracker, "a-big", 0.0).configured
    assert health(tracker, "here", 0.0).configured


def test_views_are_reused_until_something_happens(tracker: HealthTracker) -> None:
    first = tracker.snapshot(0.0, {}).deployments
    permit = take(tracker, "a-big", 0.05)
    second = tracker.snapshot(0.1, {}).deployments

    assert second["b-big"] is first["b-big"]
    assert second["a-big"].in_flight == 1
    tracker.settle(permit, limited(0.05 + 0.01), 0.1)
    assert health(tracker, "a-big", 0.11).bench_until is not None
    assert (
        health(tracker, "a-big", 0.2).bench_until is None or health(tracker, "a-big", 0.2).bench_until <= 0.2
    )


def test_incidents_say_what_happened_and_only_the_last_fifty_are_kept(tracker: HealthTracker) -> None:
    crash(tracker, "a-big", 0.0)
    for step in range(60):
        limit = replace(limited(1.0 + step), detail=f"slow down, {step}")
        tracker.settle(take(tracker, "b-big", 100.0 * step), limit, 100.0 * step)
    incidents = tracker.incidents()

    assert len(incidents) == 50
    assert incidents[-1].deployment_id == "b-big"
    assert incidents[-1].until == pytest.approx(5900.0 + 60.0)
    assert incidents[-1].why == "slow down, 59"


def test_an_incident_that_repeats_is_kept_once(tracker: HealthTracker) -> None:
    for step in range(60):
        tracker.settle(take(tracker, "b-big", 100.0 * step), limited(1.0), 100.0 * step)

    assert len(tracker.incidents()) == 1


def test_state_survives_a_restart_through_json(make_catalog: MakeCatalog, tracker: HealthTracker) -> None:
    now = 1_798_761_600.0
    crash(tracker, "a-big", now)
    tracker.settle(take(tracker, "a-small", now), limited(100.0), now)
    tracker.settle(take(tracker, "b-big", now, prompt_tokens=10), SUCCESS, now)
    tracker.observe_usage("b-big", 1000, 250)
    text = json.dumps(health_state_to_json(tracker.export()))
    again = HealthTracker(
        make_catalog(deployment("a-big", "acme"), deployment("a-small", "acme"), deployment("b-big", "beta")),
        rng=random.Random(9),  # noqa: S311 - jitter
    )
    again.restore(health_state_from_json(json.loads(text)), now + 1)
    seen = again.snapshot(now + 1, {}).deployments

    assert seen["a-big"].breaker is BreakerState.OPEN
    assert seen["a-big"].breaker_until == health(tracker, "a-big", now + 1).breaker_until
    assert (seen["a-small"].bench_until, seen["a-small"].bench_reason) == (now + 100.0, "slow down")
    assert seen["b-big"].ttft_by_size_s[0] == pytest.approx(0.4, rel=0.01)
    assert seen["b-big"].tokens_per_character == 0.25
    assert seen["a-big"].health == pytest.approx(health(tracker, "a-big", now + 1).health)


@pytest.mark.parametrize(
    "data",
    [
        None,
        [],
        {},
        {"version": 2, "benches": []},
        {
            "version": 1,
            "benches": [{"scope": "nonsense"}, 3],
            "deployments": [{"deployment_id": 5}],
            "providers": 7,
        },
        {"version": 1, "deployments": [{"deployment_id": "a", "provider": "p", "upstream_model": "m"}]},
    ],
    ids=str,
)
def test_a_damaged_state_is_an_empty_one(data: Any) -> None:
    assert health_state_from_json(data) == HealthState()


def test_a_bench_saved_by_a_wrong_clock_is_cut_to_a_month(tracker: HealthTracker) -> None:
    tracker.settle(take(tracker, "a-big", 4e9), limited(60.0), 4e9)
    state = tracker.export()
    fresh_now = 1_798_761_600.0
    tracker.restore(state, fresh_now)

    assert (health(tracker, "a-big", fresh_now).bench_until or 0.0) <= fresh_now + 31 * 86_400.0


def test_a_changed_catalog_keeps_state_by_name_and_late_results_do_no_harm(
    make_catalog: MakeCatalog, tracker: HealthTracker
) -> None:
    crash(tracker, "a-big", 0.0)
    removed, changed = take(tracker, "b-big", 0.0), take(tracker, "a-small", 0.0)
    tracker.retune(
        make_catalog(
            deployment("a-big", "acme", context_tokens=5),
            deployment("a-small", "acme", upstream_model="other"),
            deployment("new", "gamma"),
        )
    )
    seen = tracker.snapshot(0.0, {}).deployments

    assert set(seen) == {"a-big", "a-small", "new"}
    assert seen["a-big"].breaker is BreakerState.OPEN
    assert seen["a-small"].in_flight == 0
    assert tracker.settle(removed, CRASH, 1.0)
    assert tracker.settle(changed, CRASH, 1.0)
    assert health(tracker, "a-small", 1.0).failures == 0
    assert tracker.in_flight == 0
