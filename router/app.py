"""The composition root: settings and catalog in, a running gateway out. The only file that knows every package.

Objects are built here once and handed down; nothing is found through globals. Knows no routes' contents
and no routing: it only puts together.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import asynccontextmanager

import structlog
from fastapi import FastAPI
from starlette.types import ASGIApp

from router import __version__
from router.api.application import build_api
from router.catalog.catalog import Catalog
from router.clock import Clock, SystemClock
from router.dispatch.dispatcher import Dispatcher
from router.errors import StorageError
from router.gateway import Gateway
from router.health.tracker import HealthTracker
from router.providers.registry import ProviderRegistry
from router.recording.metrics import Metrics
from router.recording.recorder import Recorder
from router.settings import Settings, installed_path
from router.storage.database import Database

__all__ = ["Roundhouse", "build_roundhouse"]

# A database that does not answer must not keep the port closed: recording starts degraded instead.
_DATABASE_PATIENCE_S = 2.0
_DRAIN_S = 3.0
_SAVE_EVERY_S = 20.0


class Roundhouse:
    """One gateway with its parts. ``asgi`` is what a server runs; its lifespan is :meth:`running`."""

    def __init__(
        self,
        *,
        catalog: Catalog,
        clock: Clock,
        tracker: HealthTracker,
        providers: ProviderRegistry,
        dispatcher: Dispatcher,
        database: Database,
        rng: random.Random,
    ) -> None:
        self.clock = clock
        self.tracker = tracker
        self.providers = providers
        self.database = database
        self.metrics = Metrics(
            catalog.entrypoints,
            catalog.deployments,
            snapshot=lambda: self.gateway.snapshot(),
            recorder=lambda: self.recorder.status(),
        )
        self.recorder = Recorder(database.append, observers=(self.metrics.observe,))
        self.gateway = Gateway(
            catalog=catalog,
            tracker=tracker,
            statuses=providers.statuses,
            dispatcher=dispatcher,
            recorder=self.recorder,
            clock=clock,
            rng=rng,
        )
        self._accepting = False
        self._log = structlog.get_logger("gateway")
        self.asgi: ASGIApp = lambda _scope, _receive, _send: asyncio.sleep(0)

    @property
    def accepting(self) -> bool:
        """Whether requests are taken: from the start until the stop begins."""
        return self._accepting

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run everything that runs beside the requests; stop it in order at the end."""
        await self._open_database()
        async with asyncio.TaskGroup() as tasks:
            recording = tasks.create_task(self.recorder.run())
            beside = [
                tasks.create_task(self._guarded("the health state's saving", self._save_periodically())),
                *(
                    tasks.create_task(self._guarded(f"provider {name}", work))
                    for name, work in self.providers.background()
                ),
            ]
            self._accepting = True
            try:
                yield
            finally:
                self._accepting = False
                for task in beside:
                    task.cancel()
                self.recorder.close()
                await asyncio.wait({recording}, timeout=_DRAIN_S)
                recording.cancel()
                await self._save_health()
        await self.providers.aclose()
        await self.database.aclose()

    async def _open_database(self) -> None:
        try:
            async with asyncio.timeout(_DATABASE_PATIENCE_S):
                await self.database.prepare()
                state = await self.database.load_health()
                if state is not None:
                    self.tracker.restore(state, self.clock.wall())
        except (StorageError, TimeoutError, ValueError) as error:
            self._log.warning(
                "the database is not usable; requests go on, recording is degraded",
                database=self.database.shown_url,
                reason=str(error) or "it does not answer",
            )

    async def _save_periodically(self) -> None:
        while True:
            await asyncio.sleep(_SAVE_EVERY_S)
            await self._save_health()

    async def _save_health(self) -> None:
        try:
            async with asyncio.timeout(_DATABASE_PATIENCE_S):
                await self.database.save_health(self.tracker.export(), self.clock.wall())
        except (StorageError, TimeoutError) as error:
            self._log.warning("the health state was not saved", reason=str(error))

    async def _guarded(self, what: str, work: Coroutine[object, object, None]) -> None:
        """Keep a defect beside the requests from taking them down with it."""
        try:
            await work
        except Exception:
            self._log.exception("a task beside the requests ended", task=what)


def build_roundhouse(
    settings: Settings,
    catalog: Catalog,
    *,
    keys: Mapping[str, str],
    clock: Clock | None = None,
    seed: int | None = None,
) -> Roundhouse:
    """Build a gateway. ``keys`` are provider keys by the names in ``providers.yaml``."""
    clock = clock or SystemClock()
    rng = random.Random(seed)  # noqa: S311 - breaks ties, guards nothing
    raise NotImplementedError
