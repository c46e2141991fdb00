"""A whole gateway over scripted providers: what a test says in YAML is what the upstreams do.

``house_file`` writes ``providers.yaml`` and the scripts; ``running_house`` builds and runs the gateway on
them and hands out a client that talks to it without a network.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx

from router.app import Roundhouse, build_roundhouse
from router.catalog.load import load_catalog
from router.settings import Secret, Settings, read_settings

__all__ = ["House", "house_file", "running_house"]

_ENTRYPOINTS = ("auto", "chat", "code", "build", "long")


@dataclass(frozen=True, slots=True)
class House:
    """A running gateway and a client of it."""

    roundhouse: Roundhouse
    client: httpx.AsyncClient

    async def chat(self, model: str = "chat", *, stream: bool = False, **fields: Any) -> httpx.Response:
        """Ask; ``fields`` go into the body as they are."""
        messages = [{"role": "user", "content": "hello"}]
        body = {"model": model, "messages": messages, "stream": stream, **fields}
        return await self.client.post("/v1/chat/completions", json=body)


def house_file(folder: Path, providers: Mapping[str, str], *, limits: str = "{}", judge: str = "") -> Path:
    """Write a catalog with one candidate ``NAME/model`` for each provider, in order of preference.

    A provider is a script, or its own entry where it begins with ``{kind``. ``limits`` and ``judge`` are
    YAML.
    """
    lines = [f"limits: {limits}", *([f"judge: {judge}"] if judge else []), "providers:"]
    for name, text in providers.items():
        if text.startswith("{kind"):
            lines.append(f"  {name}: {text}")
            continue
        (folder / f"{name}.yaml").write_text(text)
        lines.append(f"  {name}: {{kind: scripted, script: {name}.yaml}}")
    lines.append("candidates:")
    for position, name in enumerate(providers):
        fit = round(0.9 - 0.4 * position, 2) if position < 3 else 0.01
        lines += [
            f"  - id: {name}/model",
            f"    provider: {name}",
            "    model: upstream-name",
            "    context_tokens: 100000",
            "    max_output_tokens: 8000",
            f"    price: {{input: {2 + position}, output: 10}}",
            "    capabilities: [tools, parallel_tools, json_schema, reasoning]",
            f"    task_fit: {{chat: {fit}, code: {fit}, build: {fit}, long: {fit}}}",
        ]
    lines.append("entrypoints:")
    everybody = ", ".join(f"{name}/model" for name in providers)
    for name in _ENTRYPOINTS:
        lines += [
            f"  {name}:",
            f"    description: the entrypoint {name}",
            f"    candidates: [{everybody}]",
            "    weights: {health: 1, task_fit: 5, context_slack: 0, cost: 0, expected_time: 0, load: 0}",
        ]
    path = folder / "providers.yaml"
    path.write_text("\n".join(lines) + "\n")
    return path


@asynccontextmanager
async def running_house(
    path: Path,
    *,
    keys: Mapping[str, str] | None = None,
    transport: httpx.AsyncBaseTransport | None = None,
    **changes: Any,
) -> AsyncIterator[House]:
    """Run the gateway on that file; ``transport`` is its network, ``changes`` go into its settings."""
    settings: Settings = read_settings({"config": str(path), "data_dir": str(path.parent / "data")}, {})
    settings = replace(settings, **changes)
    secrets = {name: Secret(value) for name, value in (keys or {}).items()}
    roundhouse = build_roundhouse(settings, load_catalog(path), keys=secrets, seed=7, transport=transport)
    async with roundhouse.running():
        client = httpx.AsyncClient(transport=httpx.ASGITransport(roundhouse.asgi), base_url="http://gateway")
        async with client:
            yield House(roundhouse, client)
