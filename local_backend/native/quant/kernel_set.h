// Builds an instruction set's table of kernels from its vector type V. Included once per set.
#pragma once

#include "matmul/panel.h"
#include "quant/dot_rows.h"
#include "quant/half.h"
#include "quant/kernels.h"
#include "quant/unpack.h"
#include "vector/float_ops.h"
#include "vector/half_rows.h"

namespace roundhouse {

template <class V>
struct KernelSet {
  using F = typename V::F;
  static constexpr std::size_t L = V::lanes;

  template <class Unpack>
  static void dequantise(const std::byte* row, float* out, std::size_t columns) {
    constexpr std::size_t chunk = super_block;
    std::uint8_t quants[chunk];
    float scale[chunk / 16];
    float minimum[chunk / 16];
    std::size_t done = 0;
    while (done < columns) {
      const std::size_t count = columns - done < chunk ? columns - done : chunk;
      Unpack::run(row, {quants, scale, minimum}, count);
      for (std::size_t i = 0; i < count; ++i) {
        const std::size_t g = i / Unpack::group;
        const float quant = static_cast<float>(static_cast<int>(quants[i]) - Unpack::offset);
        out[done + i] = Unpack::offset != 0 ? scale[g] * quant : scale[g] * quant + minimum[g];
      }
      done += count;
      row += count / Unpack::block_elements * Unpack::block_bytes;
    }
  }

  // The generic dot: unpack into scratch, then integer sums per group in plain loops.
  template <class Unpack, bool Fine>
  static float dot_unpacked(const std::byte* row, const ActivationRow& x, std::size_t columns, UnpackedRow scratch) {
    Unpack::run(row, scratch, columns);
    const float* sums = Unpack::group == 32 ? x.sum32 : x.sum16;
    float total = 0.0f;
    for (std::size_t g = 0; g < columns / Unpack::group; ++g) {
      std::int32_t dot = 0;
      for (std::size_t i = g * Unpack::group; i < (g + 1) * Unpack::group; ++i) {
        const std::int32_t quant = Fine ? digit_base * x.high[i] + x.low[i] : x.high[i];
        dot += static_cast<std::int32_t>(scratch.quants[i]) * quant;
      }
      total += static_cast<float>(dot) * (scratch.scale[g] * x.scale[g * Unpack::group / small_block]);
      total += scratch.minimum[g] * sums[g];
    }
    return total;
  }

  static void dequantise_f32(const std::byte* row, float* out, std::size_t columns) {
    std::memcpy(out, row, columns * sizeof(float));
  }
  static void dequantise_f16(const std::byte* row, float* out, std::size_t columns) {
    FloatOps<V>::from_half(reinterpret_cast<const std::uint16_t*>(row), out, columns);
  }
  static void dequantise_bf16(const std::byte* row, float* out, std::size_t columns) {
    const auto* values = reinterpret_cast<const std::uint16_t*>(row);
    for (std::size_t i = 0; i < columns; ++i) {
      out[i] = bfloat_to_float(values[i]);
    }
  }

  static float dot_f32(const std::byte* row, const ActivationRow& x, std::size_t columns, UnpackedRow) {
    return FloatOps<V>::dot(reinterpret_cast<const float*>(row), x.values, columns);
  }
  static float dot_f16(const std::byte* row, const ActivationRow& x, std::size_t columns, UnpackedRow) {
    return FloatOps<V>::dot_half(reinterpret_cast<const std::uint16_t*>(row), x.values, columns);
  }
  static float dot_bf16(const std::byte* row, const ActivationRow& x, std::size_t columns, UnpackedRow) {
    const auto* weights = reinterpret_cast<const std::uint16_t*>(row);
    F sum[2] = {V::zero(), V::zero()};
    std::size_t i = 0;
    for (; i + 2 * L <= columns; i += 2 * L) {
      sum[0] = V::fma(V::load_bfloat(weights + i), V::load(x.values + i), sum[0]);
      sum[1] = V::fma(V::load_bfloat(weights + i + L), V::load(x.values + i + L), sum[1]);
    }
    float total = V::sum(V::add(sum[0], sum[1]));
    for (; i < columns; ++i) {
      total += bfloat_to_float(weights[i]) * x.values[i];
    }
    return total;
  }

  // Both roundings are exact to the last bit in float: quants stay below 2^15, and no quant / 255 is a tie.
  template <bool Fine>
  static void store_digits(F scaled, std::int8_t* high, std::int8_t* low) {
    if constexpr (Fine) {
      const F quant = V::round(scaled);
      const F digit = V::round(V::mul(quant, V::set1(1.0f / digit_base)));
      V::store_rounded_bytes(high, digit);
      V::store_rounded_bytes(low, V::sub(quant, V::mul(digit, V::set1(digit_base))));
    } else {
      static_cast<void>(low);
      V::store_rounded_bytes(high, scaled);
    }
  }

  template <bool Fine>
  static void quantise_as(const float* values, MutableActivationRow out, std::size_t columns) {
    constexpr float limit = Fine ? largest_digit * digit_base + largest_digit : largest_digit;
    for (std::size_t b = 0; b < columns / small_block; ++b) {
      const float* x = values + b * small_block;
      F largest = V::zero();
      for (std::size_t i = 0; i < small_block; i += L) {
        largest = V::max(largest, V::abs(V::load(x + i)));
      }
      const float peak = V::highest(largest);
      const float inverse = peak > 0.0f ? limit / peak : 0.0f;
      std::int8_t* high = out.high + b * small_block;
      std::int8_t* low = Fine ? out.low + b * small_block : nullptr;
      for (std::size_t i = 0; i < small_block; i += L) {
        store_digits<Fine>(V::mul(V::load(x + i), V::set1(inverse)), high + i, Fine ? low + i : nullptr);
      }
      std::int32_t first = 0;
      std::int32_t second = 0;
      for (std::size_t i = 0; i < 16; ++i) {
        first += Fine ? digit_base * high[i] + low[i] : high[i];
        second += Fine ? digit_base * high[i + 16] + low[i + 16] : high[i + 16];
      }
      const float scale = peak / limit;
      out.scale[b] = scale;
      out.sum16[2 * b] = scale * static_cast<float>(first);
      out.sum16[2 * b + 1] = scale * static_cast<float>(second);
      out.sum32[b] = scale * static_cast<float>(first + second);
    }
  }

  static void quantise(const float* values, MutableActivationRow out, std::size_t columns) {
    if (out.low == nullptr) {
      quantise_as<false>(values, out, columns);
    } else {
      quantise_as<true>(values, out, columns);
    }
  }

  template <class Unpack>
  static constexpr BlockKernels quantised() {
    return {Unpack::group, Unpack::offset == 128, dequantise<Unpack>, Unpack::run,
            dot_rows<V, Unpack::block_elements, Unpack::block_bytes, dot_unpacked<Unpack, false>,
                     dot_unpacked<Unpack, true>>};
  }

  static Kernels make(const char* name) {
    using Ops = FloatOps<V>;
    Kernels k;
    k.name = name;
    k.panel_rows = L;
    const auto set = [&k](BlockType type, BlockKernels kernels) {
      k.blocks[static_cast<std::size_t>(type)] = kernels;
    };
    set(BlockType::f32, {0, false, dequantise_f32, nullptr, each_row<V, 1, 4, dot_f32>});
    set(BlockType::f16, {0, false, dequantise_f16, nullptr, each_row<V, 1, 2, dot_f16>});
    set(BlockType::bf16, {0, false, dequantise_bf16, nullptr, each_row<V, 1, 2, dot_bf16>});
    set(BlockType::q4_0, quantised<UnpackQ4_0<V>>());
    set(BlockType::q4_1, quantised<UnpackQ4_1<V>>());
    set(BlockType::q5_0, quantised<UnpackQ5_0<V>>());
    set(BlockType::q5_1, quantised<UnpackQ5_1<V>>());
    set(BlockType::q8_0, quantised<UnpackQ8_0<V>>());
    set(BlockType::q4_k, quantised<UnpackQ4_K<V>>());
    set(BlockType::q5_k, quantised<UnpackQ5_K<V>>());
    set(BlockType::q6_k, quantised<UnpackQ6_K<V>>());
    k.quantise = quantise;
    k.interleave = PanelKernels<V>::interleave;
    k.multiply_panel = PanelKernels<V>::multiply;
    k.dot = Ops::dot;
    k.score_rows = HalfRowOps<V>::score;
    k.mix_rows = HalfRowOps<V>::mix;
    k.scale_by = Ops::scale_by;
    k.to_half = Ops::to_half;
    k.from_half = Ops::from_half;
    k.rms_norm = Ops::rms_norm;
    k.activate = Ops::activate;
    k.exponentials = Ops::exponentials;
    k.multiply_add = Ops::multiply_add;
    return k;
  }
};

}  // namespace roundhouse
