// Dot products of a quantised row with a quantised activation over sixteen lanes, eight blocks of 32 at a time:
// the blocks' scales are picked from the loaded bytes by one permutation and converted together, which is
// what makes the difference in decode. For the types that matter most; the others use quant/row_dot.h.
#pragma once

#include "quant/block_types.h"
#include "quant/kernels.h"
#include "vector/simd_avx512.h"

namespace roundhouse {
namespace {

struct ChunkDot {
  static constexpr std::size_t chunk = 8;  // blocks

  // The first `bytes` of memory from `p`, never touching what lies behind them.
  static __m512i load_part(const std::byte* p, std::size_t offset, std::size_t bytes) {
    if (bytes >= offset + 64) {
      return _mm512_loadu_si512(p + offset);
    }
    if (bytes <= offset) {
      return _mm512_setzero_si512();
    }
    return _mm512_maskz_loadu_epi8(~__mmask64{0} >> (64 - (bytes - offset)), p + offset);
  }

  // Lane i of the result: factor of block 2j for lanes 0-7, of block 2j+1 for lanes 8-15, the factors lying
  // `step` lanes apart.
  template <int Step>
  static __m512 spread(__m512 factors, std::size_t pair) {
    const __m512i first = _mm512_set1_epi32(static_cast<int>(2 * pair) * Step);
    return _mm512_permutexvar_ps(_mm512_mask_add_epi32(first, 0xff00, first, _mm512_set1_epi32(Step)), factors);
  }

  // Nibbles of two blocks (the second only if present) -> 64 quants in order.
  static __m512i nibbles(const std::uint8_t* first, const std::uint8_t* second, bool has_second) {
    __m512i both = _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(first)));
    if (has_second) {
      both = _mm512_mask_broadcast_i32x4(both, 0xff00, _mm_loadu_si128(reinterpret_cast<const __m128i*>(second)));
    }
    const __m512i shifts =
        _mm512_setr_epi64(0, 0, 0x0004000400040004, 0x0004000400040004, 0, 0, 0x0004000400040004, 0x0004000400040004);
    return _mm512_and_si512(_mm512_srlv_epi16(both, shifts), _mm512_set1_epi8(0x0f));
  }

  template <class Block>
  static __m512i quants(const Block* block, bool has_second) {
    return nibbles(block[0].nibbles, block[1].nibbles, has_second);
  }
  template <class Block>
  static __m512i five_bits(const Block* block, bool has_second) {
    std::uint32_t first = 0;
    std::uint32_t second = 0;
    __builtin_memcpy(&first, block[0].high_bits, 4);
    if (has_second) {
      __builtin_memcpy(&second, block[1].high_bits, 4);
    }
    const __mmask64 set = (static_cast<std::uint64_t>(second) << 32) | first;
    return _mm512_or_si512(nibbles(block[0].nibbles, block[1].nibbles, has_second),
                           _mm512_maskz_set1_epi8(set, 0x10));
  }
  static __m512i quants(const BlockQ5_0* block, bool has_second) { return five_bits(block, has_second); }
  static __m512i quants(const BlockQ5_1* block, bool has_second) { return five_bits(block, has_second); }
  static __m512i quants(const BlockQ8_0* block, bool has_second) {
    __m512i both = _mm512_castsi256_si512(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(block[0].quants)));
    if (has_second) {
      both = _mm512_inserti64x4(both, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(block[1].quants)), 1);
    } else {
      both = _mm512_zextsi256_si512(_mm512_castsi512_si256(both));
    }
    return _mm512_xor_si512(both, _mm512_set1_epi8(-128));
  }

  // Word `index * stride` of up to 256 bytes, for index 0..7, as floats.
  template <int Words>
  static __m256 scales(const std::byte* p, std::size_t bytes) {
    const __m128i order = _mm_setr_epi16(0, Words, 2 * Words, 3 * Words, 4 * Words, 5 * Words, 6 * Words, 7 * Words);
    const __m512i index = _mm512_zextsi128_si512(order);
    __m512i picked = _mm512_permutex2var_epi16(load_part(p, 0, bytes), index, load_part(p, 64, bytes));
    if constexpr (7 * Words >= 64) {  // the later words lie in the next 128 bytes
      const __m512i later = _mm512_permutex2var_epi16(load_part(p, 128, bytes), index, load_part(p, 192, bytes));
      constexpr unsigned in_first = (64 + Words - 1) / Words;
      picked = _mm512_mask_mov_epi16(picked, static_cast<__mmask32>(0xffu << in_first), later);
    }
    return _mm256_cvtph_ps(_mm512_castsi512_si128(picked));
  }

  struct Sums {
    __m512 products[2] = {_mm512_setzero_ps(), _mm512_setzero_ps()};
    __m512 minima = _mm512_setzero_ps();
  };

  // Blocks `skip .. count-1` of a chunk whose first block is number `first` of the row.
  struct Part {
    std::size_t first;
    std::size_t skip;
    std::size_t count;
  };

  // weights (dot) the 64 activations from `at`, in lanes
  template <bool Fine>
  static __m512i dot(__m512i weights, const ActivationRow& x, std::size_t at) {
    const __m512i high = Avx512::dot4(Avx512::izero(), weights, _mm512_loadu_si512(x.high + at));
    return Fine ? Avx512::dot4(Avx512::times_base(high), weights, _mm512_loadu_si512(x.low + at)) : high;
  }

  template <class Block, int Step, bool Fine>
  static void add_pairs(const Block* block, const ActivationRow& x, Part part, __m512 factors, Sums& sums) {
    for (std::size_t pair = part.skip / 2; 2 * pair < part.count; ++pair) {
      const __m512i weights = quants(block + 2 * pair, 2 * pair + 1 < part.count);
      const __m512i products = dot<Fine>(weights, x, (part.first + 2 * pair) * small_block);
      __m512& sum = sums.products[pair & 1];
      sum = _mm512_fmadd_ps(_mm512_cvtepi32_ps(products), spread<Step>(factors, pair), sum);
    }
  }

  // Types with a minimum: the pairs (scale, minimum) are the first four bytes of every block.
  template <bool Fine, class Block>
  static void add_with_minimum(const Block* block, const ActivationRow& x, Part part, Sums& sums) {
    constexpr int stride = sizeof(Block) / 4;
    constexpr unsigned in_first = (32 + stride - 1) / stride;  // blocks that begin in the first 128 bytes
    const auto* p = reinterpret_cast<const std::byte*>(block);
    const std::size_t bytes = part.count * sizeof(Block);
    const __m512i number = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 0, 0, 0, 0, 0, 0, 0, 0);
    const __m512i index = _mm512_mullo_epi32(number, _mm512_set1_epi32(stride));
    const __m512i pairs = _mm512_permutex2var_epi32(load_part(p, 0, bytes), index, load_part(p, 64, bytes));
    const __m512i later = _mm512_permutexvar_epi32(index, load_part(p, 128, bytes));
    const auto late = static_cast<__mmask16>((0xffu << in_first) & 0xffu);
    const __m256i halves = _mm512_castsi512_si256(_mm512_mask_mov_epi32(pairs, late, later));
    const __m512 scale_and_minimum = _mm512_cvtph_ps(halves);  // d0 m0 d1 m1 ...
    const __m512i interleave = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    const __m512 scale = _mm512_castps256_ps512(_mm256_loadu_ps(x.scale + part.first));
    const __m512 sum = _mm512_castps256_ps512(_mm256_loadu_ps(x.sum32 + part.first));
    const auto wanted = static_cast<__mmask16>(0xffffu << (2 * part.skip));
    const __m512 factors =
        _mm512_maskz_mul_ps(wanted, scale_and_minimum, _mm512_permutex2var_ps(scale, interleave, sum));
    sums.minima = _mm512_mask_add_ps(sums.minima, 0xaaaa, sums.minima, factors);
    add_pairs<Block, 2, Fine>(block, x, part, factors, sums);
  }

  template <bool Fine, class Block>
  static void add_symmetric(const Block* block, const ActivationRow& x, Part part, float offset, Sums& sums) {
    const auto* p = reinterpret_cast<const std::byte*>(block);
    const auto wanted = static_cast<__mmask8>(0xffu << part.skip);
    const __m256 scale = _mm256_maskz_mov_ps(wanted, scales<sizeof(Block) / 2>(p, part.count * sizeof(Block)));
    const __m256 factors = _mm256_mul_ps(scale, _mm256_loadu_ps(x.scale + part.first));
    const __m256 minima =
        _mm256_mul_ps(_mm256_mul_ps(scale, _mm256_set1_ps(-offset)), _mm256_loadu_ps(x.sum32 + part.first));
    sums.minima = _mm512_add_ps(sums.minima, _mm512_zextps256_ps512(minima));
    add_pairs<Block, 1, Fine>(block, x, part, _mm512_castps256_ps512(factors), sums);
  }

  template <bool Fine>
  static void add(const BlockQ4_1* block, const ActivationRow& x, Part part, Sums& sums) {
    add_with_minimum<Fine>(block, x, part, sums);
  }
  template <bool Fine>
  static void add(const BlockQ5_1* block, const ActivationRow& x, Part part, Sums& sums) {
    add_with_minimum<Fine>(block, x, part, sums);
  }
  template <bool Fine>
  static void add(const BlockQ4_0* block, const ActivationRow& x, Part part, Sums& sums) {
    add_symmetric<Fine>(block, x, part, 8.0f, sums);
  }
  template <bool Fine>
  static void add(const BlockQ5_0* block, const ActivationRow& x, Part part, Sums& sums) {
    add_symmetric<Fine>(block, x, part, 16.0f, sums);
  }
  template <bool Fine>
  static void add(const BlockQ8_0* block, const ActivationRow& x, Part part, Sums& sums) {
    add_symmetric<Fine>(block, x, part, 128.0f, sums);
  }

  // Activation rows are padded to whole chunks with zero scales (matmul/activations.h). A row's rest is taken
  // as the end of a whole chunk that overlaps the one before: loads stay inside the row and need no masks.
  template <class Block, bool Fine>
  static float run(const std::byte* row, const ActivationRow& x, std::size_t columns, UnpackedRow) {
    const auto* blocks = reinterpret_cast<const Block*>(row);
    const std::size_t count = columns / small_block;
    Sums sums;
    std::size_t b = 0;
    for (; b + chunk <= count; b += chunk) {
      add<Fine>(blocks + b, x, {b, 0, chunk}, sums);
    }
    if (b < count && count > chunk) {
      const std::size_t first = count - chunk;
      add<Fine>(blocks + first, x, {first, b - first, chunk}, sums);
    } else if (b < count) {
      add<Fine>(blocks, x, {0, 0, count}, sums);
    }
    return Avx512::sum(_mm512_add_ps(_mm512_add_ps(sums.products[0], sums.products[1]), sums.minima));
  }

  template <bool Fine>
  static float q4_k(const std::byte* row, const ActivationRow& x, std::size_t columns, UnpackedRow) {
    using Scales = RowDot<Avx512Half>;
    Sums sums;
    __m256 minima_sum = _mm256_setzero_ps();
    const __m512i shifts =
        _mm512_setr_epi64(0, 0, 0, 0, 0x0004000400040004, 0x0004000400040004, 0x0004000400040004, 0x0004000400040004);
    for (std::size_t b = 0; b < columns / super_block; ++b) {
      const auto& block = *reinterpret_cast<const BlockQ4_K*>(row + b * sizeof(BlockQ4_K));
      __m256 scales8;
      __m256 minima8;
      Scales::k_scales(block.packed_scales, scales8, minima8);
      const __m256 minimum = _mm256_mul_ps(minima8, _mm256_set1_ps(_cvtsh_ss(block.minimum)));
      minima_sum = _mm256_fmadd_ps(minimum, _mm256_loadu_ps(x.sum32 + b * chunk), minima_sum);
      const __m256 scale = _mm256_mul_ps(scales8, _mm256_set1_ps(_cvtsh_ss(block.scale)));
      const __m512 factors = _mm512_castps256_ps512(_mm256_mul_ps(scale, _mm256_loadu_ps(x.scale + b * chunk)));
      for (std::size_t pair = 0; pair < 4; ++pair) {
        const auto* p = reinterpret_cast<const __m256i*>(block.nibbles + 32 * pair);
        const __m512i both = _mm512_broadcast_i64x4(_mm256_loadu_si256(p));
        const __m512i weights = _mm512_and_si512(_mm512_srlv_epi16(both, shifts), _mm512_set1_epi8(0x0f));
        const __m512i products = dot<Fine>(weights, x, b * super_block + 64 * pair);
        __m512& sum = sums.products[pair & 1];
        sum = _mm512_fmadd_ps(_mm512_cvtepi32_ps(products), spread<1>(factors, pair), sum);
      }
    }
    const __m512 total = _mm512_add_ps(sums.products[0], sums.products[1]);
    return Avx512::sum(_mm512_sub_ps(total, _mm512_zextps256_ps512(minima_sum)));
  }
};

}  // namespace
}  // namespace roundhouse
