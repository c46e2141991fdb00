"""Tokens are counted in disjoint buckets, whatever the upstream's habit."""

from __future__ import annotations

import json
from typing import Any

import pytest

from router.chat.openai_frames import event_from_frame, is_usage_only
from router.chat.types import Delta, Usage, UsageDelta


def chunk(delta: dict[str, Any]) -> bytes:
    return json.dumps({"choices": [{"index": 0, "delta": delta}]}).encode()


def deltas(data: bytes) -> tuple[Delta, ...]:
    return event_from_frame(data).deltas


DETAILS_IN = {"cached_tokens": 90}
USAGES: list[tuple[str, dict[str, Any], Usage]] = [
    (
        "openai",
        {
            "prompt_tokens": 100,
            "completion_tokens": 50,
            "total_tokens": 150,
            "prompt_tokens_details": DETAILS_IN,
            "completion_tokens_details": {"reasoning_tokens": 40},
        },
        Usage(10, 90, 0, 10, 40),
    ),
    (
        "openai with null details",
        {"prompt_tokens": 7, "completion_tokens": 2, "prompt_tokens_details": None},
        Usage(7, 0, 0, 2, 0),
    ),
    (
        "deepseek",
        {
            "prompt_tokens": 100,
            "completion_tokens": 5,
            "total_tokens": 105,
            "prompt_cache_hit_tokens": 64,
            "prompt_cache_miss_tokens": 36,
            "prompt_tokens_details": {"cached_tokens": 64},
        },
        Usage(36, 64, 0, 5, 0),
    ),
    (
        "deepseek, old",
        {"prompt_tokens": 100, "completion_tokens": 5, "prompt_cache_hit_tokens": 64},
        Usage(36, 64, 0, 5, 0),
    ),
    ("moonshot", {"prompt_tokens": 20, "completion_tokens": 5, "cached_tokens": 15}, Usage(5, 15, 0, 5, 0)),
    (
        "dashscope",
        {
            "prompt_tokens": 50,
            "completion_tokens": 5,
            "total_tokens": 55,
            "prompt_tokens_details": {"cached_tokens": 10, "cache_creation_input_tokens": 30},
        },
        Usage(10, 10, 30, 5, 0),
    ),
    (
        "xai, reasoning beside",
        {
            "prompt_tokens": 10,
            "completion_tokens": 5,
            "total_tokens": 115,
            "completion_tokens_details": {"reasoning_tokens": 100},
        },
        Usage(10, 0, 0, 5, 100),
    ),
    (
        "gemini, thoughts in the total only",
        {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 75},
        Usage(10, 0, 0, 5, 60),
    ),
    (
        "anthropic",
        {
            "input_tokens": 4,
            "output_tokens": 9,
            "cache_read_input_tokens": 2455,
            "cache_creation_input_tokens": 100,
        },
        Usage(4, 2455, 100, 9, 0),
    ),
    (
        "anthropic, small cache",
        {"input_tokens": 40, "output_tokens": 9, "cache_read_input_tokens": 10},
        Usage(40, 10, 0, 9, 0),
    ),
    (
        "cache inside, anthropic's names",
        {"prompt_tokens": 100, "completion_tokens": 9, "total_tokens": 109, "cache_read_input_tokens": 60},
        Usage(40, 60, 0, 9, 0),
    ),
    (
        "cache beside, by the total",
        {"prompt_tokens": 100, "completion_tokens": 9, "total_tokens": 169, "cache_read_input_tokens": 60},
        Usage(100, 60, 0, 9, 0),
    ),
    (
        "responses",
        {
            "input_tokens": 100,
            "output_tokens": 20,
            "input_tokens_details": {"cached_tokens": 60},
            "output_tokens_details": {"reasoning_tokens": 15},
        },
        Usage(40, 60, 0, 5, 15),
    ),
]


@pytest.mark.parametrize(
    ("usage", "buckets"), [case[1:] for case in USAGES], ids=[case[0] for case in USAGES]
)
def test_usage_becomes_disjoint_buckets(usage: dict[str, Any], buckets: Usage) -> None:
    data = json.dumps({"choices": [], "usage": usage}).encode()

    assert deltas(data) == (UsageDelta(buckets),)
    assert is_usage_only(event_from_frame(data))


@pytest.mark.parametrize(
    "frame",
    [
        {"choices": [], "x_groq": {"id": "r", "usage": {"prompt_tokens": 3, "completion_tokens": 4}}},
        {"choices": [{"index": 0, "delta": {}, "usage": {"prompt_tokens": 3, "completion_tokens": 4}}]},
    ],
)
def test_usage_is_found_where_vendors_hide_it(frame: dict[str, Any]) -> None:
    assert deltas(json.dumps(frame).encode()) == (UsageDelta(Usage(input_tokens=3, output_tokens=4)),)


@pytest.mark.parametrize(
    "usage", [None, {}, {"prompt_tokens": 0, "completion_tokens": 0}, {"prompt_tokens": "3"}, 5]
)
def test_usage_that_counts_nothing_is_absent(usage: Any) -> None:
    assert deltas(json.dumps({"choices": [], "usage": usage}).encode()) == ()


def test_only_the_extra_chunk_is_usage_only() -> None:
    usage = {"prompt_tokens": 3, "completion_tokens": 4}
    last = json.dumps(
        {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], "usage": usage}
    ).encode()
    every = json.dumps({"choices": [{"index": 0, "delta": {"role": "assistant"}}], "usage": usage}).encode()

    assert not is_usage_only(event_from_frame(last))
    assert not is_usage_only(event_from_frame(every))
    assert not is_usage_only(event_from_frame(chunk({"content": "a"})))
    assert not is_usage_only(event_from_frame(b'{"choices": []}'))
