"""Imports go down the list of layers, and what is foreign is imported in few places."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

from tests.architecture.source_tree import Module, modules

# From the lowest to the highest. A package imports packages of lower rows only; those of one row do not know
# each other.
LAYERS = {
    "router": (
        {"errors", "clock"},
        {"chat"},
        {"catalog", "settings"},
        {"health", "limits"},
        {"routing"},
        {"providers"},
        {"dispatch", "judge"},
        {"recording"},
        {"storage"},
        {"story"},
        {"gateway"},
        {"api"},
        {"app"},
        {"commands"},
        {"cli"},
        {"__main__"},
    ),
    "local_backend": (
        {"errors"},
        {"config"},
        {"gguf"},
        {"model"},
        {"plan"},
        {"kv_cache", "layers", "tiers"},
        {"kernels"},
        {"engine"},
        {"benchmark", "server"},
        {"commands"},
        {"cli"},
        {"__main__"},
    ),
}
# `recording` and `storage` stand beside the path of a request: nothing below the gateway knows them.
BESIDE = {"recording", "storage"}
KNOWS_BESIDE = {"storage", "story", "gateway", "api", "app", "commands"}
# It runs before anything is installed, so nobody imports it and it imports nobody.
ALONE = {"installation"}

FOREIGN = {
    "fastapi": ("router.app", "router.api", "local_backend.server"),
    "starlette": ("router.app", "router.api", "router.commands.server", "local_backend.server"),
    "sqlalchemy": ("router.storage",),
    "alembic": ("router.storage",),
    "redis": ("router.storage.redis", "router.limits.redis_limiter"),
    "httpx": ("router.providers", "router.app"),
    "litellm": ("router.providers",),
    "nanobind": (),
    "local_backend._native": ("local_backend.kernels",),
}

PURE = (
    "router.chat",
    "router.routing",
    "router.health",
    "router.providers.prompt_memory",
    "router.providers.slot_queue",
    "router.providers.wait_estimate",
    "router.limits.token_bucket",
    "router.limits.budget",
    "router.judge.answer",
    "router.judge.cache",
    "router.judge.excerpt",
    "router.judge.heuristic",
    "router.judge.members",
    "router.judge.prompt",
    "router.judge.standing",
    "local_backend.plan",
    "local_backend.tiers.eviction",
    "local_backend.engine.scheduler",
    "local_backend.engine.sampler",
)
NOT_PURE = ("router.health.probe", "local_backend.plan.hardware")
IMPURE_MODULES = {
    *("asyncio", "anyio", "threading", "subprocess", "socket", "os"),
    *("httpx", "sqlalchemy", "redis", "logging", "structlog"),
    *("time", "random", "secrets"),
}


def within(name: str, packages: tuple[str, ...]) -> bool:
    return any(name == package or name.startswith(package + ".") for package in packages)


def layer_of(name: str) -> tuple[str, str] | None:
    """Return (package, layer) of one of our modules; nothing for others and for the package itself."""
    parts = name.split(".")
    if parts[0] not in LAYERS or len(parts) < 2 or parts[1] == "__version__":
        return None
    return parts[0], parts[1]


def rank(package: str, layer: str) -> int | None:
    return next((i for i, row in enumerate(LAYERS[package]) if layer in row), None)


def upward_imports(module: Module) -> list[str]:
    """Return the module's imports of our own that the list of layers forbids."""
    own = layer_of(module.name)
    if own is None or own[1] in ALONE:
        return []
    package, layer = own
    wrong = []
    for found in module.imports():
        other = layer_of(found.name)
        if other is None or other[0] != package or other[1] in {layer, "__init__"}:
            continue
        own_rank, other_rank = rank(package, layer), rank(package, other[1])
        if other_rank is None:
            continue  # a name inside a package, or a module whose absence from the list another test tells
        hidden = other[1] in BESIDE and layer not in KNOWS_BESIDE
        if own_rank is None or other_rank >= own_rank or hidden:
            wrong.append(module.at(found.line, f"{layer} imports {found.name}, which is not below it"))
    return wrong


def test_every_module_stands_in_a_layer() -> None:
    unknown = [
        module.place
        for module in modules()
        if (own := layer_of(module.name))
        and own[1] not in ALONE
        and rank(*own) is None
        and own[1] != "__init__"
    ]

    assert not unknown, "not in the list of layers (tests/architecture/test_layers.py, docs/architecture.md)"


def test_imports_go_down_the_layers() -> None:
    wrong = [text for module in modules() for text in upward_imports(module)]

    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(("package", "other"), [("router", "local_backend"), ("local_backend", "router")])
def test_the_two_packages_never_import_each_other(package: str, other: str) -> None:
    wrong = [
        module.at(found.line, f"imports {found.name}")
        for module in modules()
        if module.name.split(".")[0] == package
        for found in module.imports()
        if found.name.split(".")[0] == other
    ]

    assert not wrong, "\n".join(wrong)


def test_installation_knows_the_standard_library_only() -> None:
    wrong = [
        module.at(found.line, f"imports {found.name}")
        for module in modules()
        for found in module.imports()
        if within(module.name, ("router.installation",)) != within(found.name, ("router.installation",))
        and (within(module.name, ("router.installation",)) or within(found.name, ("router.installation",)))
        and found.name.split(".")[0] not in sys.stdlib_module_names
    ]

    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("foreign", sorted(FOREIGN))
def test_a_foreign_library_is_imported_only_where_it_belongs(foreign: str) -> None:
    wrong = [
        module.at(found.line, f"imports {found.name}")
        for module in modules()
        for found in module.imports()
        if within(found.name, (foreign,)) and not within(module.name, FOREIGN[foreign])
    ]

    assert not wrong, "\n".join(wrong)


def test_pure_packages_import_neither_io_nor_time_nor_chance() -> None:
    wrong = [
        module.at(found.line, f"imports {found.name}; a pure package gets what it needs as arguments")
        for module in modules()
        if within(module.name, PURE) and not within(module.name, NOT_PURE)
        for found in module.imports()
        if found.name.split(".")[0] in IMPURE_MODULES
    ]

    assert not wrong, "\n".join(wrong)


def test_the_scan_sees_late_and_relative_imports() -> None:
    text = "def f():\n    from ..dispatch import walk\n    import router.api.sse\n"
    module = Module(Path("router/routing/x.py"), "router.routing.x", text, ast.parse(text))

    assert {found.name for found in module.imports()} == {
        "router.dispatch",
        "router.dispatch.walk",
        "router.api.sse",
    }
    assert [own.name for own in module.imports() if own.line == 3] == ["router.api.sse"]
