from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import pytest

from router.errors import StorageError
from router.recording.recorder import Recorder
from router.recording.records import RequestRecord

pytestmark = pytest.mark.anyio
MakeRecord = Callable[..., RequestRecord]


class _Sink:
    """A database that fails as often as it is told."""

    def __init__(self, failures: int = 0) -> None:
        self.batches: list[list[str]] = []
        self.failures = failures
        self.wrote = asyncio.Event()

    async def __call__(self, records: Sequence[RequestRecord]) -> None:
        if self.failures:
            self.failures -= 1
            raise StorageError("database is locked")
        self.batches.append([record.request_id for record in records])
        self.wrote.set()


async def test_what_was_put_is_written_in_one_batch_and_drained_at_the_end(make_record: MakeRecord) -> None:
    sink = _Sink()
    recorder = Recorder(sink)
    for number in range(3):
        recorder.put(make_record(f"req_{number}"))

    recorder.close()
    await recorder.run()

    assert sink.batches == [["req_0", "req_1", "req_2"]]
    assert recorder.status().written == 3


async def test_a_full_queue_loses_the_record_and_counts_it(make_record: MakeRecord) -> None:
    recorder = Recorder(_Sink(), queue_limit=2)

    for number in range(5):
        recorder.put(make_record(f"req_{number}"))

    assert (recorder.status().lost, recorder.status().waiting) == (3, 2)


async def test_a_full_queue_still_ends(make_record: MakeRecord) -> None:
    sink = _Sink()
    recorder = Recorder(sink, queue_limit=2)
    for number in range(2):
        recorder.put(make_record(f"req_{number}"))

    recorder.close()
    await recorder.run()

    assert sink.batches == [["req_1"]]


async def test_a_database_that_is_locked_for_a_moment_loses_nothing(make_record: MakeRecord) -> None:
    sink = _Sink(failures=2)
    recorder = Recorder(sink, retry_delays_s=(0.0, 0.0))
    recorder.put(make_record("req_1"))

    async with asyncio.TaskGroup() as group:
        group.create_task(recorder.run())
        await sink.wrote.wait()
        recorder.close()

    assert sink.batches == [["req_1"]]
    assert recorder.status().degraded is None


async def test_a_database_that_stays_broken_degrades_recording_and_says_why(make_record: MakeRecord) -> None:
    recorder = Recorder(_Sink(failures=100), retry_delays_s=())
    recorder.put(make_record())

    recorder.close()
    await recorder.run()

    assert recorder.status().lost == 1
    assert recorder.status().degraded == "database is locked"


async def test_a_failing_observer_costs_the_request_nothing(make_record: MakeRecord) -> None:
    def broken(_record: RequestRecord) -> None:
        raise RuntimeError("a metric is broken")

    sink = _Sink()
    recorder = Recorder(sink, observers=(broken,))

    recorder.put(make_record())
    recorder.close()
    await recorder.run()

    assert sink.batches == [["req_1"]]
