#include "bindings/checks.h"

NB_MODULE(_native, module) {
  module.doc() = "Compiled kernels of the engine; local_backend.kernels.native is their only user.";
  roundhouse::bindings::bind_matrix(module);
  roundhouse::bindings::bind_runtime(module);
  roundhouse::bindings::bind_layer(module);
}
