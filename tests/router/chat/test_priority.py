"""Who waits for an answer, and which requests are a frontend's chores."""

from __future__ import annotations

from typing import Any

import pytest

from router.chat.priority import priority_of
from router.chat.types import Priority

TITLE = "You are a title generator. You output ONLY a thread title. Nothing else.\n\n<task>\nGenerate …"


def body(*texts: Any, **fields: Any) -> dict[str, Any]:
    roles = ["system", "user"] if len(texts) > 1 else ["user"]
    return {"messages": [{"role": r, "content": t} for r, t in zip(roles, texts, strict=True)], **fields}


@pytest.mark.parametrize(
    "chore",
    [
        body(TITLE, "Generate a title for this conversation:"),
        body([{"type": "text", "text": TITLE}], "hello"),
        body("### Task:\nGenerate a concise, 3-5 word title with an emoji summarizing the chat history."),
        body("### Task:\nSuggest 3-5 relevant follow-up questions"),
        body("Analyze if this message indicates a new conversation topic. If it does, …", "hello"),
        body("You will generate a short title based on the first message", "hello"),
    ],
)
def test_chores_of_frontends_are_background(chore: dict[str, Any]) -> None:
    assert priority_of(chore) is Priority.BACKGROUND
    assert priority_of(chore, "interactive") is Priority.INTERACTIVE


@pytest.mark.parametrize(
    "request_body",
    [
        body("hello"),
        body("What does 'You are a title generator. You output ONLY' mean?"),
        body(TITLE, "hello", tools=[{"type": "function", "function": {"name": "edit"}}]),
        body("Generate a function that returns the title of a page"),
        {"messages": []},
        {"messages": "nonsense"},
        {"messages": [None, 7]},
        {"messages": [{"role": "user", "content": []}]},
        {},
    ],
)
def test_everything_else_is_interactive(request_body: dict[str, Any]) -> None:
    assert priority_of(request_body) is Priority.INTERACTIVE


def test_the_client_knows_best_and_an_unknown_word_says_nothing() -> None:
    assert priority_of(body("hello"), " Background ") is Priority.BACKGROUND
    assert priority_of(body("hello"), "urgent") is Priority.INTERACTIVE
