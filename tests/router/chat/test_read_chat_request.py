"""A client's body → a request, or one clear refusal."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.chat.features import read_features
from router.chat.openai_wire import MAXIMUM_DEPTH, body_for, read_chat_request
from router.chat.types import ChatRequest
from router.errors import InvalidRequest

USER = {"role": "user", "content": "hello"}


def read(**fields: Any) -> ChatRequest:
    return read_chat_request(json.dumps({"model": "chat", "messages": [USER], **fields}).encode())


def test_what_routing_needs_is_read_and_nothing_is_dropped() -> None:
    body = {
        "model": "code",
        "messages": [USER],
        "stream": True,
        "stream_options": {"include_usage": True, "vendor": 1},
        "max_tokens": 100,
        "max_completion_tokens": 80,
        "something_new": {"kept": [1, None]},
    }
    data = json.dumps(body).encode()
    request = read_chat_request(data)

    assert (request.model, request.stream, request.include_usage) == ("code", True, True)
    assert request.max_output_tokens == 80
    assert request.body == body
    assert request.body_bytes == len(data)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"model": None}, "model"),
        ({"model": ""}, "model"),
        ({"model": 3}, "model"),
        ({"model": "x" * 257}, "model"),
        ({"messages": None}, "messages"),
        ({"messages": []}, "messages"),
        ({"messages": {}}, "messages"),
        ({"messages": [USER, "hello"]}, "messages[1]"),
        ({"messages": [{"content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": 1}]}, "messages[0].role"),
        ({"messages": [USER, USER, {"role": "user", "content": 5}]}, "messages[2].content"),
        ({"messages": [{"role": "user", "content": {"a": 1}}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": ["x"]}]}, "messages[0].content[0]"),
        ({"messages": [{"role": "user", "content": [{}]}]}, "messages[0].content[0].type"),
        ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages[0].content[0].text"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]},
            "messages[0].content[0].image_url",
        ),
        ({"messages": [{"role": "assistant", "tool_calls": {}}]}, "messages[0].tool_calls"),
        ({"messages": [{"role": "assistant", "tool_calls": [1]}]}, "messages[0].tool_calls[0]"),
        (
            {"messages": [{"role": "assistant", "tool_calls": [{"function": "f"}]}]},
            "messages[0].tool_calls[0].function",
        ),
        ({"stream": "yes"}, "stream"),
        ({"stream_options": []}, "stream_options"),
        ({"stream_options": {"include_usage": 1}}, "stream_options.include_usage"),
        ({"max_tokens": "many"}, "max_tokens"),
        ({"max_tokens": True}, "max_tokens"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_completion_tokens": 1.5}, "max_completion_tokens"),
        ({"tools": {}}, "tools"),
        ({"tools": ["x"]}, "tools[0]"),
        ({"functions": 1}, "functions"),
        ({"response_format": "json"}, "response_format"),
        ({"parallel_tool_calls": "no"}, "parallel_tool_calls"),
    ],
)
def test_a_wrong_type_is_named_by_its_field(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        read(**fields)

    assert caught.value.param == param
    assert caught.value.status == 400


@pytest.mark.parametrize(
    "body", [b"", b"  ", b"{", b"[]", b"3", b'"x"', b"\xff", b'{"model": "\\ud800"}', b"{}"]
)
def test_what_is_no_request_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidRequest):
        read_chat_request(body)


def test_null_means_absent() -> None:
    request = read(stream=None, max_tokens=None, tools=None, stream_options=None, response_format=None)

    assert not request.stream
    assert request.max_output_tokens is None


def test_a_large_body_is_refused_by_its_size() -> None:
    with pytest.raises(InvalidRequest, match="at most 100"):
        read_chat_request(b" " * 101, max_bytes=100)


@pytest.mark.parametrize("depth", [MAXIMUM_DEPTH + 1, 500, 100_000])
def test_nesting_is_bounded(depth: int) -> None:
    nested = "[" * depth + "]" * depth
    with pytest.raises(InvalidRequest):
        read_chat_request(f'{{"model": "chat", "messages": [{json.dumps(USER)}], "x": {nested}}}'.encode())


def test_a_body_that_is_read_can_be_written() -> None:
    depth = MAXIMUM_DEPTH - 1
    nested = "[" * depth + "]" * depth
    request = read_chat_request(f'{{"model": "c", "messages": [{json.dumps(USER)}], "x": {nested}}}'.encode())

    assert orjson.loads(body_for(request, "m", include_usage=True))["model"] == "m"


def test_of_a_repeated_key_both_sides_see_the_last() -> None:
    messages = json.dumps([USER])
    request = read_chat_request(
        f'{{"model": "a", "messages": {messages}, "model": "b", "x": 1, "x": 2}}'.encode()
    )
    body = body_for(request, "upstream", include_usage=False)

    assert request.model == "b"
    assert body.count(b'"x"') == 1
    assert orjson.loads(body)["x"] == 2


def test_the_upstream_gets_its_own_name_a_stream_and_usage() -> None:
    request = read(temperature=0.5, stream_options={"vendor": 1}, something={"new": True})
    body = orjson.loads(body_for(request, "vendor/model", include_usage=True))

    assert body == {
        "model": "vendor/model",
        "messages": [USER],
        "temperature": 0.5,
        "stream": True,
        "stream_options": {"vendor": 1, "include_usage": True},
        "something": {"new": True},
    }
    assert request.body["model"] == "chat"
    assert request.body["stream_options"] == {"vendor": 1}


@pytest.mark.parametrize(
    ("fields", "bound", "sent"),
    [
        ({}, None, {}),
        ({}, 500, {}),
        ({"max_tokens": 100}, 500, {"max_tokens": 100}),
        ({"max_tokens": 900}, 500, {"max_tokens": 500}),
        ({"max_completion_tokens": 900}, 500, {"max_completion_tokens": 500}),
        (
            {"max_tokens": 900, "max_completion_tokens": 400},
            500,
            {"max_tokens": 400, "max_completion_tokens": 400},
        ),
    ],
)
def test_the_answer_s_bound_is_lowered_never_raised(
    fields: dict[str, int], bound: int | None, sent: dict[str, int]
) -> None:
    body = orjson.loads(body_for(read(**fields), "m", include_usage=False, max_output_tokens=bound))

    assert {name: body[name] for name in body if name.startswith("max_")} == sent


def test_a_bound_that_the_gateway_set_is_sent_where_the_client_gave_none() -> None:
    from dataclasses import replace

    bounded = replace(read(), max_output_tokens=64)

    assert orjson.loads(body_for(bounded, "m", include_usage=False))["max_tokens"] == 64


JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                [
                    "role",
                    "content",
                    "type",
                    "text",
                    "image_url",
                    "url",
                    "tool_calls",
                    "function",
                    "name",
                    "arguments",
                    "x",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)
FIELDS = st.sampled_from(
    ["model", "messages", "stream", "stream_options", "max_tokens", "tools", "functions", "response_format",
     "reasoning_effort", "reasoning", "thinking", "parallel_tool_calls"]
)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(FIELDS, JSON, max_size=6) | JSON)
def test_any_json_is_a_request_or_an_invalid_request(value: Any) -> None:
    given_value = {"model": "chat", "messages": [USER], **value} if isinstance(value, dict) else value
    try:
        request = read_chat_request(json.dumps(given_value).encode())
    except InvalidRequest:
        return

    assert read_features(request).prompt_tokens(0.3) > 0
    assert orjson.loads(body_for(request, "m", include_usage=True))["stream"] is True


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=64))
def test_any_bytes_are_a_request_or_an_invalid_request(data: bytes) -> None:
    with pytest.raises(InvalidRequest):
        read_chat_request(data)
