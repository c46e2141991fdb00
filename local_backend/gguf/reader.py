"""One GGUF file, mapped and checked: its metadata and where its tensors lie.

Nothing of the file is trusted: every count, length, offset and extent is held against the file's size
before it is used. Knows no model and reads no tensor's contents.

Source: the GGUF specification (ggml repository, docs/gguf.md).
"""

from __future__ import annotations

import itertools
import math
import mmap
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from local_backend.errors import BadModelFile, UnsupportedModel
from local_backend.gguf.cursor import Cursor
from local_backend.gguf.format import DEFAULT_ALIGNMENT, MAGIC, VERSIONS, GGMLType
from local_backend.gguf.metadata import Metadata, read_metadata

__all__ = ["GGUFFile", "TensorInfo", "open_gguf"]

_ALIGNMENT_KEY = "general.alignment"
_SMALLEST_ALIGNMENT = 8
_MOST_TENSORS = 1 << 17
_MOST_DIMENSIONS = 4
_LONGEST_NAME = 64
_SMALLEST_INFO = 8 + 1 + 4 + 8 + 4 + 8  # length, one character, dimensions, one dimension, type, offset
_MOST_ELEMENTS = (1 << 63) - 1
_LARGEST_SWAPPED_VERSION = 16  # a version whose low half is empty is a small number in the other byte order


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """Where one tensor lies. ``shape`` is row-major, slowest first (the file lists it fastest first).

    ``offset`` counts bytes from the beginning of the file ``path``; ``size`` is in bytes.
    """

    name: str
    type: GGMLType
    shape: tuple[int, ...]
    path: Path
    offset: int
    size: int

    @property
    def elements(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)


class GGUFFile:
    """A mapped file. Views of its data stay valid after :meth:`close` and keep the mapping alive."""

    def __init__(
        self, path: Path, mapping: mmap.mmap, metadata: Metadata, tensors: Mapping[str, TensorInfo]
    ) -> None:
        self.path = path
        self.metadata = metadata
        self.tensors = MappingProxyType(dict(tensors))
        self.size = len(mapping)
        self._mapping: mmap.mmap | None = mapping

    def data(self, name: str) -> NDArray[np.uint8]:
        """Return a tensor's bytes, a read-only view. Raises ``KeyError`` for an unknown name."""
        if self._mapping is None:
            raise ValueError(f"{self.path} is closed")
        tensor = self.tensors[name]
        return np.frombuffer(self._mapping, dtype=np.uint8, count=tensor.size, offset=tensor.offset)

    def close(self) -> None:
        """Unmap the file, or leave that to the last view where views are still held. Repeatable."""
        mapping, self._mapping = self._mapping, None
        if mapping is None:
            return
        try:
            mapping.close()
        except BufferError:
            # Somebody still holds a view; the mapping goes with the last of them.
            del mapping


def open_gguf(path: Path) -> GGUFFile:
    """Map and check one file.

    Raises ``BadModelFile`` where the file is not what it claims, ``UnsupportedModel`` for a version, byte
    order or block type that is not read.
    """
    mapping = _map(path)
    try:
        metadata, tensors = _read(path, mapping)
    except BaseException:
        mapping.close()
        raise
    return GGUFFile(path, mapping, metadata, tensors)


def _map(path: Path) -> mmap.mmap:
    try:
        with path.open("rb") as file:
            if path.stat().st_size < len(MAGIC):
                raise BadModelFile(str(path), "byte 0", "the file is too short for a GGUF file")
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except FileNotFoundError:
        raise BadModelFile(str(path), "file", "does not exist") from None
    except IsADirectoryError:
        raise BadModelFile(str(path), "file", "is a directory; name the .gguf file in it") from None
    except OSError as error:
        raise BadModelFile(str(path), "file", f"cannot be read: {error.strerror or error}") from error


def _read(path: Path, mapping: mmap.mmap | bytes) -> tuple[Metadata, dict[str, TensorInfo]]:
    cursor = Cursor(str(path), mapping)
    _check_magic(cursor)
    _check_version(cursor, str(path))
    tensor_count = cursor.u64("tensor count")
    pair_count = cursor.u64("metadata count")
    metadata = read_metadata(cursor, str(path), pair_count)
    alignment = metadata.optional_integer(_ALIGNMENT_KEY, least=_SMALLEST_ALIGNMENT) or DEFAULT_ALIGNMENT
    if alignment & (alignment - 1):
        metadata.fail(_ALIGNMENT_KEY, f"is {alignment}; expected a power of two")
    if tensor_count > _MOST_TENSORS or tensor_count * _SMALLEST_INFO > cursor.remaining:
        cursor.fail(
            "tensor count",
            f"{tensor_count} descriptions do not fit a file with {cursor.remaining} bytes left",
        )
    tensors = _read_tensors(cursor, path, tensor_count)
    return metadata, _place(cursor, tensors, alignment, len(mapping))


def _check_magic(cursor: Cursor) -> None:
    magic = cursor.raw(len(MAGIC), "magic")
    if magic != MAGIC:
        cursor.fail("magic", f"is {magic!r}; expected {MAGIC!r}: this is not a GGUF file")


def _check_version(cursor: Cursor, path: str) -> None:
    version = cursor.u32("version")
    if version in VERSIONS:
        return
    swapped = int.from_bytes(version.to_bytes(4, "little"), "big")
    if 0 < swapped <= _LARGEST_SWAPPED_VERSION:
        raise UnsupportedModel(path, f"big-endian GGUF (version {swapped})", ("little-endian GGUF",))
    raise UnsupportedModel(
        path, f"GGUF version {version}", tuple(f"GGUF version {known}" for known in VERSIONS)
    )


def _read_tensors(cursor: Cursor, path: Path, count: int) -> dict[str, TensorInfo]:
    """Read descriptions; their offsets still count from the beginning of the data."""
    tensors: dict[str, TensorInfo] = {}
    for index in range(count):
        name = cursor.text(f"name of tensor {index}")
        if not name or len(name.encode()) > _LONGEST_NAME:
            cursor.fail(f"name of tensor {index}", f"is {len(name)} characters long; expected 1 to 64 bytes")
        if name in tensors:
            cursor.fail(f"tensor {name}", "occurs twice")
        tensors[name] = _read_tensor(cursor, path, name)
    return tensors


def _read_tensor(cursor: Cursor, path: Path, name: str) -> TensorInfo:
    place = f"tensor {name}"
    dimensions = cursor.u32(place)
    if not 1 <= dimensions <= _MOST_DIMENSIONS:
        cursor.fail(place, f"has {dimensions} dimensions; expected 1 to {_MOST_DIMENSIONS}")
    shape = tuple(reversed([cursor.u64(place) for _ in range(dimensions)]))
    number = cursor.u32(place)
    try:
        kind = GGMLType(number)
    except ValueError:
        raise UnsupportedModel(
            str(path), f"block type {number} of tensor {name}", tuple(known.name for known in GGMLType)
        ) from None
    elements = math.prod(shape)
    if not 0 < elements <= _MOST_ELEMENTS:
        cursor.fail(place, f"has the impossible shape {shape}")
    if shape[-1] % kind.block_elements:
        cursor.fail(
            place, f"has rows of {shape[-1]} elements, not a multiple of {kind.name}'s {kind.block_elements}"
        )
    offset = cursor.u64(place)
    size = elements // kind.block_elements * kind.block_bytes
    return TensorInfo(name, kind, shape, path, offset, size)


def _place(
    cursor: Cursor, tensors: Mapping[str, TensorInfo], alignment: int, file_size: int
) -> dict[str, TensorInfo]:
    """Turn offsets into bytes of the file, and refuse what is unaligned, outside or overlapping."""
    data_start = (cursor.position + alignment - 1) // alignment * alignment
    placed: dict[str, TensorInfo] = {}
    for name, tensor in tensors.items():
        if tensor.offset % alignment:
            cursor.fail(f"tensor {name}", f"offset {tensor.offset} is not a multiple of {alignment}")
        start = data_start + tensor.offset
        if start + tensor.size > file_size:
            cursor.fail(
                f"tensor {name}",
                f"reaches to byte {start + tensor.size}, past the file's end at byte {file_size}; "
                "the file is truncated or damaged",
            )
        placed[name] = TensorInfo(name, tensor.type, tensor.shape, tensor.path, start, tensor.size)
    _refuse_overlaps(cursor, placed)
    return placed


def _refuse_overlaps(cursor: Cursor, tensors: Mapping[str, TensorInfo]) -> None:
    ordered = sorted(tensors.values(), key=lambda tensor: tensor.offset)
    for before, after in itertools.pairwise(ordered):
        if before.offset + before.size > after.offset:
            cursor.fail(f"tensor {after.name}", f"overlaps tensor {before.name} at byte {after.offset}")
