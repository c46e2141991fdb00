#include "attention/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace roundhouse {

namespace {

constexpr std::size_t chunk_positions = 128;  // context per item where tokens are few
constexpr std::size_t tile_positions = 64;    // positions scored at once in prefill
constexpr std::size_t block_tokens = 8;       // tokens per item in prefill
constexpr float nothing = -std::numeric_limits<float>::infinity();

// Few tokens: the context is cut for the workers to share. Many: blocks of tokens are work enough.
constexpr bool cuts_context(std::size_t tokens) { return tokens <= block_tokens; }

constexpr std::size_t round_up(std::size_t n, std::size_t to) { return (n + to - 1) / to * to; }

// Running softmax of one (token, head).
struct Running {
  float* values;
  float maximum;
  float sum;
};

struct Range {
  std::size_t begin;
  std::size_t end;
};

// Positions that the token at `position` may see inside a chunk.
Range visible(const AttentionShape& shape, std::size_t position, Range chunk) {
  const std::size_t first = shape.window != 0 && position + 1 > shape.window ? position + 1 - shape.window : 0;
  return {std::max(chunk.begin, first), std::min(chunk.end, position + 1)};
}

// Makes room for a larger maximum: sums so far shrink accordingly.
void raise_maximum(const Kernels& kernels, Running& running, float maximum, std::size_t dimension) {
  if (maximum <= running.maximum) {
    return;
  }
  if (running.sum > 0.0f) {
    const float factor = std::exp(running.maximum - maximum);
    running.sum *= factor;
    kernels.scale_by(running.values, factor, dimension);
  }
  running.maximum = maximum;
}

class Worker {
 public:
  Worker(const Kernels& kernels, const AttentionShape& shape, const AttentionInput& input, AttentionScratch& scratch,
         float* memory)
      : kernels_(kernels), shape_(shape), input_(input), scratch_(scratch) {
    const std::size_t rows = block_tokens * shape.group();
    key_tile_ = memory;
    value_tile_ = key_tile_ + shape.key_dimension * tile_positions;
    scores_ = value_tile_ + tile_positions * value_stride();
    queries_ = scores_ + std::max(rows * tile_positions, chunk_positions * shape.group());
    outputs_ = queries_ + rows * shape.key_dimension;
  }

  void decode(std::size_t kv_head, Range chunk);
  void prefill(std::size_t kv_head, std::size_t first_token, std::size_t tokens, Range chunk);

 private:
  std::size_t value_stride() const { return round_up(shape_.value_dimension, 16); }
  std::size_t slot(std::size_t token, std::size_t head, std::size_t chunk) const {
    return (token * shape_.heads + head) * scratch_.chunks + chunk;
  }
  HalfRows rows_of(const std::uint16_t* cache, std::size_t kv_head, std::size_t dimension, std::size_t position,
                   std::size_t count) const {
    const std::size_t stride = shape_.kv_heads * dimension;
    return {cache + position * stride + kv_head * dimension, stride, count, dimension};
  }
  void load_tiles(std::size_t kv_head, Range tile);
  void score_tile(std::size_t rows);
  void soften_row(std::size_t row, std::size_t position, Range tile, Running& running);

  const Kernels& kernels_;
  const AttentionShape& shape_;
  const AttentionInput& input_;
  AttentionScratch& scratch_;
  float* key_tile_;    // [key_dimension][tile_positions]
  float* value_tile_;  // [tile_positions][value_stride]
  float* scores_;      // prefill [rows][tile_positions]; decode [group][chunk_positions]
  float* queries_;     // [rows][key_dimension], scaled
  float* outputs_;     // [rows][value_stride]
};

// One token: keys and values are read once for all heads of their group.
void Worker::decode(std::size_t kv_head, Range chunk) {
  const std::size_t group = shape_.group();
  const std::size_t first_head = kv_head * group;
  const Range range = visible(shape_, input_.start, chunk);
  const std::size_t count = range.begin < range.end ? range.end - range.begin : 0;
  const HalfRows keys = rows_of(input_.keys, kv_head, shape_.key_dimension, range.begin, count);
  const HalfRows values = rows_of(input_.values, kv_head, shape_.value_dimension, range.begin, count);
  kernels_.score_rows(keys, input_.queries + first_head * shape_.key_dimension, group, shape_.scale, scores_,
                      chunk_positions);
  const std::size_t first_slot = slot(0, first_head, chunk.begin / chunk_positions);
  for (std::size_t h = 0; h < group; ++h) {
    const std::size_t index = first_slot + h * scratch_.chunks;
    float* scores = scores_ + h * chunk_positions;
    const float maximum = count != 0 ? *std::max_element(scores, scores + count) : nothing;
    scratch_.maximum.data()[index] = maximum;
    scratch_.sum.data()[index] = count != 0 ? kernels_.exponentials(scores, maximum, count) : 0.0f;
  }
  kernels_.mix_rows(values, scores_, chunk_positions, group,
                    scratch_.partial.data() + first_slot * shape_.value_dimension,
                    scratch_.chunks * shape_.value_dimension);
}

// Keys are turned so that positions lie side by side; positions past the tile's end are zero.
void Worker::load_tiles(std::size_t kv_head, Range tile) {
  const std::size_t key_stride = shape_.kv_heads * shape_.key_dimension;
  const std::size_t value_row = shape_.kv_heads * shape_.value_dimension;
  float* row = outputs_ + block_tokens * shape_.group() * value_stride();  // spare row behind the outputs
  for (std::size_t p = 0; p < tile_positions; ++p) {
    float* values = value_tile_ + p * value_stride();
    if (tile.begin + p >= tile.end) {
      std::fill_n(values, value_stride(), 0.0f);
      for (std::size_t i = 0; i < shape_.key_dimension; ++i) {
        key_tile_[i * tile_positions + p] = 0.0f;
      }
      continue;
    }
    const std::size_t position = tile.begin + p;
    kernels_.from_half(input_.values + position * value_row + kv_head * shape_.value_dimension, values,
                       shape_.value_dimension);
    std::fill(values + shape_.value_dimension, values + value_stride(), 0.0f);
    kernels_.from_half(input_.keys + position * key_stride + kv_head * shape_.key_dimension, row,
                       shape_.key_dimension);
    for (std::size_t i = 0; i < shape_.key_dimension; ++i) {
      key_tile_[i * tile_positions + p] = row[i];
    }
  }
}

void Worker::score_tile(std::size_t rows) {
  std::fill_n(scores_, rows * tile_positions, 0.0f);
  kernels_.multiply_add(queries_, shape_.key_dimension, key_tile_, tile_positions, scores_, tile_positions, rows,
                        tile_positions, shape_.key_dimension);
}

// Turns a row of scores into weights (zero where the token may not look) and updates its running softmax.
void Worker::soften_row(std::size_t row, std::size_t position, Range tile, Running& running) {
  float* scores = scores_ + row * tile_positions;
  const Range range = visible(shape_, position, tile);
  if (range.begin >= range.end) {
    std::fill_n(scores, tile_positions, 0.0f);
    return;
  }
  const std::size_t first = range.begin - tile.begin;
  const std::size_t last = range.end - tile.begin;
  const float maximum = *std::max_element(scores + first, scores + last);
  raise_maximum(kernels_, running, maximum, shape_.value_dimension);
  running.sum += kernels_.exponentials(scores + first, running.maximum, last - first);
  std::fill(scores, scores + first, 0.0f);
  std::fill(scores + last, scores + tile_positions, 0.0f);
}

void Worker::prefill(std::size_t kv_head, std::size_t first_token, std::size_t tokens, Range chunk) {
  const std::size_t group = shape_.group();
  const std::size_t rows = tokens * group;
  Running running[block_tokens * 64];  // group is at most 64 (checked where the layer is built)
  for (std::size_t r = 0; r < rows; ++r) {
    const std::size_t head = kv_head * group + r % group;
    const float* query = input_.queries + ((first_token + r / group) * shape_.heads + head) * shape_.key_dimension;
    for (std::size_t i = 0; i < shape_.key_dimension; ++i) {
      queries_[r * shape_.key_dimension + i] = query[i] * shape_.scale;
    }
    running[r] = {outputs_ + r * value_stride(), nothing, 0.0f};
  }
  std::fill_n(outputs_, rows * value_stride(), 0.0f);
  const std::size_t first_position = input_.start + first_token;
  const std::size_t last_position = first_position + tokens;
  const std::size_t begin = visible(shape_, first_position, {0, last_position}).begin;
  const std::size_t chunk_end = std::min(chunk.end, last_position);
  for (std::size_t p = chunk.begin; p < chunk_end; p += tile_positions) {
    const Range tile{p, std::min(p + tile_positions, chunk_end)};
    if (tile.end <= begin) {
      continue;
    }
    load_tiles(kv_head, tile);
    score_tile(rows);
    for (std::size_t r = 0; r < rows; ++r) {
      soften_row(r, first_position + r / group, tile, running[r]);
    }
    kernels_.multiply_add(scores_, tile_positions, value_tile_, value_stride(), outputs_, value_stride(), rows,
                          value_stride(), tile_positions);
  }
  for (std::size_t r = 0; r < rows; ++r) {
    const std::size_t index =
        slot(first_token + r / group, kv_head * group + r % group, chunk.begin / chunk_positions);
    std::copy_n(running[r].values, shape_.value_dimension, scratch_.partial.data() + index * shape_.value_dimension);
    scratch_.maximum.data()[index] = running[r].maximum;
    scratch_.sum.data()[index] = running[r].sum;
  }
}

// Sums the chunks of one (token, head): o = sum_i o_i e^(m_i - m) / sum_i l_i e^(m_i - m).
void merge(const AttentionShape& shape, const AttentionScratch& scratch, std::size_t token, std::size_t head,
           std::size_t chunks, float* out) {
  const std::size_t first = (token * shape.heads + head) * scratch.chunks;
  const float* maxima = scratch.maximum.data() + first;
  float maximum = *std::max_element(maxima, maxima + chunks);
  float total = 0.0f;
  if (shape.sinks != nullptr) {
    maximum = std::max(maximum, shape.sinks[head]);
    total = std::exp(shape.sinks[head] - maximum);
  }
  std::fill_n(out, shape.value_dimension, 0.0f);
  for (std::size_t c = 0; c < chunks; ++c) {
    const float factor = std::exp(maxima[c] - maximum);
    total += scratch.sum.data()[first + c] * factor;
    const float* partial = scratch.partial.data() + (first + c) * shape.value_dimension;
    for (std::size_t i = 0; i < shape.value_dimension; ++i) {
      out[i] += partial[i] * factor;
    }
  }
  const float inverse = 1.0f / total;
  for (std::size_t i = 0; i < shape.value_dimension; ++i) {
    out[i] *= inverse;
  }
}

}  // namespace

void AttentionScratch::reserve(const AttentionShape& shape, std::size_t tokens, std::size_t start) {
  chunks = cuts_context(tokens) ? (start + tokens + chunk_positions - 1) / chunk_positions : 1;
  const std::size_t slots = tokens * shape.heads * chunks;
  partial.reserve(slots * shape.value_dimension);
  maximum.reserve(slots);
  sum.reserve(slots);
}

std::size_t attention_worker_floats(const AttentionShape& shape) {
  const std::size_t rows = block_tokens * shape.group();
  const std::size_t value_stride = round_up(shape.value_dimension, 16);
  return shape.key_dimension * tile_positions + tile_positions * value_stride +
         std::max(rows * tile_positions, chunk_positions * shape.group()) + rows * shape.key_dimension +
         rows * value_stride + shape.key_dimension;
}

void attend(const Kernels& kernels, const Team& team, const AttentionShape& shape, const AttentionInput& input,
            AttentionScratch& scratch, float* worker_scratch, Activations& out) {
  Worker worker(kernels, shape, input, scratch, worker_scratch);
  const std::size_t chunks = scratch.chunks;
  const std::size_t blocks = (input.tokens + block_tokens - 1) / block_tokens;
  team.for_each(shape.kv_heads * blocks * chunks, [&](std::size_t item) {
    const std::size_t kv_head = item % shape.kv_heads;
    const std::size_t chunk = item / shape.kv_heads % chunks;
    const std::size_t first_token = item / shape.kv_heads / chunks * block_tokens;
    const std::size_t tokens = std::min(block_tokens, input.tokens - first_token);
    const Range range = cuts_context(input.tokens) ? Range{chunk * chunk_positions, (chunk + 1) * chunk_positions}
                                                   : Range{0, input.start + input.tokens};
    if (input.tokens == 1) {
      worker.decode(kv_head, range);
    } else {
      worker.prefill(kv_head, first_token, tokens, range);
    }
  });
  team.for_each(input.tokens, [&](std::size_t token) {
    for (std::size_t head = 0; head < shape.heads; ++head) {
      merge(shape, scratch, token, head, chunks, out.values(token) + head * shape.value_dimension);
    }
    out.quantise(kernels, token);
  });
}

}  // namespace roundhouse
