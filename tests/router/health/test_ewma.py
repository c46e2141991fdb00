from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.health.averages import PROMPT_SIZE_BOUNDS, Averages, SavedAverages, prompt_size_bucket
from router.health.ewma import DecayingPenalty, HealthEwma, PeakEwma

EVENTS = st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1000)), max_size=40)


@given(EVENTS)
def test_health_stays_between_0_and_1_whatever_happens(events: list[tuple[float, float]]) -> None:
    health, now = HealthEwma(), 0.0
    for sample, gap in events:
        now += gap
        health.observe(sample, now)

        assert 0.0 <= health.value(now) <= 1.0


@given(EVENTS, st.floats(0, 1e6))
def test_idle_health_moves_toward_its_prior_and_never_past_it(
    events: list[tuple[float, float]], idle: float
) -> None:
    health, now = HealthEwma(), 0.0
    for sample, gap in events:
        now += gap
        health.observe(sample, now)
    before, after = health.value(now), health.value(now + idle)

    assert abs(after - health.prior) <= abs(before - health.prior) + 1e-9
    assert (after - health.prior) * (before - health.prior) >= -1e-9


def test_health_halves_its_distance_to_the_prior_in_five_minutes() -> None:
    health = HealthEwma()
    for _ in range(200):
        health.observe(0.0, 0.0)

    assert health.value(0.0) == pytest.approx(0.0, abs=1e-3)
    assert health.value(300.0) == pytest.approx(0.4, abs=1e-3)
    assert health.value(86_400.0) == pytest.approx(0.8, abs=1e-3)


def test_twenty_failures_bring_health_to_about_a_third_of_its_prior() -> None:
    health = HealthEwma()
    for _ in range(20):
        health.observe(0.0, 0.0)

    assert health.value(0.0) == pytest.approx(0.8 / math.e)


@given(st.lists(st.tuples(st.floats(0.001, 1000), st.floats(0, 100)), min_size=1, max_size=30))
def test_a_time_jumps_up_at_once_and_stays_within_what_was_seen(samples: list[tuple[float, float]]) -> None:
    cost, now = PeakEwma(worse_is_higher=True), 0.0
    for sample, gap in samples:
        now += gap
        cost.observe(sample, now)
        value = cost.value(now)

        assert value is not None
        assert value >= sample * (1 - 1e-9)
    value = cost.value(now)
    assert value is not None
    assert min(s for s, _ in samples) * (1 - 1e-9) <= value <= max(s for s, _ in samples) * (1 + 1e-9)


def test_a_speed_drops_at_once_and_recovers_slowly() -> None:
    speed = PeakEwma(worse_is_higher=False)
    speed.observe(100.0, 0.0)
    speed.observe(10.0, 1.0)

    assert speed.value(1.0) == 10.0

    speed.observe(100.0, 2.0)
    assert 10.0 < (speed.value(2.0) or 0.0) < 30.0


@pytest.mark.parametrize("nonsense", [0.0, -1.0, math.inf, math.nan])
def test_nonsense_is_no_measurement(nonsense: float) -> None:
    cost = PeakEwma(worse_is_higher=True)
    cost.observe(nonsense, 0.0)

    assert cost.value(0.0) is None


def test_unknown_is_not_zero_and_idle_returns_to_the_prior() -> None:
    cost = PeakEwma(worse_is_higher=True)

    assert cost.value(0.0, 2.0) is None

    cost.observe(10.0, 0.0)
    assert cost.value(900.0, 2.0) == pytest.approx(6.0)


def test_failures_add_seconds_that_fade() -> None:
    penalty = DecayingPenalty()
    for _ in range(50):
        penalty.add(1.0, 0.0)

    assert penalty.value(0.0) == penalty.cap_s
    assert penalty.value(30.0) == pytest.approx(penalty.cap_s / 2)
    assert penalty.value(3600.0) == 0.0


def test_a_clock_that_steps_back_counts_as_no_time() -> None:
    health = HealthEwma()
    health.observe(0.0, 100.0)
    value = health.value(100.0)

    assert health.value(50.0) == value


def test_prompts_fall_into_five_buckets() -> None:
    assert [prompt_size_bucket(bound) for bound in (1, *PROMPT_SIZE_BOUNDS, 10**9)] == [0, 0, 1, 2, 3, 4]


def test_a_long_prompts_slow_start_says_nothing_about_short_ones() -> None:
    averages = Averages()
    averages.observe_ttft(100.0, 120_000, 0.0)

    assert averages.ttft[4].value(0.0) == 100.0
    assert averages.ttft[0].value(0.0) is None


def test_tokens_per_character_is_learnt_from_long_prompts_only_and_bounded() -> None:
    averages = Averages()
    averages.observe_ratio(50, 40)
    assert averages.tokens_per_character is None

    averages.observe_ratio(1000, 250)
    assert averages.tokens_per_character == 0.25

    averages.observe_ratio(1000, 100_000)
    assert averages.tokens_per_character == pytest.approx(0.25 + 1.75 * 0.1)


def test_averages_survive_saving() -> None:
    averages, restored = Averages(), Averages()
    averages.health.observe(0.0, 100.0)
    averages.observe_ttft(3.0, 10, 100.0)
    averages.observe_speed(40.0, 100.0)
    averages.observe_ratio(1000, 250)
    restored.restore(averages.export(), 100.0)

    assert restored.export() == averages.export()


def test_saved_nonsense_is_ignored() -> None:
    averages = Averages()
    averages.restore(
        SavedAverages({"ttft_0": (-1.0, 0.0), "speed": (math.nan, 0.0), "other": (1.0, 1.0)}), 1.0
    )

    assert averages.export() == SavedAverages({})
