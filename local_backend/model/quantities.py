"""Numbers as people read them. Knows units, nothing else."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["bytes_text", "count_text", "table_text"]

_BINARY = ("B", "KiB", "MiB", "GiB", "TiB")
_DECIMAL = ("", " thousand", " million", " billion", " trillion")
_BINARY_STEP = 1024
_DECIMAL_STEP = 1000
_PLAIN_ABOVE = 100


def bytes_text(count: float) -> str:
    """Bytes with a binary unit and three digits or so: ``17.3 GiB``."""
    value, unit = _scaled(count, _BINARY, _BINARY_STEP)
    if unit == _BINARY[0] or abs(value) >= _PLAIN_ABOVE:
        return f"{value:.0f} {unit}"
    return f"{value:.1f} {unit}"


def count_text(count: float) -> str:
    """Return a large number in words: ``135 million``."""
    value, unit = _scaled(count, _DECIMAL, _DECIMAL_STEP)
    return f"{value:.0f}{unit}" if unit == "" or value >= _PLAIN_ABOVE else f"{value:.1f}{unit}"


def table_text(rows: Sequence[tuple[str, ...]], *, right: frozenset[int] = frozenset()) -> str:
    """Align columns with two spaces between; columns in ``right`` stand to the right."""
    if not rows:
        return ""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = (
        "  ".join(
            cell.rjust(width) if column in right else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )
    return "\n".join(lines)


def _scaled(count: float, units: tuple[str, ...], step: int) -> tuple[float, str]:
    value = float(count)
    for unit in units[:-1]:
        if abs(value) < step:
            return value, unit
        value /= step
    return value, units[-1]
