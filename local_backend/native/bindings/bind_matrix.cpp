#include <nanobind/stl/string.h>

#include "bindings/checks.h"

namespace roundhouse::bindings {

namespace {

bool known(std::uint32_t type) {
  return type < block_type_limit && layout_of(static_cast<BlockType>(type)).elements != 0;
}

void construct(BoundMatrix* self, std::uint32_t type, std::size_t experts, std::size_t rows, std::size_t columns,
               Bytes data) {
  require(known(type), "block type " + std::to_string(type) + " is not computed with");
  require(experts != 0 && rows != 0 && columns != 0, "a matrix needs experts, rows and columns above zero");
  constexpr std::size_t limit = std::size_t{1} << 40;
  require(experts < limit && rows < limit && columns < limit && experts * rows < limit,
          "a matrix of " + std::to_string(experts) + " x " + shape_text(rows, columns) + " is too large");
  const BlockLayout layout = layout_of(static_cast<BlockType>(type));
  require(columns % layout.elements == 0,
          std::to_string(columns) + " columns are no whole number of blocks of " + std::to_string(layout.elements));
  const std::size_t row_bytes = columns / layout.elements * layout.bytes;
  require(row_bytes < limit && data.size() / row_bytes >= experts * rows && data.size() == experts * rows * row_bytes,
          std::to_string(data.size()) + " bytes given, " + std::to_string(experts) + " x " +
              shape_text(rows, columns) + " of this type has rows of " + std::to_string(row_bytes) + " bytes");
  require(reinterpret_cast<std::uintptr_t>(data.data()) % 4 == 0, "weights must start at a multiple of 4 bytes");
  Matrix matrix;
  matrix.type = static_cast<BlockType>(type);
  matrix.experts = experts;
  matrix.rows = rows;
  matrix.columns = columns;
  matrix.bytes = std::as_bytes(std::span(data.data(), data.size()));
  new (self) BoundMatrix{matrix, std::move(data)};
}

}  // namespace

void bind_matrix(nb::module_& module) {
  module.def("supports", &known, nb::arg("kind"), "Whether matrices of this GGUF block type can be computed with.");
  nb::class_<BoundMatrix>(module, "Matrix", "A weight matrix, or a stack of experts', over bytes it keeps alive.")
      .def("__init__", &construct, nb::arg("kind"), nb::arg("experts"), nb::arg("rows"), nb::arg("columns"),
           nb::arg("data").noconvert())
      .def_prop_ro("rows", [](const BoundMatrix& self) { return self.matrix.rows; })
      .def_prop_ro("columns", [](const BoundMatrix& self) { return self.matrix.columns; })
      .def_prop_ro("experts", [](const BoundMatrix& self) { return self.matrix.experts; });
}

}  // namespace roundhouse::bindings
