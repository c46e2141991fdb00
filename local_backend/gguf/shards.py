"""A model in one file or in several (``name-00001-of-00003.gguf``), seen as one.

The first file carries the metadata; every file carries some of the tensors. Knows no model.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from local_backend.errors import BadModelFile
from local_backend.gguf.metadata import Metadata
from local_backend.gguf.reader import GGUFFile, TensorInfo, open_gguf

__all__ = ["TensorArchive", "open_archive"]

_NUMBER_KEY = "split.no"
_COUNT_KEY = "split.count"
_TENSORS_KEY = "split.tensors.count"
_MOST_SHARDS = 1 << 12


class TensorArchive:
    """All files of a model. ``metadata`` is the first file's; ``tensors`` are those of all files."""

    def __init__(self, files: tuple[GGUFFile, ...]) -> None:
        self.files = files
        self._owner: dict[str, GGUFFile] = {}
        tensors: dict[str, TensorInfo] = {}
        for file in files:
            for name, tensor in file.tensors.items():
                if name in tensors:
                    raise BadModelFile(
                        str(file.path), f"tensor {name}", f"occurs in {tensors[name].path.name} already"
                    )
                tensors[name] = tensor
                self._owner[name] = file
        self.tensors: Mapping[str, TensorInfo] = MappingProxyType(tensors)

    @property
    def path(self) -> Path:
        """The first file."""
        return self.files[0].path

    @property
    def metadata(self) -> Metadata:
        """Metadata of the whole model."""
        return self.files[0].metadata

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files)

    def data(self, name: str) -> NDArray[np.uint8]:
        """Return a tensor's bytes, a view of the mapped file. Raises ``KeyError`` for an unknown name."""
        return self._owner[name].data(name)

    def close(self) -> None:
        """Close every file."""
        for file in self.files:
            file.close()


def open_archive(path: Path) -> TensorArchive:
    """Open a model by its only file or by any of its shards.

    Raises what :func:`~local_backend.gguf.reader.open_gguf` raises, and ``BadModelFile`` where a shard is
    missing or does not belong to the others.
    """
    opened: list[GGUFFile] = [open_gguf(path)]
    try:
        count = opened[0].metadata.optional_integer(_COUNT_KEY, least=0, most=_MOST_SHARDS) or 1
        if count > 1:
            given = opened.pop()
            _check_number(given, path, count)
            for number, shard_path in enumerate(_shard_paths(path, count)):
                file = given if shard_path == path else _open_shard(shard_path, count)
                opened.append(file)
                _check_shard(file, number, count)
            _check_total(opened)
        return TensorArchive(tuple(opened))
    except BaseException:
        for file in opened:
            file.close()
        raise


def _shard_paths(path: Path, count: int) -> list[Path]:
    found = re.fullmatch(r"(.+)-(\d{5})-of-(\d{5})\.gguf", path.name)
    if found is None or int(found[3]) != count:
        raise BadModelFile(
            str(path),
            f"key {_COUNT_KEY}",
            f"says {count} files; such files are named …-00001-of-{count:05d}.gguf, and this one is not",
        )
    return [path.with_name(f"{found[1]}-{number:05d}-of-{count:05d}.gguf") for number in range(1, count + 1)]


def _check_number(file: GGUFFile, path: Path, count: int) -> None:
    number = file.metadata.integer(_NUMBER_KEY, least=0, most=count - 1)
    if path not in _shard_paths(path, count) or path.name != _shard_paths(path, count)[number].name:
        file.metadata.fail(_NUMBER_KEY, f"is {number}, which does not fit the file's name")


def _open_shard(path: Path, count: int) -> GGUFFile:
    if not path.exists():
        raise BadModelFile(str(path), "file", f"is missing; the model needs all of its {count} files")
    return open_gguf(path)


def _check_shard(file: GGUFFile, number: int, count: int) -> None:
    if file.metadata.integer(_COUNT_KEY) != count:
        file.metadata.fail(_COUNT_KEY, f"is not {count} as in the model's other files")
    if file.metadata.integer(_NUMBER_KEY) != number:
        file.metadata.fail(_NUMBER_KEY, f"is not {number}, which the file's name says (counted from 0)")


def _check_total(files: list[GGUFFile]) -> None:
    expected = files[0].metadata.optional_integer(_TENSORS_KEY)
    found = sum(len(file.tensors) for file in files)
    if expected is not None and expected != found:
        files[0].metadata.fail(_TENSORS_KEY, f"is {expected}, but the {len(files)} files hold {found}")
