"""Reading single files: what is sound is read, what is not is refused by name."""

from __future__ import annotations

import struct
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from local_backend.errors import BadModelFile, EngineError, UnsupportedModel
from local_backend.gguf.format import GGMLType, ValueType
from local_backend.gguf.reader import GGUFFile, open_gguf
from tests.local_backend.tiny_gguf import (
    Tensor,
    Typed,
    gguf_bytes,
    quantize,
    tiny_model,
    write_gguf,
    write_tiny_model,
)

F32 = GGMLType.F32


def tensor(name: str = "a", shape: tuple[int, ...] = (2, 4), **changes: Any) -> Tensor:
    values = np.arange(np.prod(shape), dtype=np.float32)
    return Tensor(name, changes.pop("kind", F32), shape, quantize(F32, values), **changes)


def refusal(path: Path, content: bytes) -> EngineError:
    """Write a file, open it, and return how it was refused, within a second."""
    path.write_bytes(content)
    started = time.process_time()
    with pytest.raises((BadModelFile, UnsupportedModel)) as caught:
        open_gguf(path)
    assert time.process_time() - started < 1.0
    assert str(path) in str(caught.value)
    return caught.value


def test_every_value_type_is_read(tmp_path: Path) -> None:
    values: dict[str, Any] = {
        "u8": Typed(ValueType.UINT8, 200),
        "i8": Typed(ValueType.INT8, -5),
        "u16": Typed(ValueType.UINT16, 60000),
        "i16": Typed(ValueType.INT16, -300),
        "u32": Typed(ValueType.UINT32, 4_000_000_000),
        "i32": Typed(ValueType.INT32, -7),
        "u64": Typed(ValueType.UINT64, 1 << 63),
        "i64": Typed(ValueType.INT64, -(1 << 62)),
        "f32": Typed(ValueType.FLOAT32, 0.5),
        "f64": Typed(ValueType.FLOAT64, 0.1),
        "yes": True,
        "text": "Grüße",
        "numbers": [3, -1, 2],
        "texts": ["", "b", "ü"],
        "flags": [True, False],
        "nested": [[1, 2], [3]],
    }
    file = open_gguf(write_gguf(tmp_path / "a.gguf", values))

    found = {key: file.metadata.raw(key) for key in file.metadata}

    assert list(found) == list(values)
    assert found["u8"] == 200
    assert found["i64"] == -(1 << 62)
    assert found["u64"] == 1 << 63
    assert (found["f32"], found["f64"], found["yes"], found["text"]) == (0.5, 0.1, True, "Grüße")
    assert found["texts"] == ("", "b", "ü")
    assert found["flags"] == (True, False)
    assert np.array_equal(found["numbers"], [3, -1, 2])  # type: ignore[arg-type]
    assert [list(row) for row in found["nested"]] == [[1, 2], [3]]  # type: ignore[union-attr, arg-type]


def test_tensors_are_views_of_the_file_in_row_major_shape(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "a.gguf", {"k": 1}, [tensor("x", (3,)), tensor("y", (2, 3, 4))])
    file = open_gguf(path)

    info = file.tensors["y"]

    assert info.shape == (2, 3, 4)
    assert info.offset % 32 == 0
    assert info.size == 96
    assert np.array_equal(file.data("y").view("<f4"), np.arange(24))
    assert not file.data("y").flags.writeable


@pytest.mark.parametrize("version", [2, 3])
def test_versions_two_and_three_are_read(tmp_path: Path, version: int) -> None:
    assert open_gguf(write_gguf(tmp_path / "a.gguf", {"k": 1}, version=version)).metadata.raw("k") == 1


def test_another_alignment_is_obeyed(tmp_path: Path) -> None:
    metadata = {"general.alignment": 128}
    path = write_gguf(tmp_path / "a.gguf", metadata, [tensor("x"), tensor("y")], alignment=128)

    file = open_gguf(path)

    assert file.tensors["y"].offset % 128 == 0
    assert np.array_equal(file.data("y").view("<f4"), np.arange(8))


def test_a_view_outlives_the_closed_file(tmp_path: Path) -> None:
    file = open_gguf(write_gguf(tmp_path / "a.gguf", {}, [tensor("x")]))
    view = file.data("x")

    file.close()
    file.close()

    assert view.view("<f4")[3] == 3.0
    with pytest.raises(ValueError, match="closed"):
        file.data("x")


REFUSED: dict[str, tuple[bytes, type[EngineError], str]] = {
    "empty": (b"", BadModelFile, "too short"),
    "wrong magic": (gguf_bytes({}, magic=b"GGML"), BadModelFile, "magic"),
    "not even a header": (b"GGUF\x03", BadModelFile, "version"),
    "version one": (gguf_bytes({}, version=1), UnsupportedModel, "GGUF version 1"),
    "version four": (gguf_bytes({}, version=4), UnsupportedModel, "GGUF version 4"),
    "big-endian": (gguf_bytes({}, version=3 << 24), UnsupportedModel, "big-endian"),
    "too many pairs": (gguf_bytes({"k": 1}, pair_count=1 << 62), BadModelFile, "metadata count"),
    "too many tensors": (gguf_bytes({"k": 1}, tensor_count=1 << 62), BadModelFile, "tensor count"),
    "one pair too many": (gguf_bytes({"k": "x" * 99}, pair_count=2), BadModelFile, "key 1"),
    "empty key": (gguf_bytes({"": 1}), BadModelFile, "key 0"),
    "key that is no UTF-8": (gguf_bytes({b"\xff\xfe": 1}), BadModelFile, "not UTF-8"),  # type: ignore[dict-item]
    "text that is no UTF-8": (gguf_bytes({"key.name": b"\xff"}), BadModelFile, "key.name"),
    "text in an array that is no UTF-8": (gguf_bytes({"ks": ["a", b"\xc3"]}), BadModelFile, r"ks\[1\]"),
    "boolean of two": (
        gguf_bytes({"k": True}).replace(b"\x07\0\0\0\x01", b"\x07\0\0\0\x02"),
        BadModelFile,
        "k",
    ),
    "alignment of three": (gguf_bytes({"general.alignment": 24}), BadModelFile, "power of two"),
    "alignment of zero": (gguf_bytes({"general.alignment": 0}), BadModelFile, "general.alignment"),
    "alignment as text": (gguf_bytes({"general.alignment": "32"}), BadModelFile, "general.alignment"),
    "the same tensor twice": (
        gguf_bytes({}, [tensor("x"), tensor("x")]),
        BadModelFile,
        "tensor x: occurs twice",
    ),
    "no dimension": (gguf_bytes({}, [tensor("x", ())]), BadModelFile, "0 dimensions"),
    "five dimensions": (gguf_bytes({}, [tensor("x", (1,) * 5)]), BadModelFile, "5 dimensions"),
    "dimension of zero": (gguf_bytes({}, [Tensor("x", F32, (2, 0), b"")]), BadModelFile, "impossible shape"),
    "overflowing dimensions": (
        gguf_bytes({}, [Tensor("x", F32, (1 << 32, 1 << 32), b"")]),
        BadModelFile,
        "impossible shape",
    ),
    "long name": (gguf_bytes({}, [tensor("x" * 65)]), BadModelFile, "name of tensor 0"),
    "unknown block type": (
        gguf_bytes({}, [tensor("blk.0.x", kind=77)]),
        UnsupportedModel,
        "77 of tensor blk.0.x",
    ),
    "removed block type": (gguf_bytes({}, [tensor("x", kind=4)]), UnsupportedModel, "block type 4"),
    "row that is no whole block": (
        gguf_bytes({}, [tensor("x", (2, 33), kind=GGMLType.Q8_0)]),
        BadModelFile,
        "not a multiple of Q8_0's 32",
    ),
    "unaligned tensor": (gguf_bytes({}, [tensor("x", offset=4)]), BadModelFile, "tensor x: offset 4"),
    "tensor past the end": (
        gguf_bytes({}, [tensor("x", offset=1 << 40)]),
        BadModelFile,
        "past the file's end",
    ),
    "offset that overflows": (
        gguf_bytes({}, [tensor("x", offset=(1 << 64) - 32)]),
        BadModelFile,
        "past the file's end",
    ),
    "overlapping tensors": (
        gguf_bytes({}, [tensor("x", (16,)), tensor("y", (16,), offset=32)]),
        BadModelFile,
        "overlaps tensor x",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_wrong_file_is_refused_by_name(tmp_path: Path, case: str) -> None:
    content, kind, problem = REFUSED[case]

    error = refusal(tmp_path / "wrong.gguf", content)

    assert type(error) is kind
    assert pytest.raises(kind, match=problem).matches(error)


def test_duplicate_keys_are_refused(tmp_path: Path) -> None:
    content = gguf_bytes({"a": 1, "b": 2})
    twice = content.replace(struct.pack("<Q", 1) + b"b", struct.pack("<Q", 1) + b"a")

    assert "key a: occurs twice" in str(refusal(tmp_path / "a.gguf", twice))


def test_unknown_value_types_are_refused(tmp_path: Path) -> None:
    content = gguf_bytes({"k": 1}).replace(struct.pack("<Q", 1) + b"k\x04", struct.pack("<Q", 1) + b"k\x63")

    assert "unknown value type 99" in str(refusal(tmp_path / "a.gguf", content))


def test_an_array_longer_than_the_file_is_refused_before_it_is_allocated(tmp_path: Path) -> None:
    for inner in (ValueType.FLOAT64, ValueType.STRING, ValueType.BOOL, ValueType.ARRAY):
        pair = struct.pack("<Q", 1) + b"k" + struct.pack("<IIQ", ValueType.ARRAY, inner, 1 << 61)
        content = b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + pair

        assert "key k" in str(refusal(tmp_path / "a.gguf", content))


def test_arrays_nested_too_deep_are_refused(tmp_path: Path) -> None:
    nested = struct.pack("<IQ", ValueType.ARRAY, 1) * 100_000
    pair = struct.pack("<Q", 1) + b"k" + struct.pack("<I", ValueType.ARRAY) + nested
    content = b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + pair

    assert "nests arrays" in str(refusal(tmp_path / "a.gguf", content))


def test_an_array_made_to_waste_time_is_refused(tmp_path: Path) -> None:
    count = 4_000_000
    pair = struct.pack("<Q", 1) + b"k" + struct.pack("<IIQ", ValueType.ARRAY, ValueType.STRING, count)
    content = b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + pair + bytes(8 * count)

    assert "entries of all arrays" in str(refusal(tmp_path / "a.gguf", content))


def test_a_truncated_model_is_refused_at_any_length(tmp_path: Path) -> None:
    content = write_tiny_model(tmp_path / "whole.gguf", "qwen3moe", GGMLType.Q4_0).read_bytes()
    lengths = np.random.default_rng(0).integers(0, len(content) - 1, 200)

    for length in lengths:
        refusal(tmp_path / "cut.gguf", content[:length])


def test_a_path_that_is_no_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadModelFile, match="does not exist"):
        open_gguf(tmp_path / "absent.gguf")
    with pytest.raises(BadModelFile, match="is a directory"):
        open_gguf(tmp_path)


def test_a_vocabulary_of_a_quarter_million_is_read_in_half_a_second(tmp_path: Path) -> None:
    metadata = {"tokens": [f"token {index}" for index in range(262_144)]}
    path = write_gguf(tmp_path / "a.gguf", metadata)
    started = time.process_time()

    file = open_gguf(path)

    assert time.process_time() - started < 0.5
    assert file.metadata.strings("tokens")[-1] == "token 262143"


def mutated(content: bytes, header: int, rng: np.random.Generator) -> bytes:
    """Change a few bytes of the header, or put a number with extreme bits there, or cut the file."""
    damaged = bytearray(content)
    for _ in range(int(rng.integers(1, 5))):
        at = int(rng.integers(4, header - 8))
        match int(rng.integers(4)):
            case 0:
                damaged[at] = int(rng.integers(256))
            case 1:
                damaged[at] ^= 1 << int(rng.integers(8))
            case 2:
                extreme = (0, 1, 2**31, 2**32 - 1, 2**63 - 1, 2**63, 2**64 - 1)[int(rng.integers(7))]
                damaged[at : at + 8] = struct.pack("<Q", extreme)
            case _:
                other = int(rng.integers(4, header - 8))
                damaged[at : at + 8] = damaged[other : other + 8]
    cut = int(rng.integers(len(damaged))) if rng.integers(10) == 0 else len(damaged)
    return bytes(damaged[:cut])


def test_ten_thousand_mutated_headers_neither_crash_nor_hang(tmp_path: Path) -> None:
    # A short header, so that most changes hit a count, a type or an offset rather than a token's text.
    metadata = {key: value for key, value in tiny_model().metadata.items() if "tokenizer" not in key}
    metadata |= {
        "tokens": ["a", "bc", "def"],
        "nested": [[1, 2], [3]],
        "flags": [True],
        "general.alignment": 32,
    }
    tensors = [tensor(f"blk.{index}.x", (2, 32), kind=kind) for index, kind in enumerate((F32, GGMLType.F16))]
    content = gguf_bytes(metadata, tensors)
    header = len(content) - sum(len(part.data) for part in tensors)
    rng = np.random.default_rng(20261201)
    path = tmp_path / "mutated.gguf"
    path.write_bytes(content)
    outcomes = {"opened": 0, "refused": 0}
    slowest = 0.0

    for _ in range(10_000):
        with path.open("r+b") as file:  # in place: some file systems write through what replaces a file
            file.truncate(file.write(mutated(content, header, rng)))
        started = time.process_time()
        try:
            opened: GGUFFile = open_gguf(path)
            opened.close()
            outcomes["opened"] += 1
        except (BadModelFile, UnsupportedModel):
            outcomes["refused"] += 1
        slowest = max(slowest, time.process_time() - started)

    assert sum(outcomes.values()) == 10_000
    assert outcomes["refused"] > 1_000
    assert outcomes["opened"] > 1_000
    assert slowest < 1.0
