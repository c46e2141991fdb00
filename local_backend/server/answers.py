"""From events to the pieces that both surfaces send: texts, log-probabilities, usage. Knows no routes."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any

from local_backend.engine.events import Finished, Usage, Written
from local_backend.engine.loading import LoadedModel
from local_backend.engine.sampling import Choice
from local_backend.engine.sequence import FinishReason
from local_backend.errors import Cancelled
from local_backend.server.worker import EventStream

__all__ = ["Collected", "Piece", "collect", "logprob_entry", "pieces", "usage_json"]

_LOWEST_LOGPROB = -9999.0
"""What OpenAI's wire writes for a probability of nothing: JSON has no infinity."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of the answer. A piece without text, token and ending is a pause of ``keep_alive_s``."""

    text: str = ""
    choice: Choice | None = None
    finished: Finished | None = None

    @property
    def is_pause(self) -> bool:
        """Whether nothing came for so long that the connection needs a sign of life."""
        return not self.text and self.choice is None and self.finished is None


@dataclass(frozen=True, slots=True)
class Collected:
    """A whole answer."""

    text: str
    choices: tuple[Choice, ...]
    reason: FinishReason
    usage: Usage


async def pieces(stream: EventStream, keep_alive_s: float | None = None) -> AsyncGenerator[Piece, None]:
    """Turn events into pieces until the end. Raises the request's error, also when it was cancelled."""
    quiet_since = time.monotonic()
    while True:
        left = None if keep_alive_s is None else max(0.0, quiet_since + keep_alive_s - time.monotonic())
        event = await stream.receive(left)
        piece: Piece | None = None
        if event is None:
            piece = Piece()
        elif isinstance(event, Written) and not event.is_end:
            piece = Piece(event.text, event.choice)
        elif isinstance(event, Finished):
            if event.reason is FinishReason.CANCELLED:
                raise Cancelled("the request was cancelled: the engine is stopping")
            if event.text:
                yield Piece(event.text)
            # The ending comes without text: some clients drop what shares a frame with it.
            piece = Piece(finished=event)
        if piece is not None:
            yield piece
            quiet_since = time.monotonic()
            if piece.finished is not None:
                return


async def collect(stream: EventStream) -> Collected:
    """Wait for the whole answer and release the request."""
    texts: list[str] = []
    choices: list[Choice] = []
    try:
        async for piece in pieces(stream):
            texts.append(piece.text)
            if piece.choice is not None:
                choices.append(piece.choice)
            if piece.finished is not None:
                end = piece.finished
                return Collected("".join(texts), tuple(choices), end.reason, end.usage)
    finally:
        stream.close()
    raise Cancelled("the answer ended without an ending")


def usage_json(usage: Usage) -> dict[str, Any]:
    """Token counts in OpenAI's form; cached tokens are part of the prompt's."""
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
    }


def logprob_entry(choice: Choice, model: LoadedModel) -> dict[str, Any]:
    """One token of ``logprobs.content``."""
    entry = _token_json(choice.token, choice.logprob or 0.0, model)
    entry["top_logprobs"] = [_token_json(each.token, each.logprob, model) for each in choice.top]
    return entry


def _token_json(token: int, logprob: float, model: LoadedModel) -> dict[str, Any]:
    data = model.token_bytes(token)
    return {
        "token": data.decode("utf-8", "replace"),
        "logprob": max(logprob, _LOWEST_LOGPROB),
        "bytes": list(data),
    }
