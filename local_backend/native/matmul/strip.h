// A strip: 32 consecutive rows of a matrix times some tokens, the unit of work of every matrix product.
// Few tokens: each row's dot straight from the file's bytes. Many: the strip is unpacked once, then reused.
// Results do not depend on who computes a strip or on what other tokens stand beside one.
#pragma once

#include <algorithm>
#include <array>
#include <span>

#include "matmul/activations.h"
#include "matmul/matrix.h"

namespace roundhouse {

inline constexpr std::size_t strip_rows = 32;
// Up to so many tokens the rows are multiplied in place. A constant: results must not depend on the machine.
inline constexpr std::size_t in_place_tokens = 3;
inline constexpr std::size_t tile_tokens = 64;

// Where one worker unpacks one strip.
class StripScratch {
 public:
  void reserve(std::size_t columns);

 private:
  friend class WeightStrip;
  Buffer<std::uint8_t> quants_;
  Buffer<float> scale_;
  Buffer<float> minimum_;
  Buffer<std::uint8_t> row_quants_;
  Buffer<float> row_scale_;
  Buffer<float> row_minimum_;
};

class WeightStrip {
 public:
  // The strip that starts at `first_row` (fewer than 32 rows at the matrix's end), made ready for `tokens`
  // tokens in all.
  WeightStrip(const Kernels& kernels, const Matrix& matrix, std::size_t first_row, std::size_t tokens,
              StripScratch& scratch);

  std::size_t rows() const { return rows_; }

  // out[token * strip_rows + row]
  void multiply(std::span<const ActivationRow> tokens, float* out) const;

 private:
  void unpack() const;
  void multiply_in_place(std::span<const ActivationRow> tokens, float* out) const;

  const Kernels& kernels_;
  const BlockKernels& block_;
  const Matrix& matrix_;
  StripScratch& scratch_;
  std::size_t first_row_;
  std::size_t rows_;
  bool in_place_;
};

inline std::size_t strip_count(std::size_t rows) { return (rows + strip_rows - 1) / strip_rows; }

// What each worker needs for itself.
struct WorkerScratch {
  StripScratch first;
  StripScratch second;
  alignas(64) std::array<float, tile_tokens * strip_rows> out_first;
  alignas(64) std::array<float, tile_tokens * strip_rows> out_second;
  Buffer<float> attention;
};

// Calls emit(token, first_row, span of the strip's results) for every token.
template <class Emit>
void multiply_strip(const Kernels& kernels, const Matrix& matrix, std::size_t strip,
                    std::span<const ActivationRow> tokens, WorkerScratch& scratch, Emit&& emit) {
  const std::size_t first_row = strip * strip_rows;
  const WeightStrip weights(kernels, matrix, first_row, tokens.size(), scratch.first);
  for (std::size_t begin = 0; begin < tokens.size(); begin += tile_tokens) {
    const auto tile = tokens.subspan(begin, std::min(tile_tokens, tokens.size() - begin));
    weights.multiply(tile, scratch.out_first.data());
    for (std::size_t t = 0; t < tile.size(); ++t) {
      emit(begin + t, first_row, std::span<const float>(scratch.out_first.data() + t * strip_rows, weights.rows()));
    }
  }
}

}  // namespace roundhouse
