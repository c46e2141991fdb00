// Attention of one token over rows of float16: every row is read and widened once for several heads.
// Templates over a vector type V (simd_*.h). Sums run over positions in order.
#pragma once

#include "quant/half.h"
#include "quant/kernels.h"
#include "vector/prefetch.h"

namespace roundhouse {

template <class V>
struct HalfRowOps {
  using F = typename V::F;
  static constexpr std::size_t L = V::lanes;
  static constexpr std::size_t head_block = 4;
  static constexpr std::size_t rows_ahead = 64;  // rows of one head lie apart: memory guesses them badly
  static constexpr std::size_t vector_block = L == 16 ? 4 : 2;  // with head_block what the registers hold

  template <std::size_t Heads>
  static void score_heads(const HalfRows& keys, const float* queries, float scale, float* scores,
                          std::size_t stride) {
    for (std::size_t p = 0; p < keys.count; ++p) {
      const std::uint16_t* key = keys.first + p * keys.stride;
      prefetch<V>(key + rows_ahead * keys.stride, keys.width * sizeof(*key));
      F sum[Heads];
      for (std::size_t h = 0; h < Heads; ++h) {
        sum[h] = V::zero();
      }
      std::size_t i = 0;
      for (; i + L <= keys.width; i += L) {
        const F wide = V::load_half(key + i);
        for (std::size_t h = 0; h < Heads; ++h) {
          sum[h] = V::fma(wide, V::load(queries + h * keys.width + i), sum[h]);
        }
      }
      for (std::size_t h = 0; h < Heads; ++h) {
        float total = V::sum(sum[h]);
        for (std::size_t j = i; j < keys.width; ++j) {
          total += half_to_float(key[j]) * queries[h * keys.width + j];
        }
        scores[h * stride + p] = scale * total;
      }
    }
  }

  template <std::size_t Heads, std::size_t Vectors>
  static void mix_columns(const HalfRows& values, std::size_t first, const float* weights, std::size_t stride,
                          float* sums, std::size_t sum_stride) {
    F sum[Heads][Vectors];
    for (std::size_t h = 0; h < Heads; ++h) {
      for (std::size_t v = 0; v < Vectors; ++v) {
        sum[h][v] = V::zero();
      }
    }
    for (std::size_t p = 0; p < values.count; ++p) {
      const std::uint16_t* value = values.first + p * values.stride + first;
      prefetch<V>(value + rows_ahead * values.stride, Vectors * L * sizeof(*value));
      F wide[Vectors];
      for (std::size_t v = 0; v < Vectors; ++v) {
        wide[v] = V::load_half(value + v * L);
      }
      for (std::size_t h = 0; h < Heads; ++h) {
        const F weight = V::set1(weights[h * stride + p]);
        for (std::size_t v = 0; v < Vectors; ++v) {
          sum[h][v] = V::fma(wide[v], weight, sum[h][v]);
        }
      }
    }
    for (std::size_t h = 0; h < Heads; ++h) {
      for (std::size_t v = 0; v < Vectors; ++v) {
        V::store(sums + h * sum_stride + first + v * L, sum[h][v]);
      }
    }
  }

  template <std::size_t Heads>
  static void mix_heads(const HalfRows& values, const float* weights, std::size_t stride, float* sums,
                        std::size_t sum_stride) {
    std::size_t i = 0;
    for (; i + vector_block * L <= values.width; i += vector_block * L) {
      mix_columns<Heads, vector_block>(values, i, weights, stride, sums, sum_stride);
    }
    for (; i + L <= values.width; i += L) {
      mix_columns<Heads, 1>(values, i, weights, stride, sums, sum_stride);
    }
    for (; i < values.width; ++i) {
      for (std::size_t h = 0; h < Heads; ++h) {
        float total = 0.0f;
        for (std::size_t p = 0; p < values.count; ++p) {
          total += half_to_float(values.first[p * values.stride + i]) * weights[h * stride + p];
        }
        sums[h * sum_stride + i] = total;
      }
    }
  }

  // Calls body.operator()<Heads>(first head) over blocks of up to four heads.
  template <class Body>
  static void by_heads(std::size_t heads, Body&& body) {
    std::size_t h = 0;
    for (; h + head_block <= heads; h += head_block) {
      body.template operator()<head_block>(h);
    }
    switch (heads - h) {
      case 3:
        return body.template operator()<3>(h);
      case 2:
        return body.template operator()<2>(h);
      case 1:
        return body.template operator()<1>(h);
      default:
        return;
    }
  }

  static void score(const HalfRows& keys, const float* queries, std::size_t heads, float scale, float* scores,
                    std::size_t stride) {
    by_heads(heads, [&]<std::size_t Heads>(std::size_t h) {
      score_heads<Heads>(keys, queries + h * keys.width, scale, scores + h * stride, stride);
    });
  }

  static void mix(const HalfRows& values, const float* weights, std::size_t stride, std::size_t heads, float* sums,
                  std::size_t sum_stride) {
    by_heads(heads, [&]<std::size_t Heads>(std::size_t h) {
      mix_heads<Heads>(values, weights + h * stride, stride, sums + h * sum_stride, sum_stride);
    });
  }
};

}  // namespace roundhouse
