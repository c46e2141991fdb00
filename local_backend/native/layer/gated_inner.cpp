#include "layer/gated_inner.h"

namespace roundhouse {

void compute_gated_strip(const Kernels& kernels, const GatedInner& inner, std::size_t strip,
                         std::span<const ActivationRow> tokens, WorkerScratch& scratch, Activations& out,
                         std::size_t first_slot) {
  const std::size_t first_row = strip * strip_rows;
  const WeightStrip gate_strip(kernels, inner.gate_proj, first_row, tokens.size(), scratch.first);
  const WeightStrip up_strip(kernels, inner.up_proj, first_row, tokens.size(), scratch.second);
  for (std::size_t begin = 0; begin < tokens.size(); begin += tile_tokens) {
    const auto tile = tokens.subspan(begin, std::min(tile_tokens, tokens.size() - begin));
    gate_strip.multiply(tile, scratch.out_first.data());
    up_strip.multiply(tile, scratch.out_second.data());
    for (std::size_t t = 0; t < tile.size(); ++t) {
      float* gated = scratch.out_first.data() + t * strip_rows;
      float* linear = scratch.out_second.data() + t * strip_rows;
      for (std::size_t r = 0; r < inner.gate_bias.size() && r < gate_strip.rows(); ++r) {
        gated[r] += inner.gate_bias[first_row + r];
        linear[r] += inner.up_bias[first_row + r];
      }
      kernels.activate(inner.activation, gated, linear, gate_strip.rows());
      const std::size_t slot = first_slot + begin + t;
      std::copy_n(gated, gate_strip.rows(), out.values(slot) + first_row);
      out.quantise(kernels, slot, first_row, gate_strip.rows());
    }
  }
}

}  // namespace roundhouse
