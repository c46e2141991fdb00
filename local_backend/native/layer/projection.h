// Single matrix products outside a layer: rows of the embedding, the output head, any matrix by itself.
#pragma once

#include <cstdint>
#include <span>

#include "layer/runtime.h"

namespace roundhouse {

// out[t] = row tokens[t] of the matrix, as floats.
void embed(Runtime& runtime, const Matrix& matrix, std::span<const std::int32_t> tokens, float* out);

// out[tokens][rows] = inputs[tokens][columns] times the matrix; inputs are rounded to the runtime's precision
// for quantised types.
void multiply(Runtime& runtime, const Matrix& matrix, const float* inputs, std::size_t tokens, float* out);

// The same after RMSNorm of every input row.
void norm_and_multiply(Runtime& runtime, const Matrix& matrix, const float* inputs, std::size_t tokens,
                       std::span<const float> norm, float epsilon, float* out);

}  // namespace roundhouse
