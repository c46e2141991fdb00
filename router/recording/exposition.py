"""Counters and histograms, and Prometheus' text format 0.0.4 to show them in.

Knows no names of ours. Two kinds and a text format are less than a library's import would cost at every
start; used from one thread, so there is no lock.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence

__all__ = ["CONTENT_TYPE", "Counter", "Histogram", "gauge_lines"]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Labels = tuple[str, ...]


class Counter:
    """A family of numbers that only grow, one for each combination of labels."""

    def __init__(self, name: str, text: str, labels: Sequence[str] = ()) -> None:
        self._name = name
        self._text = text
        self._labels = tuple(labels)
        self._values: dict[Labels, float] = {}

    def add(self, *labels: str, by: float = 1) -> None:
        """Add ``by`` to the number under these label values, in the family's order."""
        self._values[labels] = self._values.get(labels, 0) + by

    def lines(self) -> Iterator[str]:
        """Yield the family's lines."""
        yield from _head(self._name, self._text, "counter")
        for labels, value in sorted(self._values.items()):
            yield _sample(self._name, self._labels, labels, value)


class Histogram:
    """A family of distributions over fixed upper bounds (seconds)."""

    def __init__(self, name: str, text: str, labels: Sequence[str], bounds: Sequence[float]) -> None:
        self._name = name
        self._text = text
        self._labels = tuple(labels)
        self._bounds = tuple(bounds)
        self._counts: dict[Labels, list[int]] = {}
        self._sums: dict[Labels, float] = {}

    def observe(self, *labels: str, value: float) -> None:
        """Count ``value`` under these label values."""
        counts = self._counts.get(labels)
        if counts is None:
            counts = self._counts[labels] = [0] * (len(self._bounds) + 1)
        counts[bisect_left(self._bounds, value)] += 1
        self._sums[labels] = self._sums.get(labels, 0.0) + value

    def lines(self) -> Iterator[str]:
        """Yield the family's lines: cumulative buckets, sum and count for each combination."""
        yield from _head(self._name, self._text, "histogram")
        names = (*self._labels, "le")
        for labels, counts in sorted(self._counts.items()):
            total = 0
            for bound, count in zip((*self._bounds, None), counts, strict=True):
                total += count
                shown = "+Inf" if bound is None else f"{bound:g}"
                yield _sample(f"{self._name}_bucket", names, (*labels, shown), total)
            yield _sample(f"{self._name}_sum", self._labels, labels, self._sums[labels])
            yield _sample(f"{self._name}_count", self._labels, labels, total)


def gauge_lines(
    name: str, text: str, labels: Sequence[str], values: Iterable[tuple[Labels, float]]
) -> Iterator[str]:
    """Yield a family of figures that go up and down, as they are now."""
    yield from _head(name, text, "gauge")
    for one, value in values:
        yield _sample(name, tuple(labels), one, value)


def _head(name: str, text: str, kind: str) -> Iterator[str]:
    yield f"# HELP {name} {text}"
    yield f"# TYPE {name} {kind}"


def _sample(name: str, names: Labels, values: Labels, value: float) -> str:
    if not names:
        return f"{name} {value:.12g}"
    pairs = ",".join(f'{label}="{_escaped(one)}"' for label, one in zip(names, values, strict=True))
    return f"{name}{{{pairs}}} {value:.12g}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
