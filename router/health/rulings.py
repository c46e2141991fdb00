"""The classes of upstream errors, a row each: who is to blame, how long he is left out, what it counts.

Data only. :mod:`router.health.vendor_patterns` names these rows; :mod:`router.health.classify` picks one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from router.health.outcome import OutcomeKind, Scope

__all__ = ["RULINGS", "Ruling", "RulingName"]

_MINUTE, _HOUR, _DAY = 60.0, 3_600.0, 86_400.0


class RulingName(StrEnum):
    """The rows of the taxonomy."""

    RATE_LIMITED = "rate_limited"
    MODEL_RATE_LIMITED = "model_rate_limited"
    DAILY_QUOTA = "daily_quota"
    PLAN_QUOTA = "plan_quota"
    NO_BALANCE = "no_balance"
    REQUEST_TOO_DEAR = "request_too_dear"
    BAD_CREDENTIALS = "bad_credentials"
    ACCOUNT_BLOCKED = "account_blocked"
    NOT_PERMITTED = "not_permitted"
    FORBIDDEN = "forbidden"
    REGION_REFUSED = "region_refused"
    MODEL_NOT_FOUND = "model_not_found"
    NO_CHANNEL = "no_channel"
    BAD_REQUEST = "bad_request"
    CONTEXT_TOO_LONG = "context_too_long"
    CONTENT_FILTERED = "content_filtered"
    UPSTREAM_FAILURE = "upstream_failure"
    OVERLOADED = "overloaded"
    MODEL_FAULT = "model_fault"
    UPSTREAM_TIMEOUT = "upstream_timeout"
    LOADING = "loading"


@dataclass(frozen=True, slots=True)
class Ruling:
    """What follows from a class of error.

    ``bench_s`` is our guess where the upstream states nothing, ``cap_s`` the most that a statement of its
    may ask for (0: a statement is not heeded).
    """

    kind: OutcomeKind
    scope: Scope
    bench_s: float = 0.0
    cap_s: float = 0.0
    weight: float = 0.0


_K, _S = OutcomeKind, Scope

RULINGS: Mapping[RulingName, Ruling] = MappingProxyType(
    {
        RulingName.RATE_LIMITED: Ruling(_K.RATE_LIMITED, _S.KEY_MODEL, 30.0, 6 * _HOUR),
        # The model is crowded for everybody: another key would not help.
        RulingName.MODEL_RATE_LIMITED: Ruling(_K.RATE_LIMITED, _S.MODEL, 30.0, _HOUR),
        RulingName.DAILY_QUOTA: Ruling(_K.QUOTA_EXHAUSTED, _S.KEY_MODEL, _DAY, 2 * _DAY),
        RulingName.PLAN_QUOTA: Ruling(_K.QUOTA_EXHAUSTED, _S.KEY, _HOUR, 31 * _DAY),
        RulingName.NO_BALANCE: Ruling(_K.NO_BALANCE, _S.KEY, 6 * _HOUR, 31 * _DAY),
        # There is some balance left, though not for an answer of this length.
        RulingName.REQUEST_TOO_DEAR: Ruling(_K.NO_BALANCE, _S.KEY_MODEL, 10 * _MINUTE, _HOUR),
        RulingName.BAD_CREDENTIALS: Ruling(_K.BAD_CREDENTIALS, _S.KEY, 5 * _MINUTE),
        RulingName.ACCOUNT_BLOCKED: Ruling(_K.BAD_CREDENTIALS, _S.KEY, _HOUR),
        RulingName.NOT_PERMITTED: Ruling(_K.NOT_PERMITTED, _S.KEY_MODEL, _DAY),
        # A 403 that says nothing we know: a firewall's mood as well as a missing right.
        RulingName.FORBIDDEN: Ruling(_K.NOT_PERMITTED, _S.KEY_MODEL, 10 * _MINUTE, _HOUR),
        RulingName.REGION_REFUSED: Ruling(_K.NOT_PERMITTED, _S.PROVIDER, 6 * _HOUR),
        RulingName.MODEL_NOT_FOUND: Ruling(_K.MODEL_NOT_FOUND, _S.MODEL, _HOUR),
        # A reseller has nobody behind this model just now.
        RulingName.NO_CHANNEL: Ruling(_K.MODEL_NOT_FOUND, _S.MODEL, 10 * _MINUTE),
        RulingName.BAD_REQUEST: Ruling(_K.BAD_REQUEST, _S.REQUEST),
        RulingName.CONTEXT_TOO_LONG: Ruling(_K.CONTEXT_TOO_LONG, _S.REQUEST),
        RulingName.CONTENT_FILTERED: Ruling(_K.CONTENT_FILTERED, _S.REQUEST),
        RulingName.UPSTREAM_FAILURE: Ruling(_K.UPSTREAM_FAILURE, _S.MODEL, 0.0, 5 * _MINUTE, 1.0),
        RulingName.OVERLOADED: Ruling(_K.UPSTREAM_FAILURE, _S.MODEL, 0.0, 5 * _MINUTE, 1.0),
        # The model wrote something its own server could not read; the server is well.
        RulingName.MODEL_FAULT: Ruling(_K.UPSTREAM_FAILURE, _S.MODEL, 0.0, 0.0, 0.25),
        RulingName.UPSTREAM_TIMEOUT: Ruling(_K.TIMED_OUT, _S.MODEL, 0.0, 0.0, 0.5),
        RulingName.LOADING: Ruling(_K.SLOT_BUSY, _S.SLOT, 5.0, 5.0),
    }
)
