// Multiplication of an interleaved panel of weight rows with many activation rows (prefill).
// One vector lane is one weight row; several tokens share every load of weights. The sum over columns runs in
// one fixed order for each (row, token), whatever else is computed beside it.
#pragma once

#include "quant/kernels.h"

namespace roundhouse {

template <class V>
struct PanelKernels {
  using F = typename V::F;
  using I = typename V::I;
  static constexpr std::size_t L = V::lanes;
  static constexpr std::size_t tile_tokens = V::lanes == 16 ? 8 : 4;

  static void interleave(const UnpackedRow& row, const Panel& panel, std::size_t index) {
    for (std::size_t i = 0; i < panel.columns / 4; ++i) {
      __builtin_memcpy(panel.quants + (i * L + index) * 4, row.quants + i * 4, 4);
    }
    for (std::size_t g = 0; g < panel.columns / panel.group; ++g) {
      panel.scale[g * L + index] = row.scale[g];
      panel.minimum[g * L + index] = row.minimum[g];
    }
  }

  // Adds the group's products with one digit of every token; `weights` are the group's.
  template <std::size_t Tokens, std::size_t Group, bool Wide, auto Digit>
  static void add_group(const std::uint8_t* weights, const ActivationRow* tokens, std::size_t first, I* dot) {
    for (std::size_t i = 0; i < Group / 4; ++i) {
      const auto w = V::load_bytes(weights + 4 * L * i);
      for (std::size_t t = 0; t < Tokens; ++t) {
        const auto x = V::broadcast4(tokens[t].*Digit + first + 4 * i);
        dot[t] = Wide ? V::dot4_wide(dot[t], w, x) : V::dot4(dot[t], w, x);
      }
    }
  }

  template <std::size_t Tokens, std::size_t Group, bool Wide, bool Fine>
  static void tile(const Panel& panel, const ActivationRow* tokens, float* out, std::size_t stride) {
    constexpr bool skip_minimum = Wide && V::wide_is_signed;
    F sum[Tokens];
    for (std::size_t t = 0; t < Tokens; ++t) {
      sum[t] = V::zero();
    }
    const std::uint8_t* weights = panel.quants;
    for (std::size_t g = 0; g < panel.columns / Group; ++g, weights += Group * L) {
      I dot[Tokens];
      for (std::size_t t = 0; t < Tokens; ++t) {
        dot[t] = V::izero();
      }
      add_group<Tokens, Group, Wide, &ActivationRow::high>(weights, tokens, g * Group, dot);
      if constexpr (Fine) {
        for (std::size_t t = 0; t < Tokens; ++t) {
          dot[t] = V::times_base(dot[t]);
        }
        add_group<Tokens, Group, Wide, &ActivationRow::low>(weights, tokens, g * Group, dot);
      }
      const F scale = V::load(panel.scale + g * L);
      const F minimum = V::load(panel.minimum + g * L);
      for (std::size_t t = 0; t < Tokens; ++t) {
        const F factor = V::mul(scale, V::set1(tokens[t].scale[g * Group / small_block]));
        sum[t] = V::fma(V::to_float(dot[t]), factor, sum[t]);
        if constexpr (!skip_minimum) {
          const float activation_sum = Group == small_block ? tokens[t].sum32[g] : tokens[t].sum16[g];
          sum[t] = V::fma(minimum, V::set1(activation_sum), sum[t]);
        }
      }
    }
    for (std::size_t t = 0; t < Tokens; ++t) {
      V::store(out + t * stride, sum[t]);
    }
  }

  template <std::size_t Group, bool Wide, bool Fine>
  static void run(const Panel& panel, const ActivationRow* tokens, std::size_t count, float* out,
                  std::size_t stride) {
    std::size_t t = 0;
    for (; t + tile_tokens <= count; t += tile_tokens) {
      tile<tile_tokens, Group, Wide, Fine>(panel, tokens + t, out + t * stride, stride);
    }
    if constexpr (tile_tokens == 8) {
      for (; t + 4 <= count; t += 4) {
        tile<4, Group, Wide, Fine>(panel, tokens + t, out + t * stride, stride);
      }
    }
    for (; t + 2 <= count; t += 2) {
      tile<2, Group, Wide, Fine>(panel, tokens + t, out + t * stride, stride);
    }
    for (; t < count; ++t) {
      tile<1, Group, Wide, Fine>(panel, tokens + t, out + t * stride, stride);
    }
  }

  template <bool Fine>
  static void multiply_as(const Panel& panel, const ActivationRow* tokens, std::size_t count, float* out,
                          std::size_t stride) {
    if (panel.group == 16) {
      run<16, false, Fine>(panel, tokens, count, out, stride);
    } else if (panel.wide) {
      run<32, true, Fine>(panel, tokens, count, out, stride);
    } else {
      run<32, false, Fine>(panel, tokens, count, out, stride);
    }
  }

  static void multiply(const Panel& panel, const ActivationRow* tokens, std::size_t count, float* out,
                       std::size_t stride) {
    if (tokens[0].low == nullptr) {
      multiply_as<false>(panel, tokens, count, out, stride);
    } else {
      multiply_as<true>(panel, tokens, count, out, stride);
    }
  }
};

}  // namespace roundhouse
