"""Errors as OpenAI's envelope: one place from error to status, body and headers. Knows no routes."""

from __future__ import annotations

import math
from typing import Any

import orjson
from fastapi import Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from local_backend.errors import EngineError, InvalidRequest, Loading, Overloaded

__all__ = ["engine_error_handler", "envelope", "error_response", "http_error_handler", "validation_handler"]

_CODES = {404: "not_found", 405: "method_not_allowed"}


def envelope(error: EngineError) -> dict[str, Any]:
    """Return the JSON body of an error: ``{"error": {message, type, param, code}}``."""
    param = error.param if isinstance(error, InvalidRequest) else None
    return {"error": {"message": str(error), "type": error.type, "param": param, "code": error.code}}


def error_response(error: EngineError) -> Response:
    """Return the whole answer; errors that pass by waiting carry ``Retry-After`` in whole seconds."""
    headers: dict[str, str] = {}
    if isinstance(error, (Loading, Overloaded)):
        headers["Retry-After"] = str(max(1, math.ceil(error.retry_after_s)))
    return _respond(envelope(error), error.status, headers)


async def engine_error_handler(_request: Request, error: Exception) -> Response:
    """Answer an error of ours that a route raised."""
    if not isinstance(error, EngineError):
        error = EngineError(f"internal error: {type(error).__name__}")
    return error_response(error)


async def validation_handler(_request: Request, error: Exception) -> Response:
    """Answer a body that does not fit the schema: 400, naming the first field that is wrong."""
    if not isinstance(error, RequestValidationError) or not error.errors():
        return error_response(InvalidRequest("the request body is not valid"))
    first = error.errors()[0]
    if first["type"] == "json_invalid":
        reason = first.get("ctx", {}).get("error", "")
        return error_response(InvalidRequest(f"the request body is not JSON: {reason}"))
    param = ".".join(str(part) for part in first["loc"] if part != "body")
    return error_response(InvalidRequest(f"{param or 'body'}: {first['msg']}", param=param or None))


async def http_error_handler(_request: Request, error: Exception) -> Response:
    """Answer what the framework refuses by itself: unknown paths and methods."""
    status = error.status_code if isinstance(error, HTTPException) else 500
    detail = str(error.detail) if isinstance(error, HTTPException) else "internal error"
    code = _CODES.get(status, "http_error")
    body = {"error": {"message": detail, "type": "invalid_request_error", "param": None, "code": code}}
    return _respond(body, status, {})


def _respond(body: dict[str, Any], status: int, headers: dict[str, str]) -> Response:
    return Response(orjson.dumps(body), status, headers, media_type="application/json")
