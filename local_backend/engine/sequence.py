"""One request on its way through the engine. Knows tokens and text; not layers, caches or HTTP."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np

from local_backend.engine.detokenize import TextStream
from local_backend.engine.sampling import Choice, SamplingParameters
from local_backend.engine.scheduler import Progress

__all__ = ["FinishReason", "GenerationRequest", "Sequence", "SequenceState"]


class SequenceState(StrEnum):
    """Where a sequence stands."""

    WAITING = "waiting"
    PREFILL = "prefill"
    DECODE = "decode"
    FINISHED = "finished"


class FinishReason(StrEnum):
    """Why a sequence ended without an error."""

    STOP = "stop"
    LENGTH = "length"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """What the engine is asked for: continue ``prompt`` by at most ``max_tokens``.

    ``stops`` end the text before their first occurrence. ``ignore_end`` generates past the model's end
    tokens (for comparisons and measurements).
    """

    request_id: str
    prompt: tuple[int, ...]
    max_tokens: int
    sampling: SamplingParameters = field(default_factory=SamplingParameters)
    stops: tuple[str, ...] = ()
    ignore_end: bool = False


class Sequence:
    """The state of one request; owned by the engine."""

    def __init__(self, request: GenerationRequest, arrived: float) -> None:
        self.request = request
        self.arrived = arrived
        self.state = SequenceState.WAITING
        self.cached_tokens = 0
        self.computed = 0
        self.text = TextStream(request.stops)
        self.rng = np.random.default_rng(request.sampling.seed)
        self.prompt_ids = frozenset(request.prompt)
        self.counts: Counter[int] = Counter()
        self.generated: list[int] = []

    @property
    def progress(self) -> Progress:
        """What the scheduler may know."""
        return Progress(
            request_id=self.request.request_id,
            prompt_tokens=len(self.request.prompt),
            computed=self.computed,
            remaining=self.request.max_tokens - len(self.generated),
        )

    def admit(self, cached_tokens: int) -> None:
        """Enter the slot, whose cache holds the first ``cached_tokens`` already."""
        self.state = SequenceState.PREFILL
        self.cached_tokens = cached_tokens
        self.computed = cached_tokens

    def advance(self, count: int) -> None:
        """``count`` more prompt tokens are in the cache."""
        self.computed += count
        if self.computed >= len(self.request.prompt):
            self.state = SequenceState.DECODE

    def accept(self, choice: Choice) -> None:
        """Take a chosen token."""
        self.generated.append(choice.token)
        self.counts[choice.token] += 1
