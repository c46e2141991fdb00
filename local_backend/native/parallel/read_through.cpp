#include "parallel/read_through.h"

#include <algorithm>
#include <cstring>

#include "vector/prefetch.h"

namespace roundhouse {

namespace {

constexpr std::size_t prefetch_bytes = 4096;

std::uint64_t checksum(std::span<const std::uint8_t> bytes) {
  std::uint64_t sums[8] = {};
  std::size_t i = 0;
  for (; i + sizeof(sums) <= bytes.size(); i += sizeof(sums)) {
    prefetch<void>(bytes.data() + i + prefetch_bytes, sizeof(sums));  // as the kernels do, or they would be faster
    std::uint64_t words[8];
    std::memcpy(words, bytes.data() + i, sizeof(words));
    for (std::size_t j = 0; j < 8; ++j) {
      sums[j] += words[j];
    }
  }
  std::uint64_t total = 0;
  for (const std::uint64_t sum : sums) {
    total += sum;
  }
  for (; i < bytes.size(); ++i) {
    total += bytes[i];
  }
  return total;
}

}  // namespace

std::uint64_t read_through(ThreadPool& pool, std::span<const std::uint8_t> bytes) {
  constexpr std::size_t piece = std::size_t{1} << 20;
  std::atomic<std::uint64_t> total{0};
  pool.run([&](const Team& team) {
    team.for_each((bytes.size() + piece - 1) / piece, [&](std::size_t i) {
      total.fetch_add(checksum(bytes.subspan(i * piece, std::min(piece, bytes.size() - i * piece))),
                      std::memory_order_relaxed);
    });
  });
  return total.load();
}

}  // namespace roundhouse
