"""Who served which conversation last: a bounded memory that forgets.

Pure; ``now`` is seconds on any one clock. Knows keys, never what was said.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

__all__ = ["Conversations"]

# A provider's prompt cache lives for minutes, at some for an hour.
_REMEMBERED_S: Final = 3_600.0
_MOST: Final = 4_096


class Conversations:
    """Remembers the last deployment of at most ``most`` conversations for ``remembered_s``."""

    __slots__ = ("_last", "_most", "_remembered_s")

    def __init__(self, *, most: int = _MOST, remembered_s: float = _REMEMBERED_S) -> None:
        self._last: OrderedDict[bytes, tuple[str, float]] = OrderedDict()
        self._most = most
        self._remembered_s = remembered_s

    def __len__(self) -> int:
        return len(self._last)

    def remember(self, key: bytes, deployment_id: str, now: float) -> None:
        """Note that ``deployment_id`` serves the conversation now; the one longest unused makes room."""
        self._last[key] = (deployment_id, now)
        self._last.move_to_end(key)
        if len(self._last) > self._most:
            self._last.popitem(last=False)

    def last(self, key: bytes, now: float) -> str | None:
        """Return who served the conversation last; ``None`` where nobody did, or too long ago."""
        known = self._last.get(key)
        if known is None:
            return None
        deployment_id, at = known
        if now - at > self._remembered_s:
            del self._last[key]
            return None
        return deployment_id
