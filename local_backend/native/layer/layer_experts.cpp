// The mixture-of-experts half of a layer: gating, experts grouped over their tokens, the shared expert.
// Every output element sums its experts in ascending order of their number, whoever computes it.
#include <algorithm>
#include <cmath>

#include "layer/gated_inner.h"
#include "layer/layer.h"

namespace roundhouse {

void Layer::run_experts(Runtime& runtime, const Team& team, const LayerInput& input) const {
  choose_experts(runtime, team, input);
  if (team.worker() == 0) {
    sort_by_expert(runtime, input.tokens);
  }
  team.barrier();
  experts_inner(runtime, team);
  const bool post_norm = !weights_.feed_forward_post_norm.empty();
  float* out = post_norm ? runtime.update.data() : input.hidden;
  if (post_norm) {
    team.for_each(input.tokens, [&](std::size_t token) {
      std::fill_n(runtime.update.data() + token * settings_.hidden, settings_.hidden, 0.0f);
    });
  }
  experts_down(runtime, team, out);
  if (settings_.shared_width != 0) {
    run_shared_expert(runtime, team, input, out);
  }
  if (post_norm) {
    finish(runtime, team, input, weights_.feed_forward_post_norm);
  }
}

void Layer::choose_experts(Runtime& runtime, const Team& team, const LayerInput& input) const {
  const GatingSettings& gating = settings_.gating;
  WorkerScratch& scratch = runtime.scratch[team.worker()];
  const std::span tokens(runtime.normed.rows(), input.tokens);
  team.for_each(strip_count(gating.experts), [&](std::size_t strip) {
    multiply_strip(runtime.kernels, weights_.gating, strip, tokens, scratch,
                   [&](std::size_t token, std::size_t first_row, std::span<const float> results) {
                     std::copy(results.begin(), results.end(),
                               runtime.logits.data() + token * gating.experts + first_row);
                   });
  });
  team.for_each(input.tokens, [&](std::size_t token) {
    select_experts(gating, {runtime.logits.data() + token * gating.experts, gating.experts},
                   {runtime.chosen.data() + token * gating.used, gating.used},
                   {runtime.chosen_weights.data() + token * gating.used, gating.used});
    if (!weights_.shared_gating.empty()) {
      const float logit =
          runtime.kernels.dot(weights_.shared_gating.data(), runtime.normed.values(token), settings_.hidden);
      runtime.shared_weights.data()[token] = 1.0f / (1.0f + std::exp(-logit));
    }
  });
}

// Counting sort of the (token, expert) pairs; tokens stay in order within an expert.
void Layer::sort_by_expert(Runtime& runtime, std::size_t tokens) const {
  const std::size_t experts = settings_.gating.experts;
  const std::size_t used = settings_.gating.used;
  std::uint32_t* begin = runtime.expert_begin.data();
  std::fill_n(begin, experts + 1, 0u);
  for (std::size_t i = 0; i < tokens * used; ++i) {
    ++begin[runtime.chosen.data()[i] + 1];
  }
  for (std::size_t e = 0; e < experts; ++e) {
    begin[e + 1] += begin[e];
  }
  for (std::size_t i = 0; i < tokens * used; ++i) {
    const std::uint32_t slot = begin[runtime.chosen.data()[i]]++;
    runtime.pair_token.data()[slot] = static_cast<std::uint32_t>(i / used);
    runtime.pair_weight.data()[slot] = runtime.chosen_weights.data()[i];
    runtime.pair_rows.data()[slot] = runtime.normed.rows()[i / used];
  }
  for (std::size_t e = experts; e > 0; --e) {  // filling moved every begin to its end
    begin[e] = begin[e - 1];
  }
  begin[0] = 0;
}

// Items are (expert, strip); experts without tokens cost one comparison.
void Layer::experts_inner(Runtime& runtime, const Team& team) const {
  const std::size_t strips = strip_count(settings_.width);
  const std::uint32_t* begin = runtime.expert_begin.data();
  WorkerScratch& scratch = runtime.scratch[team.worker()];
  team.for_each(settings_.gating.experts * strips, [&](std::size_t item) {
    const std::size_t expert = item / strips;
    const std::size_t first = begin[expert];
    const std::size_t count = begin[expert + 1] - first;
    if (count == 0) {
      return;
    }
    const Matrix gate_proj = weights_.expert_gate.expert(expert);
    const Matrix up_proj = weights_.expert_up.expert(expert);
    GatedInner inner{gate_proj, up_proj, {}, {}, settings_.activation};
    if (!weights_.expert_gate_bias.empty()) {
      const std::size_t at = expert * settings_.width;
      inner.gate_bias = std::span(weights_.expert_gate_bias).subspan(at, settings_.width);
      inner.up_bias = std::span(weights_.expert_up_bias).subspan(at, settings_.width);
    }
    compute_gated_strip(runtime.kernels, inner, item % strips, {runtime.pair_rows.data() + first, count}, scratch,
                        runtime.inner, first);
  });
}

// Items are strips of the output, which is why sums need neither locks nor a buffer per expert.
void Layer::experts_down(Runtime& runtime, const Team& team, float* out) const {
  const std::uint32_t* begin = runtime.expert_begin.data();
  WorkerScratch& scratch = runtime.scratch[team.worker()];
  team.for_each(strip_count(settings_.hidden), [&](std::size_t strip) {
    for (std::size_t expert = 0; expert < settings_.gating.experts; ++expert) {
      const std::size_t first = begin[expert];
      const std::size_t count = begin[expert + 1] - first;
      if (count == 0) {
        continue;
      }
      const Matrix down = weights_.expert_down.expert(expert);
      const float* bias =
          weights_.expert_down_bias.empty() ? nullptr : weights_.expert_down_bias.data() + expert * settings_.hidden;
      multiply_strip(runtime.kernels, down, strip, {runtime.inner.rows() + first, count}, scratch,
                     [&](std::size_t index, std::size_t first_row, std::span<const float> results) {
                       const std::size_t slot = first + index;
                       const float weight = runtime.pair_weight.data()[slot];
                       float* sum = out + runtime.pair_token.data()[slot] * settings_.hidden + first_row;
                       for (std::size_t r = 0; r < results.size(); ++r) {
                         sum[r] += weight * (results[r] + (bias == nullptr ? 0.0f : bias[first_row + r]));
                       }
                     });
    }
  });
}

void Layer::run_shared_expert(Runtime& runtime, const Team& team, const LayerInput& input, float* out) const {
  WorkerScratch& scratch = runtime.scratch[team.worker()];
  const GatedInner inner{weights_.shared_gate, weights_.shared_up, {}, {}, settings_.activation};
  const std::span tokens(runtime.normed.rows(), input.tokens);
  team.for_each(strip_count(settings_.shared_width), [&](std::size_t strip) {
    compute_gated_strip(runtime.kernels, inner, strip, tokens, scratch, runtime.shared, 0);
  });
  const bool weighted = !weights_.shared_gating.empty();
  team.for_each(strip_count(settings_.hidden), [&](std::size_t strip) {
    multiply_strip(runtime.kernels, weights_.shared_down, strip, {runtime.shared.rows(), input.tokens}, scratch,
                   [&](std::size_t token, std::size_t first_row, std::span<const float> results) {
                     const float weight = weighted ? runtime.shared_weights.data()[token] : 1.0f;
                     float* sum = out + token * settings_.hidden + first_row;
                     for (std::size_t r = 0; r < results.size(); ++r) {
                       sum[r] += weight * results[r];
                     }
                   });
  });
}

}  // namespace roundhouse
