// Buffers of a selection, and an index to select by keys from.
#pragma once

#include <cmath>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "kernels/block_store.hpp"
#include "kernels/guarded.hpp"
#include "kernels/kernel_run.hpp"
#include "kernels/selection_check.hpp"
#include "terrace/kernels/rows.hpp"

namespace terrace::testing {

// Weights are wrong by the rounding of a logit (size 1, up to 1024 products) and of an exponential:
// well below 2e-5 of the largest weight. Weights of neighbours in rank differ by more than that at
// the sizes used, so a wrong candidate is found (PqSelect.FindsAWrongCandidate).
inline constexpr double selection_tolerance = 2e-5;

/// Buffers of a selection.
class Selected {
 public:
  Selected(const KvShape& shape, TokenRange candidates, std::size_t count)
      : shape_(shape),
        candidates_(candidates),
        count_(count),
        query_(shape.query_heads * shape.head_dim),
        ids_(shape.kv_heads * count),
        counts_(shape.kv_heads),
        scratch_(selection_scratch_floats(shape, candidates.size()), std::nanf("")) {
    Rng rng(testing::seed(), {21});
    for (float& x : query_) x = testing::normal(rng);
  }

  SelectCommon common(GroupReduction reduction) {
    return {.shape = shape_,
            .query = query_.data(),
            .candidates = candidates_,
            .count = {.mean = count_},
            .reduction = reduction,
            .ids = ids_.data(),
            .id_count = counts_.data(),
            .id_stride = count_,
            .scratch = scratch_.data()};
  }

  [[nodiscard]] std::span<const std::uint32_t> ids(std::size_t head) {
    return {ids_.data() + head * count_, counts_[head]};
  }
  [[nodiscard]] bool intact() const {
    return ids_.intact() && counts_.intact() && scratch_.intact();
  }

  KvShape shape_;
  TokenRange candidates_;
  std::size_t count_;
  std::vector<float> query_;
  Guarded<std::uint32_t> ids_;
  Guarded<std::uint32_t> counts_;
  Guarded<float> scratch_;
};

/// Checks that each KV head of a selection, which has run, has the largest of its weights.
template <typename Select>
void expect_top(const Select& op, void (*weigh)(const Select&, std::size_t head, double* weights)) {
  const SelectCommon& common = op.common;
  for (std::size_t head = 0; head < common.shape.kv_heads; ++head) {
    std::vector<double> weights(common.candidates.size());
    weigh(op, head, weights.data());
    const std::span ids(common.ids + head * common.id_stride, common.id_count[head]);
    EXPECT_TRUE(
        is_top(ids, common.candidates.begin, common.count.mean, weights, selection_tolerance));
  }
}

/// Keys of rows in the chunks of an exact index.
class KeyIndex {
 public:
  KeyIndex(const BlockStore& store, std::size_t chunk_tokens, TokenRange tokens) {
    const KvShape& shape = store.shape();
    const std::size_t off = odd_offset(shape.dtype);
    for (std::size_t begin = 0; begin < tokens.size(); begin += chunk_tokens) {
      memory_.emplace_back(shape.token_bytes() / 2 * chunk_tokens + off);
      chunks_.push_back(memory_.back().data() + off);
    }
    view_ = {.chunks = chunks_.data(),
             .chunk_tokens = chunk_tokens,
             .first_token = tokens.begin,
             .token_count = tokens.size()};
    Serial alone;
    const Status copied = kernels::host::key_copy(
        {.shape = shape, .rows = store.table(), .tokens = tokens, .index = view_}, alone);
    EXPECT_TRUE(copied.has_value());
  }

  [[nodiscard]] const IndexView& view() const { return view_; }

 private:
  std::vector<std::vector<std::byte>> memory_;
  std::vector<std::byte*> chunks_;
  IndexView view_;
};

/// Channels of keys in the chunks of an index. Which of them a partial index has is drawn.
class ChannelIndex {
 public:
  ChannelIndex(const BlockStore& store, ChannelShape channels, std::size_t chunk_tokens,
               TokenRange tokens)
      : numbers_(store.shape().kv_heads * channels.count) {
    const KvShape& shape = store.shape();
    Rng rng(testing::seed(), {22});
    for (std::size_t head = 0; head < shape.kv_heads; ++head) {
      std::vector<std::uint32_t> all(shape.head_dim);
      std::iota(all.begin(), all.end(), 0U);
      for (std::size_t c = 0; c < channels.count; ++c) {
        std::swap(all[c], all[c + rng.below(shape.head_dim - c)]);
        numbers_[head * channels.count + c] = all[c];
      }
    }
    const std::size_t off = odd_offset(shape.dtype);
    const std::size_t chunk_bytes =
        shape.kv_heads * channels.stored(shape) * chunk_tokens * size_bytes(shape.dtype);
    for (std::size_t begin = 0; begin < tokens.size(); begin += chunk_tokens) {
      memory_.emplace_back(chunk_bytes + off);
      chunks_.push_back(memory_.back().data() + off);
    }
    view_ = {.fixed = reinterpret_cast<const std::byte*>(numbers_.data()),
             .chunks = chunks_.data(),
             .chunk_tokens = chunk_tokens,
             .first_token = tokens.begin,
             .token_count = tokens.size()};
    for (std::size_t head = 0; head < shape.kv_heads; ++head) {
      const Status copied = kernels::host::key_channels({.shape = shape,
                                                         .rows = store.table(),
                                                         .tokens = tokens,
                                                         .head = head,
                                                         .channels = channels,
                                                         .index = view_});
      EXPECT_TRUE(copied.has_value());
    }
  }

  [[nodiscard]] const IndexView& view() const { return view_; }

 private:
  std::vector<std::uint32_t> numbers_;
  std::vector<std::vector<std::byte>> memory_;
  std::vector<std::byte*> chunks_;
  IndexView view_;
};

}  // namespace terrace::testing
