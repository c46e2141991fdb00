"""Usage objects as providers of OpenAI's wire write them → disjoint buckets.

The habits differ in what contains what. Cached tokens: inside ``prompt_tokens`` (OpenAI, DeepSeek, most)
or beside ``input_tokens`` (Anthropic's). Reasoning tokens: inside ``completion_tokens`` (OpenAI) or
beside (xAI), or only visible as the rest of ``total_tokens`` (Gemini). ``total_tokens`` decides where it is
given. Knows no prices.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from router.chat.types import JsonValue, Usage

__all__ = ["usage_from", "usage_object"]

_DETAILS_IN: Final = ("prompt_tokens_details", "input_tokens_details")
_DETAILS_OUT: Final = ("completion_tokens_details", "output_tokens_details")
_CACHED: Final = ("prompt_cache_hit_tokens", "cache_read_input_tokens", "cached_tokens")
_CACHED_DETAIL: Final = ("cached_tokens", "cache_read_input_tokens")
_WRITTEN: Final = ("cache_creation_input_tokens", "cache_write_tokens")
_WRITTEN_DETAIL: Final = ("cache_write_tokens", "cache_creation_input_tokens", "cache_creation_tokens")


def usage_from(value: Mapping[str, JsonValue]) -> Usage | None:
    """Return the buckets of a usage object; ``None`` where it counts nothing."""
    prompt = _count(value, ("prompt_tokens", "input_tokens"))
    completion = _count(value, ("completion_tokens", "output_tokens"))
    if not prompt and not completion:
        return None
    total = _count(value, ("total_tokens",))
    cached = _detailed(value, _DETAILS_IN, _CACHED_DETAIL) or _count(value, _CACHED)
    written = _detailed(value, _DETAILS_IN, _WRITTEN_DETAIL) or _count(value, _WRITTEN)
    reasoning = _detailed(value, _DETAILS_OUT, ("reasoning_tokens",)) or _count(value, ("reasoning_tokens",))

    apart = cached + written
    is_cache_beside = apart > prompt or ("prompt_tokens" not in value and "cache_read_input_tokens" in value)
    if total and apart and total == prompt + completion + apart:
        is_cache_beside = True
    whole_prompt = prompt + apart if is_cache_beside else prompt
    if not reasoning and total > whole_prompt + completion:
        reasoning = total - whole_prompt - completion
    is_reasoning_beside = reasoning > completion or (
        reasoning > 0 and total == whole_prompt + completion + reasoning
    )
    return Usage(
        input_tokens=whole_prompt - apart,
        cached_input_tokens=cached,
        cache_write_tokens=written,
        output_tokens=completion if is_reasoning_beside else completion - reasoning,
        reasoning_tokens=reasoning,
    )


def usage_object(usage: Usage) -> dict[str, JsonValue]:
    """Return the buckets as OpenAI writes them."""
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_input_tokens},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }


def _count(value: Mapping[str, JsonValue], names: tuple[str, ...]) -> int:
    """Return the first of the fields that is a count above 0."""
    for name in names:
        found = value.get(name)
        if isinstance(found, int | float) and not isinstance(found, bool) and found > 0:
            return int(found)
    return 0


def _detailed(value: Mapping[str, JsonValue], places: tuple[str, ...], names: tuple[str, ...]) -> int:
    for place in places:
        details = value.get(place)
        if isinstance(details, dict) and (count := _count(details, names)):
            return count
    return 0
