// Dot products of a quantised row with a quantised activation, for the eight-lane sets, block by block and
// straight from the file's bytes. W is Avx2 or Avx512Half. Used in decode, where every weight is read once.
#pragma once

#include "quant/block_types.h"
#include "quant/kernels.h"

namespace roundhouse {

template <class W>
struct RowDot {
  using F = typename W::F;
  using I = typename W::I;

  // 16 bytes of nibbles -> 32 quants, low nibbles first
  static I nibbles(const std::uint8_t* p) {
    const __m128i packed = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    const __m256i both = _mm256_inserti128_si256(_mm256_castsi128_si256(packed), _mm_srli_epi16(packed, 4), 1);
    return _mm256_and_si256(both, _mm256_set1_epi8(0x0f));
  }

  // 32 bits -> 0x10 in every byte whose bit is set
  static I fifth_bits(const std::uint8_t* p) {
    std::int32_t bits;
    __builtin_memcpy(&bits, p, 4);
    const __m256i spread = _mm256_shuffle_epi8(
        _mm256_set1_epi32(bits), _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303));
    const __m256i mask = _mm256_set1_epi64x(static_cast<long long>(0x8040201008040201ULL));
    const __m256i set = _mm256_cmpeq_epi8(_mm256_and_si256(spread, mask), mask);
    return _mm256_and_si256(set, _mm256_set1_epi8(0x10));
  }

  static I quants(const BlockQ4_0& block) { return nibbles(block.nibbles); }
  static I quants(const BlockQ4_1& block) { return nibbles(block.nibbles); }
  static I quants(const BlockQ5_0& block) {
    return _mm256_or_si256(nibbles(block.nibbles), fifth_bits(block.high_bits));
  }
  static I quants(const BlockQ5_1& block) {
    return _mm256_or_si256(nibbles(block.nibbles), fifth_bits(block.high_bits));
  }

  static float minimum(const BlockQ4_0&, float scale) { return -8.0f * scale; }
  static float minimum(const BlockQ5_0&, float scale) { return -16.0f * scale; }
  static float minimum(const BlockQ4_1& block, float) { return W::half(block.minimum); }
  static float minimum(const BlockQ5_1& block, float) { return W::half(block.minimum); }

  // weights (dot) the 32 activations from `at`, in lanes
  template <bool Fine>
  static I dot(I weights, const ActivationRow& x, std::size_t at) {
    const I high = W::dot4(W::izero(), weights, W::load_bytes(x.high + at));
    return Fine ? W::dot4(W::times_base(high), weights, W::load_bytes(x.low + at)) : high;
  }
  template <bool Fine>
  static I dot_signed(I weights, const ActivationRow& x, std::size_t at) {
    const I high = W::dot4_signed(W::izero(), weights, W::load_bytes(x.high + at));
    return Fine ? W::dot4_signed(W::times_base(high), weights, W::load_bytes(x.low + at)) : high;
  }

  template <class Block, bool Fine>
  static float small(const std::byte* row, const ActivationRow& x, std::size_t columns, UnpackedRow) {
    F sum[2] = {W::zero(), W::zero()};
    float minima[2] = {0.0f, 0.0f};
    const std::size_t count = columns / small_block;
    for (std::size_t b = 0; b < count; ++b) {
      const auto& block = *reinterpret_cast<const Block*>(row + b * sizeof(Block));
      const float scale = W::half(block.scale);
      const I products = dot<Fine>(quants(block), x, b * small_block);
      sum[b & 1] = W::fma(W::to_float(products), W::set1(scale * x.scale[b]), sum[b & 1]);
      minima[b & 1] += minimum(block, scale) * x.sum32[b];
    }
    return W::sum(W::add(sum[0], sum[1])) + (minima[0] + minima[1]);
  }

  template <bool Fine>
  static float q8_0(const std::byte* row, const ActivationRow& x, std::size_t columns, UnpackedRow) {
    F sum[2] = {W::zero(), W::zero()};
    const std::size_t count = columns / small_block;
    for (std::size_t b = 0; b < count; ++b) {
      const auto& block = *reinterpret_cast<const BlockQ8_0*>(row + b * sizeof(BlockQ8_0));
      const I products = dot_signed<Fine>(W::load_bytes(block.quants), x, b * small_block);
      sum[b & 1] = W::fma(W::to_float(products), W::set1(W::half(block.scale) * x.scale[b]), sum[b & 1]);
    }
    return W::sum(W::add(sum[0], sum[1]));
  }

  // The eight six-bit scales and the eight minima of a Q4_K or Q5_K block as sixteen bytes.
  static void k_scales(const std::uint8_t* packed, F& scales, F& minima) {
    std::uint32_t word[3];
    __builtin_memcpy(word, packed, 12);
    const std::uint32_t low_scales = word[0] & 0x3f3f3f3fu;
    const std::uint32_t low_minima = word[1] & 0x3f3f3f3fu;
    const std::uint32_t high_scales = (word[2] & 0x0f0f0f0fu) | (((word[0] >> 6) & 0x03030303u) << 4);
    const std::uint32_t high_minima = ((word[2] >> 4) & 0x0f0f0f0fu) | (((word[1] >> 6) & 0x03030303u) << 4);
    const auto widen = [](std::uint32_t low, std::uint32_t high) {
      const auto bytes = static_cast<long long>((static_cast<std::uint64_t>(high) << 32) | low);
      return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_cvtsi64_si128(bytes)));
    };
    scales = widen(low_scales, high_scales);
    minima = widen(low_minima, high_minima);
  }

  // Quants of sub-blocks 2j and 2j+1.
  static void k_quants(const BlockQ4_K& block, std::size_t j, I& low, I& high) {
    const I packed = W::load_bytes(block.nibbles + 32 * j);
    const I mask = _mm256_set1_epi8(0x0f);
    low = _mm256_and_si256(packed, mask);
    high = _mm256_and_si256(_mm256_srli_epi16(packed, 4), mask);
  }
  static void k_quants(const BlockQ5_K& block, std::size_t j, I& low, I& high) {
    const I packed = W::load_bytes(block.nibbles + 32 * j);
    const I fifth = _mm256_srl_epi16(W::load_bytes(block.high_bits), _mm_cvtsi32_si128(static_cast<int>(2 * j)));
    const I mask = _mm256_set1_epi8(0x0f);
    const I bit = _mm256_set1_epi8(0x10);
    low = _mm256_or_si256(_mm256_and_si256(packed, mask), _mm256_and_si256(_mm256_slli_epi16(fifth, 4), bit));
    high = _mm256_or_si256(_mm256_and_si256(_mm256_srli_epi16(packed, 4), mask),
                           _mm256_and_si256(_mm256_slli_epi16(fifth, 3), bit));
  }

  template <class Block, bool Fine>
  static float super(const std::byte* row, const ActivationRow& x, std::size_t columns, UnpackedRow) {
    F sum[2] = {W::zero(), W::zero()};
    F minima_sum = W::zero();
    for (std::size_t b = 0; b < columns / super_block; ++b) {
      const auto& block = *reinterpret_cast<const Block*>(row + b * sizeof(Block));
      F scales;
      F minima;
      k_scales(block.packed_scales, scales, minima);
      minima = W::mul(minima, W::set1(W::half(block.minimum)));
      minima_sum = W::fma(minima, W::load(x.sum32 + b * 8), minima_sum);
      alignas(32) float factor[8];
      W::store(factor, W::mul(W::mul(scales, W::set1(W::half(block.scale))), W::load(x.scale + b * 8)));
      for (std::size_t j = 0; j < 4; ++j) {
        const std::size_t at = b * super_block + 64 * j;
        I low;
        I high;
        k_quants(block, j, low, high);
        sum[0] = W::fma(W::to_float(dot<Fine>(low, x, at)), W::set1(factor[2 * j]), sum[0]);
        sum[1] = W::fma(W::to_float(dot<Fine>(high, x, at + 32)), W::set1(factor[2 * j + 1]), sum[1]);
      }
    }
    return W::sum(W::sub(W::add(sum[0], sum[1]), minima_sum));
  }

  // Quants of 32 elements 32j..32j+31 of half h of a Q6_K block.
  static I six_bits(const BlockQ6_K& block, std::size_t half, std::size_t j) {
    const I low = W::load_bytes(block.low_bits + 64 * half + 32 * (j & 1));
    const I high = W::load_bytes(block.high_bits + 32 * half);
    const I mask = _mm256_set1_epi8(0x0f);
    const I nibble = _mm256_and_si256(j < 2 ? low : _mm256_srli_epi16(low, 4), mask);
    const I shifted = _mm256_srl_epi16(high, _mm_cvtsi32_si128(static_cast<int>(2 * j)));
    const I pair = _mm256_and_si256(shifted, _mm256_set1_epi8(3));
    return _mm256_or_si256(nibble, _mm256_slli_epi16(pair, 4));
  }

  template <bool Fine>
  static float q6_k(const std::byte* row, const ActivationRow& x, std::size_t columns, UnpackedRow) {
    F sum = W::zero();
    F minima_sum = W::zero();
    for (std::size_t b = 0; b < columns / super_block; ++b) {
      const auto& block = *reinterpret_cast<const BlockQ6_K*>(row + b * sizeof(BlockQ6_K));
      const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(block.scales));
      const F d = W::set1(W::half(block.scale));
      const F scales_low = W::mul(d, _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)));
      const F scales_high = W::mul(d, _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(bytes, 8))));
      minima_sum = W::fma(scales_low, W::load(x.sum16 + b * 16), minima_sum);
      minima_sum = W::fma(scales_high, W::load(x.sum16 + b * 16 + 8), minima_sum);
      alignas(32) float scale[16];
      W::store(scale, scales_low);
      W::store(scale + 8, scales_high);
      for (std::size_t i = 0; i < 8; ++i) {
        const I products = dot<Fine>(six_bits(block, i / 4, i % 4), x, b * super_block + 32 * i);
        const F pair = _mm256_set_m128(_mm_set1_ps(scale[2 * i + 1]), _mm_set1_ps(scale[2 * i]));
        const F factor = W::mul(pair, W::set1(x.scale[b * 8 + i]));
        sum = W::fma(W::to_float(products), factor, sum);
      }
    }
    return W::sum(W::fma(minima_sum, W::set1(-32.0f), sum));
  }
};

}  // namespace roundhouse
