"""How long the slot is still taken."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.providers.wait_estimate import Job, Progress, Speeds, remaining_s, service_s, wait_s

SPEEDS = Speeds(prefill=100.0, decode=20.0, typical_output=200.0)


def test_a_job_takes_its_prompt_and_its_answer() -> None:
    assert service_s(Job(1_000), SPEEDS) == pytest.approx(10.0 + 10.0)
    assert service_s(Job(1_000, output_limit=20), SPEEDS) == pytest.approx(10.0 + 1.0)


def test_what_runs_needs_what_is_left_of_both() -> None:
    assert remaining_s(Progress(0, 500), SPEEDS) == pytest.approx(5.0 + 10.0)
    assert remaining_s(Progress(150, 0), SPEEDS) == pytest.approx(75 / 20)
    assert remaining_s(Progress(150, 0, output_left=10), SPEEDS) == pytest.approx(0.5)


def test_an_answer_longer_than_usual_goes_on_for_half_as_long_again() -> None:
    assert remaining_s(Progress(1_000, 0), SPEEDS) == pytest.approx(500 / 20)


@pytest.mark.parametrize(
    ("running", "ahead", "slots", "expected"),
    [
        ([], [], 1, 0.0),
        ([5.0], [], 2, 0.0),
        ([5.0], [], 1, 5.0),
        ([5.0], [3.0, 4.0], 1, 12.0),
        ([5.0, 1.0], [3.0, 4.0], 2, 5.0),
    ],
)
def test_the_wait_is_until_a_slot_is_free_behind_those_ahead(
    running: list[float], ahead: list[float], slots: int, expected: float
) -> None:
    assert wait_s(running, ahead, slots) == pytest.approx(expected)


def test_rates_are_learnt_and_short_answers_say_nothing_of_them() -> None:
    speeds = SPEEDS
    for _ in range(40):
        speeds = speeds.after_prefill(1_000, 2.0).after_decode(100, 10.0).after_answer(50)

    assert speeds.prefill == pytest.approx(500, rel=0.01)
    assert speeds.decode == pytest.approx(10, rel=0.01)
    assert speeds.typical_output == pytest.approx(50, rel=0.01)
    assert speeds.after_decode(2, 100.0).after_prefill(3, 100.0) == speeds
    assert speeds.measured(0.0, 44.0) == Speeds(speeds.prefill, 44.0, speeds.typical_output)


@given(st.lists(st.floats(0, 1e4), max_size=4), st.lists(st.floats(0, 1e4), max_size=8), st.floats(0, 1e4))
def test_one_more_ahead_never_makes_the_wait_shorter(
    running: list[float], ahead: list[float], more: float
) -> None:
    assert wait_s(running, [*ahead, more], 4) >= wait_s(running, ahead, 4)
