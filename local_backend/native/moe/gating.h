// Choice of experts from gating logits. Knows no weights and no activations.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace roundhouse {

enum class Gating : std::uint32_t { softmax = 0, sigmoid = 1, softmax_of_chosen = 2 };

struct GatingSettings {
  std::size_t experts = 0;
  std::size_t used = 0;
  Gating function = Gating::softmax;
  bool normalise = true;
  float scale = 1.0f;
  const float* bias = nullptr;  // see select_experts
};

// Chooses `used` experts, best first (the lower number wins ties), and their weights. `logits` is scratch and
// is overwritten. Sigmoid gating's bias takes part in the choice only (DeepSeek-V3, section 2.1.2); elsewhere a
// bias belongs to the logits.
void select_experts(const GatingSettings& settings, std::span<float> logits, std::span<std::uint32_t> chosen,
                    std::span<float> weights);

}  // namespace roundhouse
