// One decoder layer: norm, attention, residual, norm, feed-forward, residual. One parallel region a call.
#pragma once

#include <span>

#include "layer/runtime.h"
#include "layer/settings.h"

namespace roundhouse {

struct LayerInput {
  float* hidden;  // [tokens][hidden], replaced by the layer's output
  std::size_t tokens;
  std::size_t start;
  std::uint16_t* keys;    // [positions][kv_heads][key_dimension]
  std::uint16_t* values;  // [positions][kv_heads][value_dimension]
};

class Layer {
 public:
  Layer(LayerSettings settings, LayerWeights weights);
  Layer(const Layer&) = delete;
  Layer& operator=(const Layer&) = delete;

  const LayerSettings& settings() const { return settings_; }
  void forward(Runtime& runtime, const LayerInput& input) const;

 private:
  void reserve(Runtime& runtime, const LayerInput& input) const;
  void normalise(Runtime& runtime, const Team& team, const LayerInput& input, std::span<const float> norm) const;
  void project_qkv(Runtime& runtime, const Team& team, const LayerInput& input) const;
  void rotate_and_store(Runtime& runtime, const Team& team, const LayerInput& input) const;
  void run_attention(Runtime& runtime, const Team& team, const LayerInput& input) const;
  void run_dense(Runtime& runtime, const Team& team, const LayerInput& input) const;
  void run_experts(Runtime& runtime, const Team& team, const LayerInput& input) const;
  void choose_experts(Runtime& runtime, const Team& team, const LayerInput& input) const;
  void sort_by_expert(Runtime& runtime, std::size_t tokens) const;
  void experts_inner(Runtime& runtime, const Team& team) const;
  void experts_down(Runtime& runtime, const Team& team, float* out) const;
  void run_shared_expert(Runtime& runtime, const Team& team, const LayerInput& input, float* out) const;
  void finish(Runtime& runtime, const Team& team, const LayerInput& input, std::span<const float> post_norm) const;

  LayerSettings settings_;
  LayerWeights weights_;
};

}  // namespace roundhouse
