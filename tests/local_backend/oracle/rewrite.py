"""Rewrite a dense llama-family file so that it computes the same sums in another way.

``as_float32`` writes every matrix out in float32. Rounding activations to 8 bits, as engines do with
quantised weights, makes greedy answers depend on the last bit of every sum; with float32 weights two right
implementations agree closely, so this is the file on which they are held against each other strictly.

``as_experts`` cuts each feed-forward of width W into E experts of width W/E, all used with equal weights 1/E
(a gating of zeros, softmax over all), every down projection scaled by E. E is a power of two, so that the
scales of quantised blocks stay exact in float16. Weights are cut between blocks, never requantised.

    python -m tests.local_backend.oracle.rewrite float32 SmolLM2-135M-Instruct.Q4_1.gguf out.gguf
    python -m tests.local_backend.oracle.rewrite experts SmolLM2-135M-Instruct.Q4_1.gguf out.gguf
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from local_backend.gguf.dequantize import dequantize
from local_backend.gguf.format import GGMLType
from local_backend.gguf.reader import GGUFFile, TensorInfo, open_gguf
from tests.local_backend.tiny_gguf import Tensor, Typed, write_gguf

# How many float16 numbers stand at the head of a block and scale all of it.
# (Float32 weights are scaled themselves.)
_SCALES = {GGMLType.Q4_1: 2, GGMLType.Q5_1: 2, GGMLType.Q8_0: 1, GGMLType.Q4_0: 1, GGMLType.Q5_0: 1}


def as_float32(source: Path, target: Path) -> Path:
    """Write ``source`` to ``target`` with every tensor in float32."""
    file = open_gguf(source)
    metadata = {key: _typed(file.metadata.raw(key)) for key in file.metadata} | {"general.file_type": 0}
    tensors = [
        Tensor(
            info.name,
            GGMLType.F32,
            info.shape,
            dequantize(info.type, file.data(info.name), info.shape).astype("<f4").tobytes(),
        )
        for info in file.tensors.values()
    ]
    write_gguf(target, metadata, tensors)
    file.close()
    return target


def as_experts(source: Path, target: Path, experts: int = 8) -> Path:
    """Write ``source`` to ``target`` with ``experts`` experts in every layer."""
    if experts & (experts - 1):
        raise ValueError("the number of experts must be a power of two, so that scaling is exact")
    file = open_gguf(source)
    metadata: dict[str, Any] = {}
    for key in file.metadata:
        metadata[key] = file.metadata.raw(key)
    width = int(metadata["llama.feed_forward_length"])
    metadata |= {
        "llama.feed_forward_length": width // experts,
        "llama.expert_count": experts,
        "llama.expert_used_count": experts,
    }
    tensors = [new for info in file.tensors.values() for new in _rewritten(file, info, experts, metadata)]
    write_gguf(target, {key: _typed(value) for key, value in metadata.items()}, tensors)
    file.close()
    return target


def _typed(value: Any) -> Any:
    """Keep arrays as lists; numbers are written with the types that readers expect."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    return value if isinstance(value, (str, bool, int, float, Typed)) else list(value)


def _rewritten(file: GGUFFile, info: TensorInfo, experts: int, metadata: dict[str, Any]) -> list[Tensor]:
    data = file.data(info.name)
    layer, _, role = info.name.rpartition(".ffn_")
    if not layer or role not in {"gate.weight", "up.weight", "down.weight"}:
        return [Tensor(info.name, info.type, info.shape, data.tobytes())]
    rows, columns = info.shape
    if role != "down.weight":
        shape = (experts, rows // experts, columns)
        named = info.name.replace(".weight", "_exps.weight")
        return [Tensor(named, info.type, shape, data.tobytes())]
    hidden = int(metadata["llama.embedding_length"])
    gating = Tensor(
        f"{layer}.ffn_gate_inp.weight", GGMLType.F32, (experts, hidden), bytes(4 * experts * hidden)
    )
    cut = _cut_columns(data, info, experts)
    return [
        gating,
        Tensor(
            f"{layer}.ffn_down_exps.weight", info.type, (experts, rows, columns // experts), cut.tobytes()
        ),
    ]


def _cut_columns(data: NDArray[np.uint8], info: TensorInfo, experts: int) -> NDArray[np.uint8]:
    """Cut [R, C] into [E, R, C/E] at block borders, every block's scales multiplied by E."""
    rows, columns = info.shape
    elements, size = info.type.block_elements, info.type.block_bytes
    if columns % (experts * elements):
        raise ValueError(f"{info.name}: {columns} columns cannot be cut into {experts} at block borders")
    blocks = data.reshape(rows, experts, columns // experts // elements, size)
    cut = np.ascontiguousarray(blocks.transpose(1, 0, 2, 3))
    if info.type is GGMLType.F32:
        scaled: NDArray[np.uint8] = (cut.view("<f4") * np.float32(experts)).view(np.uint8)
        return scaled
    head = 2 * _SCALES[info.type]
    scales = np.ascontiguousarray(cut[..., :head]).view("<f2").astype(np.float32) * experts
    exact = scales.astype("<f2")
    if not np.array_equal(exact.astype(np.float32), scales):
        raise ValueError(f"{info.name}: a scale times {experts} is not exact in float16")
    cut[..., :head] = exact.view(np.uint8)
    return cut


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("how", choices=("float32", "experts"))
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    options = parser.parse_args()
    (as_float32 if options.how == "float32" else as_experts)(options.source, options.target)
