"""``POST /v1/chat/completions``: OpenAI's wire for conversations. Knows JSON; not queues or connections."""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass, field
from typing import Any, ClassVar

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response

from local_backend.engine.events import Finished, Usage
from local_backend.engine.loading import LoadedModel
from local_backend.server.answers import Collected, Piece, logprob_entry, usage_json
from local_backend.server.delivery import deliver
from local_backend.server.preparation import prepare_chat
from local_backend.server.schemas import ChatBody
from local_backend.server.service import Service

__all__ = ["ChatWire", "chat_routes"]


@dataclass(frozen=True, slots=True)
class ChatWire:
    """What the frames of one answer have in common."""

    surface: ClassVar[str] = "chat"

    id: str
    model_name: str
    model: LoadedModel
    with_logprobs: bool
    with_usage: bool
    created: int = field(default_factory=lambda: int(time.time()))

    def opening(self) -> dict[str, Any]:
        """Return the frame that names the role."""
        delta = {"role": "assistant", "content": ""}
        return self._body("chat.completion.chunk", [_choice({"delta": delta}, None)])

    def chunk(self, piece: Piece) -> dict[str, Any]:
        """Return one delta; the ending carries an empty one."""
        choice = _choice({"delta": {"content": piece.text} if piece.text else {}}, piece.finished)
        if self.with_logprobs and piece.choice is not None:
            choice["logprobs"] = {"content": [logprob_entry(piece.choice, self.model)], "refusal": None}
        return self._body("chat.completion.chunk", [choice])

    def usage(self, usage: Usage) -> dict[str, Any]:
        """Return the frame without choices that OpenAI defines for token counts."""
        return self._body("chat.completion.chunk", []) | {"usage": usage_json(usage)}

    def whole(self, answer: Collected) -> dict[str, Any]:
        """Return the answer of a request that is not streamed."""
        logprobs = None
        if self.with_logprobs:
            content = [logprob_entry(choice, self.model) for choice in answer.choices]
            logprobs = {"content": content, "refusal": None}
        choice = {
            "index": 0,
            "message": {"role": "assistant", "content": answer.text, "refusal": None},
            "logprobs": logprobs,
            "finish_reason": answer.reason,
        }
        return self._body("chat.completion", [choice]) | {"usage": usage_json(answer.usage)}

    def _body(self, kind: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "id": self.id,
            "object": kind,
            "created": self.created,
            "model": self.model_name,
            "choices": choices,
        }


def chat_routes(service: Service) -> APIRouter:
    """Build the routes over one service."""
    routes = APIRouter(dependencies=[Depends(service.authorise)])

    @routes.post("/v1/chat/completions")
    async def chat_completions(body: ChatBody, request: Request) -> Response:
        """Answer a conversation."""
        request_id = f"chatcmpl-{uuid.uuid4().hex}"
        options = body.stream_options
        return await deliver(
            service,
            request,
            lambda model: prepare_chat(body, model, request_id),
            lambda model: ChatWire(
                id=request_id,
                model_name=service.model_name,
                model=model,
                with_logprobs=bool(body.logprobs),
                with_usage=bool(options and options.include_usage),
            ),
            ChatWire.surface,
            streamed=bool(body.stream),
        )

    return routes


def _choice(content: dict[str, Any], finished: Finished | None) -> dict[str, Any]:
    return {"index": 0, **content, "finish_reason": None if finished is None else finished.reason}
