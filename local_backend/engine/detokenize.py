"""From tokens to text as they come: whole characters only, and nothing of a stop string.

Knows bytes and strings; not vocabularies, logits or requests.
"""

from __future__ import annotations

import codecs
from collections.abc import Sequence

__all__ = ["TextStream"]


class TextStream:
    """Turns the bytes of successive tokens into text that is safe to send.

    Bytes of an unfinished UTF-8 character wait for the rest, as does text that may be the beginning of
    a stop string. The result is the same however the bytes are cut. Bytes that are no UTF-8 become
    U+FFFD; an unfinished character at the very end is dropped.
    """

    def __init__(self, stops: Sequence[str] = ()) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._stops = tuple(stop for stop in stops if stop)
        self._held = ""
        self._stopped = False

    @property
    def stopped(self) -> bool:
        """Whether a stop string was met; nothing comes out any more."""
        return self._stopped

    def push(self, data: bytes) -> str:
        """Take one token's bytes; return the text that became certain, possibly none."""
        if self._stopped:
            return ""
        self._held += self._decoder.decode(data)
        at = self._first_stop()
        if at is not None:
            return self._stop(at)
        ready = len(self._held) - self._possible_stop()
        text, self._held = self._held[:ready], self._held[ready:]
        return text

    def finish(self) -> str:
        """Return what was held back for a stop string that did not come."""
        text, self._held = self._held, ""
        return "" if self._stopped else text

    def _stop(self, at: int) -> str:
        text, self._held = self._held[:at], ""
        self._stopped = True
        return text

    def _first_stop(self) -> int | None:
        """Where the stop string that ends first begins; the longest of those ending together."""
        # The earliest end, not the earliest beginning: it is what a reader of one character at a time
        # meets first, so the result cannot depend on where tokens were cut.
        found = [(at + len(stop), at) for stop in self._stops if (at := self._held.find(stop)) >= 0]
        return min(found)[1] if found else None

    def _possible_stop(self) -> int:
        """Length of the longest tail of the held text that begins some stop string."""
        longest = max((len(stop) for stop in self._stops), default=1) - 1
        for length in range(min(longest, len(self._held)), 0, -1):
            tail = self._held[-length:]
            if any(stop.startswith(tail) for stop in self._stops):
                return length
        return 0
