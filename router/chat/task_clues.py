"""What a request says of the kind of work it is, for the heuristic behind ``auto``.

Looks only at the last turns, and keeps nothing: names of tools, how many results of tools there are, the
text of the last turn by the user. Knows no kinds of work.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from router.chat.types import ChatRequest, JsonValue

__all__ = ["TaskClues", "read_task_clues"]

# The heuristic looks at no more than eight thousand characters; one turn may hold megabytes.
_MOST_CHARACTERS = 20_000
_MOST_TOOLS = 200


@dataclass(frozen=True, slots=True)
class TaskClues:
    """``last_user_text`` is at most twenty thousand characters: the beginning and the end of the turn."""

    last_user_text: str = field(default="", repr=False)
    tool_names: tuple[str, ...] = ()
    tool_results: int = 0


def read_task_clues(request: ChatRequest) -> TaskClues:
    """Read the clues from a request of the chat-completions wire."""
    listed = request.body.get("messages")
    messages = [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
    last_user = next((one for one in reversed(messages) if one.get("role") == "user"), None)
    return TaskClues(
        last_user_text=_text(last_user.get("content")) if last_user is not None else "",
        tool_names=_tool_names(request.body),
        tool_results=sum(one.get("role") in {"tool", "function"} for one in messages),
    )


def _text(content: JsonValue) -> str:
    if isinstance(content, list):
        parts = [part.get("text") for part in content if isinstance(part, dict)]
        content = "\n".join(part for part in parts if isinstance(part, str))
    if not isinstance(content, str):
        return ""
    if len(content) <= _MOST_CHARACTERS:
        return content
    half = _MOST_CHARACTERS // 2
    return f"{content[:half]}\n{content[-half:]}"


def _tool_names(body: Mapping[str, JsonValue]) -> tuple[str, ...]:
    tools = body.get("tools")
    names: list[str] = []
    for tool in tools[:_MOST_TOOLS] if isinstance(tools, list) else ():
        function = tool.get("function") if isinstance(tool, dict) else None
        name = function.get("name") if isinstance(function, dict) else None
        if isinstance(name, str):
            names.append(name)
    return tuple(names)
