from __future__ import annotations

import re
from collections.abc import Callable

from router.health.snapshot import BreakerState, DeploymentHealth, HealthSnapshot
from router.providers.base import LaneFigures
from router.recording.exposition import Counter
from router.recording.metrics import Metrics
from router.recording.recorder import RecorderStatus
from router.recording.records import RequestRecord

MakeRecord = Callable[..., RequestRecord]


_SAMPLE = re.compile(r"(?P<name>[a-z_]+)(?:\{(?P<labels>.*)\})? (?P<value>[0-9.e+-]+)")
HEALTH = {
    "a/one": DeploymentHealth(configured=True, breaker=BreakerState.OPEN, health=0.25, in_flight=3),
    "b/two": DeploymentHealth(configured=False, unconfigured_reason="no key"),
}
RECORDING = RecorderStatus(written=5, lost=1, waiting=0, degraded=None)


def _metrics() -> Metrics:
    return Metrics(("auto", "chat"), tuple(HEALTH))


def _samples(metrics: Metrics) -> dict[tuple[str, tuple[str, ...]], float]:
    """Read the text as Prometheus does: every line is a comment or a sample, and no sample comes twice."""
    samples: dict[tuple[str, tuple[str, ...]], float] = {}
    for line in _render(metrics).splitlines():
        if line.startswith("# "):
            continue
        match = _SAMPLE.fullmatch(line)
        assert match, line
        key = (match["name"], tuple(re.findall(r'[a-z]+="((?:[^"\\]|\\.)*)"', match["labels"] or "")))
        assert key not in samples
        samples[key] = float(match["value"])
    return samples


def _render(metrics: Metrics) -> str:
    return metrics.render(HealthSnapshot(0.0, HEALTH), RECORDING).decode()


def test_a_finished_request_is_counted_by_entrypoint_status_and_candidate(make_record: MakeRecord) -> None:
    metrics = _metrics()

    metrics.observe(make_record())
    samples = _samples(metrics)

    assert samples["roundhouse_requests_total", ("chat", "200")] == 1
    assert samples["roundhouse_attempts_total", ("a/one", "success")] == 1
    assert samples["roundhouse_cost_micro_dollars_total", ("a/one",)] == 7
    assert samples["roundhouse_request_seconds_count", ("chat",)] == 1


def test_a_name_that_a_client_made_up_never_becomes_a_label(make_record: MakeRecord) -> None:
    metrics = _metrics()

    for number in range(50):
        metrics.observe(make_record(requested_model=f"made-up-{number}", status=404, deployment_id=None))
    metrics.observe(make_record(requested_model="b/two"))
    samples = _samples(metrics)

    assert samples["roundhouse_requests_total", ("unknown", "404")] == 50
    assert samples["roundhouse_requests_total", ("pinned", "200")] == 1
    assert "made-up" not in _render(metrics)


def test_live_figures_are_read_when_asked_and_leave_out_the_unconfigured() -> None:
    samples = _samples(_metrics())

    assert samples["roundhouse_candidate_breaker", ("a/one",)] == 2
    assert samples["roundhouse_candidate_in_flight", ("a/one",)] == 3
    assert samples["roundhouse_records_lost_total", ()] == 1
    assert ("roundhouse_candidate_health", ("b/two",)) not in samples


def test_a_histograms_buckets_add_up(make_record: MakeRecord) -> None:
    metrics = _metrics()

    metrics.observe(make_record())
    samples = _samples(metrics)

    assert samples["roundhouse_request_seconds_bucket", ("chat", "0.25")] == 0
    assert samples["roundhouse_request_seconds_bucket", ("chat", "0.5")] == 1
    assert samples["roundhouse_request_seconds_bucket", ("chat", "+Inf")] == 1
    assert samples["roundhouse_request_seconds_sum", ("chat",)] == 0.5


def test_label_values_are_escaped() -> None:
    counter = Counter("things_total", "Things.", ("name",))

    counter.add('a"b\\c\nd')

    assert list(counter.lines())[-1] == 'things_total{name="a\\"b\\\\c\\nd"} 1'


def test_the_local_slots_are_told_by_provider() -> None:
    lane = LaneFigures(1, 1, 3, 8, 150.0, 20.0, 250.0, spilled=4, joined=2)
    text = Metrics(("chat",), ()).render(HealthSnapshot(0.0, HEALTH), RECORDING, {"local": lane}).decode()

    assert 'roundhouse_slot_running{provider="local"} 1\n' in text
    assert 'roundhouse_slot_waiting{provider="local"} 3\n' in text
    assert 'roundhouse_slot_spilled{provider="local"} 4\n' in text
    assert 'roundhouse_slot_joined{provider="local"} 2\n' in text
