"""The OpenAPI entries of the surfaces that are plain ASGI applications, which the framework cannot describe.

Knows their shape from outside only: fields beyond those named here pass through.
"""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI

__all__ = ["describe_surfaces"]

_CHAT_BODY: dict[str, Any] = {
    "type": "object",
    "required": ["model", "messages"],
    "properties": {
        "model": {
            "type": "string",
            "description": "An entrypoint (auto, chat, code, build, long) or a candidate.",
        },
        "messages": {"type": "array", "minItems": 1, "items": {"type": "object"}},
        "stream": {"type": "boolean", "default": False},
    },
    "additionalProperties": True,
}
_ERROR: dict[str, Any] = {
    "type": "object",
    "properties": {
        "error": {
            "type": "object",
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"]},
                "code": {"type": "string"},
                "origin": {"enum": ["client", "gateway", "upstream"]},
                "request_id": {"type": "string"},
                "trail": {"type": "array", "items": {"type": "string"}},
            },
        }
    },
}
_ERRORS = {
    "400": "The request cannot be served as written.",
    "404": "No entrypoint and no candidate has that name.",
    "413": "The body is larger than the limit.",
    "429": "Everybody is at a limit; Retry-After says until when.",
    "502": "The upstream failed within its answer, or every upstream key is refused.",
    "503": "Nobody could serve the request.",
}


def describe_surfaces(app: FastAPI) -> None:
    """Make the application's document hold the surfaces too."""
    generate = app.openapi

    def openapi() -> dict[str, Any]:
        document = generate()
        document["paths"].setdefault("/v1/chat/completions", {"post": _chat()})
        document["paths"].setdefault("/admin/explain", {"post": _explain()})
        return document

    # The framework's documented way of extending the document.
    app.openapi = openapi  # type: ignore[method-assign]


def _chat() -> dict[str, Any]:
    answer = {
        "description": "A completion, or its events where `stream` is true.",
        "content": {"application/json": {"schema": {"type": "object"}}, "text/event-stream": {}},
        "headers": {
            f"x-roundhouse-{name}": {"schema": {"type": "string"}}
            for name in ("candidate", "attempts", "request-id", "task", "joined")
        },
    }
    return _operation("chat_completions", "Have a chat answered by the best candidate", answer)


def _explain() -> dict[str, Any]:
    answer = {
        "description": "The decision: candidates with every score term, and who is left out.",
        "content": {"application/json": {"schema": {"type": "object"}}, "text/plain": {}},
    }
    return _operation("explain", "Say where a request would go, and why; sends nothing", answer)


def _operation(name: str, summary: str, answer: dict[str, Any]) -> dict[str, Any]:
    content = {"application/json": {"schema": _ERROR}}
    errors = {status: {"description": text, "content": content} for status, text in _ERRORS.items()}
    return {
        "operationId": name,
        "summary": summary,
        "requestBody": {"required": True, "content": {"application/json": {"schema": _CHAT_BODY}}},
        "responses": {"200": answer, **errors},
    }
