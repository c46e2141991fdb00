"""Speed of the native kernels, type by type: decode in GB/s of weights against what memory gives.

    python bench/kernels.py [--isa avx512] [--threads 2] [--types Q4_K,Q6_K] [--activations 16] [--json]

Decode reads every weight once, so its bound is the memory's; the matrices of one type together are larger
than the caches and are visited in turn. Prefill multiplies the same matrices with 256 tokens and is bound by
arithmetic: multiply-adds per second. Every figure is the median and the best of at least five runs.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

import numpy as np

from local_backend.gguf.format import GGMLType
from local_backend.kernels.native import NativeKernels
from local_backend.kernels.precision import Precision
from local_backend.model.weights import Weight

# Rows and columns of a layer's matrices in models of three sizes.
SHAPES = ((1536, 576), (2048, 2048), (4096, 4096))
TYPES = (
    GGMLType.F32,
    GGMLType.F16,
    GGMLType.BF16,
    GGMLType.Q8_0,
    GGMLType.Q4_0,
    GGMLType.Q4_1,
    GGMLType.Q5_0,
    GGMLType.Q5_1,
    GGMLType.Q4_K,
    GGMLType.Q5_K,
    GGMLType.Q6_K,
)
WORKING_SET = 192 << 20
PREFILL_TOKENS = 256
RUNS = 5


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table: decode in GB/s (median, best), its share of the read rate, prefill in G/s."""

    kind: str
    rows: int
    columns: int
    decode_gb_s: float
    decode_best_gb_s: float
    share_of_read: float
    prefill_gmac_s: float


def main() -> None:
    options = parse()
    kernels = NativeKernels(options.isa, options.threads, Precision(options.activations))
    read = read_rate(kernels)
    rows = [
        measure(kernels, kind, shape, read)
        for kind in TYPES
        if not options.types or kind.name in options.types.split(",")
        for shape in SHAPES
        if shape[1] % kind.block_elements == 0
    ]
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else float("nan")
    if options.json:
        conditions = {"kernels": kernels.description, "read_gb_s": read, "load": load, "runs": RUNS}
        print(json.dumps(conditions | {"rows": [asdict(row) for row in rows]}))
        return
    print(f"{kernels.description}; memory read {read:.1f} GB/s; load average {load:.2f}; median of {RUNS}")
    header = ("type", "rows x columns", "decode GB/s", "best", "of read", "prefill GMAC/s")
    print("{:6} {:>14} {:>12} {:>6} {:>8} {:>15}".format(*header))
    for row in rows:
        shape = f"{row.rows} x {row.columns}"
        print(
            f"{row.kind:6} {shape:>14} {row.decode_gb_s:12.1f} {row.decode_best_gb_s:6.1f} "
            f"{row.share_of_read:8.0%} {row.prefill_gmac_s:15.1f}"
        )


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Speed of the native kernels, type by type.")
    parser.add_argument("--isa", default="", choices=["", "scalar", "avx2", "avx512"])
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--types", default="", help="names of block types, separated by commas")
    parser.add_argument("--activations", type=int, default=8, choices=[8, 16], help="bits (default: 8)")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


def read_rate(kernels: NativeKernels) -> float:
    """GB/s of reading memory once, the best of several runs: the bound."""
    data = np.ones(WORKING_SET, dtype=np.uint8)
    return WORKING_SET / min(times(lambda: kernels.read(data))) / 1e9


def measure(kernels: NativeKernels, kind: GGMLType, shape: tuple[int, int], read: float) -> Row:
    matrices = working_set(kind, shape)
    rng = np.random.default_rng(0)
    one = rng.normal(size=(1, shape[1])).astype(np.float32)
    many = rng.normal(size=(PREFILL_TOKENS, shape[1])).astype(np.float32)

    def decode() -> None:
        for matrix in matrices:
            kernels.multiply(matrix, one)

    decode_times = times(decode)
    size = sum(matrix.data.nbytes for matrix in matrices)
    prefill = statistics.median(times(lambda: kernels.multiply(matrices[0], many)))
    rate = size / statistics.median(decode_times) / 1e9
    best = size / min(decode_times) / 1e9
    return Row(
        kind.name, *shape, rate, best, best / read, shape[0] * shape[1] * PREFILL_TOKENS / prefill / 1e9
    )


def working_set(kind: GGMLType, shape: tuple[int, int]) -> list[Weight]:
    """Matrices of one type over one large buffer of zeros with a bit set here and there."""
    size = shape[0] * shape[1] // kind.block_elements * kind.block_bytes
    count = max(1, WORKING_SET // size)
    data = np.full(count * size, 1, dtype=np.uint8)
    return [
        Weight(f"{kind.name} {index}", kind, shape, data[index * size : (index + 1) * size])
        for index in range(count)
    ]


def times(work: Callable[[], object]) -> list[float]:
    """Seconds of each of the runs, after one that warms up."""
    work()
    seconds = []
    for _ in range(RUNS):
        begin = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - begin)
    return seconds


if __name__ == "__main__":
    main()
