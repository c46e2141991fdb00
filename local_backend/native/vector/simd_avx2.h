// Eight lanes over AVX2, FMA and F16C. Only files compiled for at least that set include this.
#pragma once

#include <immintrin.h>

#include "quant/half.h"

namespace roundhouse {
namespace {

struct Avx2 {
  using F = __m256;
  using I = __m256i;
  using Bytes = __m256i;
  static constexpr std::size_t lanes = 8;
  // Pairs of unsigned 8-bit products overflow 16 bits, so such quants are used signed (offset removed).
  static constexpr bool wide_is_signed = true;

  static F zero() { return _mm256_setzero_ps(); }
  static F set1(float x) { return _mm256_set1_ps(x); }
  static F load(const float* p) { return _mm256_loadu_ps(p); }
  static void store(float* p, F x) { _mm256_storeu_ps(p, x); }
  static F add(F a, F b) { return _mm256_add_ps(a, b); }
  static F sub(F a, F b) { return _mm256_sub_ps(a, b); }
  static F mul(F a, F b) { return _mm256_mul_ps(a, b); }
  static F div(F a, F b) { return _mm256_div_ps(a, b); }
  static F fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
  static F max(F a, F b) { return _mm256_max_ps(a, b); }
  static F min(F a, F b) { return _mm256_min_ps(a, b); }
  static F abs(F a) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a); }
  static F round(F a) { return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
  static float sum(F a) {
    __m128 x = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    x = _mm_add_ps(x, _mm_movehl_ps(x, x));
    return _mm_cvtss_f32(_mm_add_ss(x, _mm_movehdup_ps(x)));
  }
  static float highest(F a) {
    __m128 x = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    x = _mm_max_ps(x, _mm_movehl_ps(x, x));
    return _mm_cvtss_f32(_mm_max_ss(x, _mm_movehdup_ps(x)));
  }
  static F load_half(const std::uint16_t* p) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  static void store_half(std::uint16_t* p, F x) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
  }
  static F load_bfloat(const std::uint16_t* p) {
    const __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
    return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
  }
  static float half(std::uint16_t x) { return _cvtsh_ss(x); }
  static void store_rounded_bytes(std::int8_t* p, F x) {
    const __m256i wide = _mm256_cvtps_epi32(x);
    const __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(wide), _mm256_extracti128_si256(wide, 1));
    _mm_storel_epi64(reinterpret_cast<__m128i*>(p), _mm_packs_epi16(words, words));
  }
  static F power_of_two(F n) {
    const __m256i exponent = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
    return _mm256_castsi256_ps(_mm256_slli_epi32(exponent, 23));
  }

  static I izero() { return _mm256_setzero_si256(); }
  static Bytes load_bytes(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
  static Bytes broadcast4(const std::int8_t* p) {
    std::int32_t four;
    __builtin_memcpy(&four, p, 4);
    return _mm256_set1_epi32(four);
  }
  // Quants below 128: a pair of products fits 16 bits (2 * 127 * 127).
  static I dot4(I sum, Bytes weights, Bytes activations) {
    const __m256i pairs = _mm256_maddubs_epi16(weights, activations);
    return _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
  }
  // Quants of eight bits with offset 128: adds (weight - 128) * activation.
  static I dot4_wide(I sum, Bytes weights, Bytes activations) {
    return dot4_signed(sum, _mm256_xor_si256(weights, _mm256_set1_epi8(-128)), activations);
  }
  static I dot4_signed(I sum, Bytes weights, Bytes activations) {
    return dot4(sum, _mm256_abs_epi8(weights), _mm256_sign_epi8(activations, weights));
  }
  static I times_base(I x) { return _mm256_sub_epi32(_mm256_slli_epi32(x, 8), x); }  // digit_base
  static F to_float(I x) { return _mm256_cvtepi32_ps(x); }
};

}  // namespace
}  // namespace roundhouse
