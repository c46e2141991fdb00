// Grouped-query attention over a float16 cache, causal, with an optional window and optional sinks.
//
// Work is cut into items of (kv head, block of tokens, chunk of context); chunks are merged exactly by their
// maximum and sum of exponentials. The cut depends on sizes only, never on the number of workers.
#pragma once

#include <cstddef>
#include <cstdint>

#include "matmul/activations.h"
#include "parallel/thread_pool.h"
#include "quant/kernels.h"

namespace roundhouse {

struct AttentionShape {
  std::size_t heads = 0;
  std::size_t kv_heads = 0;
  std::size_t key_dimension = 0;
  std::size_t value_dimension = 0;
  float scale = 1.0f;
  std::size_t window = 0;        // 0: none; else a token sees itself and the window-1 before it
  const float* sinks = nullptr;  // one logit per head that takes weight but has no value

  std::size_t group() const { return heads / kv_heads; }
};

struct AttentionInput {
  const float* queries;  // [tokens][heads][key_dimension], rotated
  std::size_t tokens;
  std::size_t start;            // position of the first token
  const std::uint16_t* keys;    // [positions][kv_heads][key_dimension]
  const std::uint16_t* values;  // [positions][kv_heads][value_dimension]
};

// Partial results of every (token, head, chunk): value sums, maxima and sums of exponentials.
class AttentionScratch {
 public:
  void reserve(const AttentionShape& shape, std::size_t tokens, std::size_t start);

  Buffer<float> partial;
  Buffer<float> maximum;
  Buffer<float> sum;
  std::size_t chunks = 0;
};

// Floats of scratch that one worker needs.
std::size_t attention_worker_floats(const AttentionShape& shape);

// Writes out's row of every token, [heads][value_dimension], floats and rounded; ends with all workers met.
void attend(const Kernels& kernels, const Team& team, const AttentionShape& shape, const AttentionInput& input,
            AttentionScratch& scratch, float* worker_scratch, Activations& out);

}  // namespace roundhouse
