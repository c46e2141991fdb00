"""How long one attempt may take: the limits, scaled with the length of the prompt.

Pure. A long prompt is read before the first token, so silence is no sign of a fault for as long as the
reading may take; the stall deadline does not begin before the first token.
"""

from __future__ import annotations

from typing import Final

from router.catalog.catalog import Deployment, Limits
from router.chat.features import RequestFeatures
from router.providers.base import AttemptDeadlines

__all__ = ["attempt_deadlines"]

# The slowest prefill that still counts as working, tokens per second: of a machine's own engine (two cores
# and a model larger than the cache reach some 40), and of a hosted one (100,000 tokens in 100 s have been
# seen).
_SLOWEST_LOCAL_PREFILL: Final = 15.0
_SLOWEST_HOSTED_PREFILL: Final = 800.0
# A deployment known to be slow to begin gets this many times what it is known to need.
_PATIENCE: Final = 4.0
_LEAST_S: Final = 0.001


def attempt_deadlines(
    limits: Limits,
    features: RequestFeatures,
    deployment: Deployment,
    *,
    is_local: bool,
    expected_wait_s: float = 0.0,
    remaining_s: float | None = None,
    slot_wait_s: float | None = None,
) -> AttemptDeadlines:
    """Return the deadlines of one attempt, in seconds.

    ``expected_wait_s`` is the wait for a slot that the provider announces; ``remaining_s`` is what is left
    of the whole request's time, where other attempts have used some. ``slot_wait_s`` is passed on.
    """
    slowest = _SLOWEST_LOCAL_PREFILL if is_local else _SLOWEST_HOSTED_PREFILL
    reading_s = features.prompt_tokens(deployment.tokens_per_character) / slowest
    first = (
        max(limits.first_event_timeout_s, _PATIENCE * deployment.expected_ttft_s)
        + reading_s
        + expected_wait_s
    )
    total = limits.total_timeout_s if remaining_s is None else min(limits.total_timeout_s, remaining_s)
    total = max(total, _LEAST_S)
    return AttemptDeadlines(
        connect_s=min(limits.connect_timeout_s, total),
        first_event_s=min(first, total),
        stall_s=min(limits.stall_timeout_s, total),
        total_s=total,
        slot_wait_s=slot_wait_s,
    )
