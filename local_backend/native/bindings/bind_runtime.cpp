#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bindings/checks.h"
#include "cpu/features.h"
#include "cpu/topology.h"
#include "layer/projection.h"
#include "parallel/read_through.h"

namespace roundhouse::bindings {

namespace {

constexpr unsigned most_workers = 1024;

void construct(Runtime* self, const std::string& isa, unsigned threads, unsigned activation_bits) {
  const Kernels* kernels = find_kernels(isa);
  require(kernels != nullptr, "instruction set '" + isa + "' is unknown or not available on this machine");
  require(threads <= most_workers,
          "at most " + std::to_string(most_workers) + " threads, not " + std::to_string(threads));
  require(activation_bits == 8 || activation_bits == 16,
          "activations have 8 or 16 bits, not " + std::to_string(activation_bits));
  new (self) Runtime(*kernels, threads != 0 ? threads : default_workers(detect_topology()),
                     static_cast<Precision>(activation_bits));
}

void check_single(const Matrix& matrix) { require(matrix.experts == 1, "a stack of experts is not one matrix"); }

void check_product(const Matrix& matrix, const InputFloats& inputs, const Floats& out) {
  check_single(matrix);
  require(inputs.shape(1) == matrix.columns, "inputs are " + shape_text(inputs.shape(0), inputs.shape(1)) +
                                                 ", the matrix has " + std::to_string(matrix.columns) + " columns");
  require(
      out.shape(0) == inputs.shape(0) && out.shape(1) == matrix.rows,
      "out is " + shape_text(out.shape(0), out.shape(1)) + ", needed " + shape_text(inputs.shape(0), matrix.rows));
}

void embed_rows(Runtime& runtime, const BoundMatrix& bound, Tokens tokens, Floats out) {
  const Matrix& matrix = bound.matrix;
  check_single(matrix);
  require(
      out.shape(0) == tokens.size() && out.shape(1) == matrix.columns,
      "out is " + shape_text(out.shape(0), out.shape(1)) + ", needed " + shape_text(tokens.size(), matrix.columns));
  for (std::size_t t = 0; t < tokens.size(); ++t) {
    const std::int32_t token = tokens.data()[t];
    require(token >= 0 && static_cast<std::size_t>(token) < matrix.rows,
            "token " + std::to_string(token) + " at index " + std::to_string(t) + " is outside a vocabulary of " +
                std::to_string(matrix.rows));
  }
  const nb::gil_scoped_release release;
  embed(runtime, matrix, {tokens.data(), tokens.size()}, out.data());
}

void multiply_matrix(Runtime& runtime, const BoundMatrix& bound, InputFloats inputs, Floats out) {
  check_product(bound.matrix, inputs, out);
  const nb::gil_scoped_release release;
  multiply(runtime, bound.matrix, inputs.data(), inputs.shape(0), out.data());
}

void head(Runtime& runtime, const BoundMatrix& bound, InputFloats inputs, Vector norm, float epsilon, Floats out) {
  check_product(bound.matrix, inputs, out);
  require(norm.size() == bound.matrix.columns, "the norm has " + std::to_string(norm.size()) + " weights for " +
                                                   std::to_string(bound.matrix.columns) + " columns");
  const nb::gil_scoped_release release;
  norm_and_multiply(runtime, bound.matrix, inputs.data(), inputs.shape(0), {norm.data(), norm.size()}, epsilon,
                    out.data());
}

std::uint64_t read(Runtime& runtime, Bytes data) {
  const nb::gil_scoped_release release;
  return read_through(runtime.pool, {data.data(), data.size()});
}

}  // namespace

void bind_runtime(nb::module_& module) {
  module.def("available_sets", &available_sets, "Instruction sets this machine can run, best first.");
  module.def(
      "topology",
      [] {
        const Topology found = detect_topology();
        return nb::make_tuple(found.usable_threads, found.usable_cores, found.quota);
      },
      "(usable hardware threads, physical cores among them, control group's quota or 0).");
  nb::class_<Runtime>(module, "Runtime", "Kernels of one instruction set, worker threads, scratch memory.")
      .def("__init__", &construct, nb::arg("isa"), nb::arg("threads"), nb::arg("activation_bits"))
      .def_prop_ro("isa", [](const Runtime& self) { return std::string(self.kernels.name); })
      .def_prop_ro("workers", [](const Runtime& self) { return self.pool.workers(); })
      .def("embed", &embed_rows, nb::arg("matrix"), nb::arg("tokens").noconvert(), nb::arg("out").noconvert())
      .def("multiply", &multiply_matrix, nb::arg("matrix"), nb::arg("inputs").noconvert(), nb::arg("out").noconvert())
      .def("head", &head, nb::arg("matrix"), nb::arg("inputs").noconvert(), nb::arg("norm").noconvert(),
           nb::arg("epsilon"), nb::arg("out").noconvert())
      .def("read", &read, nb::arg("data").noconvert(), "Reads the bytes once with all workers; their checksum.")
      .def("stop", [](Runtime& self) {
        const nb::gil_scoped_release release;
        self.pool.stop();
      });
}

}  // namespace roundhouse::bindings
