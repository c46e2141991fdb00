// What one decoder layer is: sizes and switches, and views of its weights. Filled by the bindings.
#pragma once

#include <vector>

#include "attention/attention.h"
#include "attention/rope.h"
#include "matmul/matrix.h"
#include "moe/gating.h"
#include "quant/kernels.h"

namespace roundhouse {

struct LayerSettings {
  std::size_t hidden = 0;
  float norm_epsilon = 0.0f;
  AttentionShape attention;
  RopeSettings rope;
  Activation activation = Activation::silu;
  std::size_t width = 0;         // inner size of the dense feed-forward, or of one expert
  GatingSettings gating;         // experts == 0: dense
  std::size_t shared_width = 0;  // inner size of the shared expert; 0: none
};

// Vectors that are absent are empty; matrices likewise (`present()`).
struct LayerWeights {
  std::vector<float> attention_norm;
  std::vector<float> attention_post_norm;
  std::vector<float> query_norm;
  std::vector<float> key_norm;
  std::vector<float> query_bias;
  std::vector<float> key_bias;
  std::vector<float> value_bias;
  std::vector<float> output_bias;
  std::vector<float> sinks;
  std::vector<float> feed_forward_norm;
  std::vector<float> feed_forward_post_norm;
  std::vector<float> gating_bias;
  std::vector<float> expert_gate_bias;  // [experts][width]
  std::vector<float> expert_up_bias;
  std::vector<float> expert_down_bias;  // [experts][hidden]
  std::vector<float> shared_gating;     // [hidden]
  Matrix query;
  Matrix key;
  Matrix value;
  Matrix output;
  Matrix gate_proj;
  Matrix up_proj;
  Matrix down_proj;
  Matrix gating;
  Matrix expert_gate;
  Matrix expert_up;
  Matrix expert_down;
  Matrix shared_gate;
  Matrix shared_up;
  Matrix shared_down;
};

}  // namespace roundhouse
