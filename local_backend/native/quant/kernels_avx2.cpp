// The AVX2 set (with FMA and F16C). Compiled with exactly those flags.
#include "vector/simd_avx2.h"

#include "quant/dot_rows.h"
#include "quant/kernel_set.h"
#include "quant/row_dot.h"

namespace roundhouse {

namespace {

Kernels make() {
  using Dot = RowDot<Avx2>;
  Kernels kernels = KernelSet<Avx2>::make("AVX2");
  const auto set = [&kernels](BlockType type, auto dot) {
    kernels.blocks[static_cast<std::size_t>(type)].dot_rows = dot;
  };
  set(BlockType::q4_0, small_rows<Avx2, BlockQ4_0, Dot::small<BlockQ4_0, false>, Dot::small<BlockQ4_0, true>>());
  set(BlockType::q4_1, small_rows<Avx2, BlockQ4_1, Dot::small<BlockQ4_1, false>, Dot::small<BlockQ4_1, true>>());
  set(BlockType::q5_0, small_rows<Avx2, BlockQ5_0, Dot::small<BlockQ5_0, false>, Dot::small<BlockQ5_0, true>>());
  set(BlockType::q5_1, small_rows<Avx2, BlockQ5_1, Dot::small<BlockQ5_1, false>, Dot::small<BlockQ5_1, true>>());
  set(BlockType::q8_0, small_rows<Avx2, BlockQ8_0, Dot::q8_0<false>, Dot::q8_0<true>>());
  set(BlockType::q4_k, super_rows<Avx2, BlockQ4_K, Dot::super<BlockQ4_K, false>, Dot::super<BlockQ4_K, true>>());
  set(BlockType::q5_k, super_rows<Avx2, BlockQ5_K, Dot::super<BlockQ5_K, false>, Dot::super<BlockQ5_K, true>>());
  set(BlockType::q6_k, super_rows<Avx2, BlockQ6_K, Dot::q6_k<false>, Dot::q6_k<true>>());
  return kernels;
}

}  // namespace

const Kernels& avx2_kernels() {
  static const Kernels kernels = make();
  return kernels;
}

}  // namespace roundhouse
