"""A stream of events → the one ``chat.completion`` object that says the same.

There is one path: an answer that is not streamed is a folded stream. Events that carry a frame of
OpenAI's wire are folded from the frame, so that unknown fields survive; others from their deltas. Pure:
the id and the time for streams that name none are handed in.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Final

import orjson

from router.chat.openai_frames import arguments_text, finish_reason, split_parts
from router.chat.openai_usage import usage_object
from router.chat.types import (
    ChatEvent,
    FinishDelta,
    FinishReason,
    JsonValue,
    ReasoningDelta,
    RefusalDelta,
    TextDelta,
    ToolCallDelta,
    UsageDelta,
    WireName,
)

__all__ = ["Accumulator", "accumulate"]

_Object = dict[str, JsonValue]

# Strings that are said once (and by some upstreams again and again), never in pieces.
_SAID_ONCE: Final = frozenset({"id", "type", "role", "name", "format", "object", "model", "signature"})
_OWN: Final = frozenset({"id", "object", "created", "model", "choices", "usage", "error"})


async def accumulate(
    events: AsyncIterator[ChatEvent],
    *,
    default_id: str = "chatcmpl-0",
    default_created: int = 0,
    default_model: str = "",
) -> dict[str, JsonValue]:
    """Fold ``events`` to their end; the defaults stand in for what no frame said."""
    accumulator = Accumulator(default_id, default_created, default_model)
    async for event in events:
        accumulator.add(event)
    return accumulator.completion()


class Accumulator:
    """The fold, one event at a time."""

    def __init__(self, default_id: str = "chatcmpl-0", default_created: int = 0, model: str = "") -> None:
        self._head: _Object = {"id": default_id, "object": "chat.completion"}
        self._created = default_created
        self._model = model
        self._rest: _Object = {}
        self._usage: JsonValue = None
        self._choices: dict[int, _Choice] = {}
        self._is_first = True

    def add(self, event: ChatEvent) -> None:
        """Take one event."""
        if event.frame is not None and event.frame.wire is WireName.CHAT_COMPLETIONS:
            value: JsonValue = orjson.loads(event.frame.data)
            if isinstance(value, dict):
                self._add_frame(value)
        else:
            self._add_deltas(event)
        if self._usage is None:
            counted = [delta.usage for delta in event.deltas if isinstance(delta, UsageDelta)]
            self._usage = usage_object(counted[-1]) if counted else None

    def completion(self) -> dict[str, JsonValue]:
        """Return the whole answer."""
        choices: list[JsonValue] = [self._choices[index].whole(index) for index in sorted(self._choices)]
        whole = {**self._head, "created": self._created, "model": self._model, "choices": choices}
        if self._usage is not None:
            whole["usage"] = self._usage
        return {**whole, **self._rest}

    def _add_frame(self, value: _Object) -> None:
        if self._is_first and value.get("choices"):
            self._is_first = False
            self._take_head(value)
        for name, item in value.items():
            if name not in _OWN and item is not None:
                self._rest[name] = item
        if value.get("usage"):
            self._usage = value["usage"]
        choices = value.get("choices")
        for position, choice in enumerate(choices if isinstance(choices, list) else []):
            if isinstance(choice, dict):
                index = choice.get("index")
                self._choice(index if isinstance(index, int) else position).add(choice)
                self._usage = self._usage or choice.get("usage")

    def _take_head(self, value: _Object) -> None:
        identifier, created, model = value.get("id"), value.get("created"), value.get("model")
        if isinstance(identifier, str) and identifier:
            self._head["id"] = identifier
        if isinstance(created, int | float) and created:
            self._created = int(created)
        if isinstance(model, str) and model:
            self._model = model

    def _choice(self, index: int) -> _Choice:
        return self._choices.setdefault(index, _Choice())

    def _add_deltas(self, event: ChatEvent) -> None:
        for delta in event.deltas:
            if isinstance(delta, UsageDelta):
                self._usage = usage_object(delta.usage)
                continue
            piece: _Object = {}
            if isinstance(delta, TextDelta):
                piece["content"] = delta.text
            elif isinstance(delta, ReasoningDelta):
                piece["reasoning_content"] = delta.text
            elif isinstance(delta, RefusalDelta):
                piece["refusal"] = delta.text
            elif isinstance(delta, ToolCallDelta):
                function: _Object = {"name": delta.name, "arguments": delta.arguments}
                piece["tool_calls"] = [{"index": delta.index, "id": delta.call_id, "function": function}]
            choice: _Object = {"delta": piece}
            if isinstance(delta, FinishDelta):
                choice["finish_reason"] = delta.reason.value
            self._choice(delta.choice).add(choice)


class _Choice:
    """One choice's message as far as it has come."""

    def __init__(self) -> None:
        self._pieces: dict[str, list[str]] = {"content": [], "reasoning_content": [], "reasoning": []}
        self._message: _Object = {}
        self._rest: _Object = {}
        self._calls: list[_Object] = []
        self._call_positions: dict[int, int] = {}
        self._reason: FinishReason | None = None
        self._logprobs: _Object | None = None

    def add(self, choice: _Object) -> None:
        """Take one chunk's choice (or a whole completion's)."""
        delta = choice.get("delta") or choice.get("message")
        if isinstance(delta, dict):
            self._add_delta(delta)
        elif isinstance(choice.get("text"), str):
            self._pieces["content"].append(str(choice["text"]))
        reason = choice.get("finish_reason")
        if isinstance(reason, str) and reason:
            self._reason = finish_reason(reason)
        logprobs = choice.get("logprobs")
        if isinstance(logprobs, dict):
            self._logprobs = _merged(self._logprobs or {}, logprobs)
        for name, item in choice.items():
            if name not in {"index", "delta", "message", "text", "finish_reason", "logprobs", "usage"}:
                self._rest[name] = item

    def whole(self, index: int) -> _Object:
        """Return the finished choice."""
        text = "".join(self._pieces["content"])
        message: _Object = {"role": "assistant", "content": text or None, "refusal": None}
        for name in ("reasoning_content", "reasoning"):
            if self._pieces[name]:
                message[name] = "".join(self._pieces[name])
        message |= {name: item for name, item in self._message.items() if item is not None}
        if self._calls:
            message["tool_calls"] = [_finished_call(call, index) for index, call in enumerate(self._calls)]
        elif not text and not message["refusal"]:
            message["content"] = ""
        reason = self._reason
        if self._calls and reason is FinishReason.STOP:
            # Some upstreams stream tool calls and then end with "stop"; agents would not call the tools.
            reason = FinishReason.TOOL_CALLS
        return {
            **self._rest,
            "index": index,
            "message": message,
            "logprobs": self._logprobs,
            "finish_reason": reason.value if reason is not None else None,
        }

    def _add_delta(self, delta: _Object) -> None:
        for name, item in delta.items():
            if name == "content" and isinstance(item, list):
                text, thinking = split_parts(item)
                self._pieces["content"].append(text)
                if thinking:
                    self._pieces["reasoning_content"].append(thinking)
            elif name in self._pieces:
                if isinstance(item, str) and item:
                    self._pieces[name].append(item)
            elif name == "tool_calls":
                for position, call in enumerate(item if isinstance(item, list) else []):
                    if isinstance(call, dict):
                        self._add_call(call, position)
            elif item is not None:
                self._message[name] = _merged_value(self._message.get(name), item, name)

    def _add_call(self, call: _Object, position: int) -> None:
        index = call.get("index")
        key = index if isinstance(index, int) else position
        identifier = call.get("id")
        at = self._call_positions.get(key)
        known = self._calls[at] if at is not None else None
        # A new id under a known index is another call: some upstreams number every call 0.
        is_new = known is None or bool(identifier and known.get("id") and identifier != known["id"])
        if is_new or known is None:
            self._call_positions[key] = len(self._calls)
            known = {}
            self._calls.append(known)
        piece: _Object = {name: item for name, item in call.items() if name != "index" and item is not None}
        function = piece.get("function")
        if isinstance(function, dict):
            piece["function"] = {**function, "arguments": arguments_text(function.get("arguments"))}
        known.update(_merged(known, piece))


def _finished_call(call: _Object, index: int) -> _Object:
    function = call.get("function")
    whole: _Object = {"id": f"call_{index}", "type": "function", **call}
    whole["function"] = {"name": "", "arguments": "", **(function if isinstance(function, dict) else {})}
    return whole


def _merged(old: _Object, new: _Object) -> _Object:
    merged = dict(old)
    for name, item in new.items():
        if item is not None:
            merged[name] = _merged_value(merged.get(name), item, name)
    return merged


def _merged_value(old: JsonValue, new: JsonValue, name: str) -> JsonValue:
    """Return old and new as one: text is continued, lists are extended, objects merged, else the new one."""
    if old is None:
        return new
    if isinstance(old, str) and isinstance(new, str):
        return (old or new) if name in _SAID_ONCE else old + new
    if isinstance(old, dict) and isinstance(new, dict):
        return _merged(old, new)
    if isinstance(old, list) and isinstance(new, list):
        return _merged_list(old, new)
    return new


def _merged_list(old: list[JsonValue], new: list[JsonValue]) -> list[JsonValue]:
    """Extend, but continue the item that has the same ``index`` and type where items are numbered."""
    merged: list[Any] = list(old)
    for item in new:
        place = _place_of(item, merged)
        if place is None or not isinstance(item, dict):
            merged.append(item)
        else:
            merged[place] = _merged(merged[place], item)
    return merged


def _place_of(item: JsonValue, items: list[Any]) -> int | None:
    if not isinstance(item, dict) or not isinstance(item.get("index"), int):
        return None
    for place, other in enumerate(items):
        if isinstance(other, dict) and all(other.get(name) == item.get(name) for name in ("index", "type")):
            return place
    return None
