#include "cpu/features.h"

#if defined(ROUNDHOUSE_X86)
#if defined(_MSC_VER)
#include <intrin.h>
#else
#include <cpuid.h>
#endif
#endif

namespace roundhouse {

#if defined(ROUNDHOUSE_X86)
namespace {

struct Registers {
  unsigned a = 0, b = 0, c = 0, d = 0;
};

// By hand: the compilers' own helper needs a run-time library that not every toolchain links.
Registers cpuid(unsigned leaf, unsigned subleaf) {
  Registers r;
#if defined(_MSC_VER)
  int values[4];
  __cpuidex(values, static_cast<int>(leaf), static_cast<int>(subleaf));
  r = {static_cast<unsigned>(values[0]), static_cast<unsigned>(values[1]), static_cast<unsigned>(values[2]),
       static_cast<unsigned>(values[3])};
#else
  __cpuid_count(leaf, subleaf, r.a, r.b, r.c, r.d);
#endif
  return r;
}

// Which register states the operating system saves (XCR0).
unsigned long long saved_states() {
#if defined(_MSC_VER)
  return _xgetbv(0);
#else
  unsigned low = 0;
  unsigned high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (static_cast<unsigned long long>(high) << 32) | low;
#endif
}

constexpr bool bit(unsigned value, unsigned index) { return ((value >> index) & 1u) != 0; }

}  // namespace

CpuFeatures detect_features() {
  CpuFeatures features;
  if (cpuid(0, 0).a < 7) {
    return features;
  }
  const Registers one = cpuid(1, 0);
  const bool system_saves = bit(one.c, 27);
  if (!system_saves) {
    return features;
  }
  const unsigned long long states = saved_states();
  const bool ymm = (states & 0x6) == 0x6;
  const bool zmm = (states & 0xe6) == 0xe6;
  const Registers seven = cpuid(7, 0);
  features.avx2 = ymm && bit(one.c, 12) && bit(one.c, 29) && bit(one.c, 28) && bit(seven.b, 5);
  features.avx512 = features.avx2 && zmm && bit(seven.b, 16) && bit(seven.b, 17) && bit(seven.b, 30) &&
                    bit(seven.b, 31) && bit(seven.c, 11);
  return features;
}
#else
CpuFeatures detect_features() { return {}; }
#endif

std::vector<std::string> available_sets() {
  std::vector<std::string> sets;
  const CpuFeatures features = detect_features();
  if (features.avx512) {
    sets.emplace_back("avx512");
  }
  if (features.avx2) {
    sets.emplace_back("avx2");
  }
  sets.emplace_back("scalar");
  return sets;
}

const Kernels* find_kernels(std::string_view set) {
  const CpuFeatures features = detect_features();
#if defined(ROUNDHOUSE_X86)
  if (features.avx512 && (set.empty() || set == "avx512")) {
    return &avx512_kernels();
  }
  if (features.avx2 && (set.empty() || set == "avx2")) {
    return &avx2_kernels();
  }
#endif
  static_cast<void>(features);
  return set.empty() || set == "scalar" ? &scalar_kernels() : nullptr;
}

}  // namespace roundhouse
