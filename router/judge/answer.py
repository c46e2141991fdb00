"""The judge's answer → a verdict, or nothing.

Tolerant of how models wrap what they say (fences, a word before or after, thinking aloud), strict in what
counts: one JSON object that carries the seal of this very call and names one of the four tasks. Two such
objects that disagree are no answer. Pure; looks at a bounded part of the text.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeVar

from router.chat.features import TaskKind
from router.routing.verdict import Difficulty, TaskNeed

__all__ = ["MOST_ANSWER_CHARACTERS", "JudgeAnswer", "read_answer"]

MOST_ANSWER_CHARACTERS: Final = 8_192
"""What is longer is not read on: a verdict has eighty characters."""

_MOST_OBJECTS: Final = 64
_DECODER: Final = json.JSONDecoder()

_Word = TypeVar("_Word", bound=StrEnum)


@dataclass(frozen=True, slots=True)
class JudgeAnswer:
    """What the judge said."""

    kind: TaskKind
    difficulty: Difficulty | None = None
    needs: tuple[TaskNeed, ...] = ()


def read_answer(text: str, seal: str) -> JudgeAnswer | None:
    """Return the one answer that ``text`` holds under this seal; ``None`` where there is none."""
    found: JudgeAnswer | None = None
    for fields in _objects(text[:MOST_ANSWER_CHARACTERS]):
        if fields.get("seal") != seal:
            continue
        answer = _answer(fields)
        if answer is None or (found is not None and answer.kind is not found.kind):
            return None
        found = answer
    return found


def _objects(text: str) -> list[dict[str, object]]:
    """Return the outermost JSON objects of a text; what is within a string or an object does not count."""
    found: list[dict[str, object]] = []
    place = 0
    for _ in range(_MOST_OBJECTS):
        place = text.find("{", place)
        if place < 0:
            break
        try:
            value, place = _DECODER.raw_decode(text, place)
        except (ValueError, RecursionError):
            place += 1
            continue
        if isinstance(value, dict):
            found.append(value)
    return found


def _answer(fields: dict[str, object]) -> JudgeAnswer | None:
    kind = _word(TaskKind, fields.get("task"))
    if kind is None:
        return None
    given = fields.get("needs")
    listed = given if isinstance(given, list) else [given]
    needs = [need for one in listed[:16] if (need := _word(TaskNeed, one)) is not None]
    return JudgeAnswer(kind, _word(Difficulty, fields.get("difficulty")), tuple(dict.fromkeys(needs)))


def _word(words: type[_Word], value: object) -> _Word | None:
    """Return the member that ``value`` names, whatever its case and blanks."""
    if not isinstance(value, str):
        return None
    name = value.strip().casefold().replace(" ", "_").replace("-", "_")
    return next((word for word in words if word.value == name), None)
