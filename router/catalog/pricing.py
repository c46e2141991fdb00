"""What an answer cost: tokens times prices, in integer micro-dollars. Pure; knows no currency but one."""

from __future__ import annotations

from typing import Final

from router.catalog.catalog import Price
from router.chat.types import Usage

__all__ = ["cost_micros"]

_TOKENS_PER_PRICE: Final = 1_000_000


def cost_micros(usage: Usage, price: Price) -> int:
    """Return micro-dollars: the exact sum over all buckets, rounded once, half up.

    Cached input and cache writes cost what the input costs where the price names nothing else. Reasoning
    tokens are output. The buckets of ``usage`` are disjoint, so nothing is charged twice.
    """
    if price.free:
        return 0
    cached = price.input_micros if price.cached_input_micros is None else price.cached_input_micros
    written = price.input_micros if price.cache_write_micros is None else price.cache_write_micros
    total = (
        usage.input_tokens * price.input_micros
        + usage.cached_input_tokens * cached
        + usage.cache_write_tokens * written
        + usage.completion_tokens * price.output_micros
    )
    return (total + _TOKENS_PER_PRICE // 2) // _TOKENS_PER_PRICE
