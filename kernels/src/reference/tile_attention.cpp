#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "terrace/kernels/reference.hpp"
#include "terrace/kernels/row_address.hpp"

namespace terrace::kernels::reference {
namespace {

/// A softmax in the making.
struct Softmax {
  explicit Softmax(std::size_t dims) : values(dims) {}
  std::vector<double> values;  // times their weights, summed up
  double maximum = -std::numeric_limits<double>::infinity();
  double sum = 0;  // of weights
};

struct Head {
  const TileAttention& op;
  std::size_t token;
  std::size_t query_head;

  [[nodiscard]] std::size_t dims() const { return op.shape.head_dim; }
  [[nodiscard]] float* state() const { return op.state_of(token, query_head); }
  [[nodiscard]] const std::byte* row(std::size_t position) const {
    return row_address(op.shape, op.rows, query_head / op.shape.group(), position);
  }
  [[nodiscard]] double logit(std::size_t position) const {
    const float* query = op.query + token * op.query_stride + query_head * dims();
    double dot = 0;
    for (std::size_t i = 0; i < dims(); ++i) {
      dot += double{query[i]} * double{load_f32(row(position), op.shape.dtype, i)};
    }
    return double{op.scale} * dot;
  }
};

Softmax attend_piece(const Head& head, TokenRange rows) {
  Softmax piece(head.dims());
  std::vector<double> logits;
  for (std::size_t p = rows.begin; p < rows.end; ++p) {
    logits.push_back(head.logit(p));
    // NaN is taken over, too.
    if (!(logits.back() <= piece.maximum)) piece.maximum = logits.back();
  }
  const double base = std::isinf(piece.maximum) && piece.maximum < 0 ? 0 : piece.maximum;
  for (std::size_t p = rows.begin; p < rows.end; ++p) {
    const double weight = std::exp(logits[p - rows.begin] - base);
    piece.sum += weight;
    for (std::size_t i = 0; i < head.dims(); ++i) {
      const float value = load_f32(head.row(p), head.op.shape.dtype, head.dims() + i);
      piece.values[i] += weight * double{value};
    }
  }
  return piece;
}

void merge(const Softmax& piece, Softmax& all) {
  if (piece.sum == 0) return;
  const double maximum = std::max(all.maximum, piece.maximum);
  const double old_factor = std::exp(all.maximum - maximum);
  const double new_factor = std::exp(piece.maximum - maximum);
  for (std::size_t i = 0; i < all.values.size(); ++i) {
    all.values[i] = all.values[i] * old_factor + piece.values[i] * new_factor;
  }
  all.sum = all.sum * old_factor + piece.sum * new_factor;
  all.maximum = maximum;
}

Softmax load_state(const Head& head) {
  Softmax all(head.dims());
  if (head.op.first) return all;
  const float* state = head.state();
  all.values.assign(state, state + head.dims());
  all.maximum = double{state[head.dims()]};
  all.sum = double{state[head.dims() + 1]};
  return all;
}

void store_state(const Head& head, const Softmax& all) {
  float* state = head.state();
  for (std::size_t i = 0; i < head.dims(); ++i) state[i] = static_cast<float>(all.values[i]);
  state[head.dims()] = static_cast<float>(all.maximum);
  state[head.dims() + 1] = static_cast<float>(all.sum);
}

void attend(const Head& head) {
  const TileAttention& op = head.op;
  Softmax all = load_state(head);
  const std::size_t rows = op.rows_seen(head.token);
  for (std::size_t begin = 0; begin < rows; begin += tile_split) {
    merge(attend_piece(head, {begin, std::min(begin + tile_split, rows)}), all);
  }
  store_state(head, all);
  if (op.output == nullptr) return;
  float* output = op.output + head.token * op.output_stride + head.query_head * head.dims();
  for (std::size_t i = 0; i < head.dims(); ++i) {
    output[i] = all.sum == 0 ? 0.0F : static_cast<float>(all.values[i] / all.sum);
  }
}

/// Adds the weights of the rows that a head sees to `sums`, which begin with the tile's first row.
void add_weights(const Head& head, std::vector<double>& sums) {
  const double maximum = double{head.state()[head.dims()]};
  const double sum = double{head.state()[head.dims() + 1]};
  if (sum == 0) return;
  for (std::size_t row = 0; row < head.op.rows_seen(head.token); ++row) {
    sums[row] += std::exp(head.logit(row) - maximum) / sum;
  }
}

}  // namespace

void tile_attention(const TileAttention& op) {
  for (std::size_t token = 0; token < op.tokens; ++token) {
    for (std::size_t head = 0; head < op.shape.query_heads; ++head) attend({op, token, head});
  }
}

void tile_weights(const TileWeights& op) {
  const std::size_t lists = list_count(op.tile.shape, op.weights.scope);
  const std::size_t heads = op.tile.shape.query_heads / lists;
  for (std::size_t list = 0; list < lists; ++list) {
    std::vector<double> sums(op.tile.row_count);
    for (std::size_t token = 0; token < op.tile.tokens; ++token) {
      for (std::size_t head = list * heads; head < (list + 1) * heads; ++head) {
        add_weights({op.tile, token, head}, sums);
      }
    }
    float* target = op.weights.sums + list * op.weights.stride + op.first_column;
    for (const double sum : sums) *target++ += static_cast<float>(sum);
  }
}

}  // namespace terrace::kernels::reference
