"""Logs through structlog: lines for a person or JSON, with whatever looks like a key taken out.

Knows no requests and no files: lines go to standard error. Standard-library loggers (the server's, the
database's) pass through the same processors, so that redaction has no way around it.
"""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from typing import Any, TextIO

import structlog
from structlog.typing import Processor

__all__ = ["Redaction", "configure_logging"]

_MASK = "***"
_SHORTEST_SECRET = 6
# Nothing below can match a text without one of these: most texts are done with after one look.
_SUSPICIOUS = re.compile(
    r"(?i)bearer|basic|key|token|secret|password|://|aiza|eyj|"
    r"\b(?:sk|rk|pk|gsk|csk|xai|nvapi|hf|r8|pplx|tgp|fw|glpat|ghp|gho)[-_]"
)
# Keys as vendors write them, bearer headers, and passwords inside of URLs.
_PATTERNS = (
    re.compile(r"(?i)(\bbearer|\bauthorization: basic)\s+[A-Za-z0-9._~+/=-]{6,}"),
    re.compile(r"\b(?:sk|rk|pk|gsk|csk|xai|nvapi|hf|key|r8|pplx|tgp|fw|glpat|ghp|gho)[-_][A-Za-z0-9_-]{10,}"),
    re.compile(r"\bAIza[A-Za-z0-9_-]{20,}"),
    re.compile(r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*)?"),
    re.compile(r"(?i)(\b(?:api[-_]?key|x-api-key|access[-_]?token|secret|password)[\"']?\s*[=:]\s*[\"']?)[^\s\"'&,;]{4,}"),
    re.compile(r"(://[^/\s:@]+:)[^@/\s]+(?=@)"),
)  # fmt: skip


class Redaction:
    """Takes secrets out of text: the known ones by value, the others by their looks."""

    def __init__(self, known: Iterable[str] = ()) -> None:
        values = sorted({value for value in known if len(value) >= _SHORTEST_SECRET}, key=len, reverse=True)
        self._known = re.compile("|".join(re.escape(value) for value in values)) if values else None

    def clean(self, text: str) -> str:
        """Return ``text`` with every secret masked."""
        if self._known is not None:
            text = self._known.sub(_MASK, text)
        if len(text) < _SHORTEST_SECRET or _SUSPICIOUS.search(text) is None:
            return text
        for pattern in _PATTERNS:
            text = pattern.sub(
                lambda match: (match.group(1) if match.lastindex else "") + _spaced(match), text
            )
        return text

    def __call__(self, _logger: Any, _name: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:  # noqa: ANN401 - structlog's own
        """Act as structlog's processor: clean every value, however deep."""
        for key, value in event.items():
            event[key] = self._value(value)
        return event

    def _value(self, value: object) -> object:
        if isinstance(value, str):
            return self.clean(value)
        if isinstance(value, bytes):
            return self.clean(value.decode("utf-8", "replace"))
        if isinstance(value, Mapping):
            return {key: self._value(item) for key, item in value.items()}
        if isinstance(value, Sequence):
            return [self._value(item) for item in value]
        if isinstance(value, BaseException):
            return self.clean(f"{type(value).__name__}: {value}")
        return value


def configure_logging(
    *, as_json: bool, level: str, secrets: Iterable[str] = (), stream: TextIO | None = None
) -> None:
    """Set up structlog and the standard library's logging; calling again replaces the first set-up."""
    out = stream or sys.stderr
    redaction = Redaction(secrets)
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso" if as_json else "%Y-%m-%d %H:%M:%S", utc=as_json),
        structlog.processors.format_exc_info,
        redaction,
    ]
    renderer: Processor = (
        structlog.processors.JSONRenderer()
        if as_json
        else structlog.dev.ConsoleRenderer(colors=out.isatty(), pad_event_to=0)
    )
    threshold = logging.getLevelNamesMapping()[level.upper()]
    structlog.configure(
        processors=[*shared, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(threshold),
        logger_factory=structlog.PrintLoggerFactory(out),
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(out)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(threshold)
    # Each says on every request or statement what our own lines say once.
    quiet = (
        "httpx",
        "httpcore",
        "aiosqlite",
        "alembic",
        "uvicorn.error",
        "uvicorn.access",
        "asyncio",
        "LiteLLM",
    )
    for name in quiet:
        logging.getLogger(name).setLevel(max(threshold, logging.WARNING))


def _spaced(match: re.Match[str]) -> str:
    """Keep ``Bearer ***`` readable: the word and its secret stay apart."""
    return f" {_MASK}" if match.lastindex and match.group(1).lower().endswith(("bearer", "basic")) else _MASK
