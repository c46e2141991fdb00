"""Bodies of requests as pydantic models: OpenAI's fields and the usual local ones; others are ignored.

Knows shapes and ranges of single fields; not tokens, templates or the model's limits.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

__all__ = [
    "ChatBody",
    "ChatMessage",
    "CompletionBody",
    "ContentPart",
    "ResponseFormat",
    "SamplingFields",
    "StreamOptions",
]

Count = Annotated[int, Field(ge=1)]


class _Body(BaseModel):
    model_config = ConfigDict(extra="ignore")


class ContentPart(_Body):
    """One part of a message; only ``type: text`` can be served."""

    type: str
    text: str | None = None


class ChatMessage(_Body):
    """One turn. ``content`` may be null beside tool calls."""

    role: str
    content: str | list[ContentPart] | None = None
    name: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[dict[str, Any]] | None = None
    tool_call_id: str | None = None


class StreamOptions(_Body):
    """``include_usage`` asks for one more frame with the token counts."""

    include_usage: bool | None = None


class ResponseFormat(_Body):
    """Only ``text`` can be served."""

    type: str


class SamplingFields(_Body):
    """What both surfaces share. ``null`` is the same as absent.

    ``fit_max_tokens`` (ours): where the window has less room than ``max_tokens``, the room is the bound.
    """

    model: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: Count | None = None
    fit_max_tokens: bool | None = None
    n: int | None = None
    stop: str | list[str] | None = None
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    repeat_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: dict[int, float] | None = None
    seed: int | None = None


class ChatBody(SamplingFields):
    """``POST /v1/chat/completions``."""

    messages: Annotated[list[ChatMessage], Field(min_length=1)]
    max_completion_tokens: Count | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    response_format: ResponseFormat | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: Literal["none", "auto", "required"] | dict[str, Any] | None = None
    chat_template_kwargs: dict[str, Any] | None = None


class CompletionBody(SamplingFields):
    """``POST /v1/completions``: a text, or the ids of its tokens."""

    prompt: str | list[int] | list[str]
    logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    echo: bool | None = None
    suffix: str | None = None
    best_of: int | None = None
