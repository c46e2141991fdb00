#include "layer/layer.h"

#include <algorithm>
#include <utility>

#include "layer/gated_inner.h"

namespace roundhouse {

Layer::Layer(LayerSettings settings, LayerWeights weights)
    : settings_(std::move(settings)), weights_(std::move(weights)) {
  settings_.attention.sinks = weights_.sinks.empty() ? nullptr : weights_.sinks.data();
  settings_.gating.bias = weights_.gating_bias.empty() ? nullptr : weights_.gating_bias.data();
}

void Layer::reserve(Runtime& runtime, const LayerInput& input) const {
  const AttentionShape& shape = settings_.attention;
  const std::size_t tokens = input.tokens;
  const std::size_t mixed = shape.heads * shape.value_dimension;
  runtime.rope.prepare(settings_.rope, input.start, tokens);
  runtime.attention.reserve(shape, tokens, input.start);
  runtime.normed.reserve(tokens, settings_.hidden);
  runtime.mixed.reserve(tokens, mixed);
  runtime.queries.reserve(tokens * shape.heads * shape.key_dimension);
  runtime.keys.reserve(tokens * shape.kv_heads * shape.key_dimension);
  runtime.values.reserve(tokens * shape.kv_heads * shape.value_dimension);
  runtime.update.reserve(tokens * settings_.hidden);
  const std::size_t used = settings_.gating.experts != 0 ? settings_.gating.used : 1;
  runtime.inner.reserve(tokens * used, settings_.width);
  if (settings_.gating.experts != 0) {
    runtime.logits.reserve(tokens * settings_.gating.experts);
    runtime.chosen.reserve(tokens * used);
    runtime.chosen_weights.reserve(tokens * used);
    runtime.expert_begin.reserve(settings_.gating.experts + 1);
    runtime.pair_token.reserve(tokens * used);
    runtime.pair_weight.reserve(tokens * used);
    runtime.pair_rows.reserve(tokens * used);
  }
  if (settings_.shared_width != 0) {
    runtime.shared.reserve(tokens, settings_.shared_width);
    runtime.shared_weights.reserve(tokens);
  }
  runtime.reserve_strips(std::max({settings_.hidden, mixed, settings_.width, settings_.shared_width}));
  for (WorkerScratch& worker : runtime.scratch) {
    worker.attention.reserve(attention_worker_floats(shape));
  }
}

void Layer::forward(Runtime& runtime, const LayerInput& input) const {
  const std::lock_guard lock(runtime.in_use);
  reserve(runtime, input);
  runtime.pool.run([&](const Team& team) {
    normalise(runtime, team, input, weights_.attention_norm);
    project_qkv(runtime, team, input);
    rotate_and_store(runtime, team, input);
    run_attention(runtime, team, input);
    normalise(runtime, team, input, weights_.feed_forward_norm);
    if (settings_.gating.experts == 0) {
      run_dense(runtime, team, input);
    } else {
      run_experts(runtime, team, input);
    }
  });
}

void Layer::normalise(Runtime& runtime, const Team& team, const LayerInput& input,
                      std::span<const float> norm) const {
  team.for_each(input.tokens, [&](std::size_t token) {
    runtime.kernels.rms_norm(input.hidden + token * settings_.hidden, norm.data(), settings_.norm_epsilon,
                             runtime.normed.values(token), settings_.hidden);
    runtime.normed.quantise(runtime.kernels, token);
  });
}

void Layer::project_qkv(Runtime& runtime, const Team& team, const LayerInput& input) const {
  struct Projection {
    const Matrix& matrix;
    const std::vector<float>& bias;
    float* out;
  };
  const Projection projections[3] = {{weights_.query, weights_.query_bias, runtime.queries.data()},
                                     {weights_.key, weights_.key_bias, runtime.keys.data()},
                                     {weights_.value, weights_.value_bias, runtime.values.data()}};
  const std::size_t strips[3] = {strip_count(weights_.query.rows), strip_count(weights_.key.rows),
                                 strip_count(weights_.value.rows)};
  const std::span tokens(runtime.normed.rows(), input.tokens);
  team.for_each(strips[0] + strips[1] + strips[2], [&](std::size_t item) {
    std::size_t which = 0;
    while (item >= strips[which]) {
      item -= strips[which++];
    }
    const Projection& p = projections[which];
    multiply_strip(runtime.kernels, p.matrix, item, tokens, runtime.scratch[team.worker()],
                   [&](std::size_t token, std::size_t first_row, std::span<const float> results) {
                     float* out = p.out + token * p.matrix.rows + first_row;
                     for (std::size_t r = 0; r < results.size(); ++r) {
                       out[r] = results[r] + (p.bias.empty() ? 0.0f : p.bias[first_row + r]);
                     }
                   });
  });
}

void Layer::rotate_and_store(Runtime& runtime, const Team& team, const LayerInput& input) const {
  const AttentionShape& shape = settings_.attention;
  const Kernels& kernels = runtime.kernels;
  const std::size_t dimension = shape.key_dimension;
  const auto prepare_head = [&](float* head, std::size_t token, const std::vector<float>& norm) {
    if (!norm.empty()) {
      kernels.rms_norm(head, norm.data(), settings_.norm_epsilon, head, dimension);
    }
    runtime.rope.rotate(head, token);
  };
  team.for_each(input.tokens, [&](std::size_t token) {
    for (std::size_t h = 0; h < shape.heads; ++h) {
      prepare_head(runtime.queries.data() + (token * shape.heads + h) * dimension, token, weights_.query_norm);
    }
    float* keys = runtime.keys.data() + token * shape.kv_heads * dimension;
    for (std::size_t g = 0; g < shape.kv_heads; ++g) {
      prepare_head(keys + g * dimension, token, weights_.key_norm);
    }
    const std::size_t position = input.start + token;
    const std::size_t key_row = shape.kv_heads * dimension;
    const std::size_t value_row = shape.kv_heads * shape.value_dimension;
    kernels.to_half(keys, input.keys + position * key_row, key_row);
    kernels.to_half(runtime.values.data() + token * value_row, input.values + position * value_row, value_row);
  });
}

void Layer::run_attention(Runtime& runtime, const Team& team, const LayerInput& input) const {
  const AttentionShape& shape = settings_.attention;
  WorkerScratch& scratch = runtime.scratch[team.worker()];
  attend(runtime.kernels, team, shape, {runtime.queries.data(), input.tokens, input.start, input.keys, input.values},
         runtime.attention, scratch.attention.data(), runtime.mixed);
  const bool post_norm = !weights_.attention_post_norm.empty();
  const std::span tokens(runtime.mixed.rows(), input.tokens);
  team.for_each(strip_count(weights_.output.rows), [&](std::size_t strip) {
    multiply_strip(runtime.kernels, weights_.output, strip, tokens, scratch,
                   [&](std::size_t token, std::size_t first_row, std::span<const float> results) {
                     const std::size_t at = token * settings_.hidden + first_row;
                     float* out = post_norm ? runtime.update.data() + at : input.hidden + at;
                     for (std::size_t r = 0; r < results.size(); ++r) {
                       const float value =
                           results[r] + (weights_.output_bias.empty() ? 0.0f : weights_.output_bias[first_row + r]);
                       out[r] = post_norm ? value : out[r] + value;
                     }
                   });
  });
  if (post_norm) {
    finish(runtime, team, input, weights_.attention_post_norm);
  }
}

// hidden += norm(update)
void Layer::finish(Runtime& runtime, const Team& team, const LayerInput& input,
                   std::span<const float> post_norm) const {
  team.for_each(input.tokens, [&](std::size_t token) {
    float* update = runtime.update.data() + token * settings_.hidden;
    float* hidden = input.hidden + token * settings_.hidden;
    runtime.kernels.rms_norm(update, post_norm.data(), settings_.norm_epsilon, update, settings_.hidden);
    for (std::size_t i = 0; i < settings_.hidden; ++i) {
      hidden[i] += update[i];
    }
  });
}

void Layer::run_dense(Runtime& runtime, const Team& team, const LayerInput& input) const {
  WorkerScratch& scratch = runtime.scratch[team.worker()];
  const GatedInner inner{weights_.gate_proj, weights_.up_proj, {}, {}, settings_.activation};
  const std::span tokens(runtime.normed.rows(), input.tokens);
  team.for_each(strip_count(settings_.width), [&](std::size_t strip) {
    compute_gated_strip(runtime.kernels, inner, strip, tokens, scratch, runtime.inner, 0);
  });
  const bool post_norm = !weights_.feed_forward_post_norm.empty();
  const std::span inner_rows(runtime.inner.rows(), input.tokens);
  team.for_each(strip_count(settings_.hidden), [&](std::size_t strip) {
    multiply_strip(runtime.kernels, weights_.down_proj, strip, inner_rows, scratch,
                   [&](std::size_t token, std::size_t first_row, std::span<const float> results) {
                     const std::size_t at = token * settings_.hidden + first_row;
                     float* out = post_norm ? runtime.update.data() + at : input.hidden + at;
                     for (std::size_t r = 0; r < results.size(); ++r) {
                       out[r] = post_norm ? results[r] : out[r] + results[r];
                     }
                   });
  });
  if (post_norm) {
    finish(runtime, team, input, weights_.feed_forward_post_norm);
  }
}

}  // namespace roundhouse
