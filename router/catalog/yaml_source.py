"""YAML text → a tree of plain values in which everything knows its line and column.

Built from the parser's events rather than from its loader: nothing is constructed but maps, lists and
scalars (YAML 1.2 core schema), duplicate keys and custom tags are reported instead of obeyed, and
size, depth and alias expansion are bounded while reading. Knows nothing of providers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    Event,
    MappingEndEvent,
    NodeEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)

from router.errors import ConfigurationProblem, SourcePosition

__all__ = [
    "MAXIMUM_BYTES",
    "MAXIMUM_DEPTH",
    "MAXIMUM_NODES",
    "Located",
    "PlainValue",
    "Scalar",
    "locate",
    "plain",
    "read_yaml",
]

MAXIMUM_BYTES: Final = 1 << 20
MAXIMUM_DEPTH: Final = 24
MAXIMUM_NODES: Final = 50_000

Scalar: TypeAlias = "bool | int | float | str | None"
PlainValue: TypeAlias = "Scalar | list[PlainValue] | dict[str, PlainValue]"

_STRING_TAG = "tag:yaml.org,2002:str"
_CORE_TAGS = frozenset(f"tag:yaml.org,2002:{name}" for name in ("str", "int", "float", "bool", "null"))
_INTEGER = re.compile(r"[-+]?[0-9][0-9_]*\Z")
_RADIX = re.compile(r"0(?:o[0-7]+|x[0-9a-fA-F]+)\Z")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9][0-9_]*(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?\Z")
_SPECIAL_FLOAT = re.compile(r"[-+]?\.(?:inf|Inf|INF)\Z|\.(?:nan|NaN|NAN)\Z")
_LONGEST_NUMBER: Final = 40
_WORDS: Final[dict[str, bool | None]] = {
    "": None,
    "~": None,
    "null": None,
    "Null": None,
    "NULL": None,
    "true": True,
    "True": True,
    "TRUE": True,
    "false": False,
    "False": False,
    "FALSE": False,
}


@dataclass(frozen=True, slots=True)
class Located:
    """One value and where it starts, counted from 1; ``keys`` holds where a map's keys stand."""

    value: Scalar | list[Located] | dict[str, Located]
    line: int
    column: int
    keys: dict[str, tuple[int, int]] | None = None


def read_yaml(text: str, file: str) -> tuple[Located | None, tuple[ConfigurationProblem, ...]]:
    """Return the document's tree and every problem found; the tree is ``None`` where nothing could be read.

    ``file`` is only used in positions. Anchors, aliases and ``<<`` merges work, within
    :data:`MAXIMUM_NODES` values after expansion.
    """
    reader = _Reader(file, YAML(typ="safe", pure=True).parse(text))
    root: Located | None = None
    try:
        root = reader.document()
    except _Refused:
        pass
    except MarkedYAMLError as error:
        reader.syntax_error(error)
    except YAMLError as error:
        reader.problem(None, _one_line(str(error)), "save the file as UTF-8 text without control characters")
    return root, tuple(reader.problems)


def plain(node: Located) -> PlainValue:
    """Return the same value without positions."""
    value = node.value
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    return value


def locate(root: Located, path: tuple[str | int, ...], *, key: bool = False) -> tuple[int, int]:
    """Return line and column of the value at ``path``, or of the nearest value above that exists.

    With ``key``, the last step's key is meant instead of its value.
    """
    node = root
    found = (root.line, root.column)
    for number, step in enumerate(path):
        below = _step(node, step)
        if below is None:
            break
        is_last = number == len(path) - 1
        found = (below.line, below.column)
        if key and is_last and node.keys is not None and isinstance(step, str):
            found = node.keys.get(step, found)
        node = below
    return found


def _step(node: Located, step: str | int) -> Located | None:
    value = node.value
    if isinstance(value, dict) and isinstance(step, str):
        return value.get(step)
    if isinstance(value, list) and isinstance(step, int) and 0 <= step < len(value):
        return value[step]
    return None


class _Refused(Exception):
    """Reading stops here; the problem is already noted."""


class _Reader:
    """Turns events into a tree; holds the anchors, the count of values and the problems of one file."""

    def __init__(self, file: str, events: Iterator[Any]) -> None:
        self.problems: list[ConfigurationProblem] = []
        self._file = file
        self._events: Iterator[Event] = events
        self._anchors: dict[str, tuple[Located, int]] = {}
        self._open_anchors: set[str] = set()
        self._nodes = 0

    def problem(self, mark: tuple[int, int] | None, message: str, fix: str) -> None:
        line, column = mark or (None, None)
        self.problems.append(ConfigurationProblem(message, SourcePosition(self._file, line, column), fix))

    def syntax_error(self, error: MarkedYAMLError) -> None:
        mark = error.problem_mark or error.context_mark
        parts = [part for part in (error.context, error.problem) if part]
        self.problem(
            (mark.line + 1, mark.column + 1) if mark is not None else None,
            f"this is not YAML: {_one_line(', '.join(parts))}",
            "check indentation, colons, quotes and brackets here and in the line above",
        )

    def document(self) -> Located | None:
        """Read the only document; ``None`` where the file holds nothing."""
        root: Located | None = None
        documents = 0
        for event in self._events:
            if isinstance(event, DocumentStartEvent):
                documents += 1
                if documents > 1:
                    self._refuse(event, "a second YAML document begins", "remove the --- line")
            elif isinstance(event, NodeEvent):
                root = self._node(event, 1)[0]
        return root

    def _refuse(self, event: Event, message: str, fix: str) -> None:
        self.problem(_mark(event), message, fix)
        raise _Refused

    def _count(self, event: Event, nodes: int) -> None:
        self._nodes += nodes
        if self._nodes > MAXIMUM_NODES:
            self._refuse(
                event,
                f"more than {MAXIMUM_NODES} values after expanding aliases",
                "remove the aliases that repeat large parts",
            )

    def _node(self, event: NodeEvent, depth: int) -> tuple[Located, int]:
        """Return the value that starts at ``event`` and how many values it holds."""
        if depth > MAXIMUM_DEPTH:
            self._refuse(event, f"nested deeper than {MAXIMUM_DEPTH} levels", "flatten this part of the file")
        if isinstance(event, AliasEvent):
            return self._alias(event)
        self._count(event, 1)
        anchor = event.anchor
        if anchor is not None:
            self._open_anchors.add(anchor)
        result = self._content(event, depth)
        if anchor is not None:
            self._open_anchors.discard(anchor)
            self._anchors[anchor] = result
        return result

    def _content(self, event: NodeEvent, depth: int) -> tuple[Located, int]:
        tag = getattr(event, "tag", None)
        if isinstance(event, ScalarEvent):
            if tag is not None and tag not in _CORE_TAGS:
                self._bad_tag(event)
            line, column = _mark(event)
            return Located(_scalar(event), line, column), 1
        if tag is not None:
            self._bad_tag(event)
        if isinstance(event, SequenceStartEvent):
            return self._sequence(event, depth)
        return self._mapping(event, depth)

    def _bad_tag(self, event: NodeEvent) -> None:
        self.problem(_mark(event), "a YAML tag such as !name has no meaning here", "remove the tag")

    def _alias(self, event: AliasEvent) -> tuple[Located, int]:
        anchor = event.anchor
        if anchor in self._open_anchors:
            self._refuse(event, f"the alias *{anchor} contains itself", "write the value out")
        if anchor not in self._anchors:
            self._refuse(event, f"no anchor &{anchor} stands before this alias", "define it first")
        target, nodes = self._anchors[anchor]
        self._count(event, nodes)
        line, column = _mark(event)
        return Located(target.value, line, column, target.keys), nodes

    def _sequence(self, start: SequenceStartEvent, depth: int) -> tuple[Located, int]:
        items: list[Located] = []
        total = 1
        for event in self._events:
            if isinstance(event, SequenceEndEvent):
                break
            if isinstance(event, NodeEvent):
                item, nodes = self._node(event, depth + 1)
                items.append(item)
                total += nodes
        line, column = _mark(start)
        return Located(items, line, column), total

    def _mapping(self, start: NodeEvent, depth: int) -> tuple[Located, int]:
        entries: dict[str, Located] = {}
        keys: dict[str, tuple[int, int]] = {}
        merged: list[Located] = []
        total = 1
        for event in self._events:
            if isinstance(event, MappingEndEvent):
                break
            if not isinstance(event, NodeEvent):
                continue
            key = self._key(event, depth)
            value_event = self._next_node()
            value, nodes = self._node(value_event, depth + 1)
            if value.value is None and getattr(value_event, "value", None) == "":
                # The parser places a value that is not there at the next token, maybe lines below.
                value = Located(value.value, *_mark(event))
            total += nodes
            if key == "<<" and getattr(event, "style", None) is None:
                merged.append(value)
            elif key in entries:
                self.problem(
                    _mark(event), f"the key {key!r} stands twice (first in line {keys[key][0]})", "remove one"
                )
            else:
                entries[key] = value
                keys[key] = _mark(event)
        for value in merged:
            self._merge(value, entries, keys)
        line, column = _mark(start)
        return Located(entries, line, column, keys), total

    def _key(self, event: NodeEvent, depth: int) -> str:
        node, _ = self._node(event, depth + 1)
        if isinstance(node.value, dict | list):
            self._refuse(event, "a map or a list cannot be a key", "use a plain name")
        if isinstance(node.value, str):
            return node.value
        return str(getattr(event, "value", node.value))

    def _merge(self, value: Located, entries: dict[str, Located], keys: dict[str, tuple[int, int]]) -> None:
        sources = value.value if isinstance(value.value, list) else [value]
        for source in sources:
            if not isinstance(source.value, dict):
                self.problem((value.line, value.column), "<< takes a map or a list of maps", "refer to a map")
                continue
            for key, item in source.value.items():
                entries.setdefault(key, item)
                keys.setdefault(key, (item.line, item.column))

    def _next_node(self) -> NodeEvent:
        event = next(self._events)
        if not isinstance(event, NodeEvent):  # the parser never ends a map between key and value
            self._refuse(event, "a key without a value", "write a value after the colon")
            raise _Refused
        return event


def _mark(event: Event) -> tuple[int, int]:
    mark = event.start_mark
    return (mark.line + 1, mark.column + 1) if mark is not None else (1, 1)


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _scalar(event: ScalarEvent) -> Scalar:
    text: str = event.value
    if not event.implicit[0] or getattr(event, "tag", None) == _STRING_TAG:
        return text
    if text in _WORDS:
        return _WORDS[text]
    return _number(text) if text[0] in "-+.0123456789" and len(text) <= _LONGEST_NUMBER else text


def _number(text: str) -> int | float | str:
    """Return the number that a plain scalar is, or the text itself."""
    if _INTEGER.match(text):
        return int(text.replace("_", ""))
    if _RADIX.match(text):
        return int(text, 0)
    if _FLOAT.match(text) or _SPECIAL_FLOAT.match(text):
        return float(text.replace("_", "").lower().replace(".inf", "inf").replace(".nan", "nan"))
    return text
