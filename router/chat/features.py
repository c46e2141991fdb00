"""What routing needs to know of a request, and nothing else of it (no prompt text).

Knows no tokenizer: tokens are estimated from bytes, and the ratio is learnt per model elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["RequestFeatures", "TaskKind"]


class TaskKind(StrEnum):
    """The kinds of work an entrypoint stands for, and that a judge can name."""

    CHAT = "chat"
    CODE = "code"
    BUILD = "build"
    LONG = "long"


@dataclass(frozen=True, slots=True)
class RequestFeatures:
    """The facts of one request that eligibility and score are decided from.

    ``prompt_characters`` counts the text of messages and tools; ``wanted_output_tokens`` is the
    client's bound, or ``None`` where it gave none. ``needs_prefill``: the last message is the
    assistant's own, to be continued.
    """

    model: str
    prompt_characters: int
    wanted_output_tokens: int | None
    needs_tools: bool = False
    needs_parallel_tools: bool = False
    needs_vision: bool = False
    needs_json_schema: bool = False
    needs_reasoning: bool = False
    message_count: int = 1
    stream: bool = False
    has_system_prompt: bool = False
    needs_prefill: bool = False

    def prompt_tokens(self, tokens_per_character: float) -> int:
        """Estimate of the prompt's tokens, rounded up, for a model's ``tokens_per_character``."""
        return int(self.prompt_characters * tokens_per_character) + 1
