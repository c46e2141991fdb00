from __future__ import annotations

from typing import Any

import orjson

from router.chat.openai_wire import read_chat_request
from router.chat.task_clues import TaskClues, read_task_clues


def _clues(messages: list[dict[str, Any]], **fields: Any) -> TaskClues:
    return read_task_clues(read_chat_request(orjson.dumps({"model": "auto", "messages": messages, **fields})))


def test_the_last_turn_by_the_user_counts_even_when_results_of_tools_follow() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "grep", "arguments": "{}"}}
    clues = _clues(
        [
            {"role": "user", "content": "first"},
            {
                "role": "user",
                "content": [{"type": "text", "text": "second"}, {"type": "text", "text": "part"}],
            },
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c1", "content": "found"},
        ]
    )

    assert clues.last_user_text == "second\npart"
    assert clues.tool_results == 1


def test_tools_are_known_by_name() -> None:
    tools = [{"type": "function", "function": {"name": name, "parameters": {}}} for name in ("bash", "edit")]

    assert _clues([{"role": "user", "content": "x"}], tools=tools).tool_names == ("bash", "edit")


def test_a_turn_of_megabytes_is_cut_in_its_middle() -> None:
    text = _clues([{"role": "user", "content": "a" + "x" * 3_000_000 + "z"}]).last_user_text

    assert len(text) == 20_001
    assert (text[0], text[-1]) == ("a", "z")


def test_without_a_turn_by_the_user_there_is_no_text_and_the_prompt_stays_out_of_the_repr() -> None:
    assert _clues([{"role": "system", "content": "be brief"}]) == TaskClues()
    assert "private" not in repr(_clues([{"role": "user", "content": "private"}]))
