"""How a local engine is started: the words of its command, its port and its token.

Knows our own engine's options and how a ``llama-server``-compatible command is filled in; starts nothing.
"""

from __future__ import annotations

import secrets
import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from router.catalog.catalog import EngineLaunch

__all__ = ["EngineCommand", "engine_command"]

_HOST: Final = "127.0.0.1"
_TOKEN_VARIABLES: Final = ("ROUNDHOUSE_ENGINE_TOKEN", "LLAMA_API_KEY")


@dataclass(frozen=True, slots=True)
class EngineCommand:
    """One launch. ``port`` is ``None`` where the engine announces its own."""

    words: tuple[str, ...]
    environment: Mapping[str, str] = field(repr=False)
    token: str = field(repr=False)
    host: str = _HOST
    port: int | None = None

    @property
    def announces(self) -> bool:
        """Whether the engine says on its standard output where it listens and when it is ready."""
        return self.port is None


def engine_command(launch: EngineLaunch, environment: Mapping[str, str]) -> EngineCommand:
    """Return the command of one launch, with a token of its own.

    The engine gets ``environment`` and the token besides, in ``ROUNDHOUSE_ENGINE_TOKEN`` and
    ``LLAMA_API_KEY``. A command of the user's runs under :mod:`router.providers.engine_guard`, and on a
    port that was free a moment ago.
    """
    token = secrets.token_urlsafe(32)
    environment = {**environment, **dict.fromkeys(_TOKEN_VARIABLES, token)}
    if launch.command is None:
        return EngineCommand(_own_words(launch), environment, token)
    port = _free_port()
    values = {
        "{host}": _HOST,
        "{port}": str(port),
        "{model}": launch.model,
        "{context}": str(launch.context_tokens),
        "{token}": token,
    }
    guard = str(Path(__file__).with_name("engine_guard.py"))
    words = (sys.executable, guard, "--", *(_filled(word, values) for word in launch.command))
    return EngineCommand(words, environment, token, port=port)


def _own_words(launch: EngineLaunch) -> tuple[str, ...]:
    threads = () if launch.threads is None else ("--threads", str(launch.threads))
    return (
        *(sys.executable, "-m", "local_backend", "serve", launch.model),
        *("--host", _HOST, "--port", "0"),
        *("--context", str(launch.context_tokens), "--queue", str(launch.queue_limit), *threads),
        *("--exit-with-stdin", "--announce"),
    )


def _filled(word: str, values: Mapping[str, str]) -> str:
    for name, value in values.items():
        word = word.replace(name, value)
    return word


def _free_port() -> int:
    with socket.create_server((_HOST, 0)) as listener:
        port: int = listener.getsockname()[1]
    return port
