// activation(gate_proj(x)) * up_proj(x) for one strip of inner rows, rounded while it is still in cache.
#pragma once

#include <span>

#include "matmul/strip.h"

namespace roundhouse {

struct GatedInner {
  const Matrix& gate_proj;
  const Matrix& up_proj;
  std::span<const float> gate_bias;  // [rows] or empty
  std::span<const float> up_bias;
  Activation activation;
};

// Token t's results become row first_slot + t of `inner`, columns of the strip. The strip's columns of `inner`
// are whole blocks of 32 but for the last strip's rest.
void compute_gated_strip(const Kernels& kernels, const GatedInner& inner, std::size_t strip,
                         std::span<const ActivationRow> tokens, WorkerScratch& scratch, Activations& out,
                         std::size_t first_slot);

}  // namespace roundhouse
