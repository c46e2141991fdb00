"""What upstreams say in their frames, habit by habit."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.chat.openai_frames import event_from_frame
from router.chat.types import (
    Delta,
    FinishDelta,
    FinishReason,
    ReasoningDelta,
    RefusalDelta,
    TextDelta,
    ToolCallDelta,
    Usage,
    UsageDelta,
)
from router.errors import UpstreamBrokenStream, UpstreamInBandError


def chunk(delta: Any = None, **choice: Any) -> bytes:
    return json.dumps({"id": "x", "choices": [{"index": 0, "delta": delta or {}, **choice}]}).encode()


def deltas(data: bytes) -> tuple[Delta, ...]:
    event = event_from_frame(data)
    assert event.frame is not None
    assert event.frame.data == data
    return event.deltas


@pytest.mark.parametrize(
    ("delta", "meaning"),
    [
        ({"role": "assistant", "content": ""}, ()),
        ({"role": "assistant", "content": None}, ()),
        ({"content": " hi"}, (TextDelta(0, " hi"),)),
        (
            {"reasoning_content": "hm"},
            (ReasoningDelta(0, "hm"),),
        ),  # DeepSeek, Z.ai, Moonshot, DashScope, SGLang
        ({"reasoning": "hm"}, (ReasoningDelta(0, "hm"),)),  # OpenRouter, Groq, Cerebras, Ollama
        (
            {"reasoning": "hm", "reasoning_content": "hm"},
            (ReasoningDelta(0, "hm"),),
        ),  # vLLM, both for a while
        ({"reasoning": "so", "content": "a"}, (ReasoningDelta(0, "so"), TextDelta(0, "a"))),
        ({"refusal": "no"}, (RefusalDelta(0, "no"),)),
        ({"content": "a", "tool_calls": []}, (TextDelta(0, "a"),)),
        ({"content": [{"type": "text", "text": "a"}]}, (TextDelta(0, "a"),)),  # Mistral
        (
            {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}]},
            (ReasoningDelta(0, "hm"),),
        ),
        (
            {
                "tool_calls": [
                    {"index": 1, "id": "c1", "type": "function", "function": {"name": "f", "arguments": ""}}
                ]
            },
            (ToolCallDelta(0, 1, "c1", "f"),),
        ),
        (
            {"tool_calls": [{"index": 1, "function": {"arguments": '{"a'}}]},
            (ToolCallDelta(0, 1, arguments='{"a'),),
        ),
        (
            {"tool_calls": [{"id": "c", "function": {"name": "f", "arguments": {"a": 1}}}]},  # Ollama
            (ToolCallDelta(0, 0, "c", "f", '{"a":1}'),),
        ),
        ({"function_call": {"name": "f", "arguments": "{}"}}, (ToolCallDelta(0, 0, None, "f", "{}"),)),
        ({"something": "new"}, ()),
    ],
)
def test_a_delta_means(delta: dict[str, Any], meaning: tuple[Delta, ...]) -> None:
    assert deltas(chunk(delta)) == meaning


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("stop", FinishReason.STOP),
        ("STOP", FinishReason.STOP),
        ("eos", FinishReason.STOP),
        ("end_turn", FinishReason.STOP),
        ("length", FinishReason.LENGTH),
        ("max_tokens", FinishReason.LENGTH),
        ("MAX_TOKENS", FinishReason.LENGTH),
        ("tool_calls", FinishReason.TOOL_CALLS),
        ("function_call", FinishReason.TOOL_CALLS),
        ("content_filter", FinishReason.CONTENT_FILTER),
        ("sensitive", FinishReason.CONTENT_FILTER),
        ("something_else", FinishReason.STOP),
    ],
)
def test_an_ending_means(word: str, reason: FinishReason) -> None:
    assert deltas(chunk(finish_reason=word)) == (FinishDelta(0, reason),)


def test_a_whole_completion_is_one_event() -> None:
    body = {
        "object": "chat.completion",
        "choices": [
            {"index": 0, "message": {"role": "assistant", "content": "a"}, "finish_reason": "stop"},
            {
                "index": 1,
                "message": {"tool_calls": [{"id": "c", "function": {"name": "f", "arguments": "{}"}}]},
            },
        ],
        "usage": {"prompt_tokens": 3, "completion_tokens": 1},
    }

    assert deltas(json.dumps(body).encode()) == (
        TextDelta(0, "a"),
        FinishDelta(0, FinishReason.STOP),
        ToolCallDelta(1, 0, "c", "f", "{}"),
        UsageDelta(Usage(input_tokens=3, output_tokens=1)),
    )


@pytest.mark.parametrize(
    ("frame", "status", "code", "kind"),
    [
        (
            {"error": {"message": "slow down", "type": "rate_limit_error", "code": "rate_limit_exceeded"}},
            None,
            "rate_limit_exceeded",
            "rate_limit_error",
        ),
        ({"error": {"code": 429, "message": "Provider returned error"}, "choices": []}, 429, "429", None),
        ({"error": {"code": "502", "message": "bad"}}, 502, "502", None),
        (
            {"error": {"code": 503, "message": "overloaded", "status": "UNAVAILABLE"}},
            503,
            "503",
            "UNAVAILABLE",
        ),
        (
            [{"error": {"code": 400, "message": "bad", "status": "INVALID_ARGUMENT"}}],
            400,
            "400",
            "INVALID_ARGUMENT",
        ),
        ({"error": "out of memory"}, None, None, None),
        (
            {"error": {"message": "m", "type": "insufficient_quota", "status_code": 402}},
            402,
            None,
            "insufficient_quota",
        ),
        (
            {"object": "error", "message": "too long", "type": "BadRequestError", "code": 400},
            400,
            "400",
            "BadRequestError",
        ),
        (
            {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}},
            None,
            None,
            "overloaded_error",
        ),
        (
            {
                "choices": [
                    {
                        "index": 0,
                        "delta": {},
                        "finish_reason": "error",
                        "error": {"code": 502, "message": "x"},
                    }
                ]
            },
            502,
            "502",
            None,
        ),
        (
            {"choices": [{"index": 0, "delta": {"content": ""}, "finish_reason": "error"}]},
            None,
            "error",
            None,
        ),
        (
            {"choices": [{"index": 0, "delta": {}, "finish_reason": "insufficient_system_resource"}]},
            None,
            "insufficient_system_resource",
            None,
        ),
    ],
)
def test_an_error_inside_a_good_answer_is_an_error(
    frame: Any, status: int | None, code: str | None, kind: str | None
) -> None:
    with pytest.raises(UpstreamInBandError) as caught:
        event_from_frame(json.dumps(frame).encode())

    assert caught.value.message
    assert (caught.value.upstream_status, caught.value.upstream_code, caught.value.upstream_type) == (
        status,
        code,
        kind,
    )


def test_text_that_speaks_of_errors_is_text() -> None:
    text = '{"error": {"message": "not really"}}'

    assert deltas(chunk({"content": text}, error=None)) == (TextDelta(0, text),)
    assert deltas(json.dumps({"choices": [], "error": None}).encode()) == ()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[DONE",
        b"3",
        b"null",
        b"[]",
        b'{"choices": 3}',
        b'{"choices": ["x"]}',
        b'{"choices": [{"index": "a"}]}',
        b'{"choices": [{"index": -1}]}',
        b'{"choices": [{"index": true}]}',
        b'{"choices": [{"index": 0, "delta": {"tool_calls": {"a": 1}}}]}',
        b'{"choices": [{"index": 0, "delta": {"tool_calls": [3]}}]}',
        b'{"choices": [{"index": 0, "delta": {"tool_calls": [{"index": 99999999}]}}]}',
    ],
)
def test_what_is_not_of_this_wire_breaks_the_stream(data: bytes) -> None:
    with pytest.raises(UpstreamBrokenStream):
        event_from_frame(data)


VALUE: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 10**25) | st.floats() | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "choices",
                    "delta",
                    "message",
                    "content",
                    "index",
                    "tool_calls",
                    "function",
                    "arguments",
                    "usage",
                    "error",
                    "finish_reason",
                    "text",
                    "thinking",
                    "prompt_tokens",
                    "completion_tokens",
                    "total_tokens",
                    "code",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=14,
)


@settings(max_examples=400, deadline=None)
@given(VALUE, VALUE)
def test_any_frame_is_an_event_or_an_upstream_s_failure(choice: Any, rest: Any) -> None:
    frame = {"choices": [choice], **rest} if isinstance(rest, dict) else rest
    try:
        event = event_from_frame(json.dumps(frame).encode())
    except (UpstreamBrokenStream, UpstreamInBandError):
        return

    for delta in event.deltas:
        if isinstance(delta, UsageDelta):
            buckets = (delta.usage.prompt_tokens, delta.usage.completion_tokens, delta.usage.output_tokens)
            assert min(buckets) >= 0


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=64))
def test_any_bytes_are_an_upstream_s_failure(data: bytes) -> None:
    with pytest.raises((UpstreamBrokenStream, UpstreamInBandError)):
        event_from_frame(b"x" + data)
