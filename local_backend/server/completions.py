"""``POST /v1/completions``: OpenAI's older wire, text to text. Knows JSON; not queues or connections."""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass, field
from typing import Any, ClassVar

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response

from local_backend.engine.events import Finished, Usage
from local_backend.engine.loading import LoadedModel
from local_backend.engine.sampling import Choice
from local_backend.server.answers import Collected, Piece, logprob_entry, usage_json
from local_backend.server.delivery import deliver
from local_backend.server.preparation import prepare_completion
from local_backend.server.schemas import CompletionBody
from local_backend.server.service import Service

__all__ = ["CompletionWire", "completion_routes"]


@dataclass(frozen=True, slots=True)
class CompletionWire:
    """What the frames of one answer have in common."""

    surface: ClassVar[str] = "completion"

    id: str
    model_name: str
    model: LoadedModel
    with_logprobs: bool
    with_usage: bool
    created: int = field(default_factory=lambda: int(time.time()))

    def opening(self) -> None:
        """Return nothing: this wire has no frame without text."""
        return

    def chunk(self, piece: Piece) -> dict[str, Any]:
        """Return one stretch of text; the ending carries none."""
        choices = () if piece.choice is None else (piece.choice,)
        return self._body(piece.text, choices, piece.finished)

    def usage(self, usage: Usage) -> dict[str, Any]:
        """Return the frame without choices that OpenAI defines for token counts."""
        return self._body("", (), None) | {"choices": [], "usage": usage_json(usage)}

    def whole(self, answer: Collected) -> dict[str, Any]:
        """Return the answer of a request that is not streamed."""
        body = self._body(answer.text, answer.choices, None)
        body["choices"][0]["finish_reason"] = answer.reason
        return body | {"usage": usage_json(answer.usage)}

    def _body(self, text: str, tokens: tuple[Choice, ...], end: Finished | None) -> dict[str, Any]:
        choice = {
            "index": 0,
            "text": text,
            "logprobs": self._logprobs(tokens) if self.with_logprobs and tokens else None,
            "finish_reason": None if end is None else end.reason,
        }
        return {
            "id": self.id,
            "object": "text_completion",
            "created": self.created,
            "model": self.model_name,
            "choices": [choice],
        }

    def _logprobs(self, tokens: tuple[Choice, ...]) -> dict[str, Any]:
        entries = [logprob_entry(choice, self.model) for choice in tokens]
        return {
            "tokens": [entry["token"] for entry in entries],
            "token_logprobs": [entry["logprob"] for entry in entries],
            "top_logprobs": [{t["token"]: t["logprob"] for t in entry["top_logprobs"]} for entry in entries],
        }


def completion_routes(service: Service) -> APIRouter:
    """Build the routes over one service."""
    routes = APIRouter(dependencies=[Depends(service.authorise)])

    @routes.post("/v1/completions")
    async def completions(body: CompletionBody, request: Request) -> Response:
        """Continue a text."""
        request_id = f"cmpl-{uuid.uuid4().hex}"
        options = body.stream_options
        return await deliver(
            service,
            request,
            lambda model: prepare_completion(body, model, request_id),
            lambda model: CompletionWire(
                id=request_id,
                model_name=service.model_name,
                model=model,
                with_logprobs=body.logprobs is not None,
                with_usage=bool(options and options.include_usage),
            ),
            CompletionWire.surface,
            streamed=bool(body.stream),
        )

    return routes
