"""The native module must be there for these tests; where it is not, they say how to get it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from local_backend.kernels.native import InstructionSet, NativeKernels

MakeKernels = Callable[..., NativeKernels]


@pytest.fixture
def make_kernels() -> Iterator[MakeKernels]:
    """Make kernels of an instruction set, closed after the test; skips a set the machine lacks."""
    native = pytest.importorskip("local_backend._native", reason="build the package: python3 bootstrap.py")
    made: list[NativeKernels] = []

    def make(isa: InstructionSet = "", threads: int = 2) -> NativeKernels:
        if isa and isa not in native.available_sets():
            pytest.skip(f"this machine has no {isa}")
        made.append(NativeKernels(isa, threads))
        return made[-1]

    yield make
    for kernels in made:
        kernels.close()
