#include "moe/gating.h"

#include <algorithm>
#include <cmath>

namespace roundhouse {

namespace {

void softmax(std::span<float> values) {
  const float maximum = *std::max_element(values.begin(), values.end());
  float total = 0.0f;
  for (float& value : values) {
    value = std::exp(value - maximum);
    total += value;
  }
  for (float& value : values) {
    value /= total;
  }
}

}  // namespace

void select_experts(const GatingSettings& settings, std::span<float> logits, std::span<std::uint32_t> chosen,
                    std::span<float> weights) {
  const bool late = settings.function == Gating::softmax_of_chosen;
  const bool moves_choice_only = settings.function == Gating::sigmoid;
  if (settings.bias != nullptr && !moves_choice_only) {
    for (std::size_t e = 0; e < settings.experts; ++e) {
      logits[e] += settings.bias[e];
    }
  }
  if (settings.function == Gating::softmax) {
    softmax(logits);
  } else if (moves_choice_only) {
    for (float& value : logits) {
      value = 1.0f / (1.0f + std::exp(-value));
    }
  }
  const auto preference = [&](std::size_t expert) {
    return logits[expert] + (settings.bias != nullptr && moves_choice_only ? settings.bias[expert] : 0.0f);
  };
  for (std::size_t k = 0; k < settings.used; ++k) {
    std::size_t best = settings.experts;
    for (std::size_t e = 0; e < settings.experts; ++e) {
      const bool taken = std::find(chosen.begin(), chosen.begin() + static_cast<std::ptrdiff_t>(k), e) !=
                         chosen.begin() + static_cast<std::ptrdiff_t>(k);
      // Not `>` alone: with NaN logits some expert must still be named.
      if (!taken && (best == settings.experts || preference(e) > preference(best))) {
        best = e;
      }
    }
    chosen[k] = static_cast<std::uint32_t>(best);
    weights[k] = logits[best];
  }
  const auto used = weights.first(settings.used);
  if (late) {
    softmax(used);
  }
  float total = 0.0f;
  for (const float weight : used) {
    total += weight;
  }
  const bool normalise = settings.normalise && !late;  // a softmax over the chosen sums to one already
  const float factor = (normalise ? 1.0f / std::max(total, 6.103515625e-5f) : 1.0f) * settings.scale;
  for (float& weight : used) {
    weight *= factor;
  }
}

}  // namespace roundhouse
