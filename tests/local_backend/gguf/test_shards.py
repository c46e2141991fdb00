"""Models in several files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from local_backend.errors import BadModelFile
from local_backend.gguf.format import GGMLType, ValueType
from local_backend.gguf.shards import open_archive
from tests.local_backend.tiny_gguf import Typed, tiny_model, write_gguf, write_shards


def test_shards_are_one_model_from_whichever_is_named(tmp_path: Path) -> None:
    model = tiny_model("qwen3moe", GGMLType.Q8_0)
    whole = open_archive(model.write(tmp_path / "whole.gguf"))
    paths = write_shards(tmp_path, "split", model, 3)

    for path in paths:
        archive = open_archive(path)

        assert archive.path == paths[0]
        assert archive.metadata.text("general.architecture") == "qwen3moe"
        assert set(archive.tensors) == set(whole.tensors)
        assert {tensor.path for tensor in archive.tensors.values()} == set(paths[1:])
        assert archive.size == sum(other.stat().st_size for other in paths)
        for name in whole.tensors:
            assert np.array_equal(archive.data(name), whole.data(name))


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    paths = write_shards(tmp_path, "split", tiny_model(), 3)
    paths[1].unlink()

    with pytest.raises(
        BadModelFile, match=r"split-00002-of-00003\.gguf: file: is missing.*all of its 3 files"
    ):
        open_archive(paths[0])


def test_a_renamed_shard_is_refused(tmp_path: Path) -> None:
    paths = write_shards(tmp_path, "split", tiny_model(), 3)
    renamed = paths[0].rename(tmp_path / "model.gguf")

    with pytest.raises(BadModelFile, match=r"split\.count"):
        open_archive(renamed)


def test_swapped_shards_are_refused(tmp_path: Path) -> None:
    first, second, third = write_shards(tmp_path, "split", tiny_model(), 3)
    second.rename(tmp_path / "aside")
    third.rename(second)
    (tmp_path / "aside").rename(third)

    with pytest.raises(BadModelFile, match=r"split\.no"):
        open_archive(first)


def test_a_shard_of_another_split_is_refused(tmp_path: Path) -> None:
    paths = write_shards(tmp_path, "split", tiny_model(), 3)
    write_gguf(paths[2], {"split.no": 2, "split.count": 4})

    with pytest.raises(BadModelFile, match=r"split\.count"):
        open_archive(paths[0])


def test_a_tensor_in_two_shards_is_refused(tmp_path: Path) -> None:
    model = tiny_model()
    paths = write_shards(tmp_path, "split", model, 3)
    split = {"split.no": 2, "split.count": 3}
    write_gguf(paths[2], split, model.tensors[: len(model.tensors) // 2])

    with pytest.raises(BadModelFile, match=r"token_embd\.weight"):
        open_archive(paths[0])


def test_a_wrong_total_of_tensors_is_refused(tmp_path: Path) -> None:
    model = tiny_model()
    paths = write_shards(tmp_path, "split", model, 2)
    split = {"split.no": 0, "split.count": 2, "split.tensors.count": Typed(ValueType.INT32, 99)}
    write_gguf(paths[0], model.metadata | split)

    with pytest.raises(BadModelFile, match=r"split\.tensors\.count"):
        open_archive(paths[0])


def test_a_file_that_says_it_is_one_of_one_needs_no_special_name(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "model.gguf", {"split.no": 0, "split.count": 1})

    assert open_archive(path).path == path
