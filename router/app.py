"""The composition root: settings and catalog in, a running gateway out. Only this file knows every package.

Objects are built here once and handed down; nothing is found through globals. Knows no route and no
routing: it only puts together, starts and stops.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Container, Coroutine, Iterator, Mapping
from contextlib import asynccontextmanager

import httpx
import structlog
from starlette.types import ASGIApp

from router.api.application import build_api
from router.api.health import build_health_routes
from router.api.open_requests import OpenRequests
from router.catalog.catalog import Catalog
from router.clock import Clock, SystemClock
from router.dispatch.dispatcher import Dispatcher
from router.errors import StorageError
from router.gateway import Gateway
from router.health.state import health_state_from_json, health_state_to_json
from router.health.tracker import HealthTracker
from router.judge.lane import Judge
from router.providers.base import Provider, ProviderStatus
from router.providers.local_engine import LocalEngineProvider
from router.providers.network_sensor import NetworkSensor
from router.providers.registry import ProviderSurroundings, build_providers
from router.recording.metrics import Metrics
from router.recording.recorder import Recorder
from router.settings import Secret, Settings, installed_path
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
        settings: Settings,
        catalog: Catalog,
        providers: Mapping[str, Provider],
        *,
        key_labels: Container[str],
        clock: Clock,
        rng: random.Random,
        network: NetworkSensor | None = None,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self.providers = providers
        self._network = network
        self._accepting = False
        self._log = structlog.get_logger("gateway")
        self.database = Database(
            settings.database_url, installed_path("migrations"), migrate_itself=settings.database_is_embedded
        )
        self.tracker = HealthTracker(catalog, rng=rng)
        labels = _labels_by_provider(catalog, key_labels)
        for name, own in labels.items():
            self.tracker.configure_keys(name, own)
        self.metrics = Metrics(catalog.entrypoints, catalog.deployments)
        self.recorder = Recorder(self.database.append, observers=(self.metrics.observe,))
        self.gateway = Gateway(
            catalog=catalog,
            tracker=self.tracker,
            statuses=self.statuses,
            judge=Judge(catalog, providers, self.statuses, labels, clock=clock, rng=rng, network=network),
            dispatcher=Dispatcher(catalog, providers, tracker=self.tracker, clock=clock, network=network),
            recorder=self.recorder,
            clock=clock,
            rng=rng,
        )
        self.open_requests = OpenRequests()
        self.asgi: ASGIApp = build_api(
            gateway=self.gateway,
            open_requests=self.open_requests,
            health_routes=build_health_routes(
                gateway=self.gateway,
                tracker=self.tracker,
                statuses=self.statuses,
                recorder=self.recorder,
                metrics=self.metrics,
                clock=clock,
                is_ready=lambda: self._accepting,
            ),
            clock=clock,
            running=self.running,
            api_key=settings.api_key.reveal() if settings.api_key else "",
            cors_origins=settings.cors_origins,
        )

    def statuses(self) -> Mapping[str, ProviderStatus]:
        """Return what each provider says of itself now, by name."""
        return {name: self._status(name, provider) for name, provider in self.providers.items()}

    def _status(self, name: str, provider: Provider) -> ProviderStatus:
        try:
            return provider.status()
        except Exception:  # noqa: BLE001 - one provider's defect leaves the others as they are
            self._log.exception("a provider's status cannot be read", provider=name)
            return ProviderStatus(configured=True, ready=False, detail="its status cannot be read")

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run everything that runs beside the requests; stop it in order at the end."""
        for name in self._settings.unknown_names:
            self._log.warning("there is no such setting; is it misspelt?", variable=name)
        await self._open_database()
        async with asyncio.TaskGroup() as tasks:
            recording = tasks.create_task(self.recorder.run())
            beside = [tasks.create_task(work) for work in self._beside()]
            self._accepting = True
            try:
                yield
            finally:
                self._accepting = False
                for task in beside:
                    task.cancel()
                self.recorder.close()
                await asyncio.wait([recording], timeout=_DRAIN_S)
                recording.cancel()
        await self._save_health()
        for provider in self.providers.values():
            await provider.aclose()
        await self.database.aclose()

    def _beside(self) -> Iterator[Coroutine[object, object, None]]:
        yield self._guarded("saving the health state", self._save_periodically)
        if self._network is not None:
            yield self._guarded("watching the network", self._network.run)
        if self._settings.start_engine:
            for name, provider in self.providers.items():
                if isinstance(provider, LocalEngineProvider):
                    yield self._guarded(f"the engine of provider {name}", provider.run)

    async def _guarded(self, what: str, work: Callable[[], Awaitable[None]]) -> None:
        """Keep a defect beside the requests from taking them down with it."""
        try:
            await work()
        except Exception:  # noqa: BLE001 - whatever it was, requests go on and the log has it
            self._log.exception("something beside the requests has ended", what=what)

    async def _open_database(self) -> None:
        try:
            async with asyncio.timeout(_DATABASE_PATIENCE_S):
                await self.database.prepare()
                saved = await self.database.load_health()
        except (StorageError, TimeoutError) as error:
            self._log.warning(
                "the database is not usable; requests go on, recording is degraded",
                database=self.database.shown_url,
                reason=str(error) or "it does not answer",
            )
            return
        if saved is not None:
            self.tracker.restore(health_state_from_json(dict(saved)), self._clock.wall())

    async def _save_periodically(self) -> None:
        while True:
            await asyncio.sleep(_SAVE_EVERY_S)
            await self._save_health()

    async def _save_health(self) -> None:
        state = health_state_to_json(self.tracker.export())
        try:
            async with asyncio.timeout(_DATABASE_PATIENCE_S):
                await self.database.save_health(state, self._clock.wall())
        except (StorageError, TimeoutError) as error:
            self._log.warning("the health state was not saved", reason=str(error) or "the database is slow")


def build_roundhouse(
    settings: Settings,
    catalog: Catalog,
    *,
    keys: Mapping[str, Secret],
    child_environment: Mapping[str, str] | None = None,
    clock: Clock | None = None,
    seed: int | None = None,
    transport: httpx.AsyncBaseTransport | None = None,
) -> Roundhouse:
    """Build a gateway; starts nothing. ``keys`` are the providers', by the names in ``providers.yaml``.

    ``transport`` replaces the network, ``seed`` makes tie-breaks and jitter repeatable.

    Raises
    ------
    ConfigurationError
        A provider cannot be built as the catalog wants it.

    """
    clock = clock or SystemClock()
    surroundings = ProviderSurroundings(
        clock=clock,
        base_directory=settings.config_path.absolute().parent,
        secrets={name: key.reveal() for name, key in keys.items()},
        child_environment=child_environment or {},
        transport=transport,
    )
    providers = build_providers(catalog, surroundings)
    rng = random.Random(seed)  # noqa: S311 - breaks ties, guards nothing
    network = None if transport is not None else _network(catalog, providers, clock)
    return Roundhouse(settings, catalog, providers, key_labels=keys, clock=clock, rng=rng, network=network)


def _labels_by_provider(catalog: Catalog, known: Container[str]) -> dict[str, list[str]]:
    """Return the labels of the keys that each provider has, of those that have any."""
    labels = {
        name: [label for label in entry.key_env if label in known]
        for name, entry in catalog.providers.items()
    }
    return {name: own for name, own in labels.items() if own}


def _network(catalog: Catalog, providers: Mapping[str, Provider], clock: Clock) -> NetworkSensor:
    """Return what knocks at the providers outside this machine that can be asked at all."""
    outside = {
        name: entry.base_url
        for name, entry in catalog.providers.items()
        if entry.base_url and not entry.local and providers[name].status().configured
    }
    return NetworkSensor(outside, clock)
