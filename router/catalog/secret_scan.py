"""Finds keys that somebody wrote into a configuration file, and removes them from messages.

Works on text alone, so comments are searched too. Knows the shapes that providers give their keys,
and long random strings; it never returns or prints what it found.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["REMOVED", "find_secrets", "without_secrets"]

REMOVED: Final = "[removed: looks like a key]"

_PREFIXED: Final = re.compile(
    r"(?<![A-Za-z0-9])(?:"
    r"(?:sk|csk|rk|pk|gsk|xai|nvapi|hf|r8|fw|pplx|tgp_v1|ghp|gho|github_pat|rh|cpk|sess)[-_]"
    r"[A-Za-z0-9_\-]{12,}"
    r"|AIza[A-Za-z0-9_\-]{20,}"
    r"|AKIA[A-Z0-9]{12,}"
    r"|eyJ[A-Za-z0-9_\-]{10,}\.[A-Za-z0-9_\-]{10,}(?:\.[A-Za-z0-9_\-]+)?"
    r")"
)
_BEARER: Final = re.compile(r"(?i)\bbearer[ \t]+(?!\{)[A-Za-z0-9._~+/\-]{8,}=*")
_RANDOM: Final = re.compile(r"(?<![A-Za-z0-9/_\-])[A-Za-z0-9]{32,}(?:\.[A-Za-z0-9]{8,})?(?![A-Za-z0-9/])")
_USER_INFO: Final = re.compile(r"(?<=://)[^\s/@:]*:[^\s/@]+(?=@)")


def find_secrets(text: str) -> tuple[tuple[int, int], ...]:
    """Return where key-like strings begin, as (line, column) counted from 1, in order."""
    found = [_position(text, start) for start, _ in _spans(text)]
    return tuple(dict.fromkeys(found))


def without_secrets(text: str) -> str:
    """Return ``text`` with every key-like string replaced by :data:`REMOVED`."""
    result = text
    for start, end in reversed(_spans(text)):
        result = result[:start] + REMOVED + result[end:]
    return result


def _spans(text: str) -> list[tuple[int, int]]:
    spans = [match.span() for pattern in (_PREFIXED, _BEARER, _USER_INFO) for match in pattern.finditer(text)]
    spans += [match.span() for match in _RANDOM.finditer(text) if _looks_random(match.group())]
    spans.sort()
    merged: list[tuple[int, int]] = []
    for start, end in spans:
        if merged and start < merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def _looks_random(run: str) -> bool:
    digits = sum(character.isdigit() for character in run)
    return len(run) // 10 <= digits < len(run)


def _position(text: str, offset: int) -> tuple[int, int]:
    return text.count("\n", 0, offset) + 1, offset - text.rfind("\n", 0, offset)
