"""Reads an answer as its bytes come, and keeps the deadlines on the way.

What every adapter has in common once it has bytes of the OpenAI wire. Knows time and the wire; not where
the bytes come from, and no library's exceptions: the source raises ours.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final

from router.chat.types import ChatEvent
from router.errors import UpstreamError
from router.providers.answer_reader import AnswerReader
from router.providers.attempt_timer import AttemptTimer
from router.providers.upstream_client import ByteSource

__all__ = ["read_answer"]

_DRAIN_S: Final = 0.1


async def read_answer(
    source: ByteSource, reader: AnswerReader, timer: AttemptTimer
) -> AsyncGenerator[ChatEvent]:
    """Yield the events of the answer that ``source`` holds; closing closes ``source``.

    Raises
    ------
    UpstreamError
        What ``source`` or ``reader`` raise, and :class:`~router.errors.UpstreamTimeout`.

    """
    loop = asyncio.get_running_loop()
    async with aclosing(source):
        while not reader.done and (chunk := await _next_chunk(source, reader, timer)):
            for event in reader.feed(chunk):
                yield event
                if event.deltas:
                    # After the yield: the time that the reader of the events took is not the upstream's.
                    timer.progressed(loop.time(), semantic=event.is_semantic)
            if reader.finished:
                timer.finished(loop.time())
            elif reader.is_json_body:
                timer.await_whole()
        for event in reader.end():
            yield event
        if reader.done:
            await _drain(source, loop.time() + _DRAIN_S)


async def _next_chunk(source: ByteSource, reader: AnswerReader, timer: AttemptTimer) -> bytes:
    """Return the next bytes, empty at the end of the body.

    Whatever breaks after every choice has ended breaks nothing: it is the end of the body too.
    """
    when, phase = timer.next_deadline()
    try:
        return await source.read(when)
    except TimeoutError as error:
        if reader.finished:
            return b""
        raise timer.error(phase) from error
    except UpstreamError:
        if reader.finished:
            return b""
        raise


async def _drain(source: ByteSource, until: float) -> None:
    """Read the little that follows ``[DONE]``, so that the connection can be used again."""
    try:
        await source.read(until)
    except (TimeoutError, UpstreamError):
        return
