"""OpenAI's chat-completions wire, answers: the JSON of one frame → a :class:`ChatEvent`.

Reads the habits of everybody who speaks this wire, in streams and as whole ``chat.completion`` bodies,
and keeps the frame's bytes beside their meaning. The hot path: every token of every stream comes
through here. Knows no HTTP and no vendors by name.
"""

from __future__ import annotations

from typing import Final

import orjson

from router.chat.openai_usage import usage_from
from router.chat.types import (
    ChatEvent,
    Delta,
    FinishDelta,
    FinishReason,
    JsonValue,
    ReasoningDelta,
    RefusalDelta,
    TextDelta,
    ToolCallDelta,
    UsageDelta,
    WireFrame,
    WireName,
)
from router.errors import UpstreamBrokenStream, UpstreamInBandError

__all__ = ["arguments_text", "event_from_frame", "finish_reason", "is_usage_only", "split_parts"]

_MAXIMUM_MESSAGE: Final = 500
_MAXIMUM_INDEX: Final = 4_096
_HTTP_ERRORS: Final = range(400, 600)
_FINISH: Final = {
    "stop": FinishReason.STOP,
    "eos": FinishReason.STOP,
    "eos_token": FinishReason.STOP,
    "stop_sequence": FinishReason.STOP,
    "end_turn": FinishReason.STOP,
    "complete": FinishReason.STOP,
    "completed": FinishReason.STOP,
    "length": FinishReason.LENGTH,
    "max_tokens": FinishReason.LENGTH,
    "max_output_tokens": FinishReason.LENGTH,
    "model_length": FinishReason.LENGTH,
    "model_context_window_exceeded": FinishReason.LENGTH,
    "tool_calls": FinishReason.TOOL_CALLS,
    "tool_call": FinishReason.TOOL_CALLS,
    "tool_use": FinishReason.TOOL_CALLS,
    "function_call": FinishReason.TOOL_CALLS,
    "content_filter": FinishReason.CONTENT_FILTER,
    "content_filtered": FinishReason.CONTENT_FILTER,
    "sensitive": FinishReason.CONTENT_FILTER,
    "safety": FinishReason.CONTENT_FILTER,
    "recitation": FinishReason.CONTENT_FILTER,
    "prohibited_content": FinishReason.CONTENT_FILTER,
    "refusal": FinishReason.CONTENT_FILTER,
    "error": FinishReason.ERROR,
    "network_error": FinishReason.ERROR,
    "insufficient_system_resource": FinishReason.ERROR,
}


def event_from_frame(data: bytes) -> ChatEvent:
    """Return what one frame (a chunk, or a whole completion) says; ``data`` is its JSON.

    Raises
    ------
    UpstreamInBandError
        The frame is an error object, or a choice ended with an error.
    UpstreamBrokenStream
        It is not JSON, or not of this wire.

    """
    value = _frame_object(data)
    deltas: list[Delta] = []
    usage = value.get("usage")
    choices = value.get("choices")
    if choices:
        if not isinstance(choices, list):
            raise UpstreamBrokenStream("choices of a frame is not a list")
        for position, choice in enumerate(choices):
            if not isinstance(choice, dict):
                raise UpstreamBrokenStream("a choice of a frame is not an object")
            usage = usage or choice.get("usage")
            _read_choice(choice, position, deltas)
    if not usage:
        extension = value.get("x_groq")
        usage = extension.get("usage") if isinstance(extension, dict) else None
    if isinstance(usage, dict) and (counted := usage_from(usage)) is not None:
        deltas.append(UsageDelta(counted))
    return ChatEvent(tuple(deltas), WireFrame(WireName.CHAT_COMPLETIONS, data))


def _frame_object(data: bytes) -> dict[str, JsonValue]:
    try:
        value: JsonValue = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise UpstreamBrokenStream(f"a frame of {len(data)} bytes is not JSON: {error}") from error
    if isinstance(value, list) and value and isinstance(value[0], dict) and value[0].get("error"):
        value = value[0]
    if not isinstance(value, dict):
        raise UpstreamBrokenStream("a frame is not a JSON object")
    if value.get("error") or value.get("object") == "error" or value.get("type") == "error":
        raise _in_band(value)
    return value


def is_usage_only(event: ChatEvent) -> bool:
    """Whether the event is the extra chunk of usage, which only clients that asked for it expect."""
    if len(event.deltas) != 1 or not isinstance(event.deltas[0], UsageDelta):
        return False
    if event.frame is None:
        return True
    value: JsonValue = orjson.loads(event.frame.data)
    return isinstance(value, dict) and not value.get("choices")


def finish_reason(word: str) -> FinishReason:
    """Return the reason that an upstream's word means; an unknown word is an ordinary end."""
    return _FINISH.get(word) or _FINISH.get(word.lower(), FinishReason.STOP)


def split_parts(parts: list[JsonValue]) -> tuple[str, str]:
    """Return text and reasoning of content that came as a list of parts (Mistral's habit)."""
    text: list[str] = []
    thinking: list[str] = []
    for part in parts:
        if isinstance(part, str):
            text.append(part)
        elif isinstance(part, dict):
            inner = part.get("thinking")
            if isinstance(inner, list):
                thinking.append(split_parts(inner)[0])
            elif isinstance(inner, str):
                thinking.append(inner)
            elif isinstance(part.get("text"), str):
                text.append(str(part["text"]))
    return "".join(text), "".join(thinking)


def _read_choice(choice: dict[str, JsonValue], position: int, deltas: list[Delta]) -> None:
    index = choice.get("index")
    if index is None:
        index = position
    elif type(index) is not int or not 0 <= index < _MAXIMUM_INDEX:
        raise UpstreamBrokenStream("the index of a choice is not a small number")
    delta = choice.get("delta") or choice.get("message")
    if isinstance(delta, dict):
        _read_delta(delta, index, deltas)
    elif isinstance(choice.get("text"), str) and choice["text"]:
        deltas.append(TextDelta(index, str(choice["text"])))
    reason = choice.get("finish_reason")
    if not reason:
        return
    error = choice.get("error")
    if error:
        raise _in_band({"error": error})
    meaning = finish_reason(reason) if isinstance(reason, str) else FinishReason.STOP
    if meaning is FinishReason.ERROR:
        raise UpstreamInBandError("the upstream ended its answer with an error", upstream_code=_short(reason))
    deltas.append(FinishDelta(index, meaning))


def _read_delta(delta: dict[str, JsonValue], index: int, deltas: list[Delta]) -> None:
    content = delta.get("content")
    reasoning = delta.get("reasoning_content") or delta.get("reasoning")
    if isinstance(content, list):
        content, thinking = split_parts(content)
        reasoning = reasoning or thinking
    if reasoning and isinstance(reasoning, str):
        deltas.append(ReasoningDelta(index, reasoning))
    if content and isinstance(content, str):
        deltas.append(TextDelta(index, content))
    refusal = delta.get("refusal")
    if refusal and isinstance(refusal, str):
        deltas.append(RefusalDelta(index, refusal))
    calls = delta.get("tool_calls")
    if calls:
        if not isinstance(calls, list):
            raise UpstreamBrokenStream("tool_calls of a frame is not a list")
        for position, call in enumerate(calls):
            deltas.append(_tool_call(call, position, index))
    function = delta.get("function_call")
    if function and isinstance(function, dict):
        deltas.append(_tool_call({"function": function}, 0, index))


def _tool_call(call: JsonValue, position: int, choice: int) -> ToolCallDelta:
    if not isinstance(call, dict):
        raise UpstreamBrokenStream("a tool call of a frame is not an object")
    index = call.get("index")
    if index is None:
        index = position
    elif type(index) is not int or not 0 <= index < _MAXIMUM_INDEX:
        raise UpstreamBrokenStream("the index of a tool call is not a small number")
    call_id = call.get("id")
    function = call.get("function")
    name, arguments = None, ""
    if isinstance(function, dict):
        found = function.get("name")
        name = found if isinstance(found, str) and found else None
        arguments = arguments_text(function.get("arguments"))
    return ToolCallDelta(
        choice, index, call_id if isinstance(call_id, str) and call_id else None, name, arguments
    )


def arguments_text(value: JsonValue) -> str:
    """Return a call's arguments as text, also where an upstream sent them as an object."""
    if isinstance(value, str):
        return value
    return orjson.dumps(value).decode() if isinstance(value, dict | list) else ""


def _in_band(value: dict[str, JsonValue]) -> UpstreamInBandError:
    error = value.get("error") or value
    if isinstance(error, str):
        error = {"message": error, "code": value.get("code"), "type": value.get("error_type")}
    if not isinstance(error, dict):
        error = {}
    status = next(
        (
            number
            for name in ("status", "status_code", "code", "http_code")
            if (number := _status(error.get(name), value.get(name))) is not None
        ),
        None,
    )
    code = error.get("code")
    return UpstreamInBandError(
        _short(error.get("message")) or "the upstream sent an error object",
        upstream_status=status,
        upstream_code=_short(code) or (str(code) if isinstance(code, int) else None),
        upstream_type=_short(error.get("type")) or _short(error.get("status")),
    )


def _status(*values: JsonValue) -> int | None:
    for value in values:
        number = int(value) if isinstance(value, str) and value.isdecimal() and len(value) == 3 else value  # noqa: PLR2004 - an HTTP status
        if isinstance(number, int) and number in _HTTP_ERRORS:
            return number
    return None


def _short(value: JsonValue) -> str | None:
    return value[:_MAXIMUM_MESSAGE] if isinstance(value, str) and value else None
