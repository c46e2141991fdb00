// Rotary position embedding from given frequencies. Where they come from (base, linear scaling, YaRN,
// divisors) is decided by whoever builds the layer.
#pragma once

#include <cstddef>
#include <vector>

#include "matmul/buffer.h"

namespace roundhouse {

struct RopeSettings {
  bool halves = false;              // NEOX: element i rotates with i + n/2; else neighbours rotate together
  std::vector<double> frequencies;  // radians per position, one per rotating pair; empty: no rotation
  float magnitude = 1.0f;           // multiplies sine and cosine (YaRN's attention factor)
};

// Sines and cosines of consecutive positions, kept while layers with the same settings ask for the same.
class RopeTable {
 public:
  // Makes the table hold positions start .. start+tokens-1. Not to be called inside a parallel region.
  void prepare(const RopeSettings& settings, std::size_t start, std::size_t tokens);

  // Rotates one head at position start + token in place.
  void rotate(float* head, std::size_t token) const;

 private:
  std::size_t pairs_ = 0;
  bool halves_ = false;
  float magnitude_ = 1.0f;
  std::vector<double> frequencies_;
  std::size_t start_ = 0;
  std::size_t tokens_ = 0;
  Buffer<float> cosines_;
  Buffer<float> sines_;
};

}  // namespace roundhouse
