// Asks for bytes that will be needed soon. Included once per instruction set: `Isa` keeps the copies apart.
#pragma once

#include <cstddef>

namespace roundhouse {

template <class Isa>
static inline void prefetch(const void* begin, std::size_t bytes) {
#if defined(__GNUC__)
  constexpr std::size_t cache_line = 64;
  const auto* first = static_cast<const char*>(begin);
  for (std::size_t i = 0; i < bytes; i += cache_line) {
    __builtin_prefetch(first + i);  // no access: addresses past the end of a matrix do no harm
  }
#else
  static_cast<void>(begin);
  static_cast<void>(bytes);
#endif
}

}  // namespace roundhouse
