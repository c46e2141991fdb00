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
  set(BlockType::q4_0, small_rows<Avx2, BlockQ4_0, Dot::small<BlockQ4_0>>());
  set(BlockType::q4_1, small_rows<Avx2, BlockQ4_1, Dot::small<BlockQ4_1>>());
  set(BlockType::q5_0, small_rows<Avx2, BlockQ5_0, Dot::small<BlockQ5_0>>());
  set(BlockType::q5_1, small_rows<Avx2, BlockQ5_1, Dot::small<BlockQ5_1>>());
  set(BlockType::q8_0, small_rows<Avx2, BlockQ8_0, Dot::q8_0>());
  set(BlockType::q4_k, super_rows<Avx2, BlockQ4_K, Dot::super<BlockQ4_K>>());
  set(BlockType::q5_k, super_rows<Avx2, BlockQ5_K, Dot::super<BlockQ5_K>>());
  set(BlockType::q6_k, super_rows<Avx2, BlockQ6_K, Dot::q6_k>());
  return kernels;
}

}  // namespace

const Kernels& avx2_kernels() {
  static const Kernels kernels = make();
  return kernels;
}

}  // namespace roundhouse
