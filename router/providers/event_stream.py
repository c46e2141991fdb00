"""Server-sent events: bytes in, events out.

Sans-IO and incremental: any split of the same bytes gives the same events. Follows the parsing rules of
the WHATWG HTML standard, section "Server-sent events" (CR, LF and CRLF end a line; a byte order mark at the
start is dropped; comments are skipped; several ``data`` lines join with LF), with bounds on what one event
may hold and one deviation, see :meth:`EventStreamParser.flush`. Knows nothing of chats, JSON or HTTP.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from router.errors import UpstreamBrokenStream

__all__ = ["MAXIMUM_EVENT_BYTES", "EventStreamParser", "ServerSentEvent"]

MAXIMUM_EVENT_BYTES: Final = 4 << 20

_BOM: Final = b"\xef\xbb\xbf"
_LF: Final = 0x0A


@dataclass(frozen=True, slots=True)
class ServerSentEvent:
    """One event: its ``data`` lines joined by LF, and its type where it named one."""

    data: bytes
    event: str | None = None


class EventStreamParser:
    """Splits a stream of bytes into events. One instance reads one response."""

    __slots__ = ("_at_start", "_data", "_event", "_event_bytes", "_limit", "_line", "_line_bytes", "_skip_lf")

    def __init__(self, *, maximum_event_bytes: int = MAXIMUM_EVENT_BYTES) -> None:
        self._limit = maximum_event_bytes
        self._line: list[bytes] = []
        self._line_bytes = 0
        self._data: list[bytes] = []
        self._event: str | None = None
        self._event_bytes = 0
        self._skip_lf = False
        self._at_start = True

    def feed(self, data: bytes) -> list[ServerSentEvent]:
        """Take the next bytes and return the events that they complete, in order.

        Raises
        ------
        UpstreamBrokenStream
            A line, or the data lines of one event, are longer than the bound.

        """
        if self._at_start:
            data = self._without_byte_order_mark(data)
        if not data:
            return []
        if self._skip_lf:
            self._skip_lf = False
            if data[0] == _LF:
                data = data[1:]
        if b"\r" in data:
            # A CR at the very end may be half of a CRLF: it ends the line now, and an LF that comes first
            # in the next bytes belongs to it.
            self._skip_lf = data.endswith(b"\r")
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        first, *lines = data.split(b"\n")
        self._extend_line(first)
        if not lines:
            return []
        lines.insert(0, self._take_line())
        self._extend_line(lines.pop())
        return self._events_of(lines)

    def flush(self) -> list[ServerSentEvent]:
        """Return the event that the stream ended within, where there is one.

        The standard drops it. Here it is kept, because some upstreams leave out the last blank line and
        even the last line's ending; whether its data is whole is for the reader of the data to find out.
        """
        lines = [self._take_line(), b""]
        self._skip_lf = False
        return self._events_of(lines)

    def _without_byte_order_mark(self, data: bytes) -> bytes:
        """Hold the first bytes back until they can be told from a byte order mark; then drop it."""
        data = self._take_line() + data
        if len(data) < len(_BOM) and _BOM.startswith(data):
            self._line = [data]
            self._line_bytes = len(data)
            return b""
        self._at_start = False
        return data.removeprefix(_BOM)

    def _extend_line(self, piece: bytes) -> None:
        if not piece:
            return
        self._line_bytes += len(piece)
        if self._line_bytes > self._limit:
            raise UpstreamBrokenStream(f"a line of the event stream is longer than {self._limit} bytes")
        self._line.append(piece)

    def _take_line(self) -> bytes:
        line = b"".join(self._line)
        self._line.clear()
        self._line_bytes = 0
        return line

    def _events_of(self, lines: list[bytes]) -> list[ServerSentEvent]:
        events: list[ServerSentEvent] = []
        for line in lines:
            if not line:
                if self._data:
                    events.append(ServerSentEvent(b"\n".join(self._data), self._event))
                    self._data = []
                    self._event_bytes = 0
                self._event = None
            elif line.startswith(b"data:"):
                self._add_data(line[6:] if line.startswith(b"data: ") else line[5:])
            elif line == b"data":
                self._add_data(b"")
            elif line.startswith(b"event:"):
                self._event = line[6:].removeprefix(b" ").decode("utf-8", "replace")
        return events

    def _add_data(self, piece: bytes) -> None:
        # One more for the LF that joins, so that a flood of empty data lines is bounded too.
        self._event_bytes += len(piece) + 1
        if self._event_bytes > self._limit:
            raise UpstreamBrokenStream(f"an event of the stream holds more than {self._limit} bytes")
        self._data.append(piece)
