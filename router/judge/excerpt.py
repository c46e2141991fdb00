"""Pieces of foreign text made safe to show: bounded in bytes, whole characters, nothing invisible.

Pure. Knows neither turns nor prompts. A cut never falls into a code point, and not between a letter and what
belongs to it (combining marks, joined emoji, flags; Unicode Standard Annex 29, simplified) unless a text is
nothing but such marks.
"""

from __future__ import annotations

import unicodedata
from typing import Final

__all__ = ["excerpt", "visible"]

_JOINER, _NON_JOINER = "\u200d", "\u200c"
_MARKS: Final = frozenset({"Mn", "Me", "Mc"})
_UNSEEN: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn"})
_KEPT: Final = frozenset({"\n", "\t", _JOINER, _NON_JOINER})
_NO_CONTROLS: Final = dict.fromkeys({*range(0x20), 0x7F} - {ord("\n"), ord("\t")})
_SKIN_TONES: Final = range(0x1F3FB, 0x1F400)
_FLAG_LETTERS: Final = range(0x1F1E6, 0x1F200)
# More marks than this on one letter are no language's.
_MOST_MARKS: Final = 32
_LEFT_OUT: Final = "\n[...]\n"
_REPLACEMENT: Final = "\ufffd"


def visible(text: str) -> str:
    """Return the text as a person sees it.

    Lone surrogates become U+FFFD, line ends a single newline; control and format characters (reversals of
    direction, tags, soft hyphens), unassigned and private ones are dropped.
    """
    if text.isascii() and text.isprintable():
        return text
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    if text.isascii():
        return text.translate(_NO_CONTROLS)
    kept: list[str] = []
    for character in text:
        category = unicodedata.category(character)
        if category == "Cs":
            kept.append(_REPLACEMENT)
        elif category not in _UNSEEN or character in _KEPT:
            kept.append(character)
    return "".join(kept)


def excerpt(text: str, most_bytes: int) -> str:
    """Return at most ``most_bytes`` bytes (UTF-8) of the text: all of it, or its beginning and its end.

    Reads a bounded part of the text, however long it is. ``most_bytes`` is at least 16.
    """
    if len(text) <= most_bytes:
        shown = visible(text)
        if len(shown.encode()) <= most_bytes:
            return shown
    else:
        # A character has at least one byte, so what is looked at holds more than either half can take.
        look = most_bytes + 2 * _MOST_MARKS
        if len(text) <= 2 * look:
            shown = visible(text)
        else:
            shown = f"{visible(text[:look])}{_LEFT_OUT}{visible(text[-look:])}"
        if len(shown.encode()) <= most_bytes:
            return shown
    half = (most_bytes - len(_LEFT_OUT)) // 2
    return f"{_beginning(shown, half)}{_LEFT_OUT}{_ending(shown, half)}"


def _beginning(text: str, most_bytes: int) -> str:
    end = len(text[:most_bytes].encode()[:most_bytes].decode("utf-8", "ignore"))
    for _ in range(_MOST_MARKS):
        if not _belong_together(text, end):
            break
        end -= 1
    return text[:end]


def _ending(text: str, most_bytes: int) -> str:
    if most_bytes <= 0:
        return ""
    start = len(text) - len(text[-most_bytes:].encode()[-most_bytes:].decode("utf-8", "ignore"))
    for _ in range(_MOST_MARKS):
        if not _belong_together(text, start):
            break
        start += 1
    return text[start:]


def _belong_together(text: str, place: int) -> bool:
    """Whether what stands before and after ``place`` is one character to a reader."""
    if not 0 < place < len(text):
        return False
    before, after = text[place - 1], text[place]
    if before == _JOINER or after in {_JOINER, _NON_JOINER} or ord(after) in _SKIN_TONES:
        return True
    if ord(before) in _FLAG_LETTERS and ord(after) in _FLAG_LETTERS:
        return True
    return unicodedata.category(after) in _MARKS
