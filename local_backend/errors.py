"""Every error the engine raises on purpose.

::

    EngineError
    ├── BadModelFile            the file is not what it claims: path, place (field, tensor, byte), problem
    ├── UnsupportedModel        a sound file that this engine cannot run: architecture or block type by name
    ├── TooLargeForMemory       the model does not fit here; the message has the numbers and a remedy
    ├── InvalidRequest          the request cannot be served as written
    │   └── ContextOverflow     prompt with wanted output longer than the context
    ├── Overloaded              the queue is full; retry_after_s says when to come back
    ├── Loading                 the model is not loaded yet; retry_after_s is an estimate
    ├── LoadFailed              the model could not be loaded; it will not come by waiting
    ├── Unauthorised            the bearer token is missing or wrong
    ├── Cancelled               the client left or the engine stops
    └── NativeUnavailable       the compiled module is missing or does not fit this machine

A leaf module: it imports nothing of ours.
"""

from __future__ import annotations

from typing import ClassVar

__all__ = [
    "BadModelFile",
    "Cancelled",
    "ContextOverflow",
    "EngineError",
    "InvalidRequest",
    "LoadFailed",
    "Loading",
    "NativeUnavailable",
    "Overloaded",
    "TooLargeForMemory",
    "Unauthorised",
    "UnsupportedModel",
]


class EngineError(Exception):
    """Base of all. ``status`` and ``code`` are what the HTTP envelope carries."""

    status: ClassVar[int] = 500
    code: ClassVar[str] = "engine_error"
    type: ClassVar[str] = "api_error"


class BadModelFile(EngineError):
    """The file cannot be trusted; nothing was loaded. ``place`` names field, tensor or byte offset."""

    code = "bad_model_file"

    def __init__(self, path: str, place: str, problem: str) -> None:
        super().__init__(f"{path}: {place}: {problem}")
        self.path = path
        self.place = place
        self.problem = problem


class UnsupportedModel(EngineError):
    """A sound file that needs what this engine does not have."""

    code = "unsupported_model"

    def __init__(self, path: str, feature: str, supported: tuple[str, ...]) -> None:
        super().__init__(f"{path}: {feature} is not supported; supported: {', '.join(supported)}")
        self.path = path
        self.feature = feature
        self.supported = supported


class TooLargeForMemory(EngineError):
    """The model does not fit into this machine's memory; nothing was loaded."""

    status = 503
    code = "does_not_fit"


class InvalidRequest(EngineError):
    """The request cannot be served as written. ``param`` names the offending field."""

    status = 400
    code = "invalid_request"
    type = "invalid_request_error"

    def __init__(self, message: str, *, param: str | None = None) -> None:
        super().__init__(message)
        self.param = param


class ContextOverflow(InvalidRequest):
    """The prompt with the wanted output is longer than the context."""

    code = "context_length_exceeded"


class Overloaded(EngineError):
    """The queue is full."""

    status = 429
    code = "queue_full"
    type = "rate_limit_error"

    def __init__(self, message: str, *, retry_after_s: float) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class Loading(EngineError):
    """The model is not loaded yet."""

    status = 503
    code = "loading"

    def __init__(self, message: str, *, retry_after_s: float) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class LoadFailed(EngineError):
    """The model could not be loaded; waiting will not help."""

    status = 503
    code = "load_failed"


class Unauthorised(EngineError):
    """The bearer token is missing or wrong."""

    status = 401
    code = "invalid_api_key"
    type = "authentication_error"


class Cancelled(EngineError):
    """The client left, or the engine stops."""

    status = 499
    code = "cancelled"


class NativeUnavailable(EngineError):
    """The compiled module is missing or does not fit this machine."""

    status = 503
    code = "native_unavailable"
