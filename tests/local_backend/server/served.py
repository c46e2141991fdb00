"""The engine's server within the test's own event loop: called directly, or on a free port."""

from __future__ import annotations

import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import anyio
import httpx
import uvicorn
from fastapi import FastAPI

from local_backend.config import ServerConfig
from local_backend.server.app import create_app
from local_backend.server.service import Service
from local_backend.server.worker import EngineWorker, Load
from tests.local_backend.counting_model import CountingKernels, counting_model

PATIENCE_S = 20.0


@dataclass(frozen=True, slots=True)
class Served:
    client: httpx.AsyncClient
    service: Service
    kernels: CountingKernels

    async def chat(self, text: str, **fields: Any) -> httpx.Response:
        return await self.client.post("/v1/chat/completions", json=chat_body(text, **fields))

    async def until_open(self, count: int) -> None:
        """Wait until so many requests hold a place."""
        with anyio.fail_after(PATIENCE_S):
            while self.service.worker.open_requests != count:
                await anyio.lowlevel.checkpoint()

    async def until_calls(self, count: int) -> None:
        """Wait until the model computed so many layers."""
        with anyio.fail_after(PATIENCE_S):
            while len(self.kernels.calls) < count:
                await anyio.lowlevel.checkpoint()


@asynccontextmanager
async def serving(
    kernels: CountingKernels | None = None,
    *,
    load: Load | None = None,
    wait: bool = True,
    config: ServerConfig | None = None,
    context: int = 64,
    over_socket: bool = False,
) -> AsyncIterator[Served]:
    """Serve the counting model. Only ``over_socket`` a client can leave or read while it is written."""
    kernels = kernels or CountingKernels()
    settings = config or ServerConfig()
    worker = EngineWorker(
        load or (lambda _: counting_model(kernels, context=context)), queue_limit=settings.queue_limit
    )
    service = Service(worker, settings, "counting")
    loaded = anyio.Event()
    app = create_app(service, lambda _: loaded.set())
    running = _listening(app) if over_socket else _called(app)
    async with running as client:
        try:
            if wait:
                with anyio.fail_after(PATIENCE_S):
                    await loaded.wait()
            yield Served(client, service, kernels)
        finally:
            if kernels.gate is not None:
                kernels.gate.release(1000)


@asynccontextmanager
async def _called(app: FastAPI) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(app)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://engine", timeout=PATIENCE_S) as client,
    ):
        yield client


@asynccontextmanager
async def _listening(app: FastAPI) -> AsyncIterator[httpx.AsyncClient]:
    listener = socket.create_server(("127.0.0.1", 0))
    base = f"http://127.0.0.1:{listener.getsockname()[1]}"
    server = uvicorn.Server(
        uvicorn.Config(app, log_config=None, lifespan="on", ws="none", timeout_graceful_shutdown=1)
    )
    async with anyio.create_task_group() as group:
        group.start_soon(server.serve, [listener])
        try:
            async with httpx.AsyncClient(base_url=base, timeout=PATIENCE_S, trust_env=False) as client:
                yield client
        finally:
            server.should_exit = True


def chat_body(text: str, **fields: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}], "temperature": 0, **fields}


def payloads(body: str) -> list[Any]:
    """What the data frames of a stream carry; ``[DONE]`` stays text."""
    frames = [frame for frame in body.split("\n\n") if frame.startswith("data: ")]
    return [
        text if text == "[DONE]" else json.loads(text)
        for text in (frame.removeprefix("data: ") for frame in frames)
    ]


def streamed_text(frames: list[Any]) -> str:
    return "".join(
        choice["delta"].get("content") or ""
        for frame in frames
        if isinstance(frame, dict)
        for choice in frame["choices"]
    )
