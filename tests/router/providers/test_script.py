from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from router.errors import ConfigurationError
from router.providers.script import parse_script
from router.providers.script_steps import STEPS, Cut, Eof, Head, RequestCompiler, Reset, Stall, Wait, Write
from router.providers.script_transport import ScriptPlayer

_DOCUMENT = Path(__file__).parents[3] / "docs" / "scripted-provider.md"


def first_request(steps: str) -> list[object]:
    script = parse_script(f"steps: {steps}", "s.yaml")
    assert script.default is not None
    return list(script.default.actions(0))


def body_of(actions: list[object]) -> bytes:
    return b"".join(action.data for action in actions if isinstance(action, Write))


def test_an_answer_is_head_frames_and_done() -> None:
    actions = first_request('[{answer: "Hi"}]')

    assert actions[0] == Head(200, (("content-type", "text/event-stream; charset=utf-8"),))
    frames = [line.removeprefix(b"data: ") for line in body_of(actions).split(b"\n\n") if line]
    assert frames[-1] == b"[DONE]"
    assert [orjson.loads(frame)["choices"] for frame in frames[1:3]] == [
        [{"index": 0, "delta": {"content": "Hi"}, "finish_reason": None}],
        [{"index": 0, "delta": {}, "finish_reason": "stop"}],
    ]
    assert actions[-1] == Eof()


def test_a_status_carries_its_headers_and_body() -> None:
    actions = first_request(
        "[{status: {code: 429, headers: {retry-after: 7}, body: {error: {message: slow}}}}]"
    )

    assert actions == [
        Head(429, (("content-type", "application/json"), ("retry-after", "7"))),
        Write(b'{"error":{"message":"slow"}}'),
        Eof(),
    ]


def test_a_bare_code_is_a_status_without_a_body() -> None:
    assert first_request("[{status: 503}]") == [Head(503, (("content-type", "application/json"),)), Eof()]


def test_text_comes_in_pieces_with_waits_between() -> None:
    actions = first_request("[{text: {value: abcdef, pieces: 3, every: 0.5}}]")

    assert [action.seconds for action in actions if isinstance(action, Wait)] == [0.5, 0.5]
    assert [piece in body_of(actions) for piece in (b'"ab"', b'"cd"', b'"ef"')] == [True, True, True]


def test_a_tool_call_opens_with_its_name_and_sends_its_arguments_in_pieces() -> None:
    actions = first_request('[{tool_call: {name: read, arguments: {path: "a.py"}, pieces: 4}}]')

    frames = [orjson.loads(line[6:]) for line in body_of(actions).split(b"\n\n") if line]
    calls = [frame["choices"][0]["delta"]["tool_calls"][0] for frame in frames]
    assert calls[0]["function"] == {"name": "read", "arguments": ""}
    assert orjson.loads("".join(call["function"]["arguments"] for call in calls)) == {"path": "a.py"}
    assert len(calls) == 5


def test_split_cuts_the_body_anywhere() -> None:
    actions = first_request('[{split: 7}, {raw: "data: hello\\n\\n"}]')

    assert [action.data for action in actions if isinstance(action, Write)] == [b"data: h", b"ello\n\n"]


@pytest.mark.parametrize(("name", "ending"), [("stall", Stall()), ("reset", Reset()), ("cut", Cut())])
def test_an_ending_of_its_own_is_kept(name: str, ending: object) -> None:
    assert first_request(f"[role, {name}]")[-1] == ending


def test_requests_are_played_in_order_and_the_last_repeats() -> None:
    script = parse_script("requests: [[{wait: 1}], [{wait: 2}]]", "s.yaml")
    player = ScriptPlayer(script)

    assert [player.next_actions("m")[0] for _ in range(4)] == [Wait(1), Wait(2), Wait(2), Wait(2)]


def test_requests_can_cycle_and_models_count_for_themselves() -> None:
    text = "repeat: cycle\nrequests: [[{wait: 1}], [{wait: 2}]]\nmodels: {slow: {steps: [{wait: 9}]}}"
    player = ScriptPlayer(parse_script(text, "s.yaml"))

    played = [player.next_actions(model)[0] for model in ("a", "slow", "b", "a", "slow")]
    assert played == [Wait(1), Wait(9), Wait(2), Wait(1), Wait(9)]
    assert player.served == 5


def test_jitter_is_the_same_for_the_same_seed_and_stays_in_its_share() -> None:
    text = "{seed: 3, jitter: 0.5, steps: [{wait: 10}]}"

    def waits(seed_text: str) -> list[float]:
        player = ScriptPlayer(parse_script(seed_text, "s.yaml"))
        return [wait.seconds for _ in range(20) if isinstance(wait := player.next_actions("m")[0], Wait)]

    assert waits(text) == waits(text)
    assert waits(text) != waits(text.replace("seed: 3", "seed: 4"))
    assert all(5 <= wait <= 15 for wait in waits(text))


def test_a_model_without_a_script_is_not_found() -> None:
    player = ScriptPlayer(parse_script("models: {a: {steps: [answer]}}", "s.yaml"))

    assert isinstance(head := player.next_actions("b")[0], Head)
    assert head.status == 404


@pytest.mark.parametrize(
    ("text", "where", "said"),
    [
        pytest.param("steps:\n  - answr: x\n", "s.yaml:2:5", "answr is not a step", id="unknown step"),
        pytest.param("steps:\n  - wait: soon\n", "s.yaml:2:5", "not a time", id="wait"),
        pytest.param("steps: [{wait: .nan}]", "s.yaml:1:9", "not a time", id="nan"),
        pytest.param("steps: [{wait: 1, text: a}]", "s.yaml:1:9", "one name", id="two names"),
        pytest.param("steps: [role, {status: 500}]", "s.yaml:1:15", "sent before", id="late status"),
        pytest.param("steps: [{status: 99}]", "s.yaml:1:9", "not an HTTP status", id="status"),
        pytest.param("steps: [{raw_hex: 0g}]", "s.yaml:1:9", "raw_hex", id="hex"),
        pytest.param("steps: [{no_connection: rude}]", "s.yaml:1:9", "not known", id="no connection"),
        pytest.param("steps: [{tokens: {count: 0}}]", "s.yaml:1:9", "not a count", id="count"),
        pytest.param(
            "steps: [{text: {value: a, peices: 2}}]", "s.yaml:1:9", "no peices", id="misspelt field"
        ),
        pytest.param("seed: x\nsteps: [answer]", "s.yaml:1:7", "whole number", id="seed"),
        pytest.param("repeat: often\nsteps: [answer]", "s.yaml:1:9", "not known", id="repeat"),
        pytest.param("jitter: 0.1", "s.yaml:1:1", "neither steps", id="nothing"),
        pytest.param("[]", "s.yaml:1:1", "a map", id="list"),
    ],
)
def test_a_mistake_is_reported_where_it_stands(text: str, where: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said) as caught:
        parse_script(text, "s.yaml")

    assert str(caught.value.problems[0].position) == where


def test_every_mistake_is_reported_at_once() -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse_script("seed: x\nsteps: [{wait: soon}, {answr: a}]\nmore: 1", "s.yaml")

    assert len(caught.value.problems) == 4


def test_the_listed_steps_are_those_that_work_and_those_that_are_documented() -> None:
    rows = [line.split("`")[1] for line in _DOCUMENT.read_text().splitlines() if line.startswith("| `")]

    assert tuple(RequestCompiler()._steps) == STEPS
    assert tuple(rows) == STEPS
