// Reads memory once with all workers: what the machine's bandwidth is, measured beside the kernels' own.
#pragma once

#include <cstdint>
#include <span>

#include "parallel/thread_pool.h"

namespace roundhouse {

// Returns a checksum, so that no compiler leaves the reading out.
std::uint64_t read_through(ThreadPool& pool, std::span<const std::uint8_t> bytes);

}  // namespace roundhouse
