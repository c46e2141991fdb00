// Checks at the border to Python, and the array types that cross it. A failed check raises ValueError.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <string>
#include <vector>

#include "matmul/matrix.h"

namespace roundhouse::bindings {

namespace nb = nanobind;

using Bytes = nb::ndarray<const std::uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Vector = nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using InputFloats = nb::ndarray<const float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Floats = nb::ndarray<float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using HalfBits = nb::ndarray<std::uint16_t, nb::ndim<3>, nb::c_contig, nb::device::cpu>;
using Tokens = nb::ndarray<const std::int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

// A matrix together with the Python buffer that owns its bytes.
struct BoundMatrix {
  Matrix matrix;
  Bytes keep_alive;
};

inline void require(bool condition, const std::string& message) {
  if (!condition) {
    throw nb::value_error(message.c_str());
  }
}

inline std::string shape_text(std::size_t rows, std::size_t columns) {
  return "[" + std::to_string(rows) + ", " + std::to_string(columns) + "]";
}

void bind_matrix(nb::module_& module);
void bind_runtime(nb::module_& module);
void bind_layer(nb::module_& module);

}  // namespace roundhouse::bindings
