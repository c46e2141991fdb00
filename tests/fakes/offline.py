"""A gateway on the shipped catalog with every key set, and a local candidate that answers at once.

What the machine's network does to the others is the test's matter.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import httpx
import orjson

from router.app import Roundhouse
from router.catalog.catalog import Catalog
from router.catalog.load import load_catalog
from router.clock import SystemClock
from router.providers.network_sensor import NetworkSensor
from router.providers.registry import ProviderSurroundings, build_providers
from router.settings import Settings, installed_path
from tests.fakes.provider import FakeProvider, finish, text

__all__ = ["LOCAL", "shipped_house"]

LOCAL = "local/smollm2"


def _frame(delta: dict[str, str]) -> str:
    return orjson.dumps({"choices": [{"index": 0, "delta": delta, "finish_reason": None}]}).decode()


ANSWER = (text(_frame({"content": "from here"})), finish())


@contextlib.asynccontextmanager
async def shipped_house(
    folder: Path, base_url: str | None = None
) -> AsyncIterator[tuple[Roundhouse, httpx.AsyncClient]]:
    """Run the gateway; ``base_url`` is where every provider outside is said to be instead."""
    catalog = load_catalog(installed_path("providers.yaml"))
    if base_url is not None:
        catalog = _moved(catalog, base_url)
    clock = SystemClock()
    secrets = {name: "sk-none" for entry in catalog.providers.values() for name in entry.key_env}
    providers = build_providers(catalog, ProviderSurroundings(clock, folder, secrets))
    local = [name for name, entry in catalog.providers.items() if entry.local]
    for name in local:
        await providers[name].aclose()
        providers[name] = FakeProvider(ANSWER)
    outside = {n: e.base_url for n, e in catalog.providers.items() if e.base_url and not e.local}
    settings = Settings(folder / "none.yaml", folder, f"sqlite:///{folder}/r.db", start_engine=False)
    roundhouse = Roundhouse(
        settings,
        catalog,
        providers,
        key_labels=secrets,
        clock=clock,
        rng=random.Random(1),  # noqa: S311 - breaks ties
        network=NetworkSensor(outside, clock),
    )
    async with roundhouse.running():
        transport = httpx.ASGITransport(roundhouse.asgi)
        async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as client:
            yield roundhouse, client


def _moved(catalog: Catalog, base_url: str) -> Catalog:
    entries = {
        name: entry if entry.local else replace(entry, base_url=base_url)
        for name, entry in catalog.providers.items()
    }
    return replace(catalog, providers=MappingProxyType(entries))
