// Standalone tests without Python, for runs under the address, undefined-behaviour and thread sanitizers.
// Exact-size heap buffers stand behind every matrix, so that a read past a row's end is caught.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "cpu/features.h"
#include "cpu/topology.h"
#include "layer/layer.h"
#include "layer/projection.h"
#include "quant/half.h"

namespace roundhouse {
namespace {

int failures = 0;

void check(bool condition, const std::string& what) {
  if (!condition) {
    ++failures;
    std::fprintf(stderr, "FAILED: %s\n", what.c_str());
  }
}

using Random = std::mt19937;

std::vector<float> random_floats(Random& random, std::size_t count, float spread = 1.0f) {
  std::normal_distribution<float> normal(0.0f, spread);
  std::vector<float> values(count);
  for (float& value : values) {
    value = normal(random);
  }
  return values;
}

struct OwnedMatrix {
  std::unique_ptr<std::byte[]> bytes;
  Matrix matrix;
};

void put_half(std::byte* at, float value) {
  const std::uint16_t half = float_to_half(value);
  std::memcpy(at, &half, sizeof(half));
}

OwnedMatrix random_matrix(Random& random, BlockType type, std::size_t rows, std::size_t columns,
                          std::size_t experts = 1) {
  OwnedMatrix owned;
  owned.matrix.type = type;
  owned.matrix.experts = experts;
  owned.matrix.rows = rows;
  owned.matrix.columns = columns;
  const std::size_t size = experts * rows * owned.matrix.row_bytes();
  owned.bytes = std::make_unique<std::byte[]>(size);
  const std::size_t block = layout_of(type).bytes;
  std::normal_distribution<float> normal(0.0f, 0.02f);
  for (std::size_t i = 0; i < size; ++i) {
    owned.bytes[i] = static_cast<std::byte>(random());
  }
  for (std::size_t i = 0; i < size; i += block) {
    std::byte* at = owned.bytes.get() + i;
    if (type == BlockType::f32) {
      const float value = normal(random);
      std::memcpy(at, &value, sizeof(value));
    } else if (type == BlockType::bf16) {
      const auto value = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(normal(random)) >> 16);
      std::memcpy(at, &value, sizeof(value));
    } else if (type == BlockType::q6_k) {
      put_half(at + offsetof(BlockQ6_K, scale), normal(random));
    } else {
      put_half(at, normal(random));
      if (type == BlockType::q4_1 || type == BlockType::q5_1 || type == BlockType::q4_k || type == BlockType::q5_k) {
        put_half(at + 2, normal(random));
      }
    }
  }
  owned.matrix.bytes = {owned.bytes.get(), size};
  return owned;
}

constexpr BlockType all_types[] = {BlockType::f32,  BlockType::f16,  BlockType::bf16, BlockType::q8_0,
                                   BlockType::q4_0, BlockType::q4_1, BlockType::q5_0, BlockType::q5_1,
                                   BlockType::q4_k, BlockType::q5_k, BlockType::q6_k};

void test_halves() {
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    const float value = half_to_float(half);
    const bool is_nan = (half & 0x7fffu) > 0x7c00u;
    check(is_nan ? std::isnan(value) : float_to_half(value) == half, "half " + std::to_string(bits));
  }
  check(float_to_half(65520.0f) == 0x7c00u, "65520 rounds to infinity");
  check(float_to_half(0x1.0p-25f) == 0, "a tie below the smallest half rounds to even");
}

void test_products_agree(const std::string& set, Precision precision) {
  Random random(1);
  Runtime scalar(*find_kernels("scalar"), 1, precision);
  Runtime tested(*find_kernels(set), 3, precision);
  for (const BlockType type : all_types) {
    for (const std::size_t columns : {std::size_t{256}, std::size_t{768}, std::size_t{2304}}) {
      const OwnedMatrix owned = random_matrix(random, type, 37, columns);
      for (const std::size_t tokens : {1, 2, 4, 9, 70}) {
        const std::vector<float> inputs = random_floats(random, tokens * columns);
        std::vector<float> wanted(tokens * 37);
        std::vector<float> got(tokens * 37);
        multiply(scalar, owned.matrix, inputs.data(), tokens, wanted.data());
        multiply(tested, owned.matrix, inputs.data(), tokens, got.data());
        for (std::size_t i = 0; i < got.size(); ++i) {
          check(std::fabs(got[i] - wanted[i]) <= 1e-3f + 1e-4f * std::fabs(wanted[i]),
                set + " type " + std::to_string(static_cast<unsigned>(type)) + " columns " + std::to_string(columns) +
                    " tokens " + std::to_string(tokens));
        }
      }
    }
  }
}

struct OwnedLayer {
  std::vector<OwnedMatrix> matrices;
  std::unique_ptr<Layer> layer;
};

OwnedLayer random_layer(Random& random, std::size_t experts) {
  OwnedLayer owned;
  LayerSettings s;
  s.hidden = 64;
  s.norm_epsilon = 1e-5f;
  s.attention = {4, 2, 24, 16, 0.2f, 0, nullptr};
  s.rope = {true, std::vector<double>(12, 0.1), 1.0f};
  s.width = 96;
  s.gating = {experts, experts == 0 ? std::size_t{0} : std::size_t{3}, Gating::softmax, true, 1.0f, nullptr};
  s.shared_width = experts == 0 ? 0 : 32;
  LayerWeights w;
  w.attention_norm = random_floats(random, 64);
  w.feed_forward_norm = random_floats(random, 64);
  w.sinks = random_floats(random, 4);
  const auto take = [&](std::size_t rows, std::size_t columns, std::size_t count = 1) {
    owned.matrices.push_back(random_matrix(random, BlockType::q4_1, rows, columns, count));
    return owned.matrices.back().matrix;
  };
  w.query = take(96, 64);
  w.key = take(48, 64);
  w.value = take(32, 64);
  w.output = take(64, 64);
  if (experts == 0) {
    w.gate_proj = take(96, 64);
    w.up_proj = take(96, 64);
    w.down_proj = take(64, 96);
  } else {
    w.gating = take(experts, 64);
    w.expert_gate = take(96, 64, experts);
    w.expert_up = take(96, 64, experts);
    w.expert_down = take(64, 96, experts);
    w.shared_gate = take(32, 64);
    w.shared_up = take(32, 64);
    w.shared_down = take(64, 32);
  }
  owned.layer = std::make_unique<Layer>(s, std::move(w));
  return owned;
}

std::vector<float> run_layer(const std::string& set, unsigned workers, std::size_t experts, Precision precision) {
  Random random(2);
  const OwnedLayer owned = random_layer(random, experts);
  Runtime runtime(*find_kernels(set), workers, precision);
  constexpr std::size_t positions = 600;
  std::vector<std::uint16_t> keys(positions * 2 * 24);
  std::vector<std::uint16_t> values(positions * 2 * 16);
  std::vector<float> hidden = random_floats(random, positions * 64);
  std::size_t start = 0;
  for (const std::size_t tokens :
       {std::size_t{33}, std::size_t{1}, std::size_t{7}, std::size_t{556}, std::size_t{1}, std::size_t{2}}) {
    owned.layer->forward(runtime, {hidden.data() + start * 64, tokens, start, keys.data(), values.data()});
    start += tokens;
  }
  check(start == positions, "every position is used");
  return hidden;
}

void test_layers(const std::string& set, Precision precision) {
  for (const std::size_t experts : {std::size_t{0}, std::size_t{7}}) {
    const std::vector<float> alone = run_layer(set, 1, experts, precision);
    for (const float value : alone) {
      check(std::isfinite(value), "results are finite");
    }
    for (const unsigned workers : {2u, 5u}) {
      const std::vector<float> together = run_layer(set, workers, experts, precision);
      check(std::memcmp(alone.data(), together.data(), alone.size() * sizeof(float)) == 0,
            set + ": " + std::to_string(workers) + " workers give the same bytes as one");
    }
  }
}

void test_pool() {
  ThreadPool pool(4);
  for (int round = 0; round < 2000; ++round) {
    std::vector<int> first(97, 0);
    std::vector<int> second(13, 0);
    pool.run([&](const Team& team) {
      team.for_each(first.size(), [&](std::size_t i) { first[i] = static_cast<int>(i); });
      team.for_each(second.size(), [&](std::size_t i) { second[i] = first[96 - i]; });
    });
    for (std::size_t i = 0; i < second.size(); ++i) {
      check(second[i] == static_cast<int>(96 - i), "every item runs once, phases in order");
    }
  }
  pool.stop();
  int sum = 0;
  pool.run([&](const Team& team) { team.for_each(10, [&](std::size_t i) { sum += static_cast<int>(i); }); });
  check(sum == 45, "a stopped pool still runs on its caller");
}

}  // namespace
}  // namespace roundhouse

int main() {
  using namespace roundhouse;
  check(default_workers(detect_topology()) >= 1, "there is a worker");
  test_halves();
  test_pool();
  for (const std::string& set : available_sets()) {
    for (const Precision precision : {Precision::eight_bits, Precision::sixteen_bits}) {
      test_products_agree(set, precision);
      test_layers(set, precision);
    }
    std::printf("%s: done\n", set.c_str());
  }
  std::printf("%d failures\n", failures);
  return failures == 0 ? 0 : 1;
}
