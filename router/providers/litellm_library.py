"""Providers that do not speak OpenAI's wire, through the ``litellm`` library: kind ``litellm``.

The library is imported when the first such call is made, in a thread (it takes seconds), and asked for one
plain attempt: its retries, fallbacks, callbacks and cost reports stay off. Its chunks have the shape of
OpenAI's, and so take the same way through :mod:`router.providers.answer_reader`. Its exceptions become ours
in one function here.

Before the process imports anything, :data:`REQUIRED_ENVIRONMENT` should be in its environment (this module
neither reads nor writes it): without that the library fetches tables from the network and reads ``.env``
files.
"""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing
from types import MappingProxyType, ModuleType
from typing import Any, Final

import orjson

from router.catalog.catalog import Deployment
from router.catalog.catalog import Provider as ProviderEntry
from router.chat.types import ChatEvent, ChatRequest
from router.clock import Clock
from router.errors import (
    TimeoutPhase,
    UpstreamBrokenStream,
    UpstreamStatus,
    UpstreamTimeout,
    UpstreamUnreachable,
)
from router.health.retry_after import parse_retry_after
from router.providers.answer_reader import AnswerReader
from router.providers.answer_stream import read_answer
from router.providers.attempt_timer import AttemptTimer
from router.providers.base import AttemptDeadlines, ProviderStatus
from router.providers.credentials import ProviderKeys
from router.providers.openai_compatible import chat_body
from router.providers.upstream_client import GeneratedBytes

__all__ = ["REQUIRED_ENVIRONMENT", "LiteLLMProvider"]

REQUIRED_ENVIRONMENT: Final[Mapping[str, str]] = MappingProxyType(
    {
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "LITELLM_LOCAL_ANTHROPIC_BETA_HEADERS": "True",
        "LITELLM_MODE": "PRODUCTION",
    }
)
"""Variables that keep the library from the network and from ``.env`` files while it is imported."""

_EXCERPT: Final = 2_000
_INTERNAL_ERROR: Final = 500
_LIBRARIES: Final = frozenset({"litellm", "openai"})
# The library's own class names: they say more than the status, which it often makes up.
_CODES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "ContextWindowExceededError": "context_length_exceeded",
        "ContentPolicyViolationError": "content_filter",
        "PaymentRequiredError": "insufficient_quota",
        "AuthenticationError": "invalid_api_key",
        "CallerCredentialAuthenticationError": "invalid_api_key",
    }
)


class LiteLLMProvider:
    """One account at a provider that ``litellm`` knows; deployments name its models as ``vendor/model``."""

    def __init__(
        self,
        entry: ProviderEntry,
        *,
        keys: ProviderKeys,
        clock: Clock,
        load: Callable[[], ModuleType] | None = None,
    ) -> None:
        self._entry = entry
        self._keys = keys
        self._clock = clock
        self._load = load or _import_library
        self._library: ModuleType | None = None
        self._loading = asyncio.Lock()

    def __repr__(self) -> str:
        return f"LiteLLMProvider({self._entry.name}, {self._keys!r})"

    def stream(
        self,
        request: ChatRequest,
        deployment: Deployment,
        deadlines: AttemptDeadlines,
        *,
        key_label: str | None = None,
    ) -> AsyncIterator[ChatEvent]:
        """See :class:`~router.providers.base.Provider`."""
        return self._stream(request, deployment, deadlines, key_label)

    def status(self) -> ProviderStatus:
        """See :class:`~router.providers.base.Provider`."""
        if self._entry.needs_key and not self._keys:
            wanted = " or ".join(self._entry.key_env) or "a key"
            return ProviderStatus(configured=False, ready=False, detail=f"no key: set {wanted}")
        return ProviderStatus(configured=True, ready=True)

    async def aclose(self) -> None:
        """Close the library's shared connections, where it was used at all."""
        if self._library is not None:
            await self._library.close_litellm_async_clients()

    async def _stream(
        self,
        request: ChatRequest,
        deployment: Deployment,
        deadlines: AttemptDeadlines,
        key_label: str | None,
    ) -> AsyncGenerator[ChatEvent]:
        # Loading the library is the gateway's own time, not the upstream's.
        library = await self._loaded()
        timer = AttemptTimer(deadlines, asyncio.get_running_loop().time())
        arguments = self._arguments(request, deployment, deadlines, key_label)
        chunks = await self._call(library, arguments, timer)
        async with aclosing(read_answer(GeneratedBytes(chunks), AnswerReader(self._keys), timer)) as events:
            async for event in events:
                yield event

    async def _loaded(self) -> ModuleType:
        if self._library is None:
            async with self._loading:
                if self._library is None:
                    self._library = await asyncio.to_thread(self._load)
        return self._library

    def _arguments(
        self, request: ChatRequest, deployment: Deployment, deadlines: AttemptDeadlines, key_label: str | None
    ) -> dict[str, Any]:
        arguments: dict[str, Any] = orjson.loads(chat_body(request, deployment))
        return {
            **arguments,
            "api_key": self._keys.secret(key_label),
            "api_base": self._entry.base_url,
            "extra_headers": dict(self._entry.headers or {}) or None,
            "timeout": deadlines.total_s,
            "num_retries": 0,
            "max_retries": 0,
            # What the vendor has no word for is left out instead of refused.
            "drop_params": True,
            "no-log": True,
        }

    async def _call(
        self, library: ModuleType, arguments: dict[str, Any], timer: AttemptTimer
    ) -> AsyncGenerator[bytes]:
        when, phase = timer.next_deadline()
        try:
            async with asyncio.timeout_at(when):
                stream = await library.acompletion(**arguments)
        except TimeoutError as error:
            raise timer.error(phase) from error
        except Exception as error:
            raise self._ours(error, answered=False) from error
        return self._chunks(stream)

    async def _chunks(self, stream: Any) -> AsyncGenerator[bytes]:  # noqa: ANN401 - untyped
        """Yield the library's chunks as the events of OpenAI's wire."""
        try:
            async for chunk in stream:
                yield b"data: " + chunk.model_dump_json(exclude_unset=True).encode() + b"\n\n"
            yield b"data: [DONE]\n\n"
        except Exception as error:
            raise self._ours(error, answered=True) from error
        finally:
            await stream.aclose()

    def _ours(self, error: Exception, *, answered: bool) -> Exception:
        return _translated(error, keys=self._keys, now=self._clock.wall(), answered=answered)


def _translated(error: Exception, *, keys: ProviderKeys, now: float, answered: bool) -> Exception:
    """Turn an exception of the library's into ours; what is not the library's stays what it is.

    Told apart by the names of the classes, since the library may not be imported where this module is.
    """
    # Within a stream the library wraps what happened, for a router of its own.
    original = getattr(error, "original_exception", None)
    if isinstance(original, Exception):
        error = original
    kinds = type(error).__mro__
    if not any(kind.__module__.partition(".")[0] in _LIBRARIES for kind in kinds):
        return error
    names = {kind.__name__ for kind in kinds}
    said = keys.redact(str(getattr(error, "message", None) or error))[:_EXCERPT]
    if "APITimeoutError" in names:
        return UpstreamTimeout(said, phase=TimeoutPhase.STALL if answered else TimeoutPhase.FIRST_EVENT)
    if "APIConnectionError" in names or _is_broken_connection(error):
        # The library also wraps what it cannot parse, and defects of its own, into this.
        return UpstreamBrokenStream(said) if answered else UpstreamUnreachable(said)
    status = getattr(error, "status_code", None)
    if not isinstance(status, int):
        return UpstreamBrokenStream(said)
    headers = getattr(getattr(error, "response", None), "headers", None) or {}
    code = next((_CODES[kind.__name__] for kind in kinds if kind.__name__ in _CODES), None)
    return UpstreamStatus(
        f"HTTP {status}: {said[:300]}",
        upstream_status=status,
        upstream_code=code or _text(getattr(error, "code", None)),
        upstream_type=_text(getattr(error, "type", None)),
        body_excerpt=said,
        retry_after_s=parse_retry_after(headers, now),
    )


def _is_broken_connection(error: Exception) -> bool:
    """Whether a broken connection lies behind what the library calls an internal error of the server."""
    if getattr(error, "status_code", None) != _INTERNAL_ERROR:
        return False
    seen: BaseException | None = error
    while seen is not None:
        if type(seen).__name__ == "APIConnectionError":
            return True
        seen = seen.__cause__ or seen.__context__
    return False


def _import_library() -> ModuleType:
    library = importlib.import_module("litellm")
    # Its defaults: telemetry of its own, hints printed to the terminal, callbacks of whoever else uses it.
    settings: dict[str, Any] = {
        "telemetry": False,
        "suppress_debug_info": True,
        "num_retries": 0,
        "callbacks": [],
        "success_callback": [],
        "failure_callback": [],
    }
    for name, value in settings.items():
        setattr(library, name, value)
    return library


def _text(value: object) -> str | None:
    return str(value) if isinstance(value, str | int) and value else None
