from __future__ import annotations

import random
from collections.abc import Collection

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.health.outcome import Outcome, OutcomeKind, Scope
from router.health.snapshot import BreakerState
from router.judge.standing import JudgePermit, JudgeStanding

NOW = 1_000.0
GOOD = Outcome(OutcomeKind.SUCCESS, Scope.NONE)
LATE = Outcome(OutcomeKind.TIMED_OUT, Scope.MODEL, "late")
LIMITED = Outcome(OutcomeKind.RATE_LIMITED, Scope.KEY_MODEL, "slow down", bench_s=120.0)
BROKEN = Outcome(OutcomeKind.UPSTREAM_FAILURE, Scope.MODEL, "oops")
LEFT = Outcome(OutcomeKind.CLIENT_LEFT, Scope.NONE)


def standing(*candidates: str) -> JudgeStanding:
    return JudgeStanding(candidates or ("a",), open_s=30.0, timeout_s=3.0, rng=random.Random(1))  # noqa: S311 - jitter


def admitted(judge: JudgeStanding, now: float = NOW, usable: Collection[str] = "abc") -> JudgePermit:
    permit = judge.admit(now, usable)
    assert permit is not None
    return permit


def test_the_first_who_may_be_asked_is_asked() -> None:
    judge = standing("a", "b")

    assert admitted(judge).deployment_id == "a"
    assert admitted(judge, usable="b").deployment_id == "b"
    assert judge.admit(NOW, "") is None


@pytest.mark.parametrize("outcome", [LATE, BROKEN])
def test_one_failure_leaves_a_candidate_alone_for_the_configured_time(outcome: Outcome) -> None:
    judge = standing()
    judge.settle(admitted(judge), outcome, NOW)

    assert judge.admit(NOW + 23.0, "a") is None
    assert judge.admit(NOW + 37.0, "a") is not None


def test_the_next_request_asks_the_next_candidate() -> None:
    judge = standing("a", "b")
    judge.settle(admitted(judge), BROKEN, NOW)

    assert admitted(judge).deployment_id == "b"


def test_what_the_upstream_states_is_waited_for_and_a_shorter_word_changes_nothing() -> None:
    judge = standing()
    early = admitted(judge)
    judge.settle(admitted(judge), LIMITED, NOW)
    judge.settle(early, Outcome(OutcomeKind.RATE_LIMITED, Scope.KEY_MODEL, bench_s=5.0), NOW)

    assert judge.admit(NOW + 119.0, "a") is None
    assert judge.admit(NOW + 121.0, "a") is not None


def test_half_open_admits_one_probe_whatever_the_crowd() -> None:
    judge = standing()
    judge.settle(admitted(judge), LATE, NOW)
    crowd = [judge.admit(NOW + 40.0, "a") for _ in range(50)]

    assert [permit is not None for permit in crowd] == [True] + [False] * 49


def test_a_probe_that_succeeds_opens_the_lane_to_all_and_a_late_failure_changes_nothing() -> None:
    judge = standing()
    late = admitted(judge)
    judge.settle(admitted(judge), LATE, NOW)
    judge.settle(admitted(judge, NOW + 40.0), GOOD, NOW + 41.0)
    judge.settle(late, LATE, NOW + 42.0)

    assert judge.admit(NOW + 42.0, "a") is not None
    assert judge.view(NOW + 42.0).candidates[0].breaker is BreakerState.CLOSED


def test_a_probe_whose_client_left_frees_its_place() -> None:
    judge = standing()
    judge.settle(admitted(judge), LATE, NOW)
    judge.settle(admitted(judge, NOW + 40.0), LEFT, NOW + 41.0)

    assert judge.admit(NOW + 41.0, "a") is not None


def test_two_in_a_row_that_nobody_answered_close_the_lane_to_all() -> None:
    judge = standing("a", "b", "c")
    judge.settle(admitted(judge), LATE, NOW)
    judge.settle(admitted(judge), LATE, NOW)

    assert judge.admit(NOW, "abc") is None
    assert judge.view(NOW).breaker is BreakerState.OPEN
    assert judge.view(NOW).candidates[2].breaker is BreakerState.CLOSED


def test_refusals_that_come_at_once_do_not_close_the_lane() -> None:
    judge = standing("a", "b", "c")
    for _ in range(2):
        judge.settle(admitted(judge), LIMITED, NOW)

    assert admitted(judge).deployment_id == "c"


def test_one_answer_without_a_verdict_is_forgiven_and_two_in_a_row_are_not() -> None:
    judge = standing()
    judge.malformed(admitted(judge), NOW)
    judge.malformed(admitted(judge), NOW)

    assert judge.admit(NOW, "a") is None
    assert judge.view(NOW).candidates[0].last_error == "malformed: the answer holds no verdict"


KINDS = [GOOD, LATE, LIMITED, BROKEN, LEFT, Outcome(OutcomeKind.GATEWAY_DEFECT, Scope.NONE)]
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["admit", "settle", "malformed", "release"]), st.integers(0, 5), st.floats(0, 60)
    ),
    max_size=80,
)


@given(STEPS)
def test_permits_and_calls_add_up_and_an_open_lane_gives_none(steps: list[tuple[str, int, float]]) -> None:
    judge, now = standing("a", "b"), NOW
    out: list[JudgePermit] = []
    for what, number, passed in steps:
        now += passed
        if what == "admit":
            was_open = judge.view(now).breaker is BreakerState.OPEN
            permit = judge.admit(now, "ab")
            assert not (was_open and permit is not None)
            out += [permit] if permit is not None else []
        elif out:
            permit = out.pop(number % len(out))
            if what == "settle":
                judge.settle(permit, KINDS[number], now)
            elif what == "malformed":
                judge.malformed(permit, now)
            else:
                judge.release(permit)
        assert judge.view(now).in_flight == len(out)
    for permit in out:
        judge.release(permit)
    view = judge.view(now)
    assert view.in_flight == 0
    # Whatever happened, the lane is there again once everybody has been left alone for long enough.
    assert judge.admit(now + 4_000.0, "ab") is not None
