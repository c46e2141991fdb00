"""Key-value pairs of a GGUF file: reading them, and asking for them by type.

A missing key, a wrong type or a number that makes no sense is a ``BadModelFile`` that names the key.
Knows no key's meaning.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Mapping
from typing import NoReturn, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from local_backend.errors import BadModelFile
from local_backend.gguf.cursor import Cursor
from local_backend.gguf.format import ValueType

__all__ = ["Metadata", "MetadataValue", "read_metadata"]

MetadataValue: TypeAlias = "int | float | bool | str | tuple[MetadataValue, ...] | NDArray[np.generic]"
"""Arrays of numbers are NumPy arrays, arrays of anything else are tuples."""

_T = TypeVar("_T")

_NUMBERS: dict[ValueType, np.dtype[np.generic]] = {
    ValueType.UINT8: np.dtype("<u1"),
    ValueType.INT8: np.dtype("<i1"),
    ValueType.UINT16: np.dtype("<u2"),
    ValueType.INT16: np.dtype("<i2"),
    ValueType.UINT32: np.dtype("<u4"),
    ValueType.INT32: np.dtype("<i4"),
    ValueType.FLOAT32: np.dtype("<f4"),
    ValueType.UINT64: np.dtype("<u8"),
    ValueType.INT64: np.dtype("<i8"),
    ValueType.FLOAT64: np.dtype("<f8"),
}
_SCALARS = {kind: struct.Struct("<" + dtype.char) for kind, dtype in _NUMBERS.items()}
_SCALARS |= {ValueType.INT64: struct.Struct("<q"), ValueType.UINT64: struct.Struct("<Q")}

# Far above any real file (the largest vocabularies and merge tables come to about 800,000 strings), low
# enough that a file made to waste time is refused within a second.
_MOST_KEYS = 1 << 16
_MOST_STRINGS = 1 << 21
_MOST_DEPTH = 4
_SMALLEST_PAIR = 8 + 1 + 4 + 1  # length, one character, type, one byte
_SMALLEST_ARRAY = 4 + 8  # type, count
_LONGEST_KEY = (1 << 16) - 1


class Metadata:
    """The pairs of one file, immutable. Iterates over its keys in the file's order."""

    def __init__(self, path: str, values: Mapping[str, MetadataValue]) -> None:
        self.path = path
        self._values = dict(values)

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def fail(self, key: str, problem: str) -> NoReturn:
        """Raise ``BadModelFile`` that names the key."""
        raise BadModelFile(self.path, f"key {key}", problem)

    def raw(self, key: str) -> MetadataValue | None:
        """Return the value as it stands, ``None`` where the key is absent."""
        return self._values.get(key)

    def text(self, key: str) -> str:
        """Return a string that must be there."""
        return self._present(key, self.optional_text(key))

    def optional_text(self, key: str) -> str | None:
        """Return a string, ``None`` where the key is absent."""
        value = self._values.get(key)
        if value is not None and not isinstance(value, str):
            self.fail(key, f"is {_describe(value)}; expected a string")
        return value

    def flag(self, key: str, default: bool) -> bool:
        """Return a boolean, ``default`` where the key is absent."""
        value = self._values.get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            self.fail(key, f"is {_describe(value)}; expected a boolean")
        return value

    def integer(self, key: str, *, least: int = 0, most: int = (1 << 63) - 1) -> int:
        """Return an integer within ``least..most`` that must be there."""
        return self._present(key, self.optional_integer(key, least=least, most=most))

    def optional_integer(self, key: str, *, least: int = 0, most: int = (1 << 63) - 1) -> int | None:
        """Return an integer within ``least..most``, ``None`` where the key is absent."""
        value = self._values.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int):
            self.fail(key, f"is {_describe(value)}; expected an integer")
        self._within(key, value, least, most)
        return value

    def number(self, key: str, *, least: float = -math.inf, above: float = -math.inf) -> float:
        """Return a finite number, at least ``least`` and greater than ``above``, that must be there."""
        return self._present(key, self.optional_number(key, least=least, above=above))

    def optional_number(
        self, key: str, *, least: float = -math.inf, above: float = -math.inf
    ) -> float | None:
        """Return a finite number, ``None`` where the key is absent."""
        value = self._values.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float):
            self.fail(key, f"is {_describe(value)}; expected a number")
        if not math.isfinite(value) or value < least or value <= above:
            bound = f"greater than {above:g}" if above > least else f"at least {least:g}"
            self.fail(key, f"is {value}; expected a finite number {bound}")
        return float(value)

    def strings(self, key: str) -> tuple[str, ...]:
        """Return an array of strings that must be there."""
        return self._present(key, self.optional_strings(key))

    def optional_strings(self, key: str) -> tuple[str, ...] | None:
        """Return an array of strings, ``None`` where the key is absent."""
        value = self._values.get(key)
        if value is None:
            return None
        if isinstance(value, np.ndarray) and not value.size:
            return ()
        if not isinstance(value, tuple) or not all(isinstance(item, str) for item in value):
            self.fail(key, f"is {_describe(value)}; expected an array of strings")
        return tuple(str(item) for item in value)

    def optional_numbers(self, key: str) -> NDArray[np.float64] | None:
        """Return an array of numbers as float64, ``None`` where the key is absent."""
        value = self._values.get(key)
        if value is None:
            return None
        if not isinstance(value, np.ndarray):
            self.fail(key, f"is {_describe(value)}; expected an array of numbers")
        return value.astype(np.float64)

    def optional_integers(self, key: str) -> tuple[int, ...] | None:
        """Return an array of integers, ``None`` where the key is absent."""
        value = self._values.get(key)
        if value is None:
            return None
        if not isinstance(value, np.ndarray) or value.dtype.kind not in "iu":
            self.fail(key, f"is {_describe(value)}; expected an array of integers")
        return tuple(int(item) for item in value)

    def per_layer(self, key: str, layers: int, *, least: int = 0, most: int = 1 << 31) -> tuple[int, ...]:
        """Return one integer for each layer, from a single value or from an array of that length."""
        value = self._values.get(key)
        if not isinstance(value, np.ndarray):
            return (self.integer(key, least=least, most=most),) * layers
        items = self.optional_integers(key) or ()
        if len(items) != layers:
            self.fail(key, f"has {len(items)} entries for {layers} layers")
        for item in items:
            self._within(key, item, least, most)
        return items

    def _within(self, key: str, value: int, least: int, most: int) -> None:
        if not least <= value <= most:
            self.fail(key, f"is {value}; expected {least} to {most}")

    def _present(self, key: str, value: _T | None) -> _T:
        if value is None:
            self.fail(key, "is missing")
        return value


def read_metadata(cursor: Cursor, path: str, count: int) -> Metadata:
    """Read ``count`` pairs. Raises ``BadModelFile`` on anything that does not fit the file."""
    if count > _MOST_KEYS or count * _SMALLEST_PAIR > cursor.remaining:
        cursor.fail("metadata count", f"{count} pairs do not fit a file with {cursor.remaining} bytes left")
    reader = _ValueReader(cursor)
    values: dict[str, MetadataValue] = {}
    for index in range(count):
        key = cursor.text(f"key {index}")
        if not key or len(key) > _LONGEST_KEY:
            cursor.fail(f"key {index}", f"has {len(key)} characters; expected 1 to {_LONGEST_KEY}")
        if key in values:
            cursor.fail(f"key {key}", "occurs twice")
        kind = reader.kind(f"key {key}")
        values[key] = reader.value(kind, f"key {key}", 0)
    return Metadata(path, values)


class _ValueReader:
    """Reads values of any type; counts strings, so that no file can keep it busy for long."""

    def __init__(self, cursor: Cursor) -> None:
        self._cursor = cursor
        self._strings_left = _MOST_STRINGS

    def kind(self, place: str) -> ValueType:
        number = self._cursor.u32(place)
        try:
            return ValueType(number)
        except ValueError:
            self._cursor.fail(place, f"has the unknown value type {number}")

    def value(self, kind: ValueType, place: str, depth: int) -> MetadataValue:
        if kind is ValueType.STRING:
            return self._cursor.text(place)
        if kind is ValueType.BOOL:
            return self._flags(1, place)[0]
        if kind is ValueType.ARRAY:
            return self._array(place, depth + 1)
        scalar = _SCALARS[kind]
        number: int | float = scalar.unpack(self._cursor.raw(scalar.size, place))[0]
        return number

    def _array(self, place: str, depth: int) -> MetadataValue:
        if depth > _MOST_DEPTH:
            self._cursor.fail(place, f"nests arrays more than {_MOST_DEPTH} deep")
        kind = self.kind(place)
        count = self._cursor.u64(place)
        if kind in _NUMBERS:
            return self._cursor.numbers(_NUMBERS[kind], count, place)
        self._spend(count, place)
        if kind is ValueType.STRING:
            return self._cursor.texts(count, place)
        if kind is ValueType.BOOL:
            return self._flags(count, place)
        self._cursor.require(count * _SMALLEST_ARRAY, place)
        return tuple(self._array(f"{place}[{index}]", depth + 1) for index in range(count))

    def _spend(self, count: int, place: str) -> None:
        self._strings_left -= count
        if self._strings_left < 0:
            self._cursor.fail(place, f"brings the entries of all arrays above {_MOST_STRINGS}")

    def _flags(self, count: int, place: str) -> tuple[bool, ...]:
        raw = self._cursor.raw(count, place)
        if raw.strip(b"\x00\x01"):
            self._cursor.fail(place, "holds a boolean that is neither 0 nor 1")
        return tuple(byte == 1 for byte in raw)


def _describe(value: MetadataValue) -> str:
    """Name a value's type for an error message, never the whole value."""
    if isinstance(value, np.ndarray):
        return f"an array of {value.size} {value.dtype.name}"
    if isinstance(value, tuple):
        return f"an array of {len(value)}"
    return f"a {type(value).__name__} ({str(value)[:40]!r})"
