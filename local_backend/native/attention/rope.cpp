#include "attention/rope.h"

#include <cmath>

namespace roundhouse {

void RopeTable::prepare(const RopeSettings& settings, std::size_t start, std::size_t tokens) {
  halves_ = settings.halves;
  const bool same = settings.frequencies == frequencies_ && settings.magnitude == magnitude_;
  if (same && start == start_ && tokens == tokens_) {
    return;
  }
  frequencies_ = settings.frequencies;
  magnitude_ = settings.magnitude;
  pairs_ = frequencies_.size();
  start_ = start;
  tokens_ = tokens;
  cosines_.reserve(pairs_ * tokens);
  sines_.reserve(pairs_ * tokens);
  for (std::size_t t = 0; t < tokens; ++t) {
    for (std::size_t i = 0; i < pairs_; ++i) {
      const double angle = static_cast<double>(start + t) * frequencies_[i];
      cosines_.data()[t * pairs_ + i] = static_cast<float>(std::cos(angle)) * magnitude_;
      sines_.data()[t * pairs_ + i] = static_cast<float>(std::sin(angle)) * magnitude_;
    }
  }
}

void RopeTable::rotate(float* head, std::size_t token) const {
  const float* cosines = cosines_.data() + token * pairs_;
  const float* sines = sines_.data() + token * pairs_;
  const std::size_t step = halves_ ? 1 : 2;
  const std::size_t partner = halves_ ? pairs_ : 1;
  for (std::size_t i = 0; i < pairs_; ++i) {
    const float a = head[i * step];
    const float b = head[i * step + partner];
    head[i * step] = a * cosines[i] - b * sines[i];
    head[i * step + partner] = a * sines[i] + b * cosines[i];
  }
}

}  // namespace roundhouse
