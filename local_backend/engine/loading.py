"""From a model's path to an engine that can step. Knows how the parts fit; computes nothing itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from local_backend.config import EngineConfig
from local_backend.engine.engine import Engine

__all__ = ["LoadedModel", "load_model", "public_name"]


@dataclass(frozen=True, slots=True)
class LoadedModel:
    name: str
    architecture: str
    kernels: str
    vocabulary_size: int
    engine: Engine

    def encode_text(self, text: str) -> list[int]:
        raise NotImplementedError

    def token_bytes(self, token: int) -> bytes:
        raise NotImplementedError

    def render_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None,
        options: Mapping[str, Any],
    ) -> list[int]:
        raise NotImplementedError


def load_model(path: str, config: EngineConfig, progress: Callable[[float], None]) -> LoadedModel:
    raise NotImplementedError


def public_name(path: str) -> str:
    raise NotImplementedError
