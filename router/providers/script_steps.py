"""The steps of a script → actions on a connection: frames are written once, when the script is read.

Pure. Knows OpenAI's chunk shape as an upstream writes it; plays nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import Final, TypeAlias

import orjson

from router.catalog.yaml_source import PlainValue

__all__ = [
    "STEPS",
    "Action",
    "BadStep",
    "Connection",
    "Cut",
    "Eof",
    "Head",
    "NoConnection",
    "RequestCompiler",
    "Reset",
    "Stall",
    "Wait",
    "Write",
]


class Connection(StrEnum):
    """How a connection fails to come about."""

    REFUSED = "refused"
    UNRESOLVED = "unresolved"
    TLS = "tls"
    TIMEOUT = "timeout"


@dataclass(frozen=True, slots=True)
class Wait:
    """Pass ``seconds`` (before jitter)."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Head:
    """Send the status line and headers."""

    status: int
    headers: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Write:
    """Send these bytes of the body."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Stall:
    """Send nothing more, and keep the connection open."""


@dataclass(frozen=True, slots=True)
class Reset:
    """Break the connection (RST)."""


@dataclass(frozen=True, slots=True)
class Cut:
    """Close the connection (FIN) without ending the body as HTTP wants it."""


@dataclass(frozen=True, slots=True)
class Eof:
    """End the body properly."""


@dataclass(frozen=True, slots=True)
class NoConnection:
    """Let no connection come about."""

    how: Connection


Action: TypeAlias = Wait | Head | Write | Stall | Reset | Cut | Eof | NoConnection

STEPS: Final = (
    "wait",
    "split",
    "head",
    "status",
    "json",
    "answer",
    "role",
    "text",
    "reasoning",
    "refusal",
    "tokens",
    "tool_call",
    "finish",
    "usage",
    "done",
    "frame",
    "error",
    "comment",
    "raw",
    "raw_hex",
    "stall",
    "reset",
    "cut",
    "eof",
    "no_connection",
)
"""The names of all steps, in the order of the documentation."""

_EVENT_STREAM: Final = (("content-type", "text/event-stream; charset=utf-8"),)
_JSON: Final = (("content-type", "application/json"),)
_DEFAULT_USAGE: Final[Mapping[str, PlainValue]] = {
    "prompt_tokens": 10,
    "completion_tokens": 5,
    "total_tokens": 15,
}
_CONTENT: Final = {"text": "content", "reasoning": "reasoning_content", "refusal": "refusal"}
_LONGEST_WAIT_S: Final = 86_400.0
_MOST_PIECES: Final = 1_000_000


class BadStep(ValueError):
    """A step that means nothing; ``fix`` says what would."""

    def __init__(self, message: str, fix: str) -> None:
        super().__init__(message)
        self.fix = fix


class RequestCompiler:
    """Turns the steps of one request, added in order, into actions."""

    def __init__(self) -> None:
        self._actions: list[Action] = []
        self._has_head = False
        self._piece_bytes: int | None = None
        self._steps: Mapping[str, Callable[[PlainValue], None]] = {
            "wait": self._wait,
            "split": self._split,
            "head": self._head,
            "status": self._status,
            "json": self._json,
            "answer": self._answer,
            "role": lambda value: self._delta({"role": value or "assistant", "content": ""}),
            "text": lambda value: self._content("text", value),
            "reasoning": lambda value: self._content("reasoning", value),
            "refusal": lambda value: self._content("refusal", value),
            "tokens": self._tokens,
            "tool_call": self._tool_call,
            "finish": self._finish_step,
            "usage": self._usage,
            "done": lambda _value: self._write(b"data: [DONE]\n\n"),
            "frame": lambda value: self._frame(_fields(value, "frame", None)),
            "error": self._error,
            "comment": self._comment,
            "raw": self._raw,
            "raw_hex": self._raw_hex,
            "stall": lambda _value: self._actions.append(Stall()),
            "reset": lambda _value: self._actions.append(Reset()),
            "cut": lambda _value: self._actions.append(Cut()),
            "eof": self._eof,
            "no_connection": self._no_connection,
        }

    def add(self, name: str, value: PlainValue) -> None:
        """Add the step ``name``.

        Raises
        ------
        BadStep
            The step is not known, or its value means nothing.

        """
        step = self._steps.get(name)
        if step is None:
            raise BadStep(f"{name} is not a step", f"use one of {', '.join(self._steps)}")
        step(value)

    def finish(self) -> tuple[Action, ...]:
        """Return the actions; a request without an ending of its own ends its body properly."""
        if not self._actions or not isinstance(self._actions[-1], Stall | Reset | Cut | Eof | NoConnection):
            self._eof(None)
        return tuple(self._actions)

    def _write(self, data: bytes, headers: tuple[tuple[str, str], ...] = _EVENT_STREAM) -> None:
        if not self._has_head:
            self._put_head(Head(200, headers))
        size = self._piece_bytes or len(data)
        self._actions.extend(Write(data[start : start + size]) for start in range(0, len(data), size))

    def _put_head(self, head: Head) -> None:
        if self._has_head:
            raise BadStep("the status and headers were sent before", "put this step first")
        self._actions.append(head)
        self._has_head = True

    def _frame(self, value: Mapping[str, PlainValue], event: str | None = None) -> None:
        name = f"event: {event}\n".encode() if event else b""
        self._write(name + b"data: " + orjson.dumps(value) + b"\n\n")

    def _delta(self, delta: Mapping[str, PlainValue], finish: PlainValue = None) -> None:
        self._frame(_chunk([{"index": 0, "delta": dict(delta), "finish_reason": finish}]))

    def _wait(self, value: PlainValue) -> None:
        self._actions.append(Wait(_seconds(value, "wait")))

    def _split(self, value: PlainValue) -> None:
        self._piece_bytes = _count(value, "split")

    def _head(self, value: PlainValue) -> None:
        fields = _fields(value or {}, "head", {"code", "headers"})
        self._put_head(Head(_code(fields), _headers(fields.get("headers")) or _EVENT_STREAM))

    def _status(self, value: PlainValue) -> None:
        fields = _fields(
            value if isinstance(value, dict) else {"code": value}, "status", {"code", "headers", "body"}
        )
        body = fields.get("body")
        data = body.encode() if isinstance(body, str) else orjson.dumps(body) if body is not None else b""
        kind = (("content-type", "text/plain"),) if isinstance(body, str) else _JSON
        given = _headers(fields.get("headers"))
        typed = any(name.lower() == "content-type" for name, _ in given)
        self._put_head(Head(_code(fields), given if typed else (*kind, *given)))
        if data:
            self._write(data)

    def _json(self, value: PlainValue) -> None:
        self._write(orjson.dumps(value), _JSON)

    def _content(self, kind: str, value: PlainValue) -> None:
        text, pieces, every = _pieces(value, kind, "value")
        for number, piece in enumerate(_cut(text, pieces)):
            if number and every:
                self._actions.append(Wait(every))
            self._delta({_CONTENT[kind]: piece})

    def _tokens(self, value: PlainValue) -> None:
        fields = _fields(value, "tokens", {"count", "every", "text"})
        text = fields.get("text", "token ")
        every = _seconds(fields.get("every", 0), "every")
        for number in range(_count(fields.get("count"), "count")):
            if number and every:
                self._actions.append(Wait(every))
            self._delta({"content": str(text)})

    def _tool_call(self, value: PlainValue) -> None:
        fields = _fields(value, "tool_call", {"name", "arguments", "id", "index", "pieces", "every"})
        arguments = fields.get("arguments", {})
        text = arguments if isinstance(arguments, str) else orjson.dumps(arguments).decode()
        index = fields.get("index", 0)
        opening: dict[str, PlainValue] = {
            "index": index,
            "id": fields.get("id", f"call_{index}"),
            "type": "function",
            "function": {"name": fields.get("name"), "arguments": ""},
        }
        calls: list[PlainValue] = [opening]
        self._delta({"tool_calls": calls})
        every = _seconds(fields.get("every", 0), "every")
        for piece in _cut(text, _count(fields.get("pieces", 1), "pieces")):
            if every:
                self._actions.append(Wait(every))
            more: list[PlainValue] = [{"index": index, "function": {"arguments": piece}}]
            self._delta({"tool_calls": more})

    def _finish_step(self, value: PlainValue) -> None:
        self._delta({}, value or "stop")

    def _usage(self, value: PlainValue) -> None:
        usage: dict[str, PlainValue] = {**_DEFAULT_USAGE, **_fields(value or {}, "usage", None)}
        self._frame({**_chunk([]), "usage": usage})

    def _error(self, value: PlainValue) -> None:
        error: PlainValue = {"message": str(value or "scripted error")}
        self._frame({"error": value if isinstance(value, dict) else error})

    def _answer(self, value: PlainValue) -> None:
        self._delta({"role": "assistant", "content": ""})
        self._content("text", value if value is not None else "Hello.")
        self._delta({}, "stop")
        self._usage(None)
        self._write(b"data: [DONE]\n\n")

    def _raw(self, value: PlainValue) -> None:
        self._write(_text(value, "raw").encode())

    def _raw_hex(self, value: PlainValue) -> None:
        try:
            self._write(bytes.fromhex(_text(value, "raw_hex")))
        except ValueError as error:
            raise BadStep(f"raw_hex: {error}", "write pairs of hexadecimal digits") from error

    def _comment(self, value: PlainValue) -> None:
        self._write(f": {value or 'ping'}\n\n".encode())

    def _eof(self, _value: PlainValue) -> None:
        if not self._has_head:
            self._put_head(Head(200, _EVENT_STREAM))
        self._actions.append(Eof())

    def _no_connection(self, value: PlainValue) -> None:
        if not isinstance(value, str) or value not in tuple(Connection):
            raise BadStep(f"no_connection: {value} is not known", f"use one of {', '.join(Connection)}")
        if self._has_head:
            raise BadStep("no_connection after the connection was used", "put this step first")
        self._actions.append(NoConnection(Connection(value)))


def _chunk(choices: list[PlainValue]) -> dict[str, PlainValue]:
    return {
        "id": "chatcmpl-scripted",
        "object": "chat.completion.chunk",
        "created": 1_700_000_000,
        "model": "scripted",
        "choices": choices,
    }


def _fields(value: PlainValue, step: str, known: set[str] | None) -> dict[str, PlainValue]:
    if not isinstance(value, dict):
        raise BadStep(f"{step} takes a map", f"write {step}: {{...}}")
    for name in value:
        if known is not None and name not in known:
            raise BadStep(f"{step} has no {name}", f"use {', '.join(sorted(known))}")
    return value


def _seconds(value: PlainValue, name: str) -> float:
    seconds = float(value) if isinstance(value, int | float) and not isinstance(value, bool) else math.nan
    if 0 <= seconds <= _LONGEST_WAIT_S:
        return seconds
    raise BadStep(f"{name}: {value} is not a time", "write seconds, 0 or more")


def _count(value: PlainValue, name: str) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= _MOST_PIECES:
        return value
    raise BadStep(f"{name}: {value} is not a count", f"write a whole number from 1 to {_MOST_PIECES}")


def _text(value: PlainValue, name: str) -> str:
    if isinstance(value, str):
        return value
    raise BadStep(f"{name} takes a text", f'write {name}: "..."')


def _code(fields: Mapping[str, PlainValue]) -> int:
    code = fields.get("code", 200)
    if isinstance(code, int) and not isinstance(code, bool) and 200 <= code <= 599:  # noqa: PLR2004 - HTTP's final ones
        return code
    raise BadStep(f"code: {code} is not an HTTP status", "write a number from 200 to 599")


def _headers(value: PlainValue) -> tuple[tuple[str, str], ...]:
    fields = _fields(value or {}, "headers", None)
    return tuple((name, str(item)) for name, item in fields.items())


def _pieces(value: PlainValue, step: str, key: str) -> tuple[str, int, float]:
    """Read a text, alone or with the number of pieces it comes in and the seconds between them."""
    if not isinstance(value, dict):
        return _text(value, step), 1, 0.0
    fields = _fields(value, step, {key, "pieces", "every"})
    text = _text(fields.get(key), key)
    return text, _count(fields.get("pieces", 1), "pieces"), _seconds(fields.get("every", 0), "every")


def _cut(text: str, pieces: int) -> list[str]:
    """Cut into at most ``pieces`` parts of nearly equal length; an empty text stays one part."""
    pieces = max(1, min(pieces, len(text)))
    bounds = [len(text) * number // pieces for number in range(pieces + 1)]
    return [text[start:stop] for start, stop in pairwise(bounds)]
