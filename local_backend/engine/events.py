"""What the engine tells of a request while it runs. Knows no HTTP frames."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from local_backend.engine.sampling import Choice
from local_backend.engine.sequence import FinishReason
from local_backend.errors import EngineError

__all__ = ["Event", "Failed", "Finished", "Prefilled", "Usage", "Written"]


@dataclass(frozen=True, slots=True)
class Prefilled:
    """``computed`` of ``prompt_tokens`` are in the cache, ``cached_tokens`` of them from before."""

    request_id: str
    computed: int
    prompt_tokens: int
    cached_tokens: int


@dataclass(frozen=True, slots=True)
class Written:
    """One token was chosen. ``text`` is what became certain by it, possibly nothing.

    ``is_end`` marks the token by which the model ends its answer; it stands for no text.
    """

    request_id: str
    choice: Choice
    text: str
    is_end: bool = False


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of a request: ``cached_tokens`` are part of ``prompt_tokens``."""

    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int


@dataclass(frozen=True, slots=True)
class Finished:
    """The last event of a request that ended well; ``text`` is what was still held back."""

    request_id: str
    reason: FinishReason
    text: str
    usage: Usage


@dataclass(frozen=True, slots=True)
class Failed:
    """The last event of a request that ended in an error."""

    request_id: str
    error: EngineError


Event: TypeAlias = Prefilled | Written | Finished | Failed
