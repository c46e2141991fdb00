"""Every Prometheus name in one place, with labels whose values come from the catalog only.

Knows no HTTP: :meth:`Metrics.render` returns text. A model's name that a client made up is never a
label; it counts as ``unknown``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from router.health.snapshot import BreakerState, HealthSnapshot
from router.providers.base import LaneFigures
from router.recording.exposition import Counter, Histogram, gauge_lines
from router.recording.recorder import RecorderStatus
from router.recording.records import RequestRecord
from router.routing.verdict import TaskVerdict

__all__ = ["Metrics"]

_SECONDS = (0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
_BREAKER_LEVEL = {BreakerState.CLOSED: 0, BreakerState.HALF_OPEN: 1, BreakerState.OPEN: 2}
_CANDIDATE = ("candidate",)


class Metrics:
    """Counters of one gateway."""

    def __init__(self, entrypoints: Iterable[str], deployments: Iterable[str]) -> None:
        self._entrypoints = frozenset(entrypoints)
        self._deployments = frozenset(deployments)
        self._requests = Counter(
            "roundhouse_requests_total",
            "Requests answered, by the status the client got.",
            ("entrypoint", "status"),
        )
        self._duration = Histogram(
            "roundhouse_request_seconds",
            "From a request to the end of its answer.",
            ("entrypoint",),
            _SECONDS,
        )
        self._ttft = Histogram(
            "roundhouse_time_to_first_token_seconds",
            "From a request to the first semantic event of its answer.",
            ("entrypoint",),
            _SECONDS,
        )
        self._attempts = Counter(
            "roundhouse_attempts_total", "Tries at candidates, by how they ended.", ("candidate", "outcome")
        )
        self._tokens = Counter("roundhouse_tokens_total", "Tokens processed.", ("candidate", "kind"))
        self._cost = Counter("roundhouse_cost_micro_dollars_total", "Money spent.", _CANDIDATE)
        self._judged = Counter(
            "roundhouse_judged_total", "Requests to auto, by task and who named it.", ("task", "source")
        )
        self._judge_calls = Counter(
            "roundhouse_judge_calls_total", "Calls of the judge, by how they ended.", ("candidate", "outcome")
        )
        self._judge_tokens = Counter(
            "roundhouse_judge_tokens_total", "Tokens processed by the judge.", ("candidate", "kind")
        )
        self._judge_cost = Counter(
            "roundhouse_judge_cost_micro_dollars_total", "Money spent on the judge.", _CANDIDATE
        )

    def observe(self, record: RequestRecord) -> None:
        """Count one finished request."""
        entrypoint = self._entrypoint_label(record.requested_model)
        self._requests.add(entrypoint, str(record.status))
        self._duration.observe(entrypoint, value=record.duration_s)
        if record.ttft_s is not None:
            self._ttft.observe(entrypoint, value=record.ttft_s)
        if record.decision is not None and record.decision.verdict is not None:
            self._observe_verdict(record.decision.verdict)
        for attempt in record.attempts:
            self._attempts.add(attempt.deployment_id, attempt.outcome.kind.value)
        if record.deployment_id is None:
            return
        if record.usage is not None:
            self._tokens.add(record.deployment_id, "prompt", by=record.usage.prompt_tokens)
            self._tokens.add(record.deployment_id, "completion", by=record.usage.completion_tokens)
        if record.cost_micros:
            self._cost.add(record.deployment_id, by=record.cost_micros)

    def _observe_verdict(self, verdict: TaskVerdict) -> None:
        self._judged.add(verdict.kind.value, verdict.source.value)
        call = verdict.call
        if call is None:
            return
        self._judge_calls.add(call.deployment_id, call.outcome)
        if call.usage is not None:
            self._judge_tokens.add(call.deployment_id, "prompt", by=call.usage.prompt_tokens)
            self._judge_tokens.add(call.deployment_id, "completion", by=call.usage.completion_tokens)
        if call.cost_micros:
            self._judge_cost.add(call.deployment_id, by=call.cost_micros)

    def render(
        self,
        health: HealthSnapshot,
        recording: RecorderStatus,
        lanes: Mapping[str, LaneFigures] | None = None,
    ) -> bytes:
        """Return everything in Prometheus' text format; the arguments are figures that others keep.

        ``lanes`` says by provider how the slots of local engines are taken.
        """
        own = (self._requests, self._duration, self._ttft, self._attempts, self._tokens, self._cost)
        judge = (self._judged, self._judge_calls, self._judge_tokens, self._judge_cost)
        lines = [line for family in (*own, *judge) for line in family.lines()]
        lines += _health_lines(health)
        lines += _recording_lines(recording)
        lines += _lane_lines(lanes or {})
        return ("\n".join(lines) + "\n").encode()

    def _entrypoint_label(self, name: str) -> str:
        if name in self._entrypoints:
            return name
        return "pinned" if name in self._deployments else "unknown"


def _health_lines(health: HealthSnapshot) -> Iterator[str]:
    known = [((name,), state) for name, state in health.deployments.items() if state.configured]
    yield from gauge_lines(
        "roundhouse_candidate_health",
        "EWMA of successes, 0 to 1.",
        _CANDIDATE,
        ((name, state.health) for name, state in known),
    )
    yield from gauge_lines(
        "roundhouse_candidate_breaker",
        "0 closed, 1 half-open, 2 open.",
        _CANDIDATE,
        ((name, _BREAKER_LEVEL[state.breaker]) for name, state in known),
    )
    yield from gauge_lines(
        "roundhouse_candidate_in_flight",
        "Attempts that run now.",
        _CANDIDATE,
        ((name, state.in_flight) for name, state in known),
    )


def _recording_lines(recording: RecorderStatus) -> Iterator[str]:
    written = Counter("roundhouse_records_written_total", "Requests recorded.")
    written.add(by=recording.written)
    lost = Counter("roundhouse_records_lost_total", "Requests that could not be recorded.")
    lost.add(by=recording.lost)
    yield from written.lines()
    yield from lost.lines()
    yield from gauge_lines("roundhouse_records_waiting", "Requests to record.", (), [((), recording.waiting)])


def _lane_lines(lanes: Mapping[str, LaneFigures]) -> Iterator[str]:
    families: tuple[tuple[str, str, Callable[[LaneFigures], int]], ...] = (
        (
            "roundhouse_slot_running",
            "Requests that have a slot of a local engine.",
            lambda lane: lane.running,
        ),
        ("roundhouse_slot_waiting", "Requests that wait for one.", lambda lane: lane.waiting),
        ("roundhouse_slot_spilled", "Requests sent elsewhere since the start.", lambda lane: lane.spilled),
        (
            "roundhouse_slot_joined",
            "Requests that shared an answer, since the start.",
            lambda lane: lane.joined,
        ),
    )
    for name, text, figure in families:
        yield from gauge_lines(
            name, text, ("provider",), (((one,), figure(lane)) for one, lane in lanes.items())
        )
