// The AVX-512 set (F, BW, DQ, VL, VNNI). Compiled with exactly those flags.
#include "vector/simd_avx512.h"

#include "quant/kernel_set.h"
#include "quant/row_dot.h"
#include "quant/row_dot_avx512.h"

namespace roundhouse {

namespace {

Kernels make() {
  using Dot = RowDot<Avx512Half>;
  Kernels kernels = KernelSet<Avx512>::make("AVX-512 VNNI");
  const auto set = [&kernels](BlockType type, auto dot) {
    kernels.blocks[static_cast<std::size_t>(type)].dot = dot;
  };
  set(BlockType::q4_0, ChunkDot::run<BlockQ4_0>);
  set(BlockType::q4_1, ChunkDot::run<BlockQ4_1>);
  set(BlockType::q5_0, Dot::small<BlockQ5_0>);
  set(BlockType::q5_1, Dot::small<BlockQ5_1>);
  set(BlockType::q8_0, ChunkDot::run<BlockQ8_0>);
  set(BlockType::q4_k, ChunkDot::q4_k);
  set(BlockType::q5_k, Dot::super<BlockQ5_K>);
  set(BlockType::q6_k, Dot::q6_k);
  return kernels;
}

}  // namespace

const Kernels& avx512_kernels() {
  static const Kernels kernels = make();
  return kernels;
}

}  // namespace roundhouse
