"""What ``serve`` says once it listens: where, what it can do now, and how to get more. Plain text."""

from __future__ import annotations

from router import __version__
from router.catalog.catalog import Catalog, ProviderKind
from router.health.snapshot import HealthSnapshot
from router.settings import Settings

__all__ = ["banner"]

_BUILTIN = "builtin:"


def banner(settings: Settings, catalog: Catalog, health: HealthSnapshot, port: int) -> str:
    """Return the lines; ``port`` is the one that was really taken."""
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    address = f"http://{host}:{port}"
    configured = sum(1 for state in health.deployments.values() if state.configured)
    missing = len(health.deployments) - configured
    lines = [
        "",
        f"  Roundhouse {__version__} is at {address}",
        "",
        f"  clients     {address}/v1    models: {', '.join(catalog.entrypoints)}",
        f"  candidates  {configured} configured, {missing} without a key (see {settings.config_path})",
        f"  dashboard   {address}/health/dashboard",
        f"  data        {settings.data_dir}",
        *_engine_lines(settings, catalog),
        *_key_lines(settings),
        "",
        "  Stop with Ctrl-C.",
        "",
    ]
    return "\n".join(lines) + "\n"


def _engine_lines(settings: Settings, catalog: Catalog) -> list[str]:
    engines = [one for one in catalog.providers.values() if one.kind is ProviderKind.ENGINE and one.engine]
    if not engines:
        return []
    if not settings.start_engine:
        return ["  engine      not started (--no-engine)"]
    model = engines[0].engine.model if engines[0].engine else ""
    if not model.startswith(_BUILTIN):
        return [f"  engine      loading {model}"]
    return [
        "  engine      loading SmolLM2-135M: a tiny demo model, to show that everything works.",
        f"              For a real one, name a GGUF file under `model:` of the provider {engines[0].name!r}",
        "              in providers.yaml, or set a provider's key, such as OPENAI_API_KEY, and start again.",
    ]


def _key_lines(settings: Settings) -> list[str]:
    if settings.api_key is not None:
        return ["  access      with ROUNDHOUSE_API_KEY as the bearer token"]
    if settings.allow_open:
        return ["  access      OPEN: everybody who reaches this port may use it"]
    return []
