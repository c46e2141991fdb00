"""What routing is told of a request."""

from __future__ import annotations

import json
from typing import Any

import pytest

from router.chat.features import RequestFeatures, read_features
from router.chat.openai_wire import read_chat_request

TOOL = {"type": "function", "function": {"name": "read", "parameters": {"type": "object"}}}


def features(*messages: dict[str, Any], **fields: Any) -> RequestFeatures:
    listed = list(messages) or [{"role": "user", "content": "hello"}]
    return read_features(
        read_chat_request(json.dumps({"model": "chat", "messages": listed, **fields}).encode())
    )


def test_a_plain_question_needs_nothing() -> None:
    assert features() == RequestFeatures(
        model="chat", prompt_characters=5, wanted_output_tokens=None, message_count=1, fixed_tokens=4
    )


def test_all_text_of_a_conversation_counts() -> None:
    found = features(
        {"role": "system", "content": "12345"},
        {"role": "user", "content": [{"type": "text", "text": "1234567"}]},
        {"role": "assistant", "content": None, "reasoning_content": "12", "tool_calls": [
            {"id": "x", "function": {"name": "abc", "arguments": '{"a":1}'}}]},
        {"role": "tool", "tool_call_id": "xy", "content": "0123456789"},
    )  # fmt: skip

    assert found.prompt_characters == 5 + 7 + 2 + 3 + 7 + 2 + 10
    assert found.fixed_tokens == 4 * 4
    assert found.message_count == 4


def test_tools_and_schemas_count_as_their_json() -> None:
    plain = features().prompt_characters
    tool_text = json.dumps([TOOL], separators=(",", ":"))
    schema = {"name": "x", "schema": {"type": "object"}}

    assert features(tools=[TOOL]).prompt_characters == plain + len(tool_text)
    assert features(
        response_format={"type": "json_schema", "json_schema": schema}
    ).prompt_characters == plain + len(json.dumps(schema, separators=(",", ":")))


@pytest.mark.parametrize(
    ("text", "characters"), [("a" * 100, 100), ("汉" * 100, 200), ("д" * 100, 150), ("🙂" * 10, 25)]
)
def test_scripts_that_cost_more_tokens_count_more(text: str, characters: int) -> None:
    assert features({"role": "user", "content": text}).prompt_characters == characters


def test_an_image_is_a_number_of_tokens_not_its_data() -> None:
    def image(**extra: str) -> dict[str, Any]:
        url = "data:image/png;base64," + "A" * 100_000
        return {"role": "user", "content": [{"type": "image_url", "image_url": {"url": url, **extra}}]}

    assert features(image()).prompt_characters == 0
    assert features(image()).needs_vision
    assert features(image()).fixed_tokens == 1_004
    assert features(image(detail="low")).fixed_tokens == 89
    assert features(image()).prompt_tokens(0.3) == 1_005


def test_audio_and_files_are_not_text() -> None:
    part = {"type": "input_audio", "input_audio": {"data": "A" * 50_000, "format": "wav"}}
    found = features({"role": "user", "content": [part]})

    assert found.prompt_characters == 0
    assert found.fixed_tokens > 1_000


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"tools": [TOOL]}, "needs_tools"),
        ({"functions": [{"name": "f"}]}, "needs_tools"),
        ({"tools": [TOOL], "parallel_tool_calls": True}, "needs_parallel_tools"),
        ({"response_format": {"type": "json_schema", "json_schema": {"name": "x"}}}, "needs_json_schema"),
        ({"reasoning_effort": "high"}, "needs_reasoning"),
        ({"reasoning": {"effort": "low"}}, "needs_reasoning"),
        ({"thinking": {"type": "enabled", "budget_tokens": 5}}, "needs_reasoning"),
        ({"stream": True}, "stream"),
    ],
)
def test_a_need_is_seen(fields: dict[str, Any], name: str) -> None:
    assert getattr(features(**fields), name) is True
    assert getattr(features(), name) is False


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"tools": []}, "needs_tools"),
        ({"tools": [TOOL], "parallel_tool_calls": False}, "needs_parallel_tools"),
        ({"tools": [TOOL]}, "needs_parallel_tools"),
        ({"parallel_tool_calls": True}, "needs_parallel_tools"),
        ({"response_format": {"type": "json_object"}}, "needs_json_schema"),
        ({"response_format": {"type": "text"}}, "needs_json_schema"),
        ({"reasoning_effort": "none"}, "needs_reasoning"),
        ({"reasoning_effort": None}, "needs_reasoning"),
        ({"reasoning": {"enabled": False}}, "needs_reasoning"),
        ({"thinking": {"type": "disabled"}}, "needs_reasoning"),
    ],
)
def test_no_need_is_made_up(fields: dict[str, Any], name: str) -> None:
    assert getattr(features(**fields), name) is False


def test_a_conversation_with_tool_turns_needs_tools_even_without_definitions() -> None:
    assert features({"role": "tool", "tool_call_id": "a", "content": "x"}).needs_tools


@pytest.mark.parametrize("role", ["system", "developer"])
def test_a_system_prompt_is_seen(role: str) -> None:
    assert features({"role": role, "content": "be brief"}).has_system_prompt
    assert not features().has_system_prompt


def test_an_answer_begun_by_the_client_is_a_prefill() -> None:
    begun = {"role": "assistant", "content": "Sure:"}
    call = {"role": "assistant", "tool_calls": [{"id": "a", "function": {"name": "f", "arguments": "{}"}}]}

    assert features({"role": "user", "content": "x"}, begun).needs_prefill
    assert not features(begun, {"role": "user", "content": "x"}).needs_prefill
    assert not features({"role": "user", "content": "x"}, call).needs_prefill


def test_the_wanted_length_is_the_smaller_bound() -> None:
    assert features(max_tokens=10, max_completion_tokens=20).wanted_output_tokens == 10
