"""The built-in heuristic, asked with everything it reads of a request. Pure; knows no judge."""

from __future__ import annotations

from router.chat.features import RequestFeatures
from router.chat.task_clues import read_task_clues
from router.chat.types import ChatRequest
from router.routing.task import task_verdict
from router.routing.verdict import TaskVerdict

__all__ = ["heuristic_verdict"]


def heuristic_verdict(request: ChatRequest, features: RequestFeatures) -> TaskVerdict:
    """Name the kind of work of a request by its structure alone."""
    clues = read_task_clues(request)
    return task_verdict(
        features,
        last_user_text=clues.last_user_text,
        tool_names=clues.tool_names,
        tool_results=clues.tool_results,
    )
