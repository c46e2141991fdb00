"""How an attempt ended, and what that says about whom.

Pure: turns an error or a success into an :class:`Outcome`; benches nobody itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["Outcome", "OutcomeKind", "Provenance", "Scope"]


class Provenance(StrEnum):
    """Who said how long somebody is to be left out: the upstream itself, or our own rule of thumb."""

    STATED = "stated"
    GUESSED = "guessed"


class Scope(StrEnum):
    """Who is to blame, and so who is benched."""

    NONE = "none"
    REQUEST = "request"
    KEY_MODEL = "key_model"
    KEY = "key"
    MODEL = "model"
    PROVIDER = "provider"
    SLOT = "slot"


class OutcomeKind(StrEnum):
    """The classes of endings; one row of the taxonomy each."""

    SUCCESS = "success"
    RATE_LIMITED = "rate_limited"
    QUOTA_EXHAUSTED = "quota_exhausted"
    NO_BALANCE = "no_balance"
    BAD_CREDENTIALS = "bad_credentials"
    NOT_PERMITTED = "not_permitted"
    MODEL_NOT_FOUND = "model_not_found"
    BAD_REQUEST = "bad_request"
    CONTEXT_TOO_LONG = "context_too_long"
    CONTENT_FILTERED = "content_filtered"
    UPSTREAM_FAILURE = "upstream_failure"
    UNREACHABLE = "unreachable"
    TIMED_OUT = "timed_out"
    BROKEN_STREAM = "broken_stream"
    EMPTY_ANSWER = "empty_answer"
    SLOT_BUSY = "slot_busy"
    CLIENT_LEFT = "client_left"
    GATEWAY_DEFECT = "gateway_defect"


@dataclass(frozen=True, slots=True)
class Outcome:
    """One ending, classified.

    ``bench_s`` is how long the scope is to be left out at least (0: not benched); ``breaker_weight`` is
    how much of a failure this is for the breaker (0: none, 1: full). ``try_next`` says whether another
    candidate may serve the same request. ``ttft_s`` and ``tokens_per_s`` are known for successes only.
    ``bench_from`` says whose figure ``bench_s`` is. ``learned_context_tokens`` is the window that an
    upstream named when it refused a prompt as too long. ``retry_after_s`` is when to ask again where nobody
    is left out meanwhile.
    """

    kind: OutcomeKind
    scope: Scope
    detail: str = ""
    bench_s: float = 0.0
    breaker_weight: float = 0.0
    try_next: bool = True
    http_status: int | None = None
    ttft_s: float | None = None
    tokens_per_s: float | None = None
    duration_s: float | None = None
    bench_from: Provenance = Provenance.GUESSED
    learned_context_tokens: int | None = None
    retry_after_s: float | None = None

    @property
    def succeeded(self) -> bool:
        """Whether the candidate did its work."""
        return self.kind is OutcomeKind.SUCCESS
