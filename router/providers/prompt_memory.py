"""How much of a prompt an engine's cache is likely to hold: what it has in common with the last ones.

Pure. Keeps digests and sizes of messages, no text. An engine reuses the part of its cache that a prompt
begins with alike, so a conversation's next turn costs its last messages only.
"""

from __future__ import annotations

import hashlib
import math
from collections import deque
from dataclasses import dataclass

import orjson

from router.chat.features import read_features
from router.chat.types import ChatRequest

__all__ = ["KnownPrompt", "PromptMemory"]


@dataclass(frozen=True, slots=True)
class KnownPrompt:
    """One prompt: digest and size of each piece in order, the share that is new, characters, fixed tokens."""

    pieces: tuple[tuple[bytes, int], ...]
    new_share: float
    characters: int
    fixed_tokens: int

    def tokens_to_compute(self, tokens_per_character: float) -> int:
        """Estimate of the tokens that the cache does not hold."""
        whole = self.characters * tokens_per_character + self.fixed_tokens
        return max(1, math.ceil(whole * self.new_share))


class PromptMemory:
    """Remembers the last prompt of each of ``slots`` slots."""

    def __init__(self, slots: int) -> None:
        self._last: deque[tuple[tuple[bytes, int], ...]] = deque(maxlen=slots)

    def look(self, request: ChatRequest) -> KnownPrompt:
        """Compare a request's prompt with those remembered."""
        pieces = _pieces(request)
        whole = sum(size for _, size in pieces) or 1
        shared = max((_shared(pieces, last) for last in self._last), default=0)
        features = read_features(request)
        return KnownPrompt(pieces, 1.0 - shared / whole, features.prompt_characters, features.fixed_tokens)

    def remember(self, prompt: KnownPrompt) -> None:
        """Note that the engine works on this one now."""
        self._last.append(prompt.pieces)


def _pieces(request: ChatRequest) -> tuple[tuple[bytes, int], ...]:
    messages = request.body.get("messages")
    listed = messages if isinstance(messages, list) else []
    # Templates write the tools before the conversation: with others, nothing is alike.
    return tuple(_piece(one) for one in (request.body.get("tools"), *listed))


def _piece(value: object) -> tuple[bytes, int]:
    data = orjson.dumps(value)
    return hashlib.blake2b(data, digest_size=16).digest(), len(data)


def _shared(pieces: tuple[tuple[bytes, int], ...], last: tuple[tuple[bytes, int], ...]) -> int:
    size = 0
    for ours, theirs in zip(pieces, last, strict=False):
        if ours != theirs:
            break
        size += ours[1]
    return size
