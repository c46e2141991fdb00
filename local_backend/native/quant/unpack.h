// Unpacking of weight rows into 8-bit quants with a scale and a minimum per group, in plain loops.
// Included once per instruction set; `Isa` is its vector type, in an unnamed namespace, so that every set gets its
// own copy (vectorised by the compiler under that set's flags) and none leaks into another.
#pragma once

#include <cstring>

#include "quant/block_types.h"
#include "quant/kernels.h"

namespace roundhouse {

// Blocks start at even addresses: a matrix starts at a multiple of four and block sizes are even.
template <class Isa, class Block>
static inline const Block& block_at(const std::byte* row, std::size_t index) {
  return reinterpret_cast<const Block*>(row)[index];
}

template <class Isa>
static inline void split_nibbles(const std::uint8_t* nibbles, std::uint8_t* out, std::size_t half) {
  for (std::size_t i = 0; i < half; ++i) {
    out[i] = nibbles[i] & 0x0f;
    out[i + half] = nibbles[i] >> 4;
  }
}

template <class Isa>
static inline void add_fifth_bits(const std::uint8_t* high_bits, std::uint8_t* out) {
  std::uint32_t bits;
  std::memcpy(&bits, high_bits, sizeof(bits));
  for (std::size_t i = 0; i < small_block; ++i) {
    out[i] = static_cast<std::uint8_t>(out[i] | (((bits >> i) & 1u) << 4));
  }
}

// The six-bit scale and minimum of sub-block `index` of a Q4_K or Q5_K block.
template <class Isa>
static inline void scale_and_minimum(const std::uint8_t* packed, std::size_t index, std::uint8_t& scale,
                                     std::uint8_t& minimum) {
  if (index < 4) {
    scale = packed[index] & 63;
    minimum = packed[index + 4] & 63;
  } else {
    scale = static_cast<std::uint8_t>((packed[index + 4] & 0x0f) | ((packed[index - 4] >> 6) << 4));
    minimum = static_cast<std::uint8_t>((packed[index + 4] >> 4) | ((packed[index] >> 6) << 4));
  }
}

template <class Isa>
struct UnpackQ4_0 {
  static constexpr std::size_t block_elements = small_block;
  static constexpr std::size_t block_bytes = sizeof(BlockQ4_0);
  static constexpr std::size_t group = 32;
  static constexpr int offset = 8;
  static void run(const std::byte* row, UnpackedRow out, std::size_t columns) {
    for (std::size_t b = 0; b < columns / small_block; ++b) {
      const auto& block = block_at<Isa, BlockQ4_0>(row, b);
      split_nibbles<Isa>(block.nibbles, out.quants + b * small_block, 16);
      out.scale[b] = Isa::half(block.scale);
      out.minimum[b] = -8.0f * out.scale[b];
    }
  }
};

template <class Isa>
struct UnpackQ4_1 {
  static constexpr std::size_t block_elements = small_block;
  static constexpr std::size_t block_bytes = sizeof(BlockQ4_1);
  static constexpr std::size_t group = 32;
  static constexpr int offset = 0;
  static void run(const std::byte* row, UnpackedRow out, std::size_t columns) {
    for (std::size_t b = 0; b < columns / small_block; ++b) {
      const auto& block = block_at<Isa, BlockQ4_1>(row, b);
      split_nibbles<Isa>(block.nibbles, out.quants + b * small_block, 16);
      out.scale[b] = Isa::half(block.scale);
      out.minimum[b] = Isa::half(block.minimum);
    }
  }
};

template <class Isa>
struct UnpackQ5_0 {
  static constexpr std::size_t block_elements = small_block;
  static constexpr std::size_t block_bytes = sizeof(BlockQ5_0);
  static constexpr std::size_t group = 32;
  static constexpr int offset = 16;
  static void run(const std::byte* row, UnpackedRow out, std::size_t columns) {
    for (std::size_t b = 0; b < columns / small_block; ++b) {
      const auto& block = block_at<Isa, BlockQ5_0>(row, b);
      split_nibbles<Isa>(block.nibbles, out.quants + b * small_block, 16);
      add_fifth_bits<Isa>(block.high_bits, out.quants + b * small_block);
      out.scale[b] = Isa::half(block.scale);
      out.minimum[b] = -16.0f * out.scale[b];
    }
  }
};

template <class Isa>
struct UnpackQ5_1 {
  static constexpr std::size_t block_elements = small_block;
  static constexpr std::size_t block_bytes = sizeof(BlockQ5_1);
  static constexpr std::size_t group = 32;
  static constexpr int offset = 0;
  static void run(const std::byte* row, UnpackedRow out, std::size_t columns) {
    for (std::size_t b = 0; b < columns / small_block; ++b) {
      const auto& block = block_at<Isa, BlockQ5_1>(row, b);
      split_nibbles<Isa>(block.nibbles, out.quants + b * small_block, 16);
      add_fifth_bits<Isa>(block.high_bits, out.quants + b * small_block);
      out.scale[b] = Isa::half(block.scale);
      out.minimum[b] = Isa::half(block.minimum);
    }
  }
};

template <class Isa>
struct UnpackQ8_0 {
  static constexpr std::size_t block_elements = small_block;
  static constexpr std::size_t block_bytes = sizeof(BlockQ8_0);
  static constexpr std::size_t group = 32;
  static constexpr int offset = 128;
  static void run(const std::byte* row, UnpackedRow out, std::size_t columns) {
    for (std::size_t b = 0; b < columns / small_block; ++b) {
      const auto& block = block_at<Isa, BlockQ8_0>(row, b);
      std::uint8_t* quants = out.quants + b * small_block;
      for (std::size_t i = 0; i < small_block; ++i) {
        quants[i] = static_cast<std::uint8_t>(static_cast<std::uint8_t>(block.quants[i]) ^ 0x80u);
      }
      out.scale[b] = Isa::half(block.scale);
      out.minimum[b] = -128.0f * out.scale[b];
    }
  }
};

template <class Isa, class Block>
static inline void unpack_k_scales(const Block& block, UnpackedRow out, std::size_t first) {
  const float scale = Isa::half(block.scale);
  const float minimum = Isa::half(block.minimum);
  for (std::size_t j = 0; j < 8; ++j) {
    std::uint8_t small_scale;
    std::uint8_t small_minimum;
    scale_and_minimum<Isa>(block.packed_scales, j, small_scale, small_minimum);
    out.scale[first + j] = scale * static_cast<float>(small_scale);
    out.minimum[first + j] = -(minimum * static_cast<float>(small_minimum));
  }
}

template <class Isa>
struct UnpackQ4_K {
  static constexpr std::size_t block_elements = super_block;
  static constexpr std::size_t block_bytes = sizeof(BlockQ4_K);
  static constexpr std::size_t group = 32;
  static constexpr int offset = 0;
  static void run(const std::byte* row, UnpackedRow out, std::size_t columns) {
    for (std::size_t b = 0; b < columns / super_block; ++b) {
      const auto& block = block_at<Isa, BlockQ4_K>(row, b);
      for (std::size_t j = 0; j < 4; ++j) {
        split_nibbles<Isa>(block.nibbles + 32 * j, out.quants + b * super_block + 64 * j, 32);
      }
      unpack_k_scales<Isa>(block, out, b * 8);
    }
  }
};

template <class Isa>
struct UnpackQ5_K {
  static constexpr std::size_t block_elements = super_block;
  static constexpr std::size_t block_bytes = sizeof(BlockQ5_K);
  static constexpr std::size_t group = 32;
  static constexpr int offset = 0;
  static void run(const std::byte* row, UnpackedRow out, std::size_t columns) {
    for (std::size_t b = 0; b < columns / super_block; ++b) {
      const auto& block = block_at<Isa, BlockQ5_K>(row, b);
      for (std::size_t j = 0; j < 4; ++j) {
        std::uint8_t* quants = out.quants + b * super_block + 64 * j;
        split_nibbles<Isa>(block.nibbles + 32 * j, quants, 32);
        for (std::size_t i = 0; i < 32; ++i) {
          const unsigned bits = static_cast<unsigned>(block.high_bits[i]) >> (2 * j);
          quants[i] = static_cast<std::uint8_t>(quants[i] | ((bits & 1u) << 4));
          quants[i + 32] = static_cast<std::uint8_t>(quants[i + 32] | ((bits & 2u) << 3));
        }
      }
      unpack_k_scales<Isa>(block, out, b * 8);
    }
  }
};

template <class Isa>
struct UnpackQ6_K {
  static constexpr std::size_t block_elements = super_block;
  static constexpr std::size_t block_bytes = sizeof(BlockQ6_K);
  static constexpr std::size_t group = 16;
  static constexpr int offset = 32;
  static void run(const std::byte* row, UnpackedRow out, std::size_t columns) {
    for (std::size_t b = 0; b < columns / super_block; ++b) {
      const auto& block = block_at<Isa, BlockQ6_K>(row, b);
      for (std::size_t half = 0; half < 2; ++half) {
        const std::uint8_t* low = block.low_bits + 64 * half;
        const std::uint8_t* high = block.high_bits + 32 * half;
        std::uint8_t* quants = out.quants + b * super_block + 128 * half;
        for (std::size_t i = 0; i < 32; ++i) {
          quants[i] = static_cast<std::uint8_t>((low[i] & 0x0f) | ((high[i] & 3) << 4));
          quants[i + 32] = static_cast<std::uint8_t>((low[i + 32] & 0x0f) | (((high[i] >> 2) & 3) << 4));
          quants[i + 64] = static_cast<std::uint8_t>((low[i] >> 4) | (((high[i] >> 4) & 3) << 4));
          quants[i + 96] = static_cast<std::uint8_t>((low[i + 32] >> 4) | ((high[i] >> 6) << 4));
        }
      }
      const float scale = Isa::half(block.scale);
      for (std::size_t j = 0; j < 16; ++j) {
        out.scale[b * 16 + j] = scale * static_cast<float>(block.scales[j]);
        out.minimum[b * 16 + j] = -32.0f * out.scale[b * 16 + j];
      }
    }
  }
};

}  // namespace roundhouse
