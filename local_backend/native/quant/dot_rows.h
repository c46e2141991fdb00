// Runs one type's dot over consecutive rows, so that a call and its set-up are paid once a strip.
// Included once per instruction set, like quant/unpack.h.
#pragma once

#include "quant/kernels.h"
#include "vector/prefetch.h"

namespace roundhouse {

// How far ahead of use a row's bytes are asked for; about the time of one access to memory.
inline constexpr std::size_t prefetch_bytes = 3072;

template <class Isa, std::size_t BlockElements, std::size_t BlockBytes, auto Dot>
static void each_row(const std::byte* row, std::size_t rows, const ActivationRow& activation, std::size_t columns,
                     UnpackedRow scratch, float* out) {
  const std::size_t row_bytes = columns / BlockElements * BlockBytes;
  const ActivationRow x = activation;
  for (std::size_t r = 0; r < rows; ++r, row += row_bytes) {
    prefetch<Isa>(row + prefetch_bytes, row_bytes);
    out[r] = Dot(row, x, columns, scratch);
  }
}

// Dot serves 8-bit activations, FineDot 16-bit ones: both read and unpack a weight once.
template <class Isa, std::size_t BlockElements, std::size_t BlockBytes, auto Dot, auto FineDot>
static void dot_rows(const std::byte* row, std::size_t rows, const ActivationRow& x, std::size_t columns,
                     UnpackedRow scratch, float* out) {
  if (x.low == nullptr) {
    each_row<Isa, BlockElements, BlockBytes, Dot>(row, rows, x, columns, scratch, out);
  } else {
    each_row<Isa, BlockElements, BlockBytes, FineDot>(row, rows, x, columns, scratch, out);
  }
}

template <class Isa, class Block, auto Dot, auto FineDot>
static constexpr auto small_rows() {
  return dot_rows<Isa, small_block, sizeof(Block), Dot, FineDot>;
}

template <class Isa, class Block, auto Dot, auto FineDot>
static constexpr auto super_rows() {
  return dot_rows<Isa, super_block, sizeof(Block), Dot, FineDot>;
}

}  // namespace roundhouse
