// The scalar set: runs everywhere, and is what the others are tested against.
#include "quant/kernel_set.h"
#include "vector/simd_scalar.h"

namespace roundhouse {

const Kernels& scalar_kernels() {
  static const Kernels kernels = KernelSet<Scalar>::make("scalar");
  return kernels;
}

}  // namespace roundhouse
