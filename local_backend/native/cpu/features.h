// What this processor can run, asked of the processor itself, and the kernels chosen from it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "quant/kernels.h"

namespace roundhouse {

struct CpuFeatures {
  bool avx2 = false;    // AVX2, FMA, F16C, and the system saves the registers
  bool avx512 = false;  // AVX-512 F, BW, DQ, VL, VNNI likewise
};

CpuFeatures detect_features();

// Instruction sets that can be asked for here, best first: "avx512", "avx2", "scalar".
std::vector<std::string> available_sets();

// Kernels of a set by name, or the best for "". Null if the name is unknown or this machine lacks the set.
const Kernels* find_kernels(std::string_view set);

}  // namespace roundhouse
