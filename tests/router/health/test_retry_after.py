from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.health.retry_after import RETRY_AFTER_CAP_S, duration_seconds, parse_retry_after

NOW = 1_700_000_000.0  # 2023-11-14T22:13:20Z


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"Retry-After": "12"}, 12.0),
        ({"retry-after": " 1.5 "}, 1.5),
        ({"RETRY-AFTER": "0"}, 0.0),
        ({"Retry-After": "Wed, 15 Nov 2023 00:00:00 GMT"}, 6400.0),
        ({"Retry-After": "Tue, 14 Nov 2023 00:00:00 GMT"}, 0.0),
        ({"Retry-After": "20s"}, 20.0),
        ({"Retry-After": "6h45m"}, 24_300.0),
        ({"retry-after-ms": "1500"}, 1.5),
        ({"x-ms-retry-after-ms": "250", "retry-after": "1"}, 0.25),
        ({"retry-after-ms": "soon", "retry-after": "3"}, 3.0),
        ({"X-RateLimit-Reset": "1700000042000"}, 42.0),
        ({"x-ratelimit-reset": "1700000042"}, 42.0),
        ({"x-ratelimit-reset": "42"}, 42.0),
        ({"x-ratelimit-reset-requests": "1m2.5s", "x-ratelimit-remaining-requests": "0"}, 62.5),
        ({"x-ratelimit-reset-requests": "1m2.5s", "x-ratelimit-remaining-requests": "7"}, None),
        (
            {
                "anthropic-ratelimit-tokens-remaining": "0",
                "anthropic-ratelimit-tokens-reset": "2023-11-14T22:14:00Z",
            },
            40.0,
        ),
        ({"retry-after": "999999999"}, RETRY_AFTER_CAP_S),
        ({"retry-after": "-3"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "1e9"}, None),
        ({"retry-after": "9" * 40}, None),
        ({"retry-after": "\u0665"}, None),
        ({"retry-after": ""}, None),
        ({"retry-after": "tomorrow"}, None),
    ],
    ids=str,
)
def test_headers_say_when_to_come_back(headers: dict[str, str], seconds: float | None) -> None:
    assert parse_retry_after(headers, NOW) == seconds


@given(
    st.dictionaries(
        st.sampled_from(
            [
                "retry-after",
                "Retry-After-Ms",
                "x-ratelimit-reset",
                "x-ratelimit-reset-tokens",
                "x-ratelimit-remaining-tokens",
            ]
        ),
        st.one_of(st.text(max_size=80), st.integers().map(str), st.floats().map(str)),
    ),
    st.floats(0, 4e9),
)
def test_any_header_is_read_without_raising_and_within_bounds(headers: dict[str, str], now: float) -> None:
    seconds = parse_retry_after(headers, now)

    assert seconds is None or 0.0 <= seconds <= RETRY_AFTER_CAP_S


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("500ms", 0.5), ("1d", 86_400.0), ("2m", 120.0), ("7m12s", 432.0), ("", None), ("m", None), ("5", None)],
)
def test_durations_are_read(text: str, seconds: float | None) -> None:
    assert duration_seconds(text) == seconds
