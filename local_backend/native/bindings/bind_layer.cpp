#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cmath>
#include <map>
#include <memory>

#include "bindings/checks.h"
#include "layer/layer.h"

namespace roundhouse::bindings {

namespace {

constexpr std::size_t largest_group = 64;  // query heads per kv head that the attention's scratch allows

struct BoundLayer {
  std::unique_ptr<Layer> layer;
  Runtime* runtime;
  std::vector<nb::object> keep_alive;
};

// Takes named weights out of the mappings and checks their shapes.
class Intake {
 public:
  Intake(const std::map<std::string, nb::object>& matrices, std::map<std::string, std::vector<float>> vectors)
      : matrices_(matrices), vectors_(std::move(vectors)) {}

  void matrix(const char* role, Matrix& into, std::size_t experts, std::size_t rows, std::size_t columns) {
    const auto found = matrices_.find(role);
    require(found != matrices_.end(), std::string("the layer needs a matrix '") + role + "'");
    into = nb::cast<const BoundMatrix&>(found->second).matrix;
    require(into.experts == experts && into.rows == rows && into.columns == columns,
            std::string(role) + " is " + std::to_string(into.experts) + " x " + shape_text(into.rows, into.columns) +
                ", needed " + std::to_string(experts) + " x " + shape_text(rows, columns));
    ++taken_;
  }

  void vector(const char* role, std::vector<float>& into, std::size_t size, bool required = false) {
    const auto found = vectors_.find(role);
    if (found == vectors_.end()) {
      require(!required, std::string("the layer needs a vector '") + role + "'");
      return;
    }
    require(found->second.size() == size, std::string(role) + " has " + std::to_string(found->second.size()) +
                                              " elements, needed " + std::to_string(size));
    into = std::move(found->second);
    ++taken_;
  }

  // A weight that nobody asked for would silently change nothing: refuse it.
  void finish() const {
    require(taken_ == matrices_.size() + vectors_.size(), "weights were given that this layer has no use for");
  }

 private:
  const std::map<std::string, nb::object>& matrices_;
  std::map<std::string, std::vector<float>> vectors_;
  std::size_t taken_ = 0;
};

void check_settings(const LayerSettings& s) {
  const AttentionShape& a = s.attention;
  require(s.hidden != 0 && s.width != 0, "hidden and width must be above zero");
  require(a.heads != 0 && a.kv_heads != 0 && a.heads % a.kv_heads == 0,
          std::to_string(a.heads) + " heads cannot share " + std::to_string(a.kv_heads) + " kv heads evenly");
  require(a.group() <= largest_group, "more than 64 heads per kv head are not supported");
  require(a.key_dimension != 0 && a.value_dimension != 0, "head sizes must be above zero");
  require(2 * s.rope.frequencies.size() <= a.key_dimension, "more rotating dimensions than a head has");
  require(static_cast<std::uint32_t>(s.activation) <= 2, "unknown activation");
  require(static_cast<std::uint32_t>(s.gating.function) <= 2, "unknown gating function");
  require(s.gating.experts == 0 || (s.gating.used != 0 && s.gating.used <= s.gating.experts),
          "as many experts must be used as there are, at most, and at least one");
}

LayerWeights take_attention(Intake& intake, const LayerSettings& s) {
  LayerWeights w;
  const AttentionShape& a = s.attention;
  const std::size_t queries = a.heads * a.key_dimension;
  const std::size_t keys = a.kv_heads * a.key_dimension;
  const std::size_t values = a.kv_heads * a.value_dimension;
  intake.vector("attention_norm", w.attention_norm, s.hidden, true);
  intake.vector("feed_forward_norm", w.feed_forward_norm, s.hidden, true);
  intake.vector("attention_post_norm", w.attention_post_norm, s.hidden);
  intake.vector("feed_forward_post_norm", w.feed_forward_post_norm, s.hidden);
  intake.vector("query_norm", w.query_norm, a.key_dimension);
  intake.vector("key_norm", w.key_norm, a.key_dimension);
  intake.vector("query_bias", w.query_bias, queries);
  intake.vector("key_bias", w.key_bias, keys);
  intake.vector("value_bias", w.value_bias, values);
  intake.vector("attention_output_bias", w.output_bias, s.hidden);
  intake.vector("attention_sinks", w.sinks, a.heads);
  intake.matrix("query", w.query, 1, queries, s.hidden);
  intake.matrix("key", w.key, 1, keys, s.hidden);
  intake.matrix("value", w.value, 1, values, s.hidden);
  intake.matrix("attention_output", w.output, 1, s.hidden, a.heads * a.value_dimension);
  return w;
}

void take_feed_forward(Intake& intake, const LayerSettings& s, LayerWeights& w) {
  const std::size_t experts = s.gating.experts;
  if (experts == 0) {
    intake.matrix("gate_proj", w.gate_proj, 1, s.width, s.hidden);
    intake.matrix("up_proj", w.up_proj, 1, s.width, s.hidden);
    intake.matrix("down_proj", w.down_proj, 1, s.hidden, s.width);
    return;
  }
  intake.matrix("gating", w.gating, 1, experts, s.hidden);
  intake.matrix("expert_gate_proj", w.expert_gate, experts, s.width, s.hidden);
  intake.matrix("expert_up_proj", w.expert_up, experts, s.width, s.hidden);
  intake.matrix("expert_down_proj", w.expert_down, experts, s.hidden, s.width);
  intake.vector("gating_bias", w.gating_bias, experts);
  intake.vector("expert_gate_bias", w.expert_gate_bias, experts * s.width);
  intake.vector("expert_up_bias", w.expert_up_bias, experts * s.width);
  intake.vector("expert_down_bias", w.expert_down_bias, experts * s.hidden);
  require(w.expert_gate_bias.empty() == w.expert_up_bias.empty(), "expert_gate_bias and expert_up_bias go together");
  if (s.shared_width != 0) {
    intake.vector("shared_gating", w.shared_gating, s.hidden);
    intake.matrix("shared_gate_proj", w.shared_gate, 1, s.shared_width, s.hidden);
    intake.matrix("shared_up_proj", w.shared_up, 1, s.shared_width, s.hidden);
    intake.matrix("shared_down_proj", w.shared_down, 1, s.hidden, s.shared_width);
  }
}

void construct(BoundLayer* self, nb::handle runtime, const LayerSettings& settings,
               const std::map<std::string, nb::object>& matrices, std::map<std::string, std::vector<float>> vectors) {
  check_settings(settings);
  Intake intake(matrices, std::move(vectors));
  LayerWeights weights = take_attention(intake, settings);
  take_feed_forward(intake, settings, weights);
  intake.finish();
  std::vector<nb::object> keep_alive{nb::borrow(runtime)};
  for (const auto& [role, matrix] : matrices) {
    keep_alive.push_back(matrix);
  }
  new (self) BoundLayer{std::make_unique<Layer>(settings, std::move(weights)), &nb::cast<Runtime&>(runtime),
                        std::move(keep_alive)};
}

void forward(BoundLayer& self, Floats hidden, std::size_t start, HalfBits keys, HalfBits values) {
  const LayerSettings& s = self.layer->settings();
  const std::size_t tokens = hidden.shape(0);
  require(hidden.shape(1) == s.hidden, "hidden is " + shape_text(tokens, hidden.shape(1)) + ", the layer is " +
                                           std::to_string(s.hidden) + " wide");
  const auto check = [&](const HalfBits& cache, const char* name, std::size_t dimension) {
    require(cache.shape(1) == s.attention.kv_heads && cache.shape(2) == dimension,
            std::string("cache of ") + name + ": rows are " + shape_text(cache.shape(1), cache.shape(2)) +
                ", needed " + shape_text(s.attention.kv_heads, dimension));
    require(start <= cache.shape(0) && tokens <= cache.shape(0) - start,
            std::string("cache of ") + name + " has " + std::to_string(cache.shape(0)) + " rows, positions " +
                std::to_string(start) + " and on for " + std::to_string(tokens) + " tokens do not fit");
  };
  check(keys, "keys", s.attention.key_dimension);
  check(values, "values", s.attention.value_dimension);
  if (tokens == 0) {
    return;
  }
  const nb::gil_scoped_release release;
  self.layer->forward(*self.runtime, {hidden.data(), tokens, start, keys.data(), values.data()});
}

}  // namespace

#define FIELD(type, name, place)                                                       \
  def_prop_rw(                                                                         \
      name, [](const LayerSettings& s) -> type { return static_cast<type>(s.place); }, \
      [](LayerSettings& s, type value) { s.place = static_cast<decltype(s.place)>(value); })

void bind_layer(nb::module_& module) {
  nb::class_<LayerSettings>(module, "LayerSettings", "Sizes and switches of a layer; fill, then build a Layer.")
      .def(nb::init<>())
      .FIELD(std::size_t, "hidden", hidden)
      .FIELD(float, "norm_epsilon", norm_epsilon)
      .FIELD(std::size_t, "heads", attention.heads)
      .FIELD(std::size_t, "kv_heads", attention.kv_heads)
      .FIELD(std::size_t, "key_dimension", attention.key_dimension)
      .FIELD(std::size_t, "value_dimension", attention.value_dimension)
      .FIELD(float, "scale", attention.scale)
      .FIELD(std::size_t, "window", attention.window)
      .FIELD(bool, "rope_halves", rope.halves)
      .FIELD(std::vector<double>, "rope_frequencies", rope.frequencies)
      .FIELD(float, "rope_magnitude", rope.magnitude)
      .FIELD(std::uint32_t, "activation", activation)
      .FIELD(std::size_t, "width", width)
      .FIELD(std::size_t, "experts", gating.experts)
      .FIELD(std::size_t, "used", gating.used)
      .FIELD(std::uint32_t, "gating", gating.function)
      .FIELD(bool, "normalise_weights", gating.normalise)
      .FIELD(float, "weights_scale", gating.scale)
      .FIELD(std::size_t, "shared_width", shared_width);
  nb::class_<BoundLayer>(module, "Layer", "One decoder layer over matrices it keeps alive.")
      .def("__init__", &construct, nb::arg("runtime"), nb::arg("settings"), nb::arg("matrices"), nb::arg("vectors"))
      .def("forward", &forward, nb::arg("hidden").noconvert(), nb::arg("start"), nb::arg("keys").noconvert(),
           nb::arg("values").noconvert(),
           "Runs T tokens at positions start.. in place; keys and values are bit patterns of float16.");
}

#undef FIELD

}  // namespace roundhouse::bindings
