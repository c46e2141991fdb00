"""What a model needs, and whether it fits."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from local_backend.gguf.format import GGMLType
from local_backend.model.loader import ModelFile, open_model
from local_backend.plan.footprint import measure
from local_backend.plan.hardware import HardwareProfile
from local_backend.plan.ledger import Ledger, Tier
from local_backend.plan.placement import DoesNotFit, PlacementPlan
from local_backend.plan.planner import SMALLEST_CONTEXT, plan
from tests.local_backend import tiny_gguf
from tests.local_backend.tiny_gguf import Tensor, quantize, tiny_model, write_tiny_model

MIB = 1 << 20
GIB = 1 << 30
ROOMY = HardwareProfile(
    total_bytes=16 * GIB,
    available_bytes=12 * GIB,
    limit_bytes=None,
    limit_left_bytes=None,
    swap_bytes=0,
    cores=2,
    machine="x86_64",
    instruction_sets=("avx2",),
    memory_source="a test",
)


@pytest.fixture
def mixture(tmp_path: Path) -> ModelFile:
    return open_model(write_tiny_model(tmp_path / "m.gguf", "qwen3moe", GGMLType.Q8_0, tied=False))


def test_every_byte_of_the_weights_is_in_the_footprint(mixture: ModelFile) -> None:
    footprint = measure(mixture.specification, mixture.weights, 32)

    assert footprint.weight_bytes == sum(tensor.size for tensor in mixture.archive.tensors.values())
    assert footprint.embedding_bytes == footprint.head_bytes == 271 * 2 * 34
    (group,) = footprint.experts
    assert (group.layers, group.experts, group.used) == ((0, 1), 4, 2)
    assert group.bytes_per_expert == 3 * 64 * 2 * 34


def test_a_tied_head_is_not_counted_twice(tmp_path: Path) -> None:
    model = open_model(write_tiny_model(tmp_path / "m.gguf", "llama", GGMLType.Q4_0))

    footprint = measure(model.specification, model.weights, 32)

    assert footprint.head_bytes == 0
    assert footprint.experts == ()
    assert footprint.weight_bytes == sum(tensor.size for tensor in model.archive.tensors.values())


def test_layers_whose_experts_differ_in_size_are_listed_apart(tmp_path: Path) -> None:
    parts = tiny_model("llama-moe", GGMLType.Q4_0)
    at = parts.index("blk.1.ffn_down_exps.weight")
    wide = parts.tensors[at]
    values = [0.5] * (4 * 64 * 64)
    parts.tensors[at] = Tensor(wide.name, GGMLType.Q8_0, wide.shape, quantize(GGMLType.Q8_0, values))
    model = open_model(parts.write(tmp_path / "m.gguf"))

    first, second = measure(model.specification, model.weights, 32).experts

    assert first.layers == (0,)
    assert second.layers == (1,)
    assert second.bytes_per_expert - first.bytes_per_expert == 64 * 2 * (34 - 18)


def test_the_cache_of_a_token_is_keys_and_values_of_all_layers(mixture: ModelFile) -> None:
    footprint = measure(mixture.specification, mixture.weights, 32)
    heads, dimension = tiny_gguf.KV_HEADS, 2 * tiny_gguf.HIDDEN // tiny_gguf.HEADS

    assert footprint.kv_bytes_per_token == tiny_gguf.LAYERS * heads * 2 * dimension * 2


def test_a_longer_chunk_needs_more_scratch(mixture: ModelFile) -> None:
    small = measure(mixture.specification, mixture.weights, 32).scratch_bytes
    large = measure(mixture.specification, mixture.weights, 512).scratch_bytes

    assert large > 8 * small


def test_a_model_that_fits_goes_to_ram_with_the_sum_of_its_ledger(mixture: ModelFile) -> None:
    found = plan(mixture.specification, mixture.weights, ROOMY, 1024)

    assert isinstance(found, PlacementPlan)
    assert {placement.tier for placement in found.placements} == {Tier.HOST}
    assert sum(placement.bytes for placement in found.placements) == found.ledger.total
    assert found.spare_bytes == 12 * GIB - 512 * MIB - found.ledger.total
    assert "fits" in found.to_text()


def test_a_plan_survives_json(mixture: ModelFile) -> None:
    found = plan(mixture.specification, mixture.weights, ROOMY, 1024)

    assert isinstance(found, PlacementPlan)
    assert PlacementPlan.from_json(found.to_json()) == found
    assert json.loads(found.to_json())["fits"] is True
    assert Ledger.from_json(found.ledger.to_json()) == found.ledger


def room_for(model: ModelFile, context: int, short_by: int = 0) -> HardwareProfile:
    """Return a machine on which exactly this context fits, or is short by some bytes."""
    needed = measure(model.specification, model.weights, 256).ledger(context).total
    return replace(ROOMY, total_bytes=GIB, available_bytes=needed + 256 * MIB - short_by)


@pytest.mark.parametrize(
    ("short_by", "fits"),
    [(0, True), (-1, True), (1, False)],
    ids=["exactly", "a byte to spare", "a byte short"],
)
def test_the_boundary_is_exact(mixture: ModelFile, short_by: int, fits: bool) -> None:
    found = plan(mixture.specification, mixture.weights, room_for(mixture, 4096, short_by), 4096)

    assert isinstance(found, PlacementPlan) is fits


def test_a_context_too_long_is_refused_with_the_largest_that_fits(mixture: ModelFile) -> None:
    hardware = room_for(mixture, 4096)

    found = plan(mixture.specification, mixture.weights, hardware, 1 << 20)

    assert isinstance(found, DoesNotFit)
    assert found.fitting_context == 4096
    assert found.missing_bytes == ((1 << 20) - 4096) * 512
    assert "--context 4096" in found.remedy
    assert isinstance(
        plan(mixture.specification, mixture.weights, hardware, found.fitting_context), PlacementPlan
    )


def test_a_model_too_large_for_any_context_is_told_what_would_do(mixture: ModelFile) -> None:
    hardware = room_for(mixture, SMALLEST_CONTEXT, short_by=100_000)

    found = plan(mixture.specification, mixture.weights, hardware, 4096)

    assert isinstance(found, DoesNotFit)
    assert found.fitting_context is None
    assert "free 97.7 KiB of memory" in found.remedy
    assert "% of this one's weights" in found.remedy
    assert json.loads(found.to_json())["fits"] is False
    assert "does not fit" in found.to_text()


def test_a_machine_smaller_than_the_process_is_told_so(mixture: ModelFile) -> None:
    hardware = replace(ROOMY, total_bytes=GIB, available_bytes=260 * MIB)

    found = plan(mixture.specification, mixture.weights, hardware, 4096)

    assert isinstance(found, DoesNotFit)
    assert "No version of this model fits" in found.remedy


def test_a_limit_counts_even_where_memory_is_free(mixture: ModelFile) -> None:
    hardware = replace(ROOMY, limit_bytes=300 * MIB, limit_left_bytes=280 * MIB)

    assert isinstance(plan(mixture.specification, mixture.weights, hardware, 1024), DoesNotFit)
