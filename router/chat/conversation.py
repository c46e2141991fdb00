"""Which conversation a request belongs to, as a digest: its turns share it, and no text can be read back.

Pure. A session that the client names counts; else what stays the same from turn to turn does: the system
prompt and the first turn of the user.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import Final

import orjson

from router.chat.types import ChatRequest, JsonValue

__all__ = ["conversation_key", "has_reasoning_history"]

_DIGEST_BYTES: Final = 16
_STABLE_ROLES: Final = frozenset({"system", "developer"})
_REASONING_FIELDS: Final = ("reasoning_content", "reasoning_details", "reasoning")
# What identifies a conversation stands at its beginning.
_MOST_LEADING: Final = 8


def conversation_key(request: ChatRequest, *, salt: bytes, session: str = "", caller: str = "") -> bytes:
    """Return the key of the conversation that ``request`` continues.

    ``session`` is the client's own name for it, ``caller`` whose request it is: two callers never share a
    conversation. ``salt`` is the process's own, so that a digest says nothing elsewhere. Requests for
    different models are different conversations.
    """
    digest = blake2b(key=salt, digest_size=_DIGEST_BYTES)
    named = session or _text(request.body.get("prompt_cache_key"))
    for part in (caller, request.model, named):
        digest.update(part.encode("utf-8", "surrogatepass") + b"\0")
    if not named:
        for message in _stable(request.body):
            digest.update(orjson.dumps(message.get("content")) + b"\0")
    return digest.digest()


def has_reasoning_history(request: ChatRequest) -> bool:
    """Whether the conversation carries a model's reasoning along, which means little to another model."""
    messages = request.body.get("messages")
    return isinstance(messages, list) and any(
        isinstance(message, dict) and any(message.get(name) for name in _REASONING_FIELDS)
        for message in messages
    )


def _stable(body: Mapping[str, JsonValue]) -> list[dict[str, JsonValue]]:
    messages = body.get("messages")
    stable: list[dict[str, JsonValue]] = []
    for message in messages[:_MOST_LEADING] if isinstance(messages, list) else ():
        if not isinstance(message, dict):
            continue
        stable.append(message)
        if message.get("role") not in _STABLE_ROLES:
            break
    return stable


def _text(value: JsonValue) -> str:
    return value if isinstance(value, str) else ""
