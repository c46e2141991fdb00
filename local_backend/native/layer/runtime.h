// What all layers of a model share: kernels, workers, and scratch memory, used by one call at a time.
#pragma once

#include <mutex>
#include <vector>

#include "attention/attention.h"
#include "attention/rope.h"
#include "matmul/activations.h"
#include "matmul/strip.h"
#include "parallel/thread_pool.h"

namespace roundhouse {

class Runtime {
 public:
  Runtime(const Kernels& kernels, unsigned workers, Precision precision = Precision::eight_bits)
      : kernels(kernels),
        precision(precision),
        pool(workers),
        scratch(workers),
        normed(precision),
        mixed(precision),
        inner(precision),
        shared(precision) {}

  // Room in every worker's strip scratch for matrices of up to `columns`.
  void reserve_strips(std::size_t columns) {
    for (WorkerScratch& worker : scratch) {
      worker.first.reserve(columns);
      worker.second.reserve(columns);
    }
  }

  const Kernels& kernels;
  const Precision precision;
  ThreadPool pool;
  std::mutex in_use;  // held for the whole of a call that uses what follows
  std::vector<WorkerScratch> scratch;
  RopeTable rope;
  AttentionScratch attention;
  Activations normed;  // [T][hidden]
  Activations mixed;   // [T][heads * value_dimension]
  Activations inner;   // [T or T * used][width]
  Activations shared;  // [T][shared_width]
  Buffer<float> queries;
  Buffer<float> keys;
  Buffer<float> values;
  Buffer<float> update;                // [T][hidden], where an output is normalised before it is added
  Buffer<float> logits;                // [T][experts]
  Buffer<std::uint32_t> chosen;        // [T][used]
  Buffer<float> chosen_weights;        // [T][used]
  Buffer<float> shared_weights;        // [T]
  Buffer<std::uint32_t> expert_begin;  // [experts + 1] into the two below
  Buffer<std::uint32_t> pair_token;    // [T * used], sorted by expert
  Buffer<float> pair_weight;
  Buffer<ActivationRow> pair_rows;
};

}  // namespace roundhouse
