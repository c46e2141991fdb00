from __future__ import annotations

import pytest

from router.chat.features import RequestFeatures
from router.dispatch.deadlines import attempt_deadlines
from tests.fakes.provider import make_catalog, make_deployment

DEPLOYMENT = make_deployment("a", "a", tokens_per_character=0.25)
LIMITS = make_catalog(DEPLOYMENT, total_timeout_s=1_800.0).limits


def features(tokens: int) -> RequestFeatures:
    return RequestFeatures("chat", tokens * 4, None)


def test_a_long_prompt_may_be_read_in_peace() -> None:
    short = attempt_deadlines(LIMITS, features(100), DEPLOYMENT, is_local=False)
    long = attempt_deadlines(LIMITS, features(100_000), DEPLOYMENT, is_local=False)

    assert short.first_event_s == pytest.approx(30, abs=1)
    assert long.first_event_s > 100
    assert long.stall_s == short.stall_s == 20


def test_an_engine_on_this_machine_reads_slower_and_may_be_queued_for() -> None:
    deadlines = attempt_deadlines(LIMITS, features(3_000), DEPLOYMENT, is_local=True, expected_wait_s=40)

    assert deadlines.first_event_s == pytest.approx(30 + 200 + 40, abs=1)


def test_a_deployment_known_to_be_slow_gets_more() -> None:
    slow = make_deployment("b", "b", expected_ttft_s=60.0)

    assert attempt_deadlines(LIMITS, features(1), slow, is_local=False).first_event_s >= 240


def test_nothing_outlasts_what_is_left_of_the_request() -> None:
    deadlines = attempt_deadlines(LIMITS, features(100_000), DEPLOYMENT, is_local=True, remaining_s=12.0)

    assert deadlines.total_s == 12
    assert deadlines.first_event_s == 12
    assert deadlines.stall_s == 12
    assert deadlines.connect_s == 5


def test_a_request_without_time_left_gets_none_but_no_nonsense() -> None:
    assert attempt_deadlines(LIMITS, features(1), DEPLOYMENT, is_local=False, remaining_s=-5.0).total_s > 0
