from __future__ import annotations

from itertools import pairwise

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.chat.types import ChatEvent, FinishDelta, FinishReason, TextDelta, ToolCallDelta, UsageDelta
from router.errors import UpstreamBrokenStream, UpstreamEmpty, UpstreamError, UpstreamInBandError
from router.providers.answer_reader import AnswerReader
from router.providers.credentials import ProviderKeys


def chunk(
    delta: dict[str, object] | None = None, finish: str | None = None, index: int = 0, **more: object
) -> bytes:
    choice = {"index": index, "delta": delta or {}, "finish_reason": finish}
    return (
        b"data: " + orjson.dumps({"object": "chat.completion.chunk", "choices": [choice], **more}) + b"\n\n"
    )


ROLE = chunk({"role": "assistant", "content": ""})
HELLO = chunk({"content": "hello"})
STOP = chunk(finish="stop")
DONE = b"data: [DONE]\n\n"
USAGE = b'data: {"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":3}}\n\n'
CALL = chunk({"tool_calls": [{"index": 0, "id": "c", "function": {"name": "f", "arguments": '{"a":'}}]})


def read(*pieces: bytes) -> list[ChatEvent]:
    reader = AnswerReader()
    events = [event for piece in pieces for event in reader.feed(piece)]
    return events + list(reader.end())


def result(*pieces: bytes) -> tuple[list[ChatEvent], str]:
    """Return the events, and the error that ended them as text."""
    reader = AnswerReader()
    events: list[ChatEvent] = []
    try:
        for piece in pieces:
            events.extend(reader.feed(piece))
        events.extend(reader.end())
    except UpstreamError as error:
        return events, repr(error)
    return events, ""


def deltas(events: list[ChatEvent]) -> list[object]:
    return [delta for event in events for delta in event.deltas]


def test_a_whole_answer_is_its_events_with_their_frames() -> None:
    events = read(ROLE, HELLO, STOP, USAGE, DONE)

    found = deltas(events)
    assert found[:2] == [TextDelta(0, "hello"), FinishDelta(0, FinishReason.STOP)]
    assert isinstance(found[2], UsageDelta)
    assert events[1].frame is not None
    assert events[1].frame.data == HELLO[6:].strip()


@pytest.mark.parametrize(
    "stream",
    [
        pytest.param([HELLO, STOP], id="no DONE"),
        pytest.param([HELLO, STOP, USAGE], id="usage but no DONE"),
        pytest.param([HELLO, STOP, b"data: [DONE]"], id="DONE without an ending of its line"),
        pytest.param([HELLO, STOP[:-2]], id="last event without its blank line"),
        pytest.param([b": OPENROUTER PROCESSING\n\n", HELLO, STOP, DONE], id="comments"),
        pytest.param([HELLO, STOP, DONE, b"data: rubbish\n\n"], id="rubbish after DONE"),
        pytest.param([b"\xef\xbb\xbf", HELLO, STOP, DONE], id="byte order mark"),
        pytest.param([b"\r\n\r\n", HELLO, STOP, DONE], id="blank lines first"),
        pytest.param([chunk({"content": "hello"}, "stop")], id="all in one"),
    ],
)
def test_these_are_whole_too(stream: list[bytes]) -> None:
    assert TextDelta(0, "hello") in deltas(read(*stream))


@pytest.mark.parametrize(
    ("stream", "said"),
    [
        pytest.param([], "without its ending", id="nothing"),
        pytest.param([ROLE], "without its ending", id="role only"),
        pytest.param([HELLO], "without its ending", id="text only"),
        pytest.param([HELLO, DONE], "without a finish reason", id="DONE without finish"),
        pytest.param([CALL, DONE], "without a finish reason", id="half a tool call and DONE"),
        pytest.param(
            [HELLO, STOP, chunk({"content": "x"}, index=1)], "without its ending", id="second choice cut"
        ),
        pytest.param([HELLO, b'data: {"choi'], "not JSON", id="half a frame"),
        pytest.param([b"data: hello\n\n"], "not JSON", id="not JSON"),
        pytest.param([b"<!DOCTYPE html><html>"], "markup", id="HTML"),
        pytest.param([b'{"object": "chat.completion", "choices": [{'], "not whole", id="half a body"),
        pytest.param([b'{"hello": 1}'], "not a chat completion", id="other JSON"),
    ],
)
def test_what_is_not_whole_is_a_broken_stream(stream: list[bytes], said: str) -> None:
    with pytest.raises(UpstreamBrokenStream, match=said):
        read(*stream)


@pytest.mark.parametrize(
    "stream",
    [
        pytest.param([ROLE, STOP, DONE], id="role and stop"),
        pytest.param([chunk({"content": ""}, "stop")], id="empty text"),
        pytest.param([USAGE, DONE], id="no choice at all"),
        pytest.param([b'{"choices":[{"message":{"content":""},"finish_reason":"stop"}]}'], id="empty body"),
    ],
)
def test_a_whole_answer_that_says_nothing_is_empty(stream: list[bytes]) -> None:
    with pytest.raises(UpstreamEmpty):
        read(*stream)


def test_a_bound_reached_within_hidden_reasoning_is_an_answer() -> None:
    assert deltas(read(ROLE, chunk(finish="length"), DONE)) == [FinishDelta(0, FinishReason.LENGTH)]


def test_an_answer_that_was_filtered_whole_is_an_error_with_its_code() -> None:
    with pytest.raises(UpstreamInBandError) as caught:
        read(ROLE, chunk(finish="content_filter"), DONE)

    assert caught.value.upstream_code == "content_filter"


@pytest.mark.parametrize(
    ("frame", "status", "code"),
    [
        pytest.param({"error": {"message": "m", "code": 429}, "choices": []}, 429, None, id="OpenRouter"),
        pytest.param(
            {"error": {"message": "m", "code": "rate_limit", "type": "t"}}, None, "rate_limit", id="OpenAI"
        ),
        pytest.param({"error": "m"}, None, None, id="text"),
        pytest.param({"object": "error", "message": "m", "code": 400}, 400, None, id="vLLM"),
        pytest.param(
            [{"error": {"message": "m", "code": 503, "status": "UNAVAILABLE"}}],
            503,
            "UNAVAILABLE",
            id="Gemini",
        ),
    ],
)
def test_an_error_inside_the_stream_keeps_its_typed_fields(
    frame: object, status: int | None, code: str | None
) -> None:
    with pytest.raises(UpstreamInBandError, match="m") as caught:
        read(HELLO, b"data: " + orjson.dumps(frame) + b"\n\n", DONE)

    assert (caught.value.upstream_status, caught.value.upstream_code) == (status, code)


def test_an_event_of_the_type_error_is_one_whatever_its_shape() -> None:
    with pytest.raises(UpstreamInBandError, match="overloaded"):
        read(b'event: error\ndata: {"message": "overloaded"}\n\n')
    with pytest.raises(UpstreamInBandError, match="went away"):
        read(b"event: error\ndata: went away\n\n")


def test_the_finish_reason_error_is_a_failure() -> None:
    with pytest.raises(UpstreamInBandError):
        read(HELLO, chunk(finish="error"), DONE)


def test_text_that_speaks_of_errors_is_text() -> None:
    said = '{"error": {"message": "429"}}'

    assert deltas(read(chunk({"content": said}), STOP, DONE))[0] == TextDelta(0, said)


def test_what_came_before_an_error_in_the_same_bytes_is_not_lost() -> None:
    events, error = result(HELLO + b'data: {"error": {"message": "gone"}}\n\n')

    assert deltas(events) == [TextDelta(0, "hello")]
    assert "gone" in error


def test_keys_are_removed_from_an_error() -> None:
    reader = AnswerReader(ProviderKeys({"K": "topsecret-1"}))
    with pytest.raises(UpstreamInBandError) as caught:
        list(reader.feed(b'data: {"error": {"message": "bad key topsecret-1"}}\n\n'))

    assert "topsecret" not in str(caught.value)


BODY = {
    "id": "x",
    "object": "chat.completion",
    "model": "m",
    "choices": [
        {
            "index": 0,
            "message": {
                "role": "assistant",
                "content": "hi",
                "tool_calls": [
                    {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}},
                    {"id": "b", "type": "function", "function": {"name": "g", "arguments": "{}"}},
                ],
            },
            "finish_reason": "tool_calls",
        }
    ],
    "usage": {"prompt_tokens": 5, "completion_tokens": 2},
}


def test_a_json_body_is_one_chunk_that_says_the_same() -> None:
    events = read(orjson.dumps(BODY))

    assert len(events) == 1
    found = deltas(events)
    assert found[:4] == [
        TextDelta(0, "hi"),
        ToolCallDelta(0, 0, "a", "f", "{}"),
        ToolCallDelta(0, 1, "b", "g", "{}"),
        FinishDelta(0, FinishReason.TOOL_CALLS),
    ]
    assert events[0].frame is not None
    frame = orjson.loads(events[0].frame.data)
    assert frame["object"] == "chat.completion.chunk"
    assert "message" not in frame["choices"][0]


@pytest.mark.parametrize(
    "body",
    [
        {"error": {"message": "no", "code": 402}},
        {"code": "Arrearage", "message": "no"},
        {"object": "error", "message": "no"},
    ],
)
def test_a_json_body_with_an_error_is_one(body: object) -> None:
    with pytest.raises(UpstreamInBandError, match="no"):
        read(orjson.dumps(body))


_STREAMS = st.sampled_from(
    [
        b"".join((ROLE, HELLO, STOP, USAGE, DONE)),
        b"".join((b"\xef\xbb\xbf", HELLO, STOP)).replace(b"\n", b"\r\n"),
        HELLO + b'data: {"error": {"message": "gone", "code": 502}}\n\n',
        CALL + DONE,
        b" \r\n" + orjson.dumps(BODY),
        b"<html>",
        'data: {"choices":[{"index":0,"delta":{"content":"naïve 😀"},"finish_reason":"stop"}]}'.encode(),
    ]
)


@given(_STREAMS, st.lists(st.integers(0, 600), max_size=8))
def test_any_split_of_the_same_bytes_gives_the_same_answer(stream: bytes, cuts: list[int]) -> None:
    bounds = [0, *sorted({cut % len(stream) for cut in cuts}), len(stream)]
    pieces = [stream[start:stop] for start, stop in pairwise(bounds)]

    assert result(*pieces) == result(stream)
