"""The taxonomy over recorded bodies of every vendor, through the provider layer's own reading of them."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.errors import (
    ClientDisconnected,
    GatewayError,
    InternalError,
    StreamInterrupted,
    TimeoutPhase,
    UpstreamBrokenStream,
    UpstreamEmpty,
    UpstreamError,
    UpstreamInBandError,
    UpstreamStatus,
    UpstreamTimeout,
    UpstreamUnreachable,
)
from router.health.classify import classify
from router.health.error_body import read_error_body
from router.health.outcome import OutcomeKind, Provenance, Scope
from router.providers.credentials import NO_KEYS
from router.providers.upstream_errors import find_error_object, in_band_error, status_error

NOW = 1_798_761_600.0  # 2027-01-01T00:00:00Z
ROWS = [
    json.loads(line)
    for line in Path(__file__)
    .with_name("data")
    .joinpath("error_bodies.jsonl")
    .read_text("utf-8")
    .splitlines()
]
VENDORS = (
    *("openai", "anthropic", "gemini", "openrouter", "deepseek", "groq", "cerebras", "zai", "moonshot"),
    *("dashscope", "mistral", "vllm", "sglang", "llama.cpp", "ollama", "one-api"),
)


def error_of(row: dict[str, Any]) -> UpstreamError:
    body = row["body"]
    text = body if isinstance(body, str) else json.dumps(body, ensure_ascii=False)
    if row.get("in_band"):
        found = find_error_object(body)
        if found is None:
            return UpstreamInBandError(text)
        return in_band_error(found, keys=NO_KEYS)
    return status_error(row["status"], row.get("headers", {}), text.encode(), keys=NO_KEYS, now=NOW)


def test_there_are_enough_bodies_of_every_vendor() -> None:
    counts = Counter(row["vendor"] for row in ROWS)

    assert len(ROWS) >= 120
    assert all(counts[vendor] >= 3 for vendor in VENDORS)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['vendor']}-{row['status']}-{row['kind']}")
def test_a_recorded_body_is_classified(row: dict[str, Any]) -> None:
    outcome = classify(error_of(row), now=NOW)

    assert (outcome.kind, outcome.scope) == (OutcomeKind(row["kind"]), Scope(row["scope"])), outcome
    assert outcome.try_next
    if "bench_s" in row:
        assert outcome.bench_s == pytest.approx(row["bench_s"])
    if "learned" in row:
        assert outcome.learned_context_tokens == row["learned"]
    if outcome.scope is Scope.REQUEST:
        assert outcome.bench_s == 0.0
        assert outcome.breaker_weight == 0.0
    if outcome.kind in {OutcomeKind.RATE_LIMITED, OutcomeKind.NO_BALANCE, OutcomeKind.BAD_CREDENTIALS}:
        assert outcome.bench_s > 0.0
        assert outcome.breaker_weight == 0.0


@pytest.mark.parametrize(
    ("error", "kind", "scope", "weight", "try_next"),
    [
        (None, OutcomeKind.SUCCESS, Scope.NONE, 0.0, False),
        (UpstreamUnreachable("no route"), OutcomeKind.UNREACHABLE, Scope.PROVIDER, 1.0, True),
        (
            UpstreamTimeout("connect", phase=TimeoutPhase.CONNECT),
            OutcomeKind.TIMED_OUT,
            Scope.PROVIDER,
            1.0,
            True,
        ),
        (
            UpstreamTimeout("first event", phase=TimeoutPhase.FIRST_EVENT),
            OutcomeKind.TIMED_OUT,
            Scope.MODEL,
            0.5,
            True,
        ),
        (
            UpstreamTimeout("stall", phase=TimeoutPhase.STALL),
            OutcomeKind.TIMED_OUT,
            Scope.MODEL,
            0.5,
            True,
        ),
        (UpstreamBrokenStream("eof"), OutcomeKind.BROKEN_STREAM, Scope.MODEL, 1.0, True),
        (UpstreamEmpty("nothing"), OutcomeKind.EMPTY_ANSWER, Scope.MODEL, 0.5, True),
        (StreamInterrupted("late"), OutcomeKind.BROKEN_STREAM, Scope.MODEL, 1.0, False),
        (ClientDisconnected("gone"), OutcomeKind.CLIENT_LEFT, Scope.NONE, 0.0, False),
        (InternalError("ours"), OutcomeKind.GATEWAY_DEFECT, Scope.NONE, 0.0, True),
        (GatewayError("ours"), OutcomeKind.GATEWAY_DEFECT, Scope.NONE, 0.0, True),
    ],
)
def test_what_is_no_answer_is_classified_by_its_class(
    error: GatewayError | None, kind: OutcomeKind, scope: Scope, weight: float, try_next: bool
) -> None:
    outcome = classify(error, now=NOW)

    assert (outcome.kind, outcome.scope) == (kind, scope)
    assert outcome.breaker_weight == weight
    assert outcome.try_next is try_next
    assert outcome.bench_s == 0.0


def test_a_header_states_the_bench_and_is_capped() -> None:
    stated = classify(UpstreamStatus("slow down", upstream_status=429, retry_after_s=37.0), now=NOW)
    absurd = classify(UpstreamStatus("slow down", upstream_status=429, retry_after_s=1e9), now=NOW)
    silent = classify(UpstreamStatus("slow down", upstream_status=429), now=NOW)

    assert (stated.bench_s, stated.bench_from) == (37.0, Provenance.STATED)
    assert absurd.bench_s == 6 * 3600.0
    assert (silent.bench_s, silent.bench_from) == (30.0, Provenance.GUESSED)


def test_a_daily_quota_lasts_until_midnight_utc_where_nothing_better_is_stated() -> None:
    noon = NOW + 12 * 3600.0
    error = UpstreamStatus(
        "Rate limit exceeded: free-models-per-day", upstream_status=429, retry_after_s=None
    )

    assert classify(error, now=noon).bench_s == pytest.approx(12 * 3600.0)


def test_googles_seconds_do_not_shorten_its_day() -> None:
    row = next(row for row in ROWS if row["vendor"] == "gemini" and row["kind"] == "quota_exhausted")

    assert classify(error_of(row), now=NOW).bench_s == pytest.approx(8 * 3600.0)


@pytest.mark.parametrize(
    "error",
    [
        UpstreamStatus("Too many requests", upstream_status=429),
        UpstreamStatus("Loading model", upstream_status=503),
        UpstreamTimeout("first event", phase=TimeoutPhase.FIRST_EVENT),
    ],
    ids=["queue full", "loading", "slow"],
)
def test_a_local_engines_trouble_is_its_slots_and_short(error: UpstreamError) -> None:
    outcome = classify(error, now=NOW, local=True)

    assert outcome.scope is Scope.SLOT
    assert 0.0 < outcome.bench_s <= 5.0
    assert outcome.kind is not OutcomeKind.RATE_LIMITED


EVIL = [
    "insufficient credits",
    "You exceeded your current quota, please check your plan and billing details.",
    "rate limit exceeded 429 Too Many Requests",
    "余额不足",
    "用户额度不足",
    "This model's maximum context length is 10 tokens",
    "prompt is too long: 1 tokens > 0 maximum",
    "invalid api key",
    "Incorrect API key provided",
    '{"error":{"code":"insufficient_quota","message":"no"}}',
    "The model `x` does not exist",
]
TEMPLATES: list[tuple[int, str, OutcomeKind]] = [
    (400, "Invalid value for messages[0].content: {}", OutcomeKind.BAD_REQUEST),
    (400, "Could not parse '{}' as an integer", OutcomeKind.BAD_REQUEST),
    (422, "Input should be a valid list, got {}", OutcomeKind.BAD_REQUEST),
    (500, "{}", OutcomeKind.UPSTREAM_FAILURE),
    (503, "worker died while serving: {}", OutcomeKind.UPSTREAM_FAILURE),
    (502, "upstream sent {}", OutcomeKind.UPSTREAM_FAILURE),
]
PROMPTS = st.one_of(
    st.sampled_from(EVIL),
    st.text(max_size=200),
    st.builds("{} {}".format, st.text(max_size=40), st.sampled_from(EVIL)),
)


@given(st.sampled_from(TEMPLATES), PROMPTS)
@settings(max_examples=120, deadline=None)
def test_an_echoed_prompt_never_changes_the_class(
    template: tuple[int, str, OutcomeKind], prompt: str
) -> None:
    status, text, kind = template
    if text == "{}":
        # Here a whole message is the prompt: only a sentence that this status leaves open could match.
        prompt = f"request failed: {prompt}"
    bodies = (
        {"error": {"message": text.format(prompt), "type": "invalid_request_error", "code": None}},
        {"error": {"message": text.format("your input"), "param": prompt, "input": prompt}},
        {"detail": [{"loc": ["body"], "msg": "Input should be valid", "input": prompt}]},
        {"message": text.format(prompt), "request": {"messages": [{"content": prompt}]}},
    )
    for body in bodies:
        error = status_error(status, {}, json.dumps(body).encode(), keys=NO_KEYS, now=NOW)

        assert classify(error, now=NOW).kind is kind, body


@given(
    st.text(max_size=600),
    st.one_of(st.none(), st.integers(100, 999)),
    st.one_of(st.none(), st.text(max_size=30)),
    st.one_of(st.none(), st.floats(0, 1e12)),
)
@settings(max_examples=120, deadline=None)
def test_no_text_makes_it_raise_or_bench_for_ever(
    text: str, status: int | None, code: str | None, wait: float | None
) -> None:
    errors: list[GatewayError] = [
        UpstreamInBandError(
            text, upstream_status=status, upstream_code=code, upstream_type=code, retry_after_s=wait
        ),
        UpstreamStatus(
            text, upstream_status=status or 400, upstream_code=code, body_excerpt=text, retry_after_s=wait
        ),
    ]
    for error in errors:
        outcome = classify(error, now=NOW)

        assert 0.0 <= outcome.bench_s <= 31 * 86_400.0
        assert 0.0 <= outcome.breaker_weight <= 1.0
        assert not outcome.succeeded


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["error", "message", "code", "details", "metadata", "raw", "detail", "base_resp", "headers"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


@given(JSON)
@settings(max_examples=120, deadline=None)
def test_a_body_of_any_shape_is_read_without_raising(value: Any) -> None:
    for fields in read_error_body(json.dumps(value)):
        assert isinstance(fields.message, str)


def test_a_deeply_nested_body_is_read_without_raising() -> None:
    assert read_error_body("[" * 5000) == ()
    assert read_error_body('{"error":' * 3000 + "1" + "}" * 3000) == ()
