// A weight matrix as it lies in the file: a view, never a copy.
#pragma once

#include <cstddef>
#include <span>

#include "quant/kernels.h"

namespace roundhouse {

struct Matrix {
  BlockType type = BlockType::f32;
  std::size_t experts = 1;
  std::size_t rows = 0;
  std::size_t columns = 0;
  std::span<const std::byte> bytes;

  bool present() const { return rows != 0; }
  std::size_t row_bytes() const {
    const BlockLayout layout = layout_of(type);
    return columns / layout.elements * layout.bytes;
  }
  const std::byte* row(std::size_t index) const { return bytes.data() + index * row_bytes(); }
  Matrix expert(std::size_t index) const {
    Matrix one = *this;
    one.experts = 1;
    one.bytes = bytes.subspan(index * rows * row_bytes(), rows * row_bytes());
    return one;
  }
};

}  // namespace roundhouse
