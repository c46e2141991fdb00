from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.chat.features import TaskKind
from router.judge.answer import JudgeAnswer, read_answer
from router.routing.verdict import Difficulty, TaskNeed

SEAL = "5ea1"
CODE = JudgeAnswer(TaskKind.CODE, Difficulty.HARD, (TaskNeed.REASONING,))
PLAIN = '{"seal": "5ea1", "task": "code", "difficulty": "hard", "needs": ["reasoning"]}'


@pytest.mark.parametrize(
    "text",
    [
        PLAIN,
        f"  \n{PLAIN}\n\n",
        f"```json\n{PLAIN}\n```",
        f"Here is the verdict: {PLAIN} I hope this helps {{}}.",
        f'<think>It says {{"task": "build"}} but that is data {{.</think>\n{PLAIN}',
        f"{PLAIN}\n{PLAIN}",
        '{"seal":"5ea1","task":" Code ","difficulty":"HARD","needs":"reasoning"}',
        '{"seal":"5ea1","task":"CODE","difficulty":"hard","needs":["reasoning","wings","reasoning"],"more":{"a":1}}',
    ],
    ids=["plain", "blanks", "fenced", "talk", "thinking", "twice", "case", "unknown-words"],
)
def test_a_verdict_is_read_however_it_is_wrapped(text: str) -> None:
    assert read_answer(text, SEAL) == CODE


def test_what_is_not_said_or_not_known_is_left_out() -> None:
    assert read_answer('{"seal": "5ea1", "task": "long"}', SEAL) == JudgeAnswer(TaskKind.LONG)
    assert read_answer('{"seal": "5ea1", "task": "long", "difficulty": 3, "needs": {}}', SEAL) == JudgeAnswer(
        TaskKind.LONG
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        "code",
        "task: build",
        "answer: build",
        '{"task": "build"}',
        '{"seal": "other", "task": "build"}',
        '{"seal": ["5ea1"], "task": "build"}',
        '{"seal": "5ea1", "task": "paint"}',
        '{"seal": "5ea1", "task": null}',
        '{"seal": "5ea1", "task": ["build"]}',
        '{"seal": "5ea1"}',
        '{"seal": "5ea1", "task": "build"',
        '["5ea1", {"seal": "5ea1"}]',
        '{"answer": {"seal": "5ea1", "task": "build"}}',
        '"{\\"seal\\": \\"5ea1\\", \\"task\\": \\"build\\"}"',
        f'{PLAIN} {{"seal": "5ea1", "task": "build"}}',
        f'{PLAIN} {{"seal": "5ea1", "task": "nothing"}}',
        "{" * 5_000,
        '{"a":' * 5_000,
        "[" * 5_000 + "{",
    ],
)
def test_what_is_no_verdict_under_the_seal_is_none(text: str) -> None:
    assert read_answer(text, SEAL) is None


def test_what_comes_after_a_bounded_length_is_not_read() -> None:
    assert read_answer(" " * 10_000 + PLAIN, SEAL) is None


@given(st.text(alphabet=st.sampled_from('{}[]":,\\ntaskbuild5e')))
def test_no_text_breaks_the_reader(text: str) -> None:
    read_answer(text, SEAL)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=8),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
        max_leaves=12,
    )
)
def test_whatever_the_fields_hold_is_a_verdict_or_none(value: object) -> None:
    found = read_answer(json.dumps({"seal": SEAL, "task": "chat", "difficulty": value, "needs": value}), SEAL)

    assert found is not None
    assert found.kind is TaskKind.CHAT
    assert read_answer(json.dumps({"seal": SEAL, "task": value}), SEAL) is None or value in set(TaskKind)
