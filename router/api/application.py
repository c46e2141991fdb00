"""The HTTP application: every route, every refusal in OpenAI's envelope, the edge around it all.

Knows which surface answers which path; not what stands behind them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import structlog
from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import Route
from starlette.types import ASGIApp

from router import __version__
from router.api.chat_completions import ChatCompletions
from router.api.error_response import error_body, plain_error_body, retry_headers
from router.api.explain import Explain
from router.api.middleware import Edge, request_id_of
from router.api.models import build_models_routes
from router.api.open_requests import OpenRequests
from router.api.openapi import describe_surfaces
from router.api.root import build_root_routes
from router.clock import Clock
from router.errors import GatewayError, InternalError
from router.gateway import Gateway

__all__ = ["build_api"]

_CODES = {404: "not_found", 405: "method_not_allowed"}
_SHOWN_HEADERS = (
    *(f"x-roundhouse-{name}" for name in ("candidate", "attempts", "request-id", "task", "joined")),
    "retry-after",
)


def build_api(
    *,
    gateway: Gateway,
    open_requests: OpenRequests,
    health_routes: APIRouter,
    clock: Clock,
    running: Callable[[], AbstractAsyncContextManager[None]],
    api_key: str = "",
    cors_origins: Sequence[str] = (),
) -> ASGIApp:
    """Return the ASGI application; its lifespan is ``running``."""

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        async with running():
            yield

    app = FastAPI(title="Roundhouse", version=__version__, lifespan=lifespan, docs_url=None, redoc_url=None)
    surfaces: dict[str, ASGIApp] = {
        "/v1/chat/completions": ChatCompletions(gateway, open_requests),
        "/admin/explain": Explain(gateway),
    }
    app.router.routes[:0] = [Route(path, one, methods=["POST"]) for path, one in surfaces.items()]
    app.include_router(build_models_routes(gateway))
    app.include_router(health_routes)
    app.include_router(build_root_routes(gateway))
    describe_surfaces(app)
    _add_error_handlers(app)
    if cors_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(cors_origins),
            allow_methods=["GET", "POST"],
            allow_headers=["*"],
            expose_headers=list(_SHOWN_HEADERS),
        )
    return Edge(
        app,
        clock=clock,
        max_body_bytes=gateway.catalog.limits.max_body_bytes,
        api_key=api_key,
        # Answers to web pages need the headers that a layer of the framework adds.
        direct={} if cors_origins else surfaces,
    )


def _add_error_handlers(app: FastAPI) -> None:
    log = structlog.get_logger("api")

    async def on_gateway_error(request: Request, error: Exception) -> Response:
        if not isinstance(error, GatewayError):
            error = InternalError("an internal error")
        body = error_body(error, request_id_of(request.scope))
        headers = {name.decode(): value.decode() for name, value in retry_headers(error)}
        return Response(body, error.http_status, headers, media_type="application/json")

    async def on_http_exception(request: Request, error: Exception) -> Response:
        status = error.status_code if isinstance(error, HTTPException) else 500
        headers = error.headers if isinstance(error, HTTPException) else None
        path = request.scope["path"]
        message = {
            404: f"there is nothing at {path}; GET / lists what there is",
            405: f"{path} does not take {request.method}",
        }.get(status, str(getattr(error, "detail", "the request cannot be served")))
        body = plain_error_body(
            status, _CODES.get(status, "http_error"), message, request_id_of(request.scope)
        )
        return Response(body, status, headers, media_type="application/json")

    async def on_invalid(request: Request, error: Exception) -> Response:
        problems = error.errors() if isinstance(error, RequestValidationError) else []
        first = problems[0] if problems else {"msg": "the request is not valid", "loc": ()}
        where = ".".join(str(step) for step in first["loc"][1:]) or None
        request_id = request_id_of(request.scope)
        body = plain_error_body(422, "invalid_request", str(first["msg"]), request_id, where)
        return Response(body, 422, media_type="application/json")

    async def on_defect(request: Request, error: Exception) -> Response:
        request_id = request_id_of(request.scope)
        log.error("a handler met a defect", request_id=request_id, exc_info=error)
        body = error_body(
            InternalError("an internal error; the gateway's log has it under this id"), request_id
        )
        return Response(body, 500, media_type="application/json")

    app.add_exception_handler(GatewayError, on_gateway_error)
    app.add_exception_handler(HTTPException, on_http_exception)
    app.add_exception_handler(RequestValidationError, on_invalid)
    app.add_exception_handler(Exception, on_defect)
