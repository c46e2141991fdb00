#include "layer/projection.h"

#include <algorithm>

namespace roundhouse {

namespace {

template <class Prepare>
void project(Runtime& runtime, const Matrix& matrix, std::size_t tokens, float* out, Prepare&& prepare) {
  const std::lock_guard lock(runtime.in_use);
  runtime.normed.reserve(tokens, matrix.columns);
  runtime.reserve_strips(matrix.columns);
  runtime.pool.run([&](const Team& team) {
    team.for_each(tokens, [&](std::size_t token) {
      prepare(token, runtime.normed.values(token));
      runtime.normed.quantise(runtime.kernels, token);
    });
    const std::span rows(runtime.normed.rows(), tokens);
    team.for_each(strip_count(matrix.rows), [&](std::size_t strip) {
      multiply_strip(runtime.kernels, matrix, strip, rows, runtime.scratch[team.worker()],
                     [&](std::size_t token, std::size_t first_row, std::span<const float> results) {
                       std::copy(results.begin(), results.end(), out + token * matrix.rows + first_row);
                     });
    });
  });
}

}  // namespace

void embed(Runtime& runtime, const Matrix& matrix, std::span<const std::int32_t> tokens, float* out) {
  const BlockKernels& block = runtime.kernels.blocks[static_cast<std::size_t>(matrix.type)];
  for (std::size_t t = 0; t < tokens.size(); ++t) {
    block.dequantise(matrix.row(static_cast<std::size_t>(tokens[t])), out + t * matrix.columns, matrix.columns);
  }
}

void multiply(Runtime& runtime, const Matrix& matrix, const float* inputs, std::size_t tokens, float* out) {
  project(runtime, matrix, tokens, out,
          [&](std::size_t token, float* row) { std::copy_n(inputs + token * matrix.columns, matrix.columns, row); });
}

void norm_and_multiply(Runtime& runtime, const Matrix& matrix, const float* inputs, std::size_t tokens,
                       std::span<const float> norm, float epsilon, float* out) {
  project(runtime, matrix, tokens, out, [&](std::size_t token, float* row) {
    runtime.kernels.rms_norm(inputs + token * matrix.columns, norm.data(), epsilon, row, matrix.columns);
  });
}

}  // namespace roundhouse
