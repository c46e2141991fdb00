"""The native module must be there for these tests; where it is not, they say how to get it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.util import find_spec

import pytest

from local_backend.kernels.native import InstructionSet, NativeKernels, available_sets
from local_backend.kernels.precision import ActivationBits, Precision
from tests.availability import need

MakeKernels = Callable[..., NativeKernels]


@pytest.fixture
def make_kernels() -> Iterator[MakeKernels]:
    """Make kernels of an instruction set, closed after the test; skips a set the machine lacks."""
    built = find_spec("local_backend._native") is not None
    need("the native module", built, "build the package: python3 bootstrap.py does")
    made: list[NativeKernels] = []

    def make(isa: InstructionSet = "", threads: int = 2, bits: ActivationBits = 8) -> NativeKernels:
        if isa and isa not in available_sets():
            pytest.skip(f"this machine has no {isa}")
        made.append(NativeKernels(isa, threads, Precision(bits)))
        return made[-1]

    yield make
    for kernels in made:
        kernels.close()
