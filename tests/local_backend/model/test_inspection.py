"""What ``engine inspect`` tells."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from local_backend.errors import BadModelFile
from local_backend.gguf.format import GGMLType
from local_backend.model.default_model import resolve_model
from local_backend.model.inspection import inspect_model
from tests.local_backend.tiny_gguf import Tensor, tiny_model, write_shards, write_tiny_model


def test_a_mixture_is_told_in_numbers(tmp_path: Path) -> None:
    found = inspect_model(write_tiny_model(tmp_path / "m.gguf", "qwen3moe", GGMLType.Q8_0))
    expert = 3 * 64 * 64

    assert (found.architecture, found.layers, found.hidden_size) == ("qwen3moe", 2, 64)
    assert (found.heads, found.kv_heads) == (4, 2)
    assert (found.experts, found.experts_used) == (4, 2)
    assert found.parameters - found.active_parameters == 2 * 2 * expert
    assert found.vocabulary_size == 271
    assert found.has_chat_template
    assert found.is_supported
    assert [use.type for use in found.tensor_types] == ["Q8_0", "F32"]
    assert sum(use.parameters for use in found.tensor_types) == found.parameters


def test_a_split_model_is_one(tmp_path: Path) -> None:
    paths = write_shards(tmp_path, "s", tiny_model(), 3)

    found = inspect_model(paths[1])

    assert found.files == 3
    assert "in 3 files" in found.to_text()


def test_everything_unsupported_is_listed_at_once(tmp_path: Path) -> None:
    model = tiny_model()
    model.metadata["general.architecture"] = "falcon"
    model.metadata["tokenizer.ggml.pre"] = "klingon"
    del model.metadata["tokenizer.chat_template"]

    found = inspect_model(model.write(tmp_path / "m.gguf"))

    assert found.unsupported == ("architecture 'falcon'", "pre-tokenizer 'klingon'")
    assert found.layers is None
    assert "no: architecture 'falcon'" in found.to_text()
    assert "none in the file" in found.to_text()


def test_block_types_that_cannot_be_read_are_named_with_their_tensors(tmp_path: Path) -> None:
    model = tiny_model("gpt-oss", block_type=GGMLType.Q8_0)
    for name in ("blk.0.ffn_up_exps.weight", "blk.1.ffn_up_exps.weight"):
        index = model.index(name)
        shape = (4, 16, 256)  # as many elements in rows that the type allows
        model.tensors[index] = Tensor(name, GGMLType.IQ1_S, shape, bytes(4 * 16 * 50))

    found = inspect_model(model.write(tmp_path / "m.gguf"))

    assert found.unsupported == ("block type IQ1_S of 2 tensors (blk.0.ffn_up_exps.weight …)",)
    assert "IQ1_S" in {use.type for use in found.tensor_types}


def test_a_damaged_file_is_refused_all_the_same(tmp_path: Path) -> None:
    path = write_tiny_model(tmp_path / "m.gguf")
    path.write_bytes(path.read_bytes()[:-1000])

    with pytest.raises(BadModelFile, match="past the file's end"):
        inspect_model(path)


@pytest.mark.model
def test_the_default_model_is_told_for_people_and_programs() -> None:
    found = inspect_model(resolve_model("builtin:smollm2"))

    assert json.loads(found.to_json())["parameters"] == 134_515_008
    assert "135 million" in found.to_text()
    assert "none (dense)" in found.to_text()
