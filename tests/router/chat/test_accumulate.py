"""A folded stream says what the stream said."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable
from typing import Any

import pytest

from router.chat.accumulate import Accumulator, accumulate
from router.chat.finish_repair import FinishRepair
from router.chat.openai_frames import event_from_frame
from router.chat.types import (
    ChatEvent,
    FinishDelta,
    FinishReason,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    Usage,
    UsageDelta,
)

HEAD = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1_700_000_000, "model": "m-2025"}


def frame(delta: Any = None, *, index: int = 0, finish: str | None = None, **rest: Any) -> dict[str, Any]:
    return {**HEAD, "choices": [{"index": index, "delta": delta or {}, "finish_reason": finish}], **rest}


def events(frames: Iterable[dict[str, Any]]) -> list[ChatEvent]:
    return [event_from_frame(json.dumps(one).encode()) for one in frames]


def folded(*frames: dict[str, Any]) -> dict[str, Any]:
    accumulator = Accumulator()
    for event in events(frames):
        accumulator.add(event)
    return accumulator.completion()


def call(
    index: int | None, call_id: str | None = None, name: str | None = None, arguments: Any = ""
) -> dict[str, Any]:
    piece: dict[str, Any] = {"function": {"arguments": arguments}}
    if index is not None:
        piece["index"] = index
    if call_id is not None:
        piece |= {"id": call_id, "type": "function"}
    if name is not None:
        piece["function"]["name"] = name
    return piece


def test_text_is_joined_under_the_first_frame_s_head() -> None:
    usage = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
    whole = folded(
        frame({"role": "assistant", "content": ""}, system_fingerprint="fp"),
        frame({"content": "Hel"}),
        {**frame({"content": "lo"}), "id": "another", "created": 5},
        frame(finish="stop"),
        {**HEAD, "choices": [], "usage": usage},
    )

    assert whole == {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1_700_000_000,
        "model": "m-2025",
        "system_fingerprint": "fp",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "Hello", "refusal": None},
                "logprobs": None,
                "finish_reason": "stop",
            }
        ],
        "usage": usage,
    }


def test_a_frame_without_choices_is_not_the_head() -> None:
    whole = folded(
        {"id": "", "choices": [], "prompt_filter_results": [1]}, frame({"content": "a"}, finish="stop")
    )

    assert whole["id"] == "chatcmpl-1"
    assert whole["prompt_filter_results"] == [1]


def test_reasoning_refusal_and_unknown_fields_are_kept() -> None:
    message = folded(
        frame({"role": "assistant", "reasoning_content": "Let "}),
        frame({"reasoning_content": "me"}),
        frame({"reasoning_details": [{"type": "reasoning.text", "index": 0, "text": "Let "}]}),
        frame(
            {"reasoning_details": [{"type": "reasoning.text", "index": 0, "text": "me", "signature": "s"}]}
        ),
        frame({"refusal": "I "}),
        frame({"refusal": "won't"}),
        frame({"annotations": [{"type": "url_citation"}]}),
        frame({"annotations": [{"type": "url_citation"}], "flag": True}),
        frame(finish="stop"),
    )["choices"][0]["message"]

    assert message["reasoning_content"] == "Let me"
    assert message["reasoning_details"] == [
        {"type": "reasoning.text", "index": 0, "text": "Let me", "signature": "s"}
    ]
    assert message["refusal"] == "I won't"
    assert message["content"] is None
    assert len(message["annotations"]) == 2
    assert message["flag"] is True


def test_tool_calls_come_together_from_pieces() -> None:
    choice = folded(
        frame({"role": "assistant", "content": None, "tool_calls": [call(0, "a", "read", "")]}),
        frame({"tool_calls": [call(0, arguments='{"p')]}),
        frame({"tool_calls": [call(1, "b", "write", "{"), call(0, arguments='":1}')]}),
        frame({"tool_calls": [call(1, "b", "write", "}")]}),
        frame(finish="tool_calls"),
    )["choices"][0]

    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] is None
    assert choice["message"]["tool_calls"] == [
        {"id": "a", "type": "function", "function": {"name": "read", "arguments": '{"p":1}'}},
        {"id": "b", "type": "function", "function": {"name": "write", "arguments": "{}"}},
    ]


def test_calls_that_are_all_numbered_0_are_told_apart_by_id() -> None:
    calls = folded(
        frame({"tool_calls": [call(0, "a", "f", "{}")]}),
        frame({"tool_calls": [call(0, "b", "g", '{"x":')]}),
        frame({"tool_calls": [call(0, arguments="1}")]}),
        frame(finish="tool_calls"),
    )["choices"][0]["message"]["tool_calls"]

    assert [(one["id"], one["function"]["arguments"]) for one in calls] == [("a", "{}"), ("b", '{"x":1}')]


def test_arguments_sent_as_an_object_become_text() -> None:
    calls = folded(frame({"tool_calls": [call(None, None, "f", {"a": 1})]}, finish="stop"))["choices"][0][
        "message"
    ]["tool_calls"]

    assert calls == [{"id": "call_0", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}]


def test_vendor_fields_of_a_call_survive() -> None:
    first = call(0, "a", "f", "{}")
    first["extra_content"] = {"google": {"thought_signature": "abc"}}
    calls = folded(frame({"tool_calls": [first]}, finish="tool_calls"))["choices"][0]["message"]["tool_calls"]

    assert calls[0]["extra_content"] == {"google": {"thought_signature": "abc"}}


def test_a_tool_call_that_ends_with_stop_is_mended() -> None:
    whole = folded(frame({"tool_calls": [call(0, "a", "f", "{}")]}), frame(finish="stop"))

    assert whole["choices"][0]["finish_reason"] == "tool_calls"


@pytest.mark.parametrize("finish", ["length", "content_filter"])
def test_other_endings_of_a_tool_call_stand(finish: str) -> None:
    whole = folded(frame({"tool_calls": [call(0, "a", "f", "{")]}), frame(finish=finish))

    assert whole["choices"][0]["finish_reason"] == finish


def test_several_choices_are_kept_apart_and_in_order() -> None:
    whole = folded(
        frame({"content": "b"}, index=1),
        frame({"content": "a"}, index=0),
        frame({"content": "b"}, index=1),
        frame(index=1, finish="length"),
        frame(index=0, finish="stop"),
    )

    assert [(one["index"], one["message"]["content"], one["finish_reason"]) for one in whole["choices"]] == [
        (0, "a", "stop"),
        (1, "bb", "length"),
    ]


def test_logprobs_are_joined() -> None:
    def with_logprobs(token: str) -> dict[str, Any]:
        one = frame({"content": token})
        one["choices"][0]["logprobs"] = {"content": [{"token": token, "logprob": -0.1}], "refusal": None}
        return one

    logprobs = folded(with_logprobs("a"), with_logprobs("b"), frame(finish="stop"))["choices"][0]["logprobs"]

    assert [one["token"] for one in logprobs["content"]] == ["a", "b"]


def test_a_whole_completion_folds_to_itself() -> None:
    body = {
        "id": "c",
        "object": "chat.completion",
        "created": 7,
        "model": "m",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "hi", "refusal": None},
                "logprobs": None,
                "finish_reason": "stop",
            }
        ],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
    }

    assert folded(body) == body


def test_mistral_s_lists_of_parts_become_text() -> None:
    message = folded(
        frame({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}]}),
        frame({"content": [{"type": "text", "text": "o"}]}),
        frame({"content": "k"}, finish="stop"),
    )["choices"][0]["message"]

    assert (message["content"], message["reasoning_content"]) == ("ok", "hm")


@pytest.mark.anyio
async def test_events_without_frames_fold_from_their_deltas() -> None:
    async def stream() -> AsyncIterator[ChatEvent]:
        yield ChatEvent((ReasoningDelta(0, "hm"), TextDelta(0, "a")))
        yield ChatEvent((TextDelta(0, "b"), ToolCallDelta(0, 0, "c", "f")))
        yield ChatEvent((ToolCallDelta(0, 0, arguments="{}"), FinishDelta(0, FinishReason.STOP)))
        yield ChatEvent((UsageDelta(Usage(2, 1, 0, 3, 4)),))

    whole: Any = await accumulate(stream(), default_id="chatcmpl-9", default_created=5, default_model="m")

    assert (whole["id"], whole["created"], whole["model"]) == ("chatcmpl-9", 5, "m")
    assert whole["choices"][0]["message"]["content"] == "ab"
    assert whole["choices"][0]["message"]["reasoning_content"] == "hm"
    assert whole["choices"][0]["message"]["tool_calls"][0]["function"] == {"name": "f", "arguments": "{}"}
    assert whole["choices"][0]["finish_reason"] == "tool_calls"
    assert whole["usage"] == {
        "prompt_tokens": 3,
        "completion_tokens": 7,
        "total_tokens": 10,
        "prompt_tokens_details": {"cached_tokens": 1},
        "completion_tokens_details": {"reasoning_tokens": 4},
    }


def test_usage_that_a_vendor_hides_is_shown() -> None:
    whole = folded(
        frame({"content": "a"}, finish="stop", x_groq={"usage": {"prompt_tokens": 3, "completion_tokens": 1}})
    )

    assert whole["usage"]["prompt_tokens"] == 3


def repaired(*frames: dict[str, Any]) -> list[ChatEvent]:
    repair = FinishRepair()
    return [repair.repair(event) for event in events(frames)]


def test_a_stream_s_wrong_ending_is_rewritten_in_its_frame() -> None:
    last = repaired(frame({"tool_calls": [call(0, "a", "f", "{}")]}), frame(finish="stop", kept=1))[-1]

    assert last.deltas == (FinishDelta(0, FinishReason.TOOL_CALLS),)
    assert last.frame is not None
    data = json.loads(last.frame.data)
    assert data["choices"][0]["finish_reason"] == "tool_calls"
    assert data["kept"] == 1


def test_a_word_of_the_vendor_s_own_is_written_as_openai_writes_it() -> None:
    last = repaired(frame({"content": "a"}), frame(finish="end_turn"))[-1]

    assert last.frame is not None
    assert json.loads(last.frame.data)["choices"][0]["finish_reason"] == "stop"


def test_right_frames_are_passed_on_as_they_are() -> None:
    sent = events(
        [frame({"content": "a"}), frame({"tool_calls": [call(0, "a", "f")]}), frame(finish="tool_calls")]
    )
    repair = FinishRepair()

    assert all(repair.repair(event) is event for event in sent)


def test_one_choice_s_calls_do_not_touch_another_s_ending() -> None:
    last = repaired(frame({"tool_calls": [call(0, "a", "f", "{}")]}, index=1), frame(index=0, finish="stop"))[
        -1
    ]

    assert last.deltas == (FinishDelta(0, FinishReason.STOP),)
