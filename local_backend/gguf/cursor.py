"""A place in a mapped file that only moves within its bounds. Knows bytes; not what they mean.

Every read checks what it is about to touch against the end of the file before anything is allocated,
and raises :class:`~local_backend.errors.BadModelFile` that names what was being read.
"""

from __future__ import annotations

import mmap
import struct
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from local_backend.errors import BadModelFile

__all__ = ["Cursor"]

_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")
_LENGTH_BYTES = 8


class Cursor:
    """Reads little-endian values from ``buffer`` one after another, starting at byte 0."""

    def __init__(self, path: str, buffer: mmap.mmap | bytes) -> None:
        self._path = path
        self._buffer = buffer
        self._end = len(buffer)
        self.position = 0

    @property
    def remaining(self) -> int:
        """Bytes between here and the end of the file."""
        return self._end - self.position

    def fail(self, place: str, problem: str) -> NoReturn:
        """Raise ``BadModelFile`` for this file."""
        raise BadModelFile(self._path, place, problem)

    def require(self, count: int, place: str) -> None:
        """Raise ``BadModelFile`` unless ``count`` more bytes are there."""
        if count > self.remaining:
            self.fail(
                place,
                f"needs {count} bytes at byte {self.position}, but the file ends at byte {self._end}; "
                "it is truncated or damaged",
            )

    def u32(self, place: str) -> int:
        """Next unsigned 32-bit integer."""
        self.require(_U32.size, place)
        value: int = _U32.unpack_from(self._buffer, self.position)[0]
        self.position += _U32.size
        return value

    def u64(self, place: str) -> int:
        """Next unsigned 64-bit integer."""
        self.require(_U64.size, place)
        value: int = _U64.unpack_from(self._buffer, self.position)[0]
        self.position += _U64.size
        return value

    def raw(self, count: int, place: str) -> bytes:
        """Return a copy of the next ``count`` bytes."""
        self.require(count, place)
        start = self.position
        self.position += count
        return self._buffer[start : self.position]

    def numbers(self, dtype: np.dtype[np.generic], count: int, place: str) -> NDArray[np.generic]:
        """Return a copy of the next ``count`` numbers of a fixed size."""
        return np.frombuffer(self.raw(count * dtype.itemsize, place), dtype=dtype)

    def text(self, place: str) -> str:
        """Next string: a 64-bit length, then UTF-8."""
        return self.texts(1, place)[0]

    def texts(self, count: int, place: str) -> tuple[str, ...]:
        """Return the next ``count`` strings; a vocabulary of 260,000 takes about a tenth of a second."""
        self.require(count * _LENGTH_BYTES, place)
        # The one loop of the reader that runs hundreds of thousands of times: locals, no calls of ours.
        buffer, position, end, length_of = self._buffer, self.position, self._end, _U64.unpack_from
        strings: list[str] = []
        for index in range(count):
            start = position + _LENGTH_BYTES
            if start > end:
                self.position = position
                self.require(_LENGTH_BYTES, f"{place}[{index}]")
            position = start + length_of(buffer, position)[0]
            if position > end:
                self.position = start
                self.require(position - start, f"{place}[{index}]")
            try:
                strings.append(buffer[start:position].decode())
            except UnicodeDecodeError as error:
                self.fail(f"{place}[{index}]", f"string at byte {start} is not UTF-8: {error.reason}")
        self.position = position
        return tuple(strings)
