"""Turns of one conversation share a key, others do not."""

from __future__ import annotations

from typing import Any

import pytest

from router.chat.conversation import conversation_key, has_reasoning_history
from tests.fakes.provider import make_request

SYSTEM = {"role": "system", "content": "be brief"}
FIRST = {"role": "user", "content": "what is a roundhouse?"}
ANSWER = {"role": "assistant", "content": "a shed for engines"}
NEXT = {"role": "user", "content": "and a turntable?"}


def key(*messages: Any, session: str = "", caller: str = "", salt: bytes = b"s", **fields: Any) -> bytes:
    request = make_request(model=fields.pop("model", "chat"), body={"messages": list(messages), **fields})
    return conversation_key(request, salt=salt, session=session, caller=caller)


def test_later_turns_keep_the_key() -> None:
    assert key(SYSTEM, FIRST) == key(SYSTEM, FIRST, ANSWER, NEXT)
    assert key(FIRST) == key(FIRST, ANSWER, NEXT, temperature=0.5)


@pytest.mark.parametrize(
    "other",
    [
        key(FIRST),
        key(SYSTEM, NEXT),
        key({**SYSTEM, "content": "be long"}, FIRST),
        key(SYSTEM, FIRST, caller="another"),
        key(SYSTEM, FIRST, model="code"),
        key(SYSTEM, FIRST, salt=b"t"),
        key(SYSTEM, FIRST, session="s1"),
    ],
)
def test_whatever_begins_otherwise_is_another_conversation(other: bytes) -> None:
    assert other != key(SYSTEM, FIRST)


def test_a_named_session_counts_whatever_is_said() -> None:
    assert key(SYSTEM, FIRST, session="s1") == key(NEXT, session="s1") != key(NEXT, session="s2")
    assert key(SYSTEM, FIRST, prompt_cache_key="k") == key(NEXT, prompt_cache_key="k") != key(NEXT)


@pytest.mark.parametrize("messages", [None, "text", [], [None, 1], [{"role": "user"}], [{"content": [{}]}]])
def test_odd_bodies_have_keys_too(messages: Any) -> None:
    request = make_request(body={"messages": messages, "prompt_cache_key": 5})

    assert len(conversation_key(request, salt=b"s", session="\udcff")) == 16
    assert not has_reasoning_history(request)


def test_reasoning_that_is_carried_along_is_noticed() -> None:
    assert not has_reasoning_history(make_request(body={"messages": [FIRST, ANSWER]}))
    reasoned = {**ANSWER, "reasoning_content": "let me think"}
    assert has_reasoning_history(make_request(body={"messages": [FIRST, reasoned, NEXT]}))
