"""Every error the gateway raises on purpose.

::

    GatewayError
    ├── ConfigurationError            providers.yaml or the environment is wrong (file, line, column, fix)
    ├── InvalidRequest                400  the client's request cannot be served as written
    │   ├── UnknownModel              404  no entrypoint and no candidate of that name
    │   ├── ContextLengthExceeded     400  longer than every candidate's window
    │   └── RequestTooLarge           413  the body has more bytes than the limit
    ├── AuthenticationFailed          401  the client's own key
    ├── UpstreamError                 one attempt at one candidate failed; never reaches a client as it is
    │   ├── UpstreamStatus            an HTTP status other than 2xx
    │   ├── UpstreamUnreachable       DNS, connect, TLS, reset before an answer
    │   ├── UpstreamTimeout           a deadline passed (connect, first event, stall, total)
    │   ├── UpstreamBrokenStream      the stream ended without its ending, or was not what it claimed
    │   ├── UpstreamInBandError       an error object inside a 200 answer
    │   ├── UpstreamEmpty             a complete answer without any content
    │   └── SlotBusy                  waiting for the local engine's slot is not worth it
    ├── Exhausted                     every candidate was left out or failed (429, 502, 503, 413, 404)
    ├── StreamInterrupted             the upstream failed after the first event had reached the client
    ├── ClientDisconnected            the client left; nobody is benched for it
    ├── ShuttingDown                  503  the gateway is being stopped
    ├── StorageError                  the database cannot be used; recording degrades, requests go on
    └── InternalError                 500  a defect of the gateway's own

A leaf module: it imports nothing of ours, so that every package may import it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

__all__ = [
    "AuthenticationFailed",
    "ClientDisconnected",
    "ConfigurationError",
    "ConfigurationProblem",
    "ContextLengthExceeded",
    "Exhausted",
    "GatewayError",
    "InternalError",
    "InvalidRequest",
    "Origin",
    "RequestTooLarge",
    "ShuttingDown",
    "SlotBusy",
    "SourcePosition",
    "StorageError",
    "StreamInterrupted",
    "TimeoutPhase",
    "UnknownModel",
    "UpstreamBrokenStream",
    "UpstreamEmpty",
    "UpstreamError",
    "UpstreamInBandError",
    "UpstreamStatus",
    "UpstreamTimeout",
    "UpstreamUnreachable",
]


class Origin(StrEnum):
    """Who caused an error: shown to the client in the envelope and used to decide who is benched."""

    CLIENT = "client"
    GATEWAY = "gateway"
    UPSTREAM = "upstream"


class TimeoutPhase(StrEnum):
    """Which deadline of an attempt passed."""

    CONNECT = "connect"
    FIRST_EVENT = "first_event"
    STALL = "stall"
    TOTAL = "total"


@dataclass(frozen=True, slots=True)
class SourcePosition:
    """Where in a configuration file something stands; line and column count from 1."""

    file: str
    line: int | None = None
    column: int | None = None

    def __str__(self) -> str:
        """Return ``file:line:column``, as editors and compilers write it."""
        return ":".join(str(part) for part in (self.file, self.line, self.column) if part is not None)


class GatewayError(Exception):
    """Base of all. ``status``, ``code`` and ``type`` are what OpenAI's error envelope carries."""

    status: ClassVar[int] = 500
    code: ClassVar[str] = "internal_error"
    type: ClassVar[str] = "api_error"
    origin: ClassVar[Origin] = Origin.GATEWAY

    def __init__(self, message: str, *, param: str | None = None, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.retry_after_s = retry_after_s

    @property
    def http_status(self) -> int:
        """The status the client gets; a class whose status varies overrides this."""
        return self.status

    @property
    def envelope_code(self) -> str:
        """The ``error.code`` the client gets; a class whose code varies overrides this."""
        return self.code


@dataclass(frozen=True, slots=True)
class ConfigurationProblem:
    """One thing wrong with the configuration, where it stands, and what to do about it."""

    message: str
    position: SourcePosition
    fix: str

    def __str__(self) -> str:
        """Return one line: position, what is wrong, what to do."""
        return f"{self.position}: {self.message} -> {self.fix}"


class ConfigurationError(GatewayError):
    """The configuration cannot be used. Holds every problem found, not only the first."""

    code = "configuration_error"

    def __init__(self, problems: tuple[ConfigurationProblem, ...]) -> None:
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = problems


class InvalidRequest(GatewayError):
    """The client's request cannot be served as written."""

    status = 400
    code = "invalid_request"
    type = "invalid_request_error"
    origin = Origin.CLIENT


class UnknownModel(InvalidRequest):
    """No entrypoint and no candidate has the requested name."""

    status = 404
    code = "model_not_found"


class ContextLengthExceeded(InvalidRequest):
    """The prompt with the wanted output is longer than the window of every candidate."""

    code = "context_length_exceeded"


class RequestTooLarge(InvalidRequest):
    """The body has more bytes than ``limits.max_body_bytes``; it was not read to its end."""

    status = 413
    code = "request_too_large"


class AuthenticationFailed(GatewayError):
    """The client's own key is missing or wrong."""

    status = 401
    code = "invalid_api_key"
    type = "authentication_error"
    origin = Origin.CLIENT


class UpstreamError(GatewayError):
    """One attempt failed. The dispatcher turns it into an outcome and goes to the next candidate."""

    status = 502
    code = "upstream_error"
    origin = Origin.UPSTREAM


class UpstreamStatus(UpstreamError):
    """The upstream answered with a status other than 2xx.

    ``upstream_code`` and ``upstream_type`` are the typed fields of its error object where it has one;
    ``body_excerpt`` is at most 2,000 characters, with secrets removed.
    """

    code = "upstream_status"

    def __init__(
        self,
        message: str,
        *,
        upstream_status: int,
        upstream_code: str | None = None,
        upstream_type: str | None = None,
        body_excerpt: str = "",
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message, retry_after_s=retry_after_s)
        self.upstream_status = upstream_status
        self.upstream_code = upstream_code
        self.upstream_type = upstream_type
        self.body_excerpt = body_excerpt


class UpstreamUnreachable(UpstreamError):
    """No answer at all: DNS, connect, TLS, or a reset before the status line."""

    code = "upstream_unreachable"


class UpstreamTimeout(UpstreamError):
    """A deadline of the attempt passed."""

    status = 504
    code = "upstream_timeout"

    def __init__(self, message: str, *, phase: TimeoutPhase) -> None:
        super().__init__(message)
        self.phase = phase


class UpstreamBrokenStream(UpstreamError):
    """The stream ended without its ending, or a frame was not what the wire promises."""

    code = "upstream_broken_stream"


class UpstreamInBandError(UpstreamError):
    """An error object inside a 200 answer, as a body or as a frame of a stream."""

    code = "upstream_in_band_error"

    def __init__(
        self,
        message: str,
        *,
        upstream_status: int | None = None,
        upstream_code: str | None = None,
        upstream_type: str | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message, retry_after_s=retry_after_s)
        self.upstream_status = upstream_status
        self.upstream_code = upstream_code
        self.upstream_type = upstream_type


class UpstreamEmpty(UpstreamError):
    """A complete answer without text, reasoning, refusal or tool call."""

    code = "upstream_empty"


class SlotBusy(UpstreamError):
    """A local engine is well and has no slot in time: the request goes elsewhere, and nobody is benched."""

    status = 503
    code = "slot_busy"


class Exhausted(GatewayError):
    """Nobody is left to ask. ``trail`` names each candidate and why it was out, one line each."""

    code = "exhausted"

    def __init__(
        self,
        message: str,
        *,
        exhausted_status: int,
        exhausted_code: str,
        trail: tuple[str, ...],
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message, retry_after_s=retry_after_s)
        self.exhausted_status = exhausted_status
        self.exhausted_code = exhausted_code
        self.trail = trail

    @property
    def http_status(self) -> int:
        """As the ladder of exhaustion decided."""
        return self.exhausted_status

    @property
    def envelope_code(self) -> str:
        """As the ladder of exhaustion decided."""
        return self.exhausted_code


class StreamInterrupted(GatewayError):
    """The upstream failed after the commit boundary: the client must be told, nobody else is asked."""

    status = 502
    code = "stream_interrupted"
    origin = Origin.UPSTREAM


class ClientDisconnected(GatewayError):
    """The client closed the connection; status 499 is only ever seen in the record."""

    status = 499
    code = "client_disconnected"
    origin = Origin.CLIENT


class ShuttingDown(GatewayError):
    """The gateway is being stopped, and this request did not end within the time that streams are given."""

    status = 503
    code = "shutting_down"


class StorageError(GatewayError):
    """The database cannot be opened, written or migrated; no request fails for it."""

    status = 503
    code = "storage_unavailable"


class InternalError(GatewayError):
    """A defect of the gateway's own; benches nobody."""
