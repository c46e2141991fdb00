// The inputs of a matrix for T tokens: floats and their rounding to 8 or 16 bits, row by row.
#pragma once

#include "matmul/buffer.h"
#include "quant/kernels.h"

namespace roundhouse {

class Activations {
 public:
  explicit Activations(Precision precision) : precision_(precision) {}

  // Room for `tokens` rows of `columns`; call outside a parallel region.
  void reserve(std::size_t tokens, std::size_t columns) {
    if (columns == columns_ && tokens <= tokens_) {
      return;
    }
    tokens_ = tokens;
    columns_ = columns;
    // Whole super-blocks, so that kernels may read scales of eight blocks at once.
    padded_ = (columns + super_block - 1) / super_block * super_block;
    values_.reserve(tokens * padded_);
    high_.reserve(tokens * padded_);
    low_.reserve(fine() ? tokens * padded_ : 0);
    scale_.reserve(tokens * padded_ / 32);
    sum32_.reserve(tokens * padded_ / 32);
    sum16_.reserve(tokens * padded_ / 16);
    rows_.reserve(tokens);
    for (std::size_t t = 0; t < tokens; ++t) {
      const std::size_t block = t * padded_ / 32;
      rows_.data()[t] = {values(t),
                         high_.data() + block * 32,
                         low(block),
                         scale_.data() + block,
                         sum32_.data() + block,
                         sum16_.data() + block * 2};
      clear_tail(t);
    }
  }

  std::size_t columns() const { return columns_; }
  float* values(std::size_t token) { return values_.data() + token * padded_; }
  const ActivationRow* rows() const { return rows_.data(); }

  // Rounds the token's values `first .. first+count`; whole blocks of 32 only (a rest stays float only).
  void quantise(const Kernels& kernels, std::size_t token, std::size_t first, std::size_t count) {
    const std::size_t block = token * padded_ / 32 + first / 32;
    kernels.quantise(values(token) + first,
                     {high_.data() + block * 32, low(block), scale_.data() + block, sum32_.data() + block,
                      sum16_.data() + block * 2},
                     count);
  }
  void quantise(const Kernels& kernels, std::size_t token) { quantise(kernels, token, 0, columns_); }

 private:
  bool fine() const { return precision_ == Precision::sixteen_bits; }
  std::int8_t* low(std::size_t block) { return fine() ? low_.data() + block * 32 : nullptr; }

  void clear_tail(std::size_t token) {
    for (std::size_t i = token * padded_ + columns_; i < (token + 1) * padded_; ++i) {
      values_.data()[i] = 0.0f;
      high_.data()[i] = 0;
      if (fine()) {
        low_.data()[i] = 0;
      }
    }
    for (std::size_t b = (token * padded_ + columns_) / 32; b < (token + 1) * padded_ / 32; ++b) {
      scale_.data()[b] = 0.0f;
      sum32_.data()[b] = 0.0f;
      sum16_.data()[2 * b] = 0.0f;
      sum16_.data()[2 * b + 1] = 0.0f;
    }
  }

  Precision precision_;
  std::size_t tokens_ = 0;
  std::size_t columns_ = 0;
  std::size_t padded_ = 0;
  Buffer<float> values_;
  Buffer<std::int8_t> high_;
  Buffer<std::int8_t> low_;
  Buffer<float> scale_;
  Buffer<float> sum32_;
  Buffer<float> sum16_;
  Buffer<ActivationRow> rows_;
};

}  // namespace roundhouse
