// The AVX-512 set (F, BW, DQ, VL, VNNI). Compiled with exactly those flags.
#include "vector/simd_avx512.h"

#include "quant/dot_rows.h"
#include "quant/kernel_set.h"
#include "quant/row_dot.h"
#include "quant/row_dot_avx512.h"

namespace roundhouse {

namespace {

Kernels make() {
  using Dot = RowDot<Avx512Half>;
  Kernels kernels = KernelSet<Avx512>::make("AVX-512 VNNI");
  const auto set = [&kernels](BlockType type, auto dot) {
    kernels.blocks[static_cast<std::size_t>(type)].dot_rows = dot;
  };
  set(BlockType::q4_0,
      small_rows<Avx512, BlockQ4_0, ChunkDot::run<BlockQ4_0, false>, ChunkDot::run<BlockQ4_0, true>>());
  set(BlockType::q4_1,
      small_rows<Avx512, BlockQ4_1, ChunkDot::run<BlockQ4_1, false>, ChunkDot::run<BlockQ4_1, true>>());
  set(BlockType::q5_0,
      small_rows<Avx512, BlockQ5_0, ChunkDot::run<BlockQ5_0, false>, ChunkDot::run<BlockQ5_0, true>>());
  set(BlockType::q5_1,
      small_rows<Avx512, BlockQ5_1, ChunkDot::run<BlockQ5_1, false>, ChunkDot::run<BlockQ5_1, true>>());
  set(BlockType::q8_0,
      small_rows<Avx512, BlockQ8_0, ChunkDot::run<BlockQ8_0, false>, ChunkDot::run<BlockQ8_0, true>>());
  set(BlockType::q4_k, super_rows<Avx512, BlockQ4_K, ChunkDot::q4_k<false>, ChunkDot::q4_k<true>>());
  set(BlockType::q5_k, super_rows<Avx512, BlockQ5_K, Dot::super<BlockQ5_K, false>, Dot::super<BlockQ5_K, true>>());
  set(BlockType::q6_k, super_rows<Avx512, BlockQ6_K, Dot::q6_k<false>, Dot::q6_k<true>>());
  return kernels;
}

}  // namespace

const Kernels& avx512_kernels() {
  static const Kernels kernels = make();
  return kernels;
}

}  // namespace roundhouse
