"""The table of block types against the ``gguf`` package's."""

from __future__ import annotations

import gguf
import pytest

from local_backend.gguf.format import GGMLType

# The package counts two float32 in a Q8_1 block; ggml has two float16 since 2024. It does not know Q2_0 yet.
DIFFERENT = {GGMLType.Q8_1, GGMLType.Q2_0}


@pytest.mark.parametrize("kind", sorted(set(GGMLType) - DIFFERENT), ids=lambda kind: kind.name)
def test_names_and_sizes_are_those_of_the_format(kind: GGMLType) -> None:
    other = gguf.GGMLQuantizationType(kind.value)

    assert other.name == kind.name
    assert gguf.GGML_QUANT_SIZES[other] == (kind.block_elements, kind.block_bytes)


def test_every_type_of_the_format_has_a_name() -> None:
    assert {other.value for other in gguf.GGMLQuantizationType} <= {kind.value for kind in GGMLType}
