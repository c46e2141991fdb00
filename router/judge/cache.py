"""Verdicts kept by conversation: bounded in number and age.

Pure; ``now`` is seconds on any clock that does not step back. The least recently used one makes room.

The key of a conversation is a hash of what stays the same while it grows: the system prompt, the first turn
of the user, the names of the tools. (A session's name alone would not do: frontends send side requests, such
as for a title, under the same one.) Because a conversation can change what it is about, two more things are
in it: what the heuristic takes the current turn for, and how many turns the user has taken, counted in
doublings (1, 2, 3 to 4, 5 to 8, …). So a long conversation is judged again a few times, and one that turns
from talk to code at once. An agent's steps add no turns of the user, and so no calls of the judge.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from typing import Final, TypeAlias

from router.chat.features import TaskKind
from router.chat.task_clues import read_task_clues
from router.chat.types import ChatRequest, JsonValue
from router.routing.verdict import TaskVerdict

__all__ = ["VerdictCache", "VerdictKey", "verdict_key"]

VerdictKey: TypeAlias = bytes

_ENTRIES: Final = 2_048
# Enough to tell conversations apart; a system prompt may hold megabytes.
_HASHED_CHARACTERS: Final = 32_768
_HASHED_PARTS: Final = 64


class VerdictCache:
    """At most ``entries`` verdicts, each for ``ttl_s`` seconds; a ``ttl_s`` of 0 keeps none."""

    def __init__(self, ttl_s: float, entries: int = _ENTRIES) -> None:
        self._ttl_s = ttl_s
        self._entries = entries
        self._kept: OrderedDict[VerdictKey, tuple[float, TaskVerdict]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, key: VerdictKey, now: float) -> TaskVerdict | None:
        """Return the verdict on a conversation, unless it is too old."""
        kept = self._kept.get(key)
        if kept is None:
            return None
        if now >= kept[0]:
            del self._kept[key]
            return None
        self._kept.move_to_end(key)
        return kept[1]

    def put(self, key: VerdictKey, verdict: TaskVerdict, now: float) -> None:
        """Keep a verdict; using it later does not make it younger."""
        if self._ttl_s <= 0.0 or self._entries <= 0:
            return
        self._kept[key] = (now + self._ttl_s, verdict)
        self._kept.move_to_end(key)
        while len(self._kept) > self._entries:
            self._kept.popitem(last=False)


def verdict_key(request: ChatRequest, taken_for: TaskKind) -> VerdictKey:
    """Return the key of the conversation that ``request`` continues; see the module."""
    listed = request.body.get("messages")
    messages = [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
    users = [one for one in messages if one.get("role") == "user"]
    first = messages[0] if messages and messages[0].get("role") in {"system", "developer"} else None
    digest = hashlib.blake2b(digest_size=16)
    for part in (
        taken_for.value,
        str(max(0, len(users) - 1).bit_length()),
        *_content(first.get("content") if first is not None else None),
        "first turn",
        *_content(users[0].get("content") if users else None),
        "tools",
        *sorted(read_task_clues(request).tool_names),
    ):
        data = part[:_HASHED_CHARACTERS].encode("utf-8", "surrogatepass")
        # The length before each part keeps two parts from reading like two others.
        digest.update(f"{len(part)}:".encode())
        digest.update(data)
    return digest.digest()


def _content(content: JsonValue) -> list[str]:
    if isinstance(content, str):
        return [content]
    parts = content[:_HASHED_PARTS] if isinstance(content, list) else []
    texts = [part.get("text") for part in parts if isinstance(part, dict)]
    return [text for text in texts if isinstance(text, str)]
