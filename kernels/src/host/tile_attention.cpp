// Attention over a tile of rows: see terrace/kernels/attention.hpp.
//
// One part of the work is some tokens of one KV head. It takes piece after piece, and each piece
// for all of its tokens, so that the piece's rows stay in the second cache. Query heads of tokens
// that see as many rows of a piece share a pass over them, whichever token they are of.
#include <algorithm>
#include <cmath>
#include <limits>

#include "host/attention_piece.hpp"
#include "terrace/kernels/attention.hpp"

namespace terrace::kernels::host {
namespace {

/// Tokens of one KV head: the part of the work that one thread does.
struct Part {
  std::size_t kv_head;
  std::size_t begin;  // tokens [begin, end)
  std::size_t end;
};

void begin_state(float* state, std::size_t dims) noexcept {
  std::fill_n(state, dims, 0.0F);
  state[dims] = -std::numeric_limits<float>::infinity();
  state[dims + 1] = 0;
}

/// Merges a piece's result into a state.
void merge(const float* partial, std::size_t dims, float* state) noexcept {
  // A piece without weight (all logits -inf) has nothing to add; its difference may be NaN.
  if (partial[dims + 1] == 0) return;
  const float maximum = std::max(state[dims], partial[dims]);
  const float old_factor = std::exp2(state[dims] - maximum);
  const float new_factor = std::exp2(partial[dims] - maximum);
  for (std::size_t i = 0; i < dims; ++i) {
    state[i] = state[i] * old_factor + partial[i] * new_factor;
  }
  state[dims] = maximum;
  state[dims + 1] = state[dims + 1] * old_factor + partial[dims + 1] * new_factor;
}

/// Query heads of one KV head's group, of several tokens, that see equally many rows of a piece.
class Pass {
 public:
  Pass(const TileAttention& op, const Part& part) noexcept : op_(op), part_(part) {}

  /// Attends to `rows` rows of a piece for tokens [begin, end).
  void attend(EntryPiece& piece, std::size_t rows, std::size_t begin, std::size_t end) noexcept {
    piece.count = rows;
    const std::size_t group = op_.shape.group();
    const std::size_t last = end * group;
    for (std::size_t first = begin * group; first < last; first += heads_per_pass) {
      attend_heads(piece, first, std::min(heads_per_pass, last - first));
    }
  }

 private:
  /// Head number n is head n % group of token n / group.
  void attend_heads(const EntryPiece& piece, std::size_t first, std::size_t count) noexcept {
    const std::size_t dims = op_.shape.head_dim;
    const std::size_t group = op_.shape.group();
    const auto query_head = [&](std::size_t n) { return part_.kv_head * group + n % group; };
    for (std::size_t h = 0; h < count; ++h) {
      const std::size_t n = first + h;
      std::copy_n(op_.query + n / group * op_.query_stride + query_head(n) * dims, dims,
                  queries_ + h * dims);
    }
    attend_piece(piece,
                 {.query = queries_,
                  .count = count,
                  .scale = op_.scale,
                  .partial = partials_,
                  .partial_stride = dims + 2},
                 op_.shape);
    for (std::size_t h = 0; h < count; ++h) {
      const std::size_t n = first + h;
      merge(partials_ + h * (dims + 2), dims, op_.state_of(n / group, query_head(n)));
    }
  }

  const TileAttention& op_;
  const Part& part_;
  float queries_[heads_per_pass * KvShape::head_dim_max];
  float partials_[heads_per_pass * (KvShape::head_dim_max + 2)];
};

void attend_part(const TileAttention& op, const Part& part) noexcept {
  EntryPiece piece;
  Pass pass(op, part);
  const std::size_t rows = op.rows_seen(part.end - 1);
  for (std::size_t begin = 0; begin < rows; begin += attention_split) {
    gather_piece(op, part.kv_head, begin / attention_split, piece);
    const auto rows_of = [&](std::size_t token) {
      return std::min(std::max(op.rows_seen(token), begin) - begin, attention_split);
    };
    for (std::size_t token = part.begin; token < part.end;) {
      const std::size_t seen = rows_of(token);
      std::size_t end = token + 1;
      while (end < part.end && rows_of(end) == seen) ++end;
      if (seen > 0) pass.attend(piece, seen, token, end);
      token = end;
    }
  }
}

/// Writes the output of each head of a part.
void end_part(const TileAttention& op, const Part& part) noexcept {
  const std::size_t dims = op.shape.head_dim;
  const std::size_t group = op.shape.group();
  for (std::size_t token = part.begin; token < part.end; ++token) {
    for (std::size_t head = part.kv_head * group; head < (part.kv_head + 1) * group; ++head) {
      const float* state = op.state_of(token, head);
      float* output = op.output + token * op.output_stride + head * dims;
      const float sum = state[dims + 1];
      for (std::size_t i = 0; i < dims; ++i) output[i] = sum == 0 ? 0.0F : state[i] / sum;
    }
  }
}

void begin_part(const TileAttention& op, const Part& part) noexcept {
  const std::size_t group = op.shape.group();
  for (std::size_t token = part.begin; token < part.end; ++token) {
    for (std::size_t head = part.kv_head * group; head < (part.kv_head + 1) * group; ++head) {
      begin_state(op.state_of(token, head), op.shape.head_dim);
    }
  }
}

/// Returns how many tokens a part has. All, on one thread: each part reads the rows once. Else some
/// parts a thread, for tokens that see less take less, but not so few tokens that it is the memory
/// that takes the time.
std::size_t tokens_of_part(const TileAttention& op, std::size_t threads) noexcept {
  constexpr std::size_t parts_of_thread = 4;
  constexpr std::size_t tokens_min = 16;
  if (threads == 1) return op.tokens;
  const std::size_t parts = divide_up(parts_of_thread * threads, op.shape.kv_heads);
  return std::max(divide_up(op.tokens, parts), tokens_min);
}

}  // namespace

void tile_attention(const TileAttention& op, Parallel& threads) {
  if (op.tokens == 0) return;
  const std::size_t tokens = tokens_of_part(op, threads.concurrency());
  const std::size_t parts = divide_up(op.tokens, tokens);
  threads.for_each(op.shape.kv_heads * parts, [&](std::size_t i) {
    const std::size_t begin = i % parts * tokens;
    const Part part{i / parts, begin, std::min(begin + tokens, op.tokens)};
    if (op.first) begin_part(op, part);
    attend_part(op, part);
    if (op.output != nullptr) end_part(op, part);
  });
}

}  // namespace terrace::kernels::host
