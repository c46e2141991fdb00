"""One request from body to answer, streamed or plain, whatever its wire looks like.

Knows the worker, pieces and the client's connection; not the JSON of a surface.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from functools import partial
from typing import Any, Protocol

import orjson
from anyio import to_thread
from fastapi import Request
from fastapi.responses import Response

from local_backend.engine.events import Usage
from local_backend.engine.loading import LoadedModel
from local_backend.engine.sequence import GenerationRequest
from local_backend.errors import EngineError
from local_backend.server.answers import Collected, Piece, collect, pieces
from local_backend.server.envelope import envelope
from local_backend.server.service import Service
from local_backend.server.sse import DONE, KEEP_ALIVE, SSEResponse, frame, until_disconnect
from local_backend.server.worker import EventStream

__all__ = ["Wire", "deliver"]


class Wire(Protocol):
    """How one surface writes an answer as JSON."""

    @property
    def with_logprobs(self) -> bool:
        """Whether every token gets a frame."""

    @property
    def with_usage(self) -> bool:
        """Whether the client asked for token counts at the end."""

    def opening(self) -> dict[str, Any] | None:
        """Return the first frame, which says no more than that an answer begins."""

    def chunk(self, piece: Piece) -> dict[str, Any]:
        """Return one stretch of the answer, or its ending."""

    def usage(self, usage: Usage) -> dict[str, Any]:
        """Return the last frame, for clients that asked for token counts."""

    def whole(self, answer: Collected) -> dict[str, Any]:
        """Return the whole answer."""


async def deliver(
    service: Service,
    request: Request,
    prepare: Callable[[LoadedModel], GenerationRequest],
    wire: Callable[[LoadedModel], Wire],
    surface: str,
    *,
    streamed: bool,
) -> Response:
    """Prepare, queue and answer; errors before the first byte are raised, later ones are frames."""
    try:
        model = service.worker.model()
        wanted = await to_thread.run_sync(prepare, model)
        stream = service.worker.open(wanted)
    except EngineError as error:
        service.counters.ended(surface, error.code)
        raise
    if streamed:
        return SSEResponse(_frames(service, stream, wire(model), surface), release=stream.close)
    answer = await _plain(service, stream, request, surface)
    return Response(orjson.dumps(wire(model).whole(answer)), media_type="application/json")


async def _plain(service: Service, stream: EventStream, request: Request, surface: str) -> Collected:
    try:
        answer = await until_disconnect(request.receive, partial(collect, stream))
    except EngineError as error:
        service.counters.ended(surface, error.code)
        raise
    finally:
        stream.close()
    service.counters.ended(surface, answer.reason)
    service.counters.used(answer.usage)
    return answer


async def _frames(
    service: Service, stream: EventStream, wire: Wire, surface: str
) -> AsyncGenerator[bytes, None]:
    outcome = "cancelled"
    try:
        opening = wire.opening()
        if opening is not None:
            yield frame(opening)
        async for piece in pieces(stream, service.config.keep_alive_s):
            if piece.is_pause:
                yield KEEP_ALIVE
                continue
            if piece.finished is None and not piece.text and not wire.with_logprobs:
                continue  # half a character, or the possible beginning of a stop string
            yield frame(wire.chunk(piece))
            if piece.finished is not None:
                outcome = piece.finished.reason
                service.counters.used(piece.finished.usage)
                if wire.with_usage:
                    yield frame(wire.usage(piece.finished.usage))
        yield DONE
    except EngineError as error:
        outcome = error.code
        yield frame(envelope(error))
    finally:
        service.counters.ended(surface, outcome)
