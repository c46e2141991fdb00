from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.health.breaker import Breaker, BreakerPermit, BreakerSettings
from router.health.snapshot import BreakerState

RNG = random.Random(7)  # noqa: S311 - jitter
STEADY = BreakerSettings(jitter=0.0)


def admitted(breaker: Breaker, now: float, *, last_resort: bool = False) -> BreakerPermit:
    permit = breaker.admit(now, last_resort=last_resort)
    assert permit is not None
    return permit


def tripped(now: float = 0.0, settings: BreakerSettings = STEADY) -> Breaker:
    breaker = Breaker(settings)
    for _ in range(5):
        breaker.fail(admitted(breaker, now), 1.0, now, RNG)
    assert breaker.state(now) is BreakerState.OPEN
    return breaker


def test_five_failures_in_a_row_open_it_also_alone() -> None:
    breaker = Breaker(STEADY)
    opened = [breaker.fail(admitted(breaker, 0.0), 1.0, 0.0, RNG) for _ in range(5)]

    assert opened == [False, False, False, False, True]
    assert breaker.open_until == 10.0


def test_one_blip_among_successes_does_not_open_it() -> None:
    breaker = Breaker(STEADY)
    for step in range(200):
        permit = admitted(breaker, float(step))
        if step % 10 == 0:
            breaker.fail(permit, 1.0, float(step), RNG)
        else:
            breaker.succeed(permit, float(step))

    assert breaker.state(200.0) is BreakerState.CLOSED


def test_half_of_the_calls_failing_opens_it_though_never_five_in_a_row() -> None:
    breaker = Breaker(STEADY)
    for step in range(12):
        permit = breaker.admit(0.0)
        if permit is None:
            break
        if step % 3 == 0:
            breaker.succeed(permit, 0.0)
        else:
            breaker.fail(permit, 1.0, 0.0, RNG)

    assert breaker.state(0.0) is BreakerState.OPEN


def test_half_weight_failures_need_twice_as_many() -> None:
    breaker = Breaker(STEADY)
    count = 0
    while breaker.state(0.0) is BreakerState.CLOSED:
        breaker.fail(admitted(breaker, 0.0), 0.5, 0.0, RNG)
        count += 1

    assert count == 10


def test_half_open_admits_one_probe() -> None:
    breaker = tripped()

    assert breaker.admit(9.9) is None
    probe = admitted(breaker, 10.0)
    assert probe.probe
    assert breaker.state(10.0) is BreakerState.HALF_OPEN
    assert breaker.admit(10.0) is None
    assert breaker.probing(10.0)


def test_a_probes_success_closes_it_and_a_ramp_begins() -> None:
    breaker = tripped()

    assert breaker.succeed(admitted(breaker, 10.0), 11.0)
    assert breaker.state(11.0) is BreakerState.CLOSED
    assert breaker.ramp(11.0) == pytest.approx(0.1)
    assert breaker.ramp(26.0) == pytest.approx(0.55)
    assert breaker.ramp(41.0) == 1.0


def test_a_failed_probe_doubles_the_open_time_up_to_the_cap() -> None:
    breaker, now, lengths = tripped(), 0.0, []
    for _ in range(8):
        now = breaker.open_until or 0.0
        breaker.fail(admitted(breaker, now), 0.5, now, RNG)
        lengths.append((breaker.open_until or 0.0) - now)

    assert lengths == [20.0, 40.0, 80.0, 160.0, 300.0, 300.0, 300.0, 300.0]


def test_health_shortens_the_next_opening_again() -> None:
    breaker = tripped()
    for now in (10.0, 30.0, 70.0):
        breaker.fail(admitted(breaker, now), 1.0, now, RNG)
    breaker.succeed(admitted(breaker, 150.0), 150.0)
    later = 150.0 + 3 * 300.0
    breaker.succeed(admitted(breaker, later), later)
    while breaker.state(later) is BreakerState.CLOSED:
        breaker.fail(admitted(breaker, later), 1.0, later, RNG)

    assert (breaker.open_until or 0.0) - later == pytest.approx(10.0 * 2**0.5)


def test_a_late_result_of_an_older_generation_changes_nothing() -> None:
    breaker = Breaker(STEADY)
    slow_success, slow_failure = admitted(breaker, 0.0), admitted(breaker, 0.0)
    for _ in range(5):
        breaker.fail(admitted(breaker, 0.0), 1.0, 0.0, RNG)

    assert not breaker.succeed(slow_success, 5.0)
    assert not breaker.fail(slow_failure, 1.0, 5.0, RNG)
    assert breaker.state(5.0) is BreakerState.OPEN
    assert breaker.open_until == 10.0


def test_a_superseded_probes_result_changes_nothing() -> None:
    breaker = tripped()
    lost = admitted(breaker, 10.0)
    much_later = 10.0 + STEADY.probe_lease_s
    second = admitted(breaker, much_later)

    assert second.probe
    assert not breaker.succeed(lost, much_later)
    assert not breaker.fail(lost, 1.0, much_later, RNG)
    assert breaker.state(much_later) is BreakerState.HALF_OPEN
    assert breaker.succeed(second, much_later)


def test_a_released_probe_frees_its_place() -> None:
    breaker = tripped()
    breaker.release(admitted(breaker, 10.0))

    assert admitted(breaker, 10.0).probe


def test_a_last_resort_passes_while_open_and_its_success_closes() -> None:
    breaker = tripped()
    first, second = admitted(breaker, 1.0, last_resort=True), admitted(breaker, 1.0, last_resort=True)

    assert first.last_resort
    assert not breaker.fail(first, 1.0, 2.0, RNG)
    assert breaker.open_until == 10.0
    assert breaker.succeed(second, 3.0)
    assert breaker.state(3.0) is BreakerState.CLOSED


def test_an_opening_survives_a_restart_and_a_wrong_clock_cannot_make_it_endless() -> None:
    saved = tripped().export()
    assert saved is not None
    restored, skewed = Breaker(STEADY), Breaker(STEADY)
    restored.restore(saved, 4.0)
    skewed.restore(saved, -1e9)

    assert restored.state(4.0) is BreakerState.OPEN
    assert restored.open_until == 10.0
    assert skewed.open_until == -1e9 + 300.0
    assert Breaker(STEADY).export() is None


@given(st.randoms(use_true_random=False), st.integers(0, 30))
def test_jitter_stays_within_a_fifth(rng: random.Random, failures: int) -> None:
    breaker, now = Breaker(), 0.0
    for _ in range(5):
        breaker.fail(admitted(breaker, now), 1.0, now, rng)
    for count in range(failures):
        now = breaker.open_until or 0.0
        breaker.fail(admitted(breaker, now), 1.0, now, rng)
        plain = min(300.0, 10.0 * 2.0 ** min(count + 1, 16))

        assert plain * 0.8 - 1e-6 <= (breaker.open_until or 0.0) - now <= plain * 1.2 + 1e-6


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["admit", "last", "ok", "fail", "release"]), st.integers(0, 9), st.floats(0, 40)
    ),
    max_size=80,
)


@given(STEPS, st.randoms(use_true_random=False))
@settings(deadline=None)
def test_whatever_happens_one_probe_no_deadline_nearer_and_never_stuck(
    steps: list[tuple[str, int, float]], rng: random.Random
) -> None:
    breaker, now = Breaker(), 0.0
    out: list[BreakerPermit] = []
    probes: set[int] = set()
    for step, index, gap in steps:
        now += gap
        until, state = breaker.open_until, breaker.state(now)
        if step in {"admit", "last"}:
            permit = breaker.admit(now, last_resort=step == "last")
            if permit is None:
                assert state is not BreakerState.CLOSED
                continue
            out.append(permit)
            if permit.probe:
                assert state is BreakerState.HALF_OPEN
                probes.add(permit.number)
        elif out:
            permit = out.pop(index % len(out))
            if step == "ok":
                breaker.succeed(permit, now)
            elif step == "fail":
                breaker.fail(permit, 1.0, now, rng)
            else:
                breaker.release(permit)
        if until is not None and breaker.open_until is not None:
            assert breaker.open_until >= until
    far = now + 1e6
    assert breaker.admit(far) is not None
