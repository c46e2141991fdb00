"""What routing needs to know of a request, and nothing else of it (no prompt text).

Knows no tokenizer: tokens are estimated from bytes, and the ratio is learnt per model elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import orjson

from router.chat.types import ChatRequest, JsonValue

__all__ = ["RequestFeatures", "TaskKind", "read_features"]

# Rough tokens of what is not text. Images: between 85 (low detail) and some 1,500 at most providers.
_TOKENS_PER_MESSAGE: Final = 4
_TOKENS_PER_IMAGE: Final = 1_000
_TOKENS_PER_SMALL_IMAGE: Final = 85
_TOKENS_PER_FILE: Final = 4_000
_IMAGE_PARTS: Final = frozenset({"image_url", "input_image", "image"})
_FILE_PARTS: Final = frozenset({"file", "input_file", "input_audio", "video_url", "document"})
_NO_REASONING: Final = frozenset({"none", "disabled", "off"})
_SYSTEM_ROLES: Final = frozenset({"system", "developer"})


class TaskKind(StrEnum):
    """The kinds of work an entrypoint stands for, and that a judge can name."""

    CHAT = "chat"
    CODE = "code"
    BUILD = "build"
    LONG = "long"


@dataclass(frozen=True, slots=True)
class RequestFeatures:
    """The facts of one request that eligibility and score are decided from.

    ``prompt_characters`` counts the text of messages and tools, characters beyond ASCII as more than
    one (see :func:`read_features`); ``fixed_tokens`` is what does not depend on text: images, files, the
    frame around each message. ``wanted_output_tokens`` is the client's bound, or ``None`` where it gave
    none. ``needs_prefill``: the last message is the assistant's own, to be continued.
    """

    model: str
    prompt_characters: int
    wanted_output_tokens: int | None
    needs_tools: bool = False
    needs_parallel_tools: bool = False
    needs_vision: bool = False
    needs_json_schema: bool = False
    needs_reasoning: bool = False
    message_count: int = 1
    stream: bool = False
    has_system_prompt: bool = False
    needs_prefill: bool = False
    fixed_tokens: int = 0

    def prompt_tokens(self, tokens_per_character: float) -> int:
        """Estimate of the prompt's tokens, rounded up, for a model's ``tokens_per_character``."""
        return int(self.prompt_characters * tokens_per_character) + 1 + self.fixed_tokens


def read_features(request: ChatRequest) -> RequestFeatures:
    """Read the features of a request; never fails on what the wire's reader let through.

    Characters beyond ASCII count as the mean of one and their UTF-8 bytes (Chinese 2, Cyrillic 1.5):
    tokenizers spend more tokens on them, by about as much. Data URLs are not text.
    """
    body = request.body
    size = _Size()
    messages = body.get("messages")
    listed = (
        [message for message in messages if isinstance(message, dict)] if isinstance(messages, list) else []
    )
    for message in listed:
        size.add_message(message)
    tools = [body[name] for name in ("tools", "functions") if body.get(name)]
    for tool in tools:
        size.add_json(tool)
    schema = _schema_of(body.get("response_format"))
    size.add_json(schema)
    last = listed[-1] if listed else {}
    return RequestFeatures(
        model=request.model,
        prompt_characters=size.characters,
        wanted_output_tokens=request.max_output_tokens,
        needs_tools=bool(tools) or size.has_tool_turns,
        needs_parallel_tools=bool(tools) and body.get("parallel_tool_calls") is True,
        needs_vision=size.has_images,
        needs_json_schema=schema is not None,
        needs_reasoning=_asks_for_reasoning(body),
        message_count=len(listed),
        stream=request.stream,
        has_system_prompt=any(message.get("role") in _SYSTEM_ROLES for message in listed),
        needs_prefill=last.get("role") == "assistant" and not last.get("tool_calls"),
        fixed_tokens=size.fixed_tokens,
    )


class _Size:
    """Counts what a prompt holds."""

    def __init__(self) -> None:
        self.characters = 0
        self.fixed_tokens = 0
        self.has_images = False
        self.has_tool_turns = False

    def add_message(self, message: Mapping[str, JsonValue]) -> None:
        self.fixed_tokens += _TOKENS_PER_MESSAGE
        content = message.get("content")
        if isinstance(content, str):
            self.add_text(content)
        elif isinstance(content, list):
            for part in content:
                self._add_part(part)
        for name in ("name", "reasoning_content", "reasoning", "refusal", "tool_call_id"):
            if message.get(name):
                self.add_text(message[name])
        calls = message.get("tool_calls")
        for call in calls if isinstance(calls, list) else []:
            function = call.get("function") if isinstance(call, dict) else None
            if isinstance(function, dict):
                self.add_text(function.get("name"))
                self.add_text(function.get("arguments"))
        if calls or message.get("role") in {"tool", "function"}:
            self.has_tool_turns = True

    def add_text(self, text: JsonValue) -> None:
        """Count a text; anything else counts nothing."""
        if not isinstance(text, str):
            return
        length = len(text)
        self.characters += length if text.isascii() else (length + len(text.encode()) + 1) // 2

    def add_json(self, value: JsonValue) -> None:
        """Count a value as its JSON text."""
        if value is not None:
            self.add_text(orjson.dumps(value).decode())

    def _add_part(self, part: JsonValue) -> None:
        if not isinstance(part, dict):
            self.add_text(part)
            return
        kind = part.get("type")
        if kind in _IMAGE_PARTS:
            self.has_images = True
            image = part.get("image_url")
            is_small = isinstance(image, dict) and image.get("detail") == "low"
            self.fixed_tokens += _TOKENS_PER_SMALL_IMAGE if is_small else _TOKENS_PER_IMAGE
        elif kind in _FILE_PARTS:
            self.fixed_tokens += _TOKENS_PER_FILE
        else:
            for name in ("text", "refusal", "thinking"):
                self.add_text(part.get(name))


def _schema_of(response_format: JsonValue) -> JsonValue:
    if not isinstance(response_format, dict) or response_format.get("type") != "json_schema":
        return None
    return response_format.get("json_schema") or {}


def _asks_for_reasoning(body: Mapping[str, JsonValue]) -> bool:
    """Whether the client asked for reasoning, in any of the spellings of this wire."""
    effort = body.get("reasoning_effort")
    if isinstance(effort, str):
        return effort not in _NO_REASONING
    reasoning = body.get("reasoning")
    if isinstance(reasoning, dict):
        wanted = reasoning.get("effort")
        is_off = isinstance(wanted, str) and wanted in _NO_REASONING
        return not is_off and reasoning.get("enabled") is not False
    thinking = body.get("thinking")
    kind = thinking.get("type") if isinstance(thinking, dict) else None
    return isinstance(kind, str) and kind not in _NO_REASONING
