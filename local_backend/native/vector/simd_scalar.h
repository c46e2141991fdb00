// One-lane "vectors": the scalar twin of every kernel is the same template over these.
#pragma once

#include <cmath>
#include <cstring>

#include "quant/half.h"

namespace roundhouse {
namespace {

struct Scalar {
  using F = float;
  struct Bytes {
    std::uint8_t at[4];
  };
  using I = std::int32_t;
  static constexpr std::size_t lanes = 1;
  static constexpr bool wide_is_signed = false;

  static F zero() { return 0.0f; }
  static F set1(float x) { return x; }
  static F load(const float* p) { return *p; }
  static void store(float* p, F x) { *p = x; }
  static F add(F a, F b) { return a + b; }
  static F sub(F a, F b) { return a - b; }
  static F mul(F a, F b) { return a * b; }
  static F div(F a, F b) { return a / b; }
  static F fma(F a, F b, F c) { return a * b + c; }
  static F max(F a, F b) { return a > b ? a : b; }
  static F min(F a, F b) { return a < b ? a : b; }
  static F abs(F a) { return std::fabs(a); }
  static F round(F a) { return std::nearbyint(a); }
  static float sum(F a) { return a; }
  static float highest(F a) { return a; }
  static F load_half(const std::uint16_t* p) { return half_to_float(*p); }
  static void store_half(std::uint16_t* p, F x) { *p = float_to_half(x); }
  static F load_bfloat(const std::uint16_t* p) { return bfloat_to_float(*p); }
  static float half(std::uint16_t x) { return half_to_float(x); }
  static void store_rounded_bytes(std::int8_t* p, F x) { *p = static_cast<std::int8_t>(std::lrint(x)); }
  // 2^n for integral n in the normal range
  static F power_of_two(F n) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(static_cast<std::int32_t>(n) + 127) << 23);
  }

  static I izero() { return 0; }
  static Bytes load_bytes(const void* p) {
    Bytes bytes;
    std::memcpy(bytes.at, p, 4);
    return bytes;
  }
  static Bytes broadcast4(const std::int8_t* p) { return load_bytes(p); }
  static I dot4(I sum, Bytes weights, Bytes activations) {
    for (int i = 0; i < 4; ++i) {
      sum += static_cast<int>(weights.at[i]) * static_cast<std::int8_t>(activations.at[i]);
    }
    return sum;
  }
  static I dot4_wide(I sum, Bytes weights, Bytes activations) { return dot4(sum, weights, activations); }
  static I times_base(I x) { return 255 * x; }  // digit_base
  static F to_float(I x) { return static_cast<float>(x); }
};

}  // namespace
}  // namespace roundhouse
