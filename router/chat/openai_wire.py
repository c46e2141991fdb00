"""OpenAI's chat-completions wire, requests: bytes → :class:`ChatRequest` and → the bytes for an upstream.

Tolerant in: only the fields that routing and relaying read are checked, everything else passes through
as it came. Of a repeated key the last one counts, for us and, since the body is written anew, for the
upstream too. Answers are :mod:`router.chat.openai_frames`. Shapes: OpenAI's API reference, "Create chat
completion".
"""

from __future__ import annotations

from typing import Final

import orjson

from router.chat.openai_frames import event_from_frame, is_usage_only
from router.chat.types import ChatRequest, JsonValue, WireName
from router.errors import InvalidRequest

__all__ = ["MAXIMUM_DEPTH", "body_for", "event_from_frame", "is_usage_only", "read_chat_request"]

MAXIMUM_DEPTH: Final = 128
"""Levels of nesting taken from a client; JSON Schemas of tools stay below 30."""

_MAXIMUM_MODEL_CHARACTERS: Final = 256
_OUTPUT_BOUNDS: Final = ("max_completion_tokens", "max_tokens")


def read_chat_request(body: bytes, *, max_bytes: int | None = None) -> ChatRequest:
    """Read a request body.

    Raises
    ------
    InvalidRequest
        It is too large, not JSON, nested too deep, or a field that is read has the wrong type; ``param``
        names the field, such as ``messages[2].content``.

    """
    if max_bytes is not None and len(body) > max_bytes:
        raise InvalidRequest(f"the body has {len(body)} bytes; at most {max_bytes} are taken")
    value = _decoded(body)
    model = value.get("model")
    if model is None:
        raise InvalidRequest(
            "model is missing: name an entrypoint such as chat, or a candidate", param="model"
        )
    if not isinstance(model, str) or not 0 < len(model) <= _MAXIMUM_MODEL_CHARACTERS:
        raise InvalidRequest("model should be a name", param="model")
    _check_messages(value.get("messages"))
    _check_tools(value)
    stream = _boolean(value, "stream")
    return ChatRequest(
        model=model,
        stream=stream,
        include_usage=_include_usage(value),
        max_output_tokens=_output_bound(value),
        wire=WireName.CHAT_COMPLETIONS,
        body=value,
        body_bytes=len(body),
    )


def body_for(
    request: ChatRequest, upstream_model: str, *, include_usage: bool, max_output_tokens: int | None = None
) -> bytes:
    """Return the body for an upstream of the same wire.

    Replaced are ``model``, ``stream`` (always true) and, with ``include_usage``, that field of
    ``stream_options``; the answer's bound is lowered to the smaller of the request's
    ``max_output_tokens`` and the argument, and never raised. Everything else stays as the client wrote it.
    """
    body = {**request.body, "model": upstream_model, "stream": True}
    if include_usage:
        options = body.get("stream_options")
        body["stream_options"] = {**(options if isinstance(options, dict) else {}), "include_usage": True}
    bounds = [bound for bound in (request.max_output_tokens, max_output_tokens) if bound is not None]
    if bounds:
        _lower_output_bound(body, min(bounds), add=request.max_output_tokens is not None)
    return orjson.dumps(body)


def _lower_output_bound(body: dict[str, JsonValue], bound: int, *, add: bool) -> None:
    """Lower the client's bounds; ``add`` one where it gave none."""
    given = False
    for name in _OUTPUT_BOUNDS:
        value = body.get(name)
        if isinstance(value, int):
            given = True
            body[name] = min(value, bound)
    if add and not given:
        body["max_tokens"] = bound


def _decoded(body: bytes) -> dict[str, JsonValue]:
    if not body.strip():
        raise InvalidRequest("the body is empty: send a JSON object with model and messages")
    try:
        value: JsonValue = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise InvalidRequest(f"the body is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise InvalidRequest("the body should be a JSON object with model and messages")
    # The depth is at most the number of opening brackets: short of that, nothing needs to be walked.
    if body.count(b"{") + body.count(b"[") > MAXIMUM_DEPTH:
        _check_depth(value)
    return value


def _check_depth(value: dict[str, JsonValue]) -> None:
    level: list[dict[str, JsonValue] | list[JsonValue]] = [value]
    for _ in range(MAXIMUM_DEPTH):
        level = [
            child
            for node in level
            for child in (node.values() if isinstance(node, dict) else node)
            if isinstance(child, dict | list)
        ]
        if not level:
            return
    raise InvalidRequest(f"the body is nested deeper than {MAXIMUM_DEPTH} levels")


def _check_messages(messages: JsonValue) -> None:
    if messages is None:
        raise InvalidRequest("messages is missing", param="messages")
    if not isinstance(messages, list):
        raise InvalidRequest("messages should be a list", param="messages")
    if not messages:
        raise InvalidRequest("messages is empty: send at least one message", param="messages")
    for number, message in enumerate(messages):
        if not isinstance(message, dict):
            raise InvalidRequest("a message should be an object", param=f"messages[{number}]")
        role = message.get("role")
        if not isinstance(role, str) or not role:
            raise InvalidRequest("role should be text such as user", param=f"messages[{number}].role")
        content = message.get("content")
        if isinstance(content, list):
            _check_parts(content, number)
        elif content is not None and not isinstance(content, str):
            raise InvalidRequest(
                "content should be text or a list of parts", param=f"messages[{number}].content"
            )
        if message.get("tool_calls") is not None:
            _check_calls(message["tool_calls"], number)


def _check_parts(parts: list[JsonValue], message: int) -> None:
    for number, part in enumerate(parts):
        where = f"messages[{message}].content[{number}]"
        if not isinstance(part, dict):
            raise InvalidRequest("a part should be an object with a type", param=where)
        kind = part.get("type")
        if not isinstance(kind, str):
            raise InvalidRequest("a part's type should be text", param=f"{where}.type")
        if kind == "text" and not isinstance(part.get("text"), str):
            raise InvalidRequest("a text part should have text", param=f"{where}.text")
        if kind == "image_url":
            image = part.get("image_url")
            url = image.get("url") if isinstance(image, dict) else image
            if not isinstance(url, str):
                raise InvalidRequest("an image part should have a url", param=f"{where}.image_url")


def _check_calls(calls: JsonValue, message: int) -> None:
    where = f"messages[{message}].tool_calls"
    if not isinstance(calls, list):
        raise InvalidRequest("tool_calls should be a list", param=where)
    for number, call in enumerate(calls):
        if not isinstance(call, dict):
            raise InvalidRequest("a tool call should be an object", param=f"{where}[{number}]")
        function = call.get("function")
        if function is not None and not isinstance(function, dict):
            raise InvalidRequest("function should be an object", param=f"{where}[{number}].function")


def _check_tools(value: dict[str, JsonValue]) -> None:
    for name in ("tools", "functions"):
        tools = value.get(name)
        if tools is None:
            continue
        if not isinstance(tools, list):
            raise InvalidRequest(f"{name} should be a list", param=name)
        for number, tool in enumerate(tools):
            if not isinstance(tool, dict):
                raise InvalidRequest("a tool should be an object", param=f"{name}[{number}]")
    for name in ("response_format", "stream_options"):
        if not isinstance(value.get(name), dict | None):
            raise InvalidRequest(f"{name} should be an object", param=name)
    _boolean(value, "parallel_tool_calls")


def _boolean(value: dict[str, JsonValue], name: str) -> bool:
    found = value.get(name)
    if found is not None and not isinstance(found, bool):
        raise InvalidRequest(f"{name} should be true or false", param=name)
    return bool(found)


def _include_usage(value: dict[str, JsonValue]) -> bool:
    options = value.get("stream_options")
    found = options.get("include_usage") if isinstance(options, dict) else None
    if found is not None and not isinstance(found, bool):
        raise InvalidRequest("include_usage should be true or false", param="stream_options.include_usage")
    return bool(found)


def _output_bound(value: dict[str, JsonValue]) -> int | None:
    """Return the smaller of the client's bounds; ``None`` where it gave none."""
    bounds: list[int] = []
    for name in _OUTPUT_BOUNDS:
        bound = value.get(name)
        if bound is None:
            continue
        if isinstance(bound, bool) or not isinstance(bound, int):
            raise InvalidRequest(f"{name} should be a whole number", param=name)
        if bound < 1:
            raise InvalidRequest(f"{name} should be at least 1", param=name)
        bounds.append(bound)
    return min(bounds) if bounds else None
