from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from local_backend.engine.engine import Engine
from local_backend.engine.events import Event, Failed, Finished, Prefilled, Written
from local_backend.engine.sampling import SamplingParameters
from local_backend.engine.sequence import FinishReason, GenerationRequest
from local_backend.errors import ContextOverflow, InvalidRequest
from tests.local_backend.counting_model import LETTERS, CountingKernels, counting_engine, encode

GREEDY = SamplingParameters(temperature=0.0)


def ask(text: str, n: int = 3, name: str = "r", stops: tuple[str, ...] = ()) -> GenerationRequest:
    return GenerationRequest(name, tuple(encode(text)), n, GREEDY, stops)


def run(engine: Engine, *, until: Callable[[Event], bool] = lambda _: False) -> list[Event]:
    events: list[Event] = []
    while not engine.idle:
        for event in engine.step():
            events.append(event)
            if until(event):
                return events
        engine.check_integrity()
    return events


def text_of(events: list[Event]) -> str:
    return "".join(event.text for event in events if isinstance(event, (Written, Finished)))


def ending(events: list[Event]) -> Finished:
    assert isinstance(events[-1], Finished)
    return events[-1]


def test_a_request_ends_by_its_length() -> None:
    engine = counting_engine()
    engine.submit(ask("abc", 4))
    events = run(engine)

    assert text_of(events) == "defg"
    assert ending(events).reason is FinishReason.LENGTH
    assert ending(events).usage.completion_tokens == 4


def test_the_models_end_token_stops_and_is_no_text() -> None:
    engine = counting_engine()
    engine.submit(ask("wx", 20))
    events = run(engine)

    assert text_of(events) == "yz"
    assert ending(events).reason is FinishReason.STOP
    assert [e.is_end for e in events if isinstance(e, Written)] == [False, False, True]


def test_past_the_end_token_when_asked() -> None:
    engine = counting_engine()
    engine.submit(replace(ask("y", 4), ignore_end=True))

    assert text_of(run(engine)) == "z{ab"


def test_a_stop_string_over_several_tokens_is_not_sent() -> None:
    engine = counting_engine()
    engine.submit(ask("ab", 20, stops=("fgh",)))
    events = run(engine)

    assert text_of(events) == "cde"
    assert ending(events).reason is FinishReason.STOP


def test_the_prompt_is_computed_in_chunks_and_reported() -> None:
    kernels = CountingKernels()
    engine = counting_engine(kernels, chunk=4)
    engine.submit(ask("abcdefghij", 1))
    events = run(engine)

    assert [start for start, _ in kernels.calls[::2]] == [0, 4, 8]
    assert [e.computed for e in events if isinstance(e, Prefilled)] == [0, 4, 8]


def test_the_common_prefix_is_not_computed_again() -> None:
    kernels = CountingKernels()
    engine = counting_engine(kernels)
    engine.submit(ask("abcdef", 3))
    run(engine)
    kernels.calls.clear()
    engine.submit(ask("abcdefghx", 1))
    events = run(engine)

    # Rows of the prompt and of the first two answered tokens were there; the third was never computed.
    assert ending(events).usage.cached_tokens == 8
    assert kernels.calls[0] == (8, tuple(encode("x")))


def test_the_same_prompt_again_computes_its_last_token_only() -> None:
    kernels = CountingKernels()
    engine = counting_engine(kernels)
    for _ in range(2):
        kernels.calls.clear()
        engine.submit(ask("abcdef", 2))
        events = run(engine)

    assert ending(events).usage.cached_tokens == 5
    assert kernels.calls[0] == (5, tuple(encode("f")))
    assert text_of(events) == "gh"


def test_the_queue_is_served_in_order() -> None:
    engine = counting_engine()
    for name, text in (("one", "a"), ("two", "k"), ("three", "p")):
        engine.submit(ask(text, 2, name))
    events = run(engine)

    assert [e.request_id for e in events if isinstance(e, Finished)] == ["one", "two", "three"]
    assert text_of(events) == "bclmqr"


@pytest.mark.parametrize("phase", ["waiting", "prefill", "decode"])
def test_cancel_frees_the_slot_in_every_phase(phase: str) -> None:
    engine = counting_engine(chunk=2)
    if phase == "waiting":
        engine.submit(ask("abc", 9, "other"))
    engine.submit(ask("abcdef", 9, "victim"))
    stopper = {"waiting": Prefilled, "prefill": Prefilled, "decode": Written}[phase]
    run(engine, until=lambda event: isinstance(event, stopper))
    cancelled = engine.cancel("victim")

    assert isinstance(cancelled[0], Finished)
    assert cancelled[0].reason is FinishReason.CANCELLED
    assert engine.cancel("victim") == []
    engine.cancel("other")
    engine.submit(ask("ab", 2, "next"))
    assert text_of(run(engine)) == "cd"


def test_an_interrupt_between_layers_ends_the_request_and_keeps_the_cache_sound() -> None:
    kernels = CountingKernels()
    engine = counting_engine(kernels, chunk=8)
    engine.submit(ask("abcdefgh", 5))
    engine.step()
    asked: list[str] = []

    def interrupted(request_id: str) -> bool:
        asked.append(request_id)
        return len(asked) == 2

    events = engine.step(interrupted)

    assert ending(events).reason is FinishReason.CANCELLED
    assert len(kernels.calls) == 1
    engine.check_integrity()
    engine.submit(ask("abcd", 1))
    assert text_of(run(engine)) == "e"


def test_a_defect_in_a_step_fails_that_request_only() -> None:
    kernels = CountingKernels()
    kernels.fail_on = LETTERS.index("d")
    engine = counting_engine(kernels)
    engine.submit(ask("abcd", 2, "bad"))
    engine.submit(ask("klm", 2, "good"))
    events = run(engine)

    failed = [e for e in events if isinstance(e, Failed)]
    assert [e.request_id for e in failed] == ["bad"]
    assert "ArithmeticError" in str(failed[0].error)
    assert text_of(events) == "no"


def test_prompt_and_answer_may_fill_the_context_exactly() -> None:
    engine = counting_engine(context=8)
    engine.submit(ask("abcd", 4))
    assert text_of(run(engine)) == "efgh"

    with pytest.raises(ContextOverflow, match=r"context is 8 .* 4 tokens of prompt and 5 of output make 9"):
        engine.submit(ask("abcd", 5))


@pytest.mark.parametrize(
    ("request_", "param"),
    [
        (GenerationRequest("r", (), 1, GREEDY), "prompt"),
        (GenerationRequest("r", (0, len(LETTERS)), 1, GREEDY), "prompt"),
        (GenerationRequest("r", (-1,), 1, GREEDY), "prompt"),
        (GenerationRequest("r", (0,), 0, GREEDY), "max_tokens"),
        (GenerationRequest("r", (0,), 1, SamplingParameters(temperature=-0.1)), "temperature"),
        (GenerationRequest("r", (0,), 1, SamplingParameters(temperature=float("nan"))), "temperature"),
        (GenerationRequest("r", (0,), 1, SamplingParameters(top_p=1.1)), "top_p"),
        (GenerationRequest("r", (0,), 1, SamplingParameters(min_p=-0.1)), "min_p"),
        (GenerationRequest("r", (0,), 1, SamplingParameters(repetition_penalty=0.0)), "repetition_penalty"),
        (GenerationRequest("r", (0,), 1, SamplingParameters(logit_bias={99: 1.0})), "logit_bias"),
        (GenerationRequest("r", (0,), 1, SamplingParameters(seed=-1)), "seed"),
    ],
)
def test_requests_that_make_no_sense_are_refused_by_field(request_: GenerationRequest, param: str) -> None:
    engine = counting_engine()
    with pytest.raises(InvalidRequest) as refused:
        engine.submit(request_)

    assert refused.value.param == param
    assert engine.idle


def test_rates_come_from_the_clock() -> None:
    now = iter(range(1000))
    engine = counting_engine(chunk=4, clock=lambda: float(next(now)))
    engine.submit(ask("abcdefgh", 3))
    run(engine)

    assert engine.meter.prefill_tokens == 8
    assert engine.meter.prefill_seconds == 2.0
    assert engine.meter.decode_tokens == 2
    assert engine.meter.speed.prefill == pytest.approx(4.0)
    assert engine.meter.speed.decode == pytest.approx(1.0)
