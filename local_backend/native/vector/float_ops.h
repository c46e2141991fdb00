// Float kernels as templates over a vector type V (simd_*.h): dot products, norms, activations, softmax.
// Reductions run over a fixed number of partial sums, so a result never depends on who computes it.
#pragma once

#include <cmath>

#include "quant/half.h"
#include "quant/kernels.h"

namespace roundhouse {

template <class V>
struct FloatOps {
  using F = typename V::F;
  static constexpr std::size_t L = V::lanes;

  static float dot(const float* a, const float* b, std::size_t n) {
    F sum[4] = {V::zero(), V::zero(), V::zero(), V::zero()};
    std::size_t i = 0;
    for (; i + 4 * L <= n; i += 4 * L) {
      for (std::size_t j = 0; j < 4; ++j) {
        sum[j] = V::fma(V::load(a + i + j * L), V::load(b + i + j * L), sum[j]);
      }
    }
    for (; i + L <= n; i += L) {
      sum[0] = V::fma(V::load(a + i), V::load(b + i), sum[0]);
    }
    float total = V::sum(V::add(V::add(sum[0], sum[1]), V::add(sum[2], sum[3])));
    for (; i < n; ++i) {
      total += a[i] * b[i];
    }
    return total;
  }

  static float dot_half(const std::uint16_t* a, const float* b, std::size_t n) {
    F sum[2] = {V::zero(), V::zero()};
    std::size_t i = 0;
    for (; i + 2 * L <= n; i += 2 * L) {
      sum[0] = V::fma(V::load_half(a + i), V::load(b + i), sum[0]);
      sum[1] = V::fma(V::load_half(a + i + L), V::load(b + i + L), sum[1]);
    }
    for (; i + L <= n; i += L) {
      sum[0] = V::fma(V::load_half(a + i), V::load(b + i), sum[0]);
    }
    float total = V::sum(V::add(sum[0], sum[1]));
    for (; i < n; ++i) {
      total += half_to_float(a[i]) * b[i];
    }
    return total;
  }

  static void scale_by(float* values, float factor, std::size_t n) {
    std::size_t i = 0;
    for (; i + L <= n; i += L) {
      V::store(values + i, V::mul(V::load(values + i), V::set1(factor)));
    }
    for (; i < n; ++i) {
      values[i] *= factor;
    }
  }

  static void to_half(const float* values, std::uint16_t* out, std::size_t n) {
    std::size_t i = 0;
    for (; i + L <= n; i += L) {
      V::store_half(out + i, V::load(values + i));
    }
    for (; i < n; ++i) {
      out[i] = float_to_half(values[i]);
    }
  }

  static void from_half(const std::uint16_t* half, float* out, std::size_t n) {
    std::size_t i = 0;
    for (; i + L <= n; i += L) {
      V::store(out + i, V::load_half(half + i));
    }
    for (; i < n; ++i) {
      out[i] = half_to_float(half[i]);
    }
  }

  static void rms_norm(const float* x, const float* weight, float epsilon, float* out, std::size_t n) {
    const float mean = dot(x, x, n) / static_cast<float>(n);
    const float factor = 1.0f / std::sqrt(mean + epsilon);
    std::size_t i = 0;
    for (; i + L <= n; i += L) {
      V::store(out + i, V::mul(V::mul(V::load(x + i), V::set1(factor)), V::load(weight + i)));
    }
    for (; i < n; ++i) {
      out[i] = x[i] * factor * weight[i];
    }
  }

  // exp by range reduction to |r| <= ln2/2 and a degree-6 polynomial (relative error below 3e-7); inputs
  // are clamped where the result would leave the normal range.
  static F exp(F x) {
    x = V::min(V::max(x, V::set1(-87.0f)), V::set1(88.0f));
    const F n = V::round(V::mul(x, V::set1(1.44269504f)));
    F r = V::fma(n, V::set1(-0.693359375f), x);
    r = V::fma(n, V::set1(2.12194440e-4f), r);
    F p = V::set1(1.0f / 720.0f);
    p = V::fma(p, r, V::set1(1.0f / 120.0f));
    p = V::fma(p, r, V::set1(1.0f / 24.0f));
    p = V::fma(p, r, V::set1(1.0f / 6.0f));
    p = V::fma(p, r, V::set1(0.5f));
    p = V::fma(p, r, V::set1(1.0f));
    p = V::fma(p, r, V::set1(1.0f));
    return V::mul(p, V::power_of_two(n));
  }

  static F sigmoid(F x) { return V::div(V::set1(1.0f), V::add(V::set1(1.0f), exp(V::sub(V::zero(), x)))); }

  static F activated(Activation activation, F gated, F up) {
    switch (activation) {
      case Activation::silu:
        return V::mul(V::mul(gated, sigmoid(gated)), up);
      case Activation::gelu: {  // tanh form: gated * sigmoid(2 * sqrt(2/pi) * (gated + 0.044715 gated^3))
        const F cubic = V::fma(V::mul(V::mul(gated, gated), gated), V::set1(0.044715f), gated);
        return V::mul(V::mul(gated, sigmoid(V::mul(cubic, V::set1(1.5957691216f)))), up);
      }
      case Activation::swiglu_oai: {
        const F x = V::min(gated, V::set1(7.0f));
        const F y = V::min(V::max(up, V::set1(-7.0f)), V::set1(7.0f));
        return V::mul(V::mul(x, sigmoid(V::mul(x, V::set1(1.702f)))), V::add(y, V::set1(1.0f)));
      }
    }
    return gated;
  }

  static void activate(Activation activation, float* values, const float* up, std::size_t n) {
    std::size_t i = 0;
    for (; i + L <= n; i += L) {
      V::store(values + i, activated(activation, V::load(values + i), V::load(up + i)));
    }
    if (i < n) {
      float padded_gate[L] = {};
      float padded_up[L] = {};
      for (std::size_t j = 0; i + j < n; ++j) {
        padded_gate[j] = values[i + j];
        padded_up[j] = up[i + j];
      }
      V::store(padded_gate, activated(activation, V::load(padded_gate), V::load(padded_up)));
      for (std::size_t j = 0; i + j < n; ++j) {
        values[i + j] = padded_gate[j];
      }
    }
  }

  static float exponentials(float* values, float maximum, std::size_t n) {
    F sum = V::zero();
    std::size_t i = 0;
    for (; i + L <= n; i += L) {
      const F e = exp(V::sub(V::load(values + i), V::set1(maximum)));
      V::store(values + i, e);
      sum = V::add(sum, e);
    }
    float total = V::sum(sum);
    if (i < n) {
      float padded[L] = {};
      for (std::size_t j = 0; i + j < n; ++j) {
        padded[j] = values[i + j] - maximum;
      }
      V::store(padded, exp(V::load(padded)));
      for (std::size_t j = 0; i + j < n; ++j) {
        values[i + j] = padded[j];
        total += padded[j];
      }
    }
    return total;
  }

  // Four rows of `out` by 16 columns at a time stay in registers while k runs.
  template <std::size_t Rows>
  static void multiply_add_rows(const float* a, std::size_t a_stride, const float* b, std::size_t b_stride,
                                float* out, std::size_t out_stride, std::size_t n, std::size_t k) {
    constexpr std::size_t wide = 16 / L;
    for (std::size_t column = 0; column < n; column += 16) {
      F sum[Rows][wide];
      for (std::size_t r = 0; r < Rows; ++r) {
        for (std::size_t w = 0; w < wide; ++w) {
          sum[r][w] = V::load(out + r * out_stride + column + w * L);
        }
      }
      for (std::size_t i = 0; i < k; ++i) {
        for (std::size_t w = 0; w < wide; ++w) {
          const F right = V::load(b + i * b_stride + column + w * L);
          for (std::size_t r = 0; r < Rows; ++r) {
            sum[r][w] = V::fma(V::set1(a[r * a_stride + i]), right, sum[r][w]);
          }
        }
      }
      for (std::size_t r = 0; r < Rows; ++r) {
        for (std::size_t w = 0; w < wide; ++w) {
          V::store(out + r * out_stride + column + w * L, sum[r][w]);
        }
      }
    }
  }

  static void multiply_add(const float* a, std::size_t a_stride, const float* b, std::size_t b_stride, float* out,
                           std::size_t out_stride, std::size_t m, std::size_t n, std::size_t k) {
    std::size_t row = 0;
    for (; row + 4 <= m; row += 4) {
      multiply_add_rows<4>(a + row * a_stride, a_stride, b, b_stride, out + row * out_stride, out_stride, n, k);
    }
    for (; row < m; ++row) {
      multiply_add_rows<1>(a + row * a_stride, a_stride, b, b_stride, out + row * out_stride, out_stride, n, k);
    }
  }
};

}  // namespace roundhouse
