"""What the engine was told: a frozen configuration, and the one place that reads the environment.

Knows no model; a value that makes no sense stops the start.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from local_backend.errors import InvalidRequest

__all__ = [
    "ActivationPreference",
    "EngineConfig",
    "KernelPreference",
    "ServerConfig",
    "default_threads",
    "token_from_environment",
]

_TOKEN_VARIABLE = "ROUNDHOUSE_ENGINE_TOKEN"  # noqa: S105 - the variable's name
_LARGEST_PORT = 65535


class KernelPreference(StrEnum):
    """Which arithmetic to use; ``AUTO`` takes native where it supports every tensor."""

    AUTO = "auto"
    NATIVE = "native"
    REFERENCE = "reference"


class ActivationPreference(StrEnum):
    """How many bits the native kernels keep of an activation; ``AUTO`` decides by the model's size."""

    AUTO = "auto"
    EIGHT = "8"
    SIXTEEN = "16"


def default_threads() -> int:
    """Processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return max(1, len(os.sched_getaffinity(0)))
    return os.cpu_count() or 1


def token_from_environment(environment: Mapping[str, str] | None = None) -> str | None:
    """Bearer token that clients must show, from ``ROUNDHOUSE_ENGINE_TOKEN``; ``None`` when unset or empty."""
    source = os.environ if environment is None else environment
    return source.get(_TOKEN_VARIABLE) or None


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """How to run a model. ``context_tokens`` ``None`` takes what the model was trained for, bounded."""

    context_tokens: int | None = None
    threads: int | None = None
    kernels: KernelPreference = KernelPreference.AUTO
    activations: ActivationPreference = ActivationPreference.AUTO
    prefill_chunk: int = 256

    def __post_init__(self) -> None:
        for name, value in (
            ("context", self.context_tokens),
            ("threads", self.threads),
            ("prefill chunk", self.prefill_chunk),
        ):
            if value is not None and value < 1:
                raise InvalidRequest(f"{name} is {value}; it must be at least 1", param=name)


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """How to serve. ``queue_limit`` requests may wait behind the running one.

    ``keep_alive_s``: after so long without a frame a comment is sent, so that nobody between cuts the
    connection. ``grace_s``: how long running requests may go on after a signal to stop.
    """

    host: str = "127.0.0.1"
    port: int = 8081
    token: str | None = None
    queue_limit: int = 16
    keep_alive_s: float = 10.0
    grace_s: float = 1.0

    def __post_init__(self) -> None:
        if not 0 <= self.port <= _LARGEST_PORT:
            raise InvalidRequest(
                f"port is {self.port}; it must be from 0 (any) to {_LARGEST_PORT}", param="port"
            )
        if self.queue_limit < 0:
            raise InvalidRequest(
                f"queue limit is {self.queue_limit}; it must not be negative", param="queue_limit"
            )
