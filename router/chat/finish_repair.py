"""Makes a stream's ending say what the stream did.

Some upstreams stream tool calls and then end with ``stop``, or with a word of their own: agents would not
call the tools, strict clients would fail. One instance watches one answer. Knows no HTTP.
"""

from __future__ import annotations

from dataclasses import replace

import orjson

from router.chat.types import (
    ChatEvent,
    Delta,
    FinishDelta,
    FinishReason,
    JsonValue,
    ToolCallDelta,
    WireFrame,
    WireName,
)

__all__ = ["FinishRepair"]


class FinishRepair:
    """Watches the events of one answer and rewrites the endings that are wrong."""

    __slots__ = ("_with_calls",)

    def __init__(self) -> None:
        self._with_calls: set[int] = set()

    def repair(self, event: ChatEvent) -> ChatEvent:
        """Return the event, rewritten (its frame too) where its ending is wrong, else as it is."""
        endings: dict[int, FinishReason] = {}
        for delta in event.deltas:
            if isinstance(delta, ToolCallDelta):
                self._with_calls.add(delta.choice)
            elif isinstance(delta, FinishDelta):
                is_wrong = delta.reason is FinishReason.STOP and delta.choice in self._with_calls
                endings[delta.choice] = FinishReason.TOOL_CALLS if is_wrong else delta.reason
        if not endings:
            return event
        deltas: tuple[Delta, ...] = tuple(
            FinishDelta(delta.choice, endings[delta.choice]) if isinstance(delta, FinishDelta) else delta
            for delta in event.deltas
        )
        frame = _with_endings(event.frame, endings)
        if frame is event.frame and deltas == event.deltas:
            return event
        return replace(event, deltas=deltas, frame=frame)


def _with_endings(frame: WireFrame | None, endings: dict[int, FinishReason]) -> WireFrame | None:
    """Return the frame with these words in it; the same object where they stand there already."""
    if frame is None or frame.wire is not WireName.CHAT_COMPLETIONS:
        return frame
    value: JsonValue = orjson.loads(frame.data)
    choices = value.get("choices") if isinstance(value, dict) else None
    has_changed = False
    for position, choice in enumerate(choices if isinstance(choices, list) else []):
        if not isinstance(choice, dict) or not choice.get("finish_reason"):
            continue
        index = choice.get("index")
        reason = endings.get(index if isinstance(index, int) else position)
        if reason is not None and choice["finish_reason"] != reason.value:
            choice["finish_reason"] = reason.value
            has_changed = True
    return WireFrame(frame.wire, orjson.dumps(value)) if has_changed else frame
