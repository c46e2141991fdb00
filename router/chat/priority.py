"""Whether somebody waits for an answer, or a program asks beside the conversation.

A client says so itself (the header ``x-roundhouse-priority``); where it does not, the chores that frontends
are known to send along (titles, tags, suggested questions) are recognised by how their instructions begin.
Pure. A wrong guess costs a place in a queue and nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from router.chat.types import JsonValue, Priority

__all__ = ["priority_of"]

_LOOK: Final = 400
# Only the beginning counts: a conversation about such a prompt is not one.
_CHORE: Final = re.compile(
    # opencode and what took its prompt over.
    r"you are a title generator\b"
    r"|you will generate a short title\b"
    r"|generate a (?:short|brief|concise)[\w ,\-]{0,40} title\b"
    # Open WebUI: titles, tags, follow-ups, search queries, emoji.
    r"|#{1,3} task:\s+(?:generate|suggest|create|analyze)\b"
    # Claude Code: whether a message begins a new topic; quota checks.
    r"|analyze if this message indicates a new conversation topic\b"
    r"|summarize this coding conversation in under \d+ characters\b",
    re.IGNORECASE,
)


def priority_of(body: Mapping[str, JsonValue], stated: str = "") -> Priority:
    """Return the priority: as ``stated`` where that is one of the two words, else by the body.

    An unknown word counts as nothing said: a queue's order is not worth a refusal.
    """
    if stated and (word := stated.strip().lower()) in set(Priority):
        return Priority(word)
    if body.get("tools"):
        return Priority.INTERACTIVE
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        return Priority.INTERACTIVE
    texts = (_beginning(messages[0]), _beginning(messages[-1]))
    return Priority.BACKGROUND if any(_CHORE.match(text) for text in texts) else Priority.INTERACTIVE


def _beginning(message: JsonValue) -> str:
    content = message.get("content") if isinstance(message, dict) else None
    if isinstance(content, list):
        part = content[0] if content else None
        content = part.get("text") if isinstance(part, dict) else None
    return content[:_LOOK].lstrip() if isinstance(content, str) else ""
