// The table of functions that one instruction set provides, and the plain values they work on.
// Chosen once per runtime (cpu/features.h says which sets the machine has). Knows no threads, no layers.
#pragma once

#include <cstddef>
#include <cstdint>

#include "quant/block_types.h"

namespace roundhouse {

// How finely inputs of quantised matrices are rounded, per block of 32.
enum class Precision : std::uint32_t { eight_bits = 8, sixteen_bits = 16 };

// A 16-bit quant is two digits of base 255, each in -127..127: quant = 255 * high + low. Symmetric digits, unlike
// bytes of a 16-bit integer, never are -128, whose negative does not fit a byte (AVX2 moves signs between factors).
inline constexpr std::int32_t digit_base = 255;
inline constexpr std::int32_t largest_digit = 127;

// One token's input of a matrix: the floats, and the same rounded: value ~= scale[b] * quant, where quant is
// high[i], or 255 * high[i] + low[i] where there are low digits. sum32/sum16 hold scale * (sum of quants) per 32
// and per 16 elements. Sums of 32 products with 8-bit weights stay below 2^28: 32 * 255 * 32512.
struct ActivationRow {
  const float* values;
  const std::int8_t* high;
  const std::int8_t* low;  // null: 8 bits
  const float* scale;
  const float* sum32;
  const float* sum16;
};

struct MutableActivationRow {
  std::int8_t* high;
  std::int8_t* low;
  float* scale;
  float* sum32;
  float* sum16;
};

// One weight row in the form all quantised types share: weight = scale * quant + minimum per group.
struct UnpackedRow {
  std::uint8_t* quants;
  float* scale;
  float* minimum;
};

// `Kernels::panel_rows` weight rows, interleaved by four elements so that one vector holds the same four
// columns of every row: quants[column / 4][row][4], scale[group][row], minimum[group][row].
struct Panel {
  std::uint8_t* quants;
  float* scale;
  float* minimum;
  std::size_t columns;
  std::size_t group;  // elements per scale: 32 or 16
  bool wide;          // quants use all eight bits
};

struct BlockKernels {
  std::size_t group = 0;  // elements per scale; 0 for float types
  bool wide = false;
  // columns are whole blocks
  void (*dequantise)(const std::byte* row, float* out, std::size_t columns) = nullptr;
  void (*unpack)(const std::byte* row, UnpackedRow out, std::size_t columns) = nullptr;
  // out[r] = row r (dot) activation, rows lying one behind the other; `scratch` holds one unpacked row
  void (*dot_rows)(const std::byte* first, std::size_t rows, const ActivationRow& activation, std::size_t columns,
                   UnpackedRow scratch, float* out) = nullptr;
};

// Rows of float16, `stride` elements apart: one head's part of a cache.
struct HalfRows {
  const std::uint16_t* first;
  std::size_t stride;
  std::size_t count;
  std::size_t width;
};

enum class Activation : std::uint32_t { silu = 0, gelu = 1, swiglu_oai = 2 };

struct Kernels {
  const char* name = "";
  std::size_t panel_rows = 1;
  BlockKernels blocks[block_type_limit];

  // Rounds whole blocks of 32; block scale = max|x| / 127, or max|x| / 32512 where there are low digits.
  void (*quantise)(const float* values, MutableActivationRow out, std::size_t columns) = nullptr;
  void (*interleave)(const UnpackedRow& row, const Panel& panel, std::size_t index) = nullptr;
  // out[token * stride + row] for the panel's rows
  void (*multiply_panel)(const Panel& panel, const ActivationRow* tokens, std::size_t count, float* out,
                         std::size_t stride) = nullptr;

  float (*dot)(const float* a, const float* b, std::size_t n) = nullptr;
  // scores[head * stride + row] = scale * (row (dot) queries[head])
  void (*score_rows)(const HalfRows& keys, const float* queries, std::size_t heads, float scale, float* scores,
                     std::size_t stride) = nullptr;
  // sums[head * sum_stride + column] = sum over rows of weights[head * stride + row] * row[column]
  void (*mix_rows)(const HalfRows& values, const float* weights, std::size_t stride, std::size_t heads, float* sums,
                   std::size_t sum_stride) = nullptr;
  void (*scale_by)(float* values, float factor, std::size_t n) = nullptr;
  void (*to_half)(const float* values, std::uint16_t* out, std::size_t n) = nullptr;
  void (*from_half)(const std::uint16_t* half, float* out, std::size_t n) = nullptr;
  // out = x / rms(x) * weight; out may be x
  void (*rms_norm)(const float* x, const float* weight, float epsilon, float* out, std::size_t n) = nullptr;
  // gated = activation(gated) * up, element by element
  void (*activate)(Activation activation, float* gated, const float* up, std::size_t n) = nullptr;
  // values = exp(values - maximum); returns their sum
  float (*exponentials)(float* values, float maximum, std::size_t n) = nullptr;
  // out[m][n] += a[m][k] * b[k][n]; n is a multiple of 16
  void (*multiply_add)(const float* a, std::size_t a_stride, const float* b, std::size_t b_stride, float* out,
                       std::size_t out_stride, std::size_t m, std::size_t n, std::size_t k) = nullptr;
};

const Kernels& scalar_kernels();
#if defined(ROUNDHOUSE_X86)
const Kernels& avx2_kernels();
const Kernels& avx512_kernels();
#endif

}  // namespace roundhouse
