// Block layouts of GGUF's quantised tensors, as they lie in the file (little endian).
// Source: ggml's public block layouts. Knows no instruction set and no matrices.
#pragma once

#include <cstddef>
#include <cstdint>

namespace roundhouse {

// Numbers are those of the file format.
enum class BlockType : std::uint32_t {
  f32 = 0,
  f16 = 1,
  q4_0 = 2,
  q4_1 = 3,
  q5_0 = 6,
  q5_1 = 7,
  q8_0 = 8,
  q4_k = 12,
  q5_k = 13,
  q6_k = 14,
  bf16 = 30,
};

inline constexpr std::size_t block_type_limit = 40;  // one past the highest number we index tables by
inline constexpr std::size_t small_block = 32;       // elements of the plain types and of activations
inline constexpr std::size_t super_block = 256;      // elements of the K types

struct BlockQ4_0 {
  std::uint16_t scale;
  std::uint8_t nibbles[16];
};

struct BlockQ4_1 {
  std::uint16_t scale;
  std::uint16_t minimum;
  std::uint8_t nibbles[16];
};

struct BlockQ5_0 {
  std::uint16_t scale;
  std::uint8_t high_bits[4];
  std::uint8_t nibbles[16];
};

struct BlockQ5_1 {
  std::uint16_t scale;
  std::uint16_t minimum;
  std::uint8_t high_bits[4];
  std::uint8_t nibbles[16];
};

struct BlockQ8_0 {
  std::uint16_t scale;
  std::int8_t quants[32];
};

// Eight sub-blocks of 32; scales and minima are six bits each, packed into twelve bytes.
struct BlockQ4_K {
  std::uint16_t scale;
  std::uint16_t minimum;
  std::uint8_t packed_scales[12];
  std::uint8_t nibbles[128];
};

struct BlockQ5_K {
  std::uint16_t scale;
  std::uint16_t minimum;
  std::uint8_t packed_scales[12];
  std::uint8_t high_bits[32];
  std::uint8_t nibbles[128];
};

// Sixteen sub-blocks of 16; quants are six bits with an offset of 32.
struct BlockQ6_K {
  std::uint8_t low_bits[128];
  std::uint8_t high_bits[64];
  std::int8_t scales[16];
  std::uint16_t scale;
};

static_assert(sizeof(BlockQ4_0) == 18);
static_assert(sizeof(BlockQ4_1) == 20);
static_assert(sizeof(BlockQ5_0) == 22);
static_assert(sizeof(BlockQ5_1) == 24);
static_assert(sizeof(BlockQ8_0) == 34);
static_assert(sizeof(BlockQ4_K) == 144);
static_assert(sizeof(BlockQ5_K) == 176);
static_assert(sizeof(BlockQ6_K) == 210);

struct BlockLayout {
  std::size_t elements = 0;  // 0: a type that this module does not compute with
  std::size_t bytes = 0;
};

constexpr BlockLayout layout_of(BlockType type) {
  switch (type) {
    case BlockType::f32:
      return {1, 4};
    case BlockType::f16:
    case BlockType::bf16:
      return {1, 2};
    case BlockType::q4_0:
      return {small_block, sizeof(BlockQ4_0)};
    case BlockType::q4_1:
      return {small_block, sizeof(BlockQ4_1)};
    case BlockType::q5_0:
      return {small_block, sizeof(BlockQ5_0)};
    case BlockType::q5_1:
      return {small_block, sizeof(BlockQ5_1)};
    case BlockType::q8_0:
      return {small_block, sizeof(BlockQ8_0)};
    case BlockType::q4_k:
      return {super_block, sizeof(BlockQ4_K)};
    case BlockType::q5_k:
      return {super_block, sizeof(BlockQ5_K)};
    case BlockType::q6_k:
      return {super_block, sizeof(BlockQ6_K)};
  }
  return {};
}

constexpr bool is_float_type(BlockType type) {
  return type == BlockType::f32 || type == BlockType::f16 || type == BlockType::bf16;
}

}  // namespace roundhouse
