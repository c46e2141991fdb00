// Sixteen lanes over AVX-512 F, BW, DQ, VL and VNNI, and eight lanes of the same for work by blocks of 32.
// Only files compiled for that set include this.
#pragma once

#include "vector/simd_avx2.h"

namespace roundhouse {
namespace {

struct Avx512 {
  using F = __m512;
  using I = __m512i;
  using Bytes = __m512i;
  static constexpr std::size_t lanes = 16;
  static constexpr bool wide_is_signed = false;

  static F zero() { return _mm512_setzero_ps(); }
  static F set1(float x) { return _mm512_set1_ps(x); }
  static F load(const float* p) { return _mm512_loadu_ps(p); }
  static void store(float* p, F x) { _mm512_storeu_ps(p, x); }
  static F add(F a, F b) { return _mm512_add_ps(a, b); }
  static F sub(F a, F b) { return _mm512_sub_ps(a, b); }
  static F mul(F a, F b) { return _mm512_mul_ps(a, b); }
  static F div(F a, F b) { return _mm512_div_ps(a, b); }
  static F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
  static F max(F a, F b) { return _mm512_max_ps(a, b); }
  static F min(F a, F b) { return _mm512_min_ps(a, b); }
  static F abs(F a) { return _mm512_abs_ps(a); }
  static F round(F a) { return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
  static __m256 halves(F a) { return _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1)); }
  static float sum(F a) { return Avx2::sum(halves(a)); }
  static float highest(F a) {
    return Avx2::highest(_mm256_max_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1)));
  }
  static F load_half(const std::uint16_t* p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  static void store_half(std::uint16_t* p, F x) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
  }
  static F load_bfloat(const std::uint16_t* p) {
    const __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
    return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
  }
  static float half(std::uint16_t x) { return _cvtsh_ss(x); }
  static void store_rounded_bytes(std::int8_t* p, F x) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtsepi32_epi8(_mm512_cvtps_epi32(x)));
  }
  static F power_of_two(F n) { return _mm512_scalef_ps(_mm512_set1_ps(1.0f), n); }

  static I izero() { return _mm512_setzero_si512(); }
  static Bytes load_bytes(const void* p) { return _mm512_loadu_si512(p); }
  static Bytes broadcast4(const std::int8_t* p) {
    std::int32_t four;
    __builtin_memcpy(&four, p, 4);
    return _mm512_set1_epi32(four);
  }
  static I dot4(I sum, Bytes weights, Bytes activations) { return _mm512_dpbusd_epi32(sum, weights, activations); }
  static I dot4_wide(I sum, Bytes weights, Bytes activations) { return dot4(sum, weights, activations); }
  static I times_base(I x) { return _mm512_sub_epi32(_mm512_slli_epi32(x, 8), x); }  // digit_base
  static F to_float(I x) { return _mm512_cvtepi32_ps(x); }
};

struct Avx512Half : Avx2 {
  static I dot4(I sum, Bytes weights, Bytes activations) { return _mm256_dpbusd_epi32(sum, weights, activations); }
  static I dot4_signed(I sum, Bytes weights, Bytes activations) {
    return dot4(sum, _mm256_abs_epi8(weights), _mm256_sign_epi8(activations, weights));
  }
};

}  // namespace
}  // namespace roundhouse
