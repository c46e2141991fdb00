from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.dispatch.attempt import Attempt
from router.health.outcome import Outcome, OutcomeKind, Scope
from router.routing.candidate import Candidate, Exclusion, ExclusionReason, RoutingDecision, Score
from router.routing.exhaustion import exhausted

from .conftest import NOW, features

K, R = OutcomeKind, ExclusionReason


def out(name: str, reason: ExclusionReason, until: float | None = None, kind: K | None = None) -> Exclusion:
    return Exclusion(name, reason, "because", None if until is None else NOW + until, kind)


def tried(name: str, kind: OutcomeKind, bench_s: float = 0.0, status: int | None = None) -> Attempt:
    scope = Scope.REQUEST if kind in {K.BAD_REQUEST, K.CONTEXT_TOO_LONG, K.CONTENT_FILTERED} else Scope.MODEL
    outcome = Outcome(kind, scope, f"{name} said no", bench_s=bench_s, http_status=status)
    return Attempt(1, name, NOW, 0.1, outcome)


def decision(candidates: tuple[str, ...] = (), exclusions: tuple[Exclusion, ...] = ()) -> RoutingDecision:
    return RoutingDecision(
        "chat", features(), tuple(Candidate(name, Score(())) for name in candidates), exclusions, NOW
    )


@pytest.mark.parametrize(
    ("exclusions", "attempts", "status", "code", "retry_after"),
    [
        (
            [],
            [tried("a", K.BAD_CREDENTIALS), tried("b", K.NO_BALANCE)],
            502,
            "upstream_credentials_exhausted",
            None,
        ),
        (
            [out("b", R.BENCHED, 300, K.BAD_CREDENTIALS), out("c", R.UNCONFIGURED)],
            [],
            502,
            "upstream_credentials_exhausted",
            None,
        ),
        ([], [tried("a", K.CONTEXT_TOO_LONG)], 400, "context_length_exceeded", None),
        (
            [out("b", R.CONTEXT_TOO_SMALL)],
            [tried("a", K.CONTEXT_TOO_LONG)],
            400,
            "context_length_exceeded",
            None,
        ),
        ([out("a", R.CONTEXT_TOO_SMALL), out("b", R.UNCONFIGURED)], [], 400, "context_length_exceeded", None),
        (
            [out("b", R.BENCHED, 42, K.RATE_LIMITED)],
            [tried("a", K.CONTEXT_TOO_LONG)],
            429,
            "all_rate_limited",
            42,
        ),
        ([out("a", R.LACKS_VISION), out("b", R.LACKS_TOOLS)], [], 400, "unsupported_capability", None),
        ([out("a", R.PRICE_CAP), out("b", R.DATA_POLICY)], [], 503, "forbidden_by_policy", None),
        ([out("a", R.UNCONFIGURED)], [], 503, "not_configured", None),
        ([out("a", R.DISABLED)], [], 503, "all_unavailable", None),
        ([], [tried("a", K.MODEL_NOT_FOUND)], 404, "model_not_found", None),
        ([], [tried("a", K.BAD_REQUEST), tried("b", K.BAD_REQUEST)], 400, "invalid_request", None),
        ([], [tried("a", K.UPSTREAM_FAILURE), tried("b", K.BAD_REQUEST)], 400, "invalid_request", None),
        ([], [tried("a", K.CONTENT_FILTERED)], 400, "content_filtered", None),
        (
            [out("a", R.BENCHED, 41.2, K.RATE_LIMITED), out("b", R.BENCHED, 600, K.QUOTA_EXHAUSTED)],
            [],
            429,
            "all_rate_limited",
            42,
        ),
        ([], [tried("a", K.RATE_LIMITED, 7.5)], 429, "all_rate_limited", 8),
        (
            [out("b", R.BENCHED, 3, K.BAD_CREDENTIALS)],
            [tried("a", K.RATE_LIMITED, 9)],
            429,
            "all_rate_limited",
            3,
        ),
        ([out("b", R.BREAKER_OPEN, 12)], [tried("a", K.UPSTREAM_FAILURE)], 503, "all_unavailable", 12),
        ([out("b", R.BREAKER_OPEN, 12)], [tried("a", K.RATE_LIMITED, 30)], 503, "all_unavailable", 12),
        ([out("a", R.NOT_READY, 20), out("b", R.LACKS_TOOLS)], [], 503, "all_unavailable", 20),
        ([], [tried("a", K.TIMED_OUT)], 503, "all_unavailable", None),
        ([], [tried("a", K.GATEWAY_DEFECT)], 503, "all_unavailable", None),
        ([], [], 503, "all_unavailable", None),
    ],
)
def test_the_ladder_says_what_is_true(
    exclusions: list[Exclusion], attempts: list[Attempt], status: int, code: str, retry_after: float | None
) -> None:
    asked = tuple(attempt.deployment_id for attempt in attempts)
    error = exhausted(decision(asked, tuple(exclusions)), attempts, NOW)

    assert (error.http_status, error.envelope_code) == (status, code)
    assert error.retry_after_s == retry_after
    assert len(error.trail) == len(exclusions) + len(attempts)


def test_a_second_opinion_that_was_not_asked_does_not_hide_a_bad_request() -> None:
    error = exhausted(decision(("a", "b", "c")), [tried("a", K.BAD_REQUEST), tried("b", K.BAD_REQUEST)], NOW)

    assert error.http_status == 400
    assert "b said no" in error.message


def test_a_candidate_that_gave_no_permit_counts_as_unavailable() -> None:
    error = exhausted(decision(("a",)), [], NOW)

    assert error.http_status == 503
    assert error.trail == ("a: not asked, it gave no permit or the attempts were used up",)


def test_the_trail_names_everybody_with_status_and_reason() -> None:
    error = exhausted(
        decision(("a",), (out("b", R.BENCHED, 5, K.RATE_LIMITED),)),
        [tried("a", K.UPSTREAM_FAILURE, status=503)],
        NOW,
    )

    assert error.trail == (
        "a: tried, upstream_failure (status 503): a said no",
        "b: left out, benched: because",
    )
    assert "soonest return in 5 s" in error.message


@given(
    st.lists(
        st.builds(
            out,
            st.integers(0, 5).map("e{}".format),
            st.sampled_from(R),
            st.one_of(st.none(), st.floats(-100, 1e6)),
            st.one_of(st.none(), st.sampled_from(K)),
        ),
        max_size=6,
    ),
    st.lists(
        st.builds(tried, st.integers(0, 5).map("a{}".format), st.sampled_from(K), st.floats(0, 1e6)),
        max_size=6,
    ),
)
def test_never_500_and_retry_after_is_whole_seconds(
    exclusions: list[Exclusion], attempts: list[Attempt]
) -> None:
    asked = tuple(attempt.deployment_id for attempt in attempts)
    error = exhausted(decision(asked, tuple(exclusions)), attempts, NOW)

    assert error.http_status in {400, 404, 429, 502, 503}
    if error.http_status == 429:
        assert error.retry_after_s is not None
    if error.retry_after_s is not None:
        assert error.http_status in {429, 503}
        assert error.retry_after_s >= 1
        assert error.retry_after_s == int(error.retry_after_s)
