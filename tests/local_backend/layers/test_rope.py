from __future__ import annotations

import math

import numpy as np
import pytest

from local_backend.layers.rope import rotary_table, rotate
from local_backend.model.specification import RopeSpecification, RopeStyle


def complex_rotation(pair: tuple[float, float], angle: float) -> tuple[float, float]:
    turned = complex(*pair) * complex(math.cos(angle), math.sin(angle))
    return turned.real, turned.imag


def test_normal_rotates_neighbours_by_position_times_frequency() -> None:
    specification = RopeSpecification(RopeStyle.NORMAL, dimensions=4, theta=100.0)
    x = np.arange(1, 9, dtype=np.float32).reshape(2, 1, 4)

    rotated = rotate(x, 3, rotary_table(specification))

    for row, position in enumerate((3, 4)):
        for pair, frequency in enumerate((1.0, 0.1)):
            before = tuple(float(v) for v in x[row, 0, 2 * pair : 2 * pair + 2])
            expected = complex_rotation((before[0], before[1]), position * frequency)
            assert rotated[row, 0, 2 * pair : 2 * pair + 2] == pytest.approx(expected, rel=1e-5)


def test_neox_rotates_halves() -> None:
    specification = RopeSpecification(RopeStyle.NEOX, dimensions=4, theta=100.0)
    x = np.arange(1, 5, dtype=np.float32).reshape(1, 1, 4)

    rotated = rotate(x, 7, rotary_table(specification))[0, 0]

    assert (rotated[0], rotated[2]) == pytest.approx(complex_rotation((1.0, 3.0), 7.0), rel=1e-5)
    assert (rotated[1], rotated[3]) == pytest.approx(complex_rotation((2.0, 4.0), 0.7), rel=1e-5)


def test_neox_is_normal_on_interleaved_elements() -> None:
    x = np.random.default_rng(1).normal(size=(5, 3, 8)).astype(np.float32)
    order = [0, 4, 1, 5, 2, 6, 3, 7]
    neox = rotate(x, 2, rotary_table(RopeSpecification(RopeStyle.NEOX, 8, 10000.0)))
    normal = rotate(
        np.ascontiguousarray(x[..., order]), 2, rotary_table(RopeSpecification(RopeStyle.NORMAL, 8, 10000.0))
    )

    np.testing.assert_allclose(neox[..., order], normal, rtol=1e-6)


def test_position_zero_and_elements_past_the_rotated_ones_stay() -> None:
    x = np.random.default_rng(1).normal(size=(2, 1, 6)).astype(np.float32)

    rotated = rotate(x, 0, rotary_table(RopeSpecification(RopeStyle.NEOX, 4, 10000.0)))

    np.testing.assert_array_equal(rotated[0], x[0])
    np.testing.assert_array_equal(rotated[1, :, 4:], x[1, :, 4:])


def test_scores_depend_on_the_distance_only() -> None:
    rng = np.random.default_rng(2)
    query, key = rng.normal(size=(2, 1, 1, 64)).astype(np.float32)
    table = rotary_table(RopeSpecification(RopeStyle.NORMAL, 64, 10000.0))

    def score(at: int, distance: int) -> float:
        return float(np.sum(rotate(query, at + distance, table) * rotate(key, at, table)))

    assert score(0, 5) == pytest.approx(score(100, 5), abs=1e-3)


def test_linear_scaling_divides_positions() -> None:
    x = np.random.default_rng(3).normal(size=(1, 2, 8)).astype(np.float32)
    scaled = rotate(x, 12, rotary_table(RopeSpecification(RopeStyle.NORMAL, 8, 10000.0, scaling_factor=4.0)))
    plain = rotate(x, 3, rotary_table(RopeSpecification(RopeStyle.NORMAL, 8, 10000.0)))

    np.testing.assert_allclose(scaled, plain, rtol=1e-6)


def test_divisors_slow_single_pairs() -> None:
    specification = RopeSpecification(RopeStyle.NORMAL, 4, 100.0)
    table = rotary_table(specification, np.array([1.0, 8.0], dtype=np.float32))

    np.testing.assert_allclose(table.step, [1.0, 0.1 / 8.0])


def test_yarn_keeps_fast_pairs_stretches_slow_ones_and_raises_the_magnitude() -> None:
    specification = RopeSpecification(
        RopeStyle.NEOX, 128, 10000.0, scaling_factor=4.0, yarn_original_context=4096
    )
    table = rotary_table(specification)
    plain = 10000.0 ** -(np.arange(64) / 64)

    # The published ramp for these settings begins at pair 20 and ends at pair 46.
    np.testing.assert_allclose(table.step[:21], plain[:21])
    np.testing.assert_allclose(table.step[46:], plain[46:] / 4.0)
    middle = (33 - 20) / (46 - 20)
    assert table.step[33] == pytest.approx(plain[33] * (1 - middle) + plain[33] / 4.0 * middle)
    assert table.magnitude == pytest.approx(1.0 + 0.1 * math.log(4.0))
