"""One HTTP/1.1 connection to an upstream, one exchange after the other: bytes of a request out, an answer in.

An ``asyncio.Protocol`` around httptools (llhttp, strict): whatever of an answer's framing is ambiguous
breaks the connection. Source: RFC 9112. Knows framing and bounds; not whom it talks to, and no pool.
"""

from __future__ import annotations

import asyncio
from typing import Final, cast

import httptools

from router.errors import UpstreamBrokenStream, UpstreamError, UpstreamUnreachable

__all__ = ["MAXIMUM_HEAD_BYTES", "DirectConnection"]

MAXIMUM_HEAD_BYTES: Final = 64 << 10
"""What a head, a trailer or one chunk's size line may have; more breaks the connection."""

_READ_AHEAD: Final = 256 << 10
_MOST_INTERIM: Final = 8
_WITHOUT_BODY: Final = frozenset({204, 304})
_SWITCHING: Final = 101


class DirectConnection(asyncio.Protocol):
    """Between :meth:`begin` and a complete answer it belongs to one exchange; then it may be used again.

    Methods are called from the event loop's thread, by one task at a time.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._transport: asyncio.Transport | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._until = 0.0
        self.exchanges = 0
        self.lost = False
        self.idle_since = 0.0
        self._in_use = False
        self._reset()

    def _reset(self) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.heard = False
        """Whether a byte of this exchange's answer has come."""
        self.complete = False
        self._parser = httptools.HttpResponseParser(self)
        self._has_head = False
        self._interim = 0
        self._is_framed = False
        self._unread = 0
        self._header_bytes = 0
        self._pieces: list[bytes] = []
        self._buffered = 0
        self._is_paused = False
        self._keep = False
        self._error: UpstreamError | None = None

    # ------------------------------------------------------------------ for the client

    @property
    def reusable(self) -> bool:
        """Whether the next request may be sent here."""
        return self.complete and self._keep and not self.lost and not self._pieces

    def begin(self, request: bytes) -> None:
        """Send a whole request, head and body."""
        if self.exchanges:
            self._reset()
        self.exchanges += 1
        self._in_use = True
        if self._transport is None or self.lost:
            self._fail("the connection was closed")
            return
        self._transport.write(request)

    async def head(self, until: float) -> None:
        """Wait until :attr:`status` and :attr:`headers` are there.

        Raises
        ------
        TimeoutError
            They were not until then, on the loop's clock.
        UpstreamUnreachable, UpstreamBrokenStream
            The connection broke before, or what came is no head.

        """
        while not self._has_head:
            if self._error is not None:
                raise self._error
            await self._wait(until)

    async def read(self, until: float) -> bytes:
        """Return what has come of the body, waiting for some; empty at its end.

        Raises
        ------
        TimeoutError
            Nothing came until then, on the loop's clock.
        UpstreamBrokenStream
            The body broke off, or its framing is wrong.

        """
        while not self._pieces:
            if self.complete:
                return b""
            if self._error is not None:
                raise self._error
            await self._wait(until)
        pieces, self._pieces, self._buffered = self._pieces, [], 0
        if self._is_paused and self._transport is not None:
            self._is_paused = False
            if not self._transport.is_closing():
                self._transport.resume_reading()
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def release(self) -> None:
        """End the exchange: from here on, whatever comes before the next one closes the connection."""
        self._in_use = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def abort(self) -> None:
        """Close at once."""
        self.release()
        self.lost = True
        if self._transport is not None:
            self._transport.abort()

    # ------------------------------------------------------------------ waiting

    async def _wait(self, until: float) -> None:
        """Wait for news. One timer serves a whole answer: a later deadline only moves its mark."""
        self._until = until
        if self._timer is None or self._timer_at > until:
            if self._timer is not None:
                self._timer.cancel()
            self._set_timer(until)
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _set_timer(self, until: float) -> None:
        self._timer_at = until
        self._timer = self._loop.call_at(until, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        waiter = self._waiter
        if waiter is None or waiter.done():
            return
        # A hair of tolerance: a loop may run a timer a clock's tick early.
        if self._loop.time() + 1e-3 < self._until:
            self._set_timer(self._until)
        else:
            waiter.set_exception(TimeoutError())

    def _wake(self) -> None:
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def _fail(self, problem: str, cause: BaseException | None = None) -> None:
        if self._error is None and not self.complete:
            # A head that cannot be read, and no head at all: nobody has answered.
            kind = UpstreamBrokenStream if self._has_head else UpstreamUnreachable
            step = "within the answer" if self._has_head else "before an answer"
            self._error = kind(f"the connection broke {step} ({problem})")
            self._error.__cause__ = cause
        self._keep = False
        self._wake()

    # ------------------------------------------------------------------ asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        # uvloop's transports are no subclass of asyncio's.
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, error: Exception | None) -> None:
        """Note the end; a body without a length ends with it."""
        self.lost = True
        if self.complete or not self._in_use:
            self._keep = False
            return
        if error is None and self._has_head and not self._is_framed:
            self.complete = True
            self._wake()
            return
        self._fail(str(error) if error is not None else "closed by the upstream", error)

    def eof_received(self) -> bool:
        """Close our side too."""
        return False

    def data_received(self, data: bytes) -> None:
        """Parse; wake whoever waits once for all that came."""
        if not self._in_use or self.complete:
            # Nobody asked for this: it must never become part of the next answer.
            self.abort()
            return
        self.heard = True
        self._unread += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as error:
            self._break("it switched protocols", error)
        except httptools.HttpParserError as error:
            # What follows a complete answer on a connection that ends is of no interest.
            self._break(str(error) or type(error).__name__, error)
        if self._unread > MAXIMUM_HEAD_BYTES and not self.complete:
            self._break(f"more than {MAXIMUM_HEAD_BYTES} bytes of headers", None)
        transport = self._transport
        if self._buffered > _READ_AHEAD and transport is not None and not transport.is_closing():
            self._is_paused = True
            transport.pause_reading()
        self._wake()

    def _break(self, problem: str, cause: Exception | None) -> None:
        self._fail(problem, cause)
        self.lost = True
        if self._transport is not None:
            self._transport.abort()

    # ------------------------------------------------------------------ httptools

    def on_message_begin(self) -> None:
        """Notice a second answer to one request."""
        if self.complete:
            self._keep = False

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header; trailers say nothing."""
        self._header_bytes += len(name) + len(value) + 4
        if self._header_bytes > MAXIMUM_HEAD_BYTES:
            raise ValueError(f"more than {MAXIMUM_HEAD_BYTES} bytes of headers")
        if self._has_head or self.complete:
            return
        key, text = name.decode("latin-1").lower(), value.decode("latin-1").strip()
        known = self.headers.get(key)
        self.headers[key] = text if known is None else f"{known}, {text}"

    def on_headers_complete(self) -> None:
        """Tell an interim answer from the answer, and how its body is framed."""
        if self.complete:
            return
        status = self._parser.get_status_code()
        if status == _SWITCHING:
            raise ValueError("it switched protocols")
        if status < 200:  # noqa: PLR2004 - the interim answers of RFC 9110, 15.2
            self._interim += 1
            self.headers = {}
            if self._interim > _MOST_INTERIM:
                raise ValueError("too many interim answers")
            return
        coding = self.headers.get("transfer-encoding", "").lower()
        self._is_framed = (
            coding.endswith("chunked") or "content-length" in self.headers or status in _WITHOUT_BODY
        )
        self.status = status
        self._has_head = True
        self._unread = 0

    def on_chunk_header(self) -> None:
        """Count a chunk's size line as read, so that many small chunks are no flood of headers."""
        self._unread = 0

    def on_body(self, data: bytes) -> None:
        """Keep a piece of the body."""
        if self.complete:
            return
        self._unread = 0
        self._buffered += len(data)
        self._pieces.append(data)

    def on_message_complete(self) -> None:
        """Note the end; an interim answer has none."""
        if not self._has_head or self.complete:
            return
        self.complete = True
        self._keep = self._is_framed and self._parser.should_keep_alive()
