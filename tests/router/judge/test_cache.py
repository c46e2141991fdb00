from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from router.chat.features import TaskKind
from router.chat.types import ChatRequest, WireName
from router.judge.cache import VerdictCache, verdict_key
from router.routing.verdict import TaskVerdict

CODE = TaskVerdict(TaskKind.CODE, "said so")


def request_of(*messages: Any, **fields: Any) -> ChatRequest:
    body = {"model": "auto", "messages": list(messages), **fields}
    return ChatRequest("auto", False, False, None, WireName.CHAT_COMPLETIONS, body, 100)


def key(*messages: Any, kind: TaskKind = TaskKind.CHAT, **fields: Any) -> bytes:
    return verdict_key(request_of(*messages, **fields), kind)


SYSTEM = {"role": "system", "content": "be brief"}
HELLO = {"role": "user", "content": "hello"}
MORE = {"role": "user", "content": "more"}
SAID = {"role": "assistant", "content": "yes"}


def test_a_verdict_is_kept_for_its_time_and_not_longer() -> None:
    cache = VerdictCache(10.0)
    cache.put(b"a", CODE, 100.0)

    assert cache.get(b"a", 109.9) == CODE
    assert cache.get(b"b", 109.9) is None
    assert cache.get(b"a", 110.0) is None
    assert len(cache) == 0


def test_without_a_time_nothing_is_kept() -> None:
    cache = VerdictCache(0.0)
    cache.put(b"a", CODE, 100.0)

    assert cache.get(b"a", 100.0) is None


def test_the_one_longest_unused_makes_room() -> None:
    cache = VerdictCache(10.0, entries=2)
    cache.put(b"a", CODE, 0.0)
    cache.put(b"b", CODE, 0.0)
    cache.get(b"a", 1.0)
    cache.put(b"c", CODE, 2.0)

    assert [cache.get(one, 3.0) for one in (b"a", b"b", b"c")] == [CODE, None, CODE]


OPERATIONS = st.lists(st.tuples(st.sampled_from("gp"), st.integers(0, 9), st.floats(0, 20)), max_size=60)


@given(OPERATIONS, st.integers(1, 4))
def test_it_never_holds_too_many_and_never_gives_what_is_too_old(
    operations: list[tuple[str, int, float]], entries: int
) -> None:
    cache, now, put_at = VerdictCache(10.0, entries), 0.0, dict[int, float]()
    for what, number, passed in operations:
        now += passed
        if what == "p":
            cache.put(bytes([number]), CODE, now)
            put_at[number] = now
        elif cache.get(bytes([number]), now) is not None:
            assert now - put_at[number] < 10.0
        assert len(cache) <= entries


def test_a_conversation_keeps_its_key_through_an_agents_steps() -> None:
    call = {"role": "assistant", "tool_calls": [{"function": {"name": "bash"}}]}
    result = {"role": "tool", "content": "done"}

    assert key(SYSTEM, HELLO) == key(SYSTEM, HELLO, call, result, call, result)


def test_the_users_turns_are_counted_in_doublings() -> None:
    turns = [HELLO, *[SAID, MORE] * 8]
    keys = [key(*turns[: 2 * count - 1]) for count in range(1, 10)]

    assert len({*keys}) == 5
    assert keys[2] == keys[3]
    assert keys[4] == keys[7]


def test_what_the_conversation_is_about_is_in_the_key() -> None:
    tool = {"type": "function", "function": {"name": "bash"}}
    others = {
        key(SYSTEM, HELLO, kind=TaskKind.CODE),
        key({**SYSTEM, "content": "be long"}, HELLO),
        key(SYSTEM, MORE),
        key(HELLO),
        key(SYSTEM, HELLO, tools=[tool]),
        key(
            SYSTEM,
            {"role": "user", "content": [{"type": "text", "text": "hel"}, {"type": "text", "text": "lo"}]},
        ),
    }

    assert len(others) == 6
    assert key(SYSTEM, HELLO) not in others


def test_texts_of_any_size_and_shape_have_a_key() -> None:
    odd = [None, [], [None], [{"text": 3}], 7, "\ud800", "x" * 3_000_000]

    assert len({key({"role": "user", "content": content}) for content in odd}) == 3
