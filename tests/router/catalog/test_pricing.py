"""Tokens times prices."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.catalog.catalog import Price
from router.catalog.pricing import cost_micros
from router.chat.types import Usage

FULL = Price(2_000_000, 10_000_000, cached_input_micros=100_000, cache_write_micros=2_500_000)
PLAIN = Price(2_000_000, 10_000_000)


@pytest.mark.parametrize(
    ("usage", "price", "micros"),
    [
        (Usage(), FULL, 0),
        (Usage(input_tokens=1_000_000), FULL, 2_000_000),
        (Usage(cached_input_tokens=1_000_000), FULL, 100_000),
        (Usage(cached_input_tokens=1_000_000), PLAIN, 2_000_000),
        (Usage(cache_write_tokens=1_000), FULL, 2_500),
        (Usage(cache_write_tokens=1_000), PLAIN, 2_000),
        (Usage(output_tokens=10, reasoning_tokens=90), FULL, 1_000),
        (Usage(4, 2_455, 0, 100), FULL, 1_254),  # 8 + 245.5 + 1,000, half up
        (Usage(input_tokens=1), Price(499_999, 1), 0),
        (Usage(input_tokens=1), Price(500_000, 1), 1),
        (Usage(input_tokens=1_000_000), Price(5, 5, free=True), 0),
        (Usage(input_tokens=10), Price(1_000_000, 1_000_000, cached_input_micros=0), 10),
        (Usage(cached_input_tokens=10), Price(1_000_000, 1_000_000, cached_input_micros=0), 0),
    ],
)
def test_each_bucket_has_its_price(usage: Usage, price: Price, micros: int) -> None:
    assert cost_micros(usage, price) == micros


@given(*[st.integers(0, 10_000_000)] * 5)
def test_the_sum_is_rounded_once(a: int, b: int, c: int, d: int, e: int) -> None:
    cost = cost_micros(Usage(a, b, c, d, e), FULL)
    exact = (a * 2_000_000 + b * 100_000 + c * 2_500_000 + (d + e) * 10_000_000) / 1_000_000

    assert isinstance(cost, int)
    assert abs(cost - exact) <= 0.5 + 1e-6 * exact
