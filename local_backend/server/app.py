"""The engine's own composition root: routes, error handlers and the worker's life. Knows no routes' work."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from local_backend.errors import EngineError
from local_backend.server.chat_completions import chat_routes
from local_backend.server.completions import completion_routes
from local_backend.server.envelope import engine_error_handler, http_error_handler, validation_handler
from local_backend.server.service import Service
from local_backend.server.status import status_routes
from local_backend.server.worker import WorkerStatus

__all__ = ["create_app"]

_JOIN_S = 0.5


def create_app(service: Service, on_loaded: Callable[[WorkerStatus], None] | None = None) -> FastAPI:
    """Build the application; the model begins to load when the application starts."""

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        service.worker.start(asyncio.get_running_loop(), on_loaded)
        try:
            yield
        finally:
            service.worker.stop()
            await asyncio.to_thread(service.worker.join, _JOIN_S)

    app = FastAPI(title="Roundhouse engine", lifespan=lifespan, docs_url=None, redoc_url=None)
    app.include_router(status_routes(service))
    app.include_router(chat_routes(service))
    app.include_router(completion_routes(service))
    app.add_exception_handler(EngineError, engine_error_handler)
    app.add_exception_handler(RequestValidationError, validation_handler)
    app.add_exception_handler(HTTPException, http_error_handler)
    return app
