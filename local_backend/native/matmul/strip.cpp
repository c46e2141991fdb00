#include "matmul/strip.h"

namespace roundhouse {

void StripScratch::reserve(std::size_t columns) {
  quants_.reserve(strip_rows * columns);
  scale_.reserve(strip_rows * columns / 16);
  minimum_.reserve(strip_rows * columns / 16);
  row_quants_.reserve(columns);
  row_scale_.reserve(columns / 16);
  row_minimum_.reserve(columns / 16);
}

WeightStrip::WeightStrip(const Kernels& kernels, const Matrix& matrix, std::size_t first_row, std::size_t tokens,
                         StripScratch& scratch)
    : kernels_(kernels),
      block_(kernels.blocks[static_cast<std::size_t>(matrix.type)]),
      matrix_(matrix),
      scratch_(scratch),
      first_row_(first_row),
      rows_(std::min(strip_rows, matrix.rows - first_row)),
      in_place_(tokens <= in_place_tokens || block_.group == 0) {
  if (!in_place_) {
    unpack();
  }
}

void WeightStrip::unpack() const {
  const std::size_t columns = matrix_.columns;
  const std::size_t panel_rows = kernels_.panel_rows;
  const std::size_t groups = columns / block_.group;
  const UnpackedRow row{scratch_.row_quants_.data(), scratch_.row_scale_.data(), scratch_.row_minimum_.data()};
  for (std::size_t r = 0; r < strip_rows; ++r) {
    const std::size_t p = r / panel_rows;
    if (p * panel_rows >= rows_) {
      break;
    }
    // Rows past the end repeat the last one: their results are not used.
    const std::size_t source = first_row_ + std::min(r, rows_ - 1);
    block_.unpack(matrix_.row(source), row, columns);
    const Panel panel{scratch_.quants_.data() + p * panel_rows * columns,
                      scratch_.scale_.data() + p * panel_rows * groups,
                      scratch_.minimum_.data() + p * panel_rows * groups,
                      columns,
                      block_.group,
                      block_.wide};
    kernels_.interleave(row, panel, r % panel_rows);
  }
}

void WeightStrip::multiply(std::span<const ActivationRow> tokens, float* out) const {
  if (in_place_) {
    multiply_in_place(tokens, out);
    return;
  }
  const std::size_t columns = matrix_.columns;
  const std::size_t panel_rows = kernels_.panel_rows;
  const std::size_t groups = columns / block_.group;
  for (std::size_t p = 0; p * panel_rows < rows_; ++p) {
    const Panel panel{scratch_.quants_.data() + p * panel_rows * columns,
                      scratch_.scale_.data() + p * panel_rows * groups,
                      scratch_.minimum_.data() + p * panel_rows * groups,
                      columns,
                      block_.group,
                      block_.wide};
    kernels_.multiply_panel(panel, tokens.data(), tokens.size(), out + p * panel_rows, strip_rows);
  }
}

void WeightStrip::multiply_in_place(std::span<const ActivationRow> tokens, float* out) const {
  const UnpackedRow row{scratch_.row_quants_.data(), scratch_.row_scale_.data(), scratch_.row_minimum_.data()};
  const std::byte* first = matrix_.row(first_row_);
  for (std::size_t t = 0; t < tokens.size(); ++t) {
    block_.dot_rows(first, rows_, tokens[t], matrix_.columns, row, out + t * strip_rows);
  }
}

}  // namespace roundhouse
