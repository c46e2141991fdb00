"""The gateway's own vocabulary for a chat: request, events, usage.

One canonical shape for every surface (chat completions now; messages and responses later) and
every provider. Pure values: no IO, no vendor names, no HTTP.

An event keeps the upstream's frame beside its meaning, so that a surface of the same wire can relay
the bytes as they came and re-serialise only what it changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import TypeAlias

__all__ = [
    "Caller",
    "ChatEvent",
    "ChatRequest",
    "Delta",
    "FinishDelta",
    "FinishReason",
    "JsonValue",
    "Priority",
    "ReasoningDelta",
    "RefusalDelta",
    "TextDelta",
    "ToolCallDelta",
    "Usage",
    "UsageDelta",
    "WireFrame",
    "WireName",
]

JsonValue: TypeAlias = "bool | int | float | str | list[JsonValue] | dict[str, JsonValue] | None"

_EMPTY: Mapping[str, JsonValue] = MappingProxyType({})


class WireName(StrEnum):
    """The wire formats that a body or a frame can be written in."""

    CHAT_COMPLETIONS = "chat_completions"


class FinishReason(StrEnum):
    """Why an answer ended (OpenAI's words)."""

    STOP = "stop"
    LENGTH = "length"
    TOOL_CALLS = "tool_calls"
    CONTENT_FILTER = "content_filter"
    ERROR = "error"


class Priority(StrEnum):
    """Whose turn comes first where requests wait for a slot: somebody looks on, or nobody does."""

    INTERACTIVE = "interactive"
    BACKGROUND = "background"


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks, and how: what a queue must know beside the request itself.

    ``principal`` tells apart those who must not share answers (a digest, never a key); ``may_join``: an
    identical request of the same principal may be answered by one generation.
    """

    principal: str = ""
    request_id: str = ""
    priority: Priority = Priority.INTERACTIVE
    may_join: bool = True


_NOBODY = Caller()


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """What a client asked for.

    ``body`` is the request as it came, in ``wire``'s shape, with nothing dropped: a provider of the
    same wire sends it on with the model's name replaced, so unknown fields pass through. The other
    fields are what routing, limits and recording need, read once from the body.
    """

    model: str
    stream: bool
    include_usage: bool
    max_output_tokens: int | None
    wire: WireName
    body: Mapping[str, JsonValue]
    body_bytes: int
    caller: Caller = _NOBODY


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one answer in disjoint buckets: their sum is what was processed.

    ``input_tokens`` excludes cached ones; ``output_tokens`` excludes reasoning ones. ``estimated`` is
    true where the upstream said nothing and the gateway counted characters.
    """

    input_tokens: int = 0
    cached_input_tokens: int = 0
    cache_write_tokens: int = 0
    output_tokens: int = 0
    reasoning_tokens: int = 0
    estimated: bool = False

    @property
    def prompt_tokens(self) -> int:
        """All tokens that went in, as OpenAI's ``prompt_tokens`` counts them."""
        return self.input_tokens + self.cached_input_tokens + self.cache_write_tokens

    @property
    def completion_tokens(self) -> int:
        """All tokens that came out, as OpenAI's ``completion_tokens`` counts them."""
        return self.output_tokens + self.reasoning_tokens


@dataclass(frozen=True, slots=True)
class TextDelta:
    """A piece of the answer's text."""

    choice: int
    text: str


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """A piece of the model's visible reasoning."""

    choice: int
    text: str


@dataclass(frozen=True, slots=True)
class RefusalDelta:
    """A piece of a refusal."""

    choice: int
    text: str


@dataclass(frozen=True, slots=True)
class ToolCallDelta:
    """A piece of a tool call. ``call_id`` and ``name`` come once, ``arguments`` in pieces."""

    choice: int
    index: int
    call_id: str | None = None
    name: str | None = None
    arguments: str = ""


@dataclass(frozen=True, slots=True)
class FinishDelta:
    """The ending of one choice."""

    choice: int
    reason: FinishReason


@dataclass(frozen=True, slots=True)
class UsageDelta:
    """The upstream's count of tokens; a later one replaces an earlier one."""

    usage: Usage


Delta: TypeAlias = TextDelta | ReasoningDelta | RefusalDelta | ToolCallDelta | FinishDelta | UsageDelta

_SEMANTIC = (TextDelta, ReasoningDelta, RefusalDelta)


@dataclass(frozen=True, slots=True)
class WireFrame:
    """An upstream's frame as it came: ``data`` is the JSON text of one SSE event, without ``data:``."""

    wire: WireName
    data: bytes


@dataclass(frozen=True, slots=True)
class ChatEvent:
    """One thing the upstream said: what it means, and the frame that said it.

    An event without deltas (role only, ping, metadata) is progress of the connection, not of the
    answer.
    """

    deltas: tuple[Delta, ...]
    frame: WireFrame | None = None
    extra: Mapping[str, JsonValue] = field(default_factory=lambda: _EMPTY)

    @property
    def is_semantic(self) -> bool:
        """Whether this event commits the answer to its candidate: text, reasoning, refusal, tool name."""
        for delta in self.deltas:
            if isinstance(delta, _SEMANTIC) and delta.text:
                return True
            if isinstance(delta, ToolCallDelta) and (delta.name or delta.arguments):
                return True
        return False

    @property
    def is_final(self) -> bool:
        """Whether this event ends a choice."""
        return any(isinstance(delta, FinishDelta) for delta in self.deltas)
