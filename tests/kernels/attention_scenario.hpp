// Attention over random rows, set up from a few numbers.
#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "kernels/block_store.hpp"
#include "kernels/guarded.hpp"
#include "kernels/kernel_run.hpp"
#include "terrace/kernels/reference.hpp"

namespace terrace::testing {

struct AttentionCase {
  KvShape shape;
  std::size_t block_tokens = 32;
  std::size_t sinks = 0;
  std::size_t window = 0;
  std::size_t selected = 0;  // of list 0; every further list has one more
  std::size_t pseudo = 0;
  ListScope scope = ListScope::kv_head;
  bool biased = false;
  std::size_t misalignment = 0;

  [[nodiscard]] std::size_t lists() const {
    return scope == ListScope::kv_head ? shape.kv_heads : shape.query_heads;
  }
  [[nodiscard]] std::string text() const {
    return to_text(shape) + ", blocks of " + std::to_string(block_tokens) + ", " +
           std::to_string(sinks) + " sinks, window " + std::to_string(window) + ", selected " +
           std::to_string(selected) + ", pseudo " + std::to_string(pseudo) +
           (scope == ListScope::kv_head ? "" : ", a list per query head") +
           (biased ? ", biased" : "") + ", misaligned by " + std::to_string(misalignment) + ", " +
           seed_text();
  }
};

class AttentionScenario {
 public:
  explicit AttentionScenario(const AttentionCase& options)
      : options_(options),
        store_(options.shape, options.block_tokens, tokens(), options.misalignment),
        query_(options.shape.query_heads * options.shape.head_dim),
        selected_(options.lists() * stride()),
        selected_bias_(selected_.size()),
        selected_count_(options.lists()),
        pseudo_memory_(options.lists() * stride() * options.shape.row_bytes()),
        pseudo_rows_(options.lists() * stride()),
        pseudo_bias_(options.lists() * stride()),
        pseudo_count_(options.lists(), static_cast<std::uint32_t>(options.pseudo)) {
    store_.fill_normal(1);
    Rng rng(seed(), {2});
    for (float& x : query_) x = normal(rng);
    for (float& x : selected_bias_) x = normal(rng);
    for (float& x : pseudo_bias_) x = normal(rng);
    for (std::size_t i = 0; i < pseudo_memory_.size() / size_bytes(options.shape.dtype); ++i) {
      store_f32(pseudo_memory_.data(), options.shape.dtype, i, normal(rng));
    }
    for (std::size_t i = 0; i < pseudo_rows_.size(); ++i) {
      // In the order of another place: rows lie anywhere.
      pseudo_rows_[pseudo_rows_.size() - 1 - i] = &pseudo_memory_[i * options.shape.row_bytes()];
    }
    for (std::size_t list = 0; list < options.lists(); ++list) {
      if (options.selected > 0) {
        selected_count_[list] = static_cast<std::uint32_t>(options.selected + list);
      }
      const std::size_t head = list * options.shape.kv_heads / options.lists();
      for (std::size_t i = 0; i < stride(); ++i) {
        selected_[list * stride() + i] = store_.row(head, rng.below(tokens()));
      }
    }
  }

  /// Returns the op, writing to `output`.
  DecodeAttention op(float* output) {
    const KvShape& shape = options_.shape;
    const std::size_t entries =
        options_.sinks + options_.window + options_.selected + options_.lists() + options_.pseudo;
    scratch_.assign(attention_scratch_floats(shape, entries), std::nanf(""));
    return {.shape = shape,
            .query = query_.data(),
            .output = output,
            .resident = store_.table(),
            .sinks = {0, options_.sinks},
            .window = {tokens() - options_.window, tokens()},
            .scope = options_.scope,
            .selected = options_.selected == 0 ? nullptr : selected_.data(),
            .selected_count = selected_count_.data(),
            .selected_stride = stride(),
            .selected_bias = options_.biased ? selected_bias_.data() : nullptr,
            .pseudo = {.rows = pseudo_rows_.data(),
                       .bias = options_.biased ? pseudo_bias_.data() : nullptr,
                       .count = options_.pseudo == 0 ? nullptr : pseudo_count_.data(),
                       .stride = stride()},
            .scale = 1.0F / std::sqrt(static_cast<float>(shape.head_dim)),
            .scratch = scratch_.data()};
  }

  /// Returns the op with weights that go to `sums`: [lists of the scope, weights_stride()].
  DecodeAttention op(float* output, ListScope scope, float* sums) {
    DecodeAttention weighed = op(output);
    weights_scratch_.assign(attention_weights_scratch_floats(options_.shape, weights_stride()),
                            std::nanf(""));
    weighed.weights = {.scope = scope, .sums = sums, .stride = weights_stride()};
    weighed.weights_scratch = weights_scratch_.data();
    return weighed;
  }

  std::vector<float> run() {
    Guarded<float> output(query_.size(), std::nanf(""));
    testing::run(op(output.data()));
    guards_intact_ &= output.intact();
    return {output.span().begin(), output.span().end()};
  }

  std::vector<float> run_reference() {
    std::vector<float> output(query_.size());
    kernels::reference::decode_attention(op(output.data()));
    return output;
  }

  [[nodiscard]] bool guards_intact() const { return guards_intact_; }
  [[nodiscard]] std::size_t stride() const {
    return std::max(options_.selected + options_.lists(), options_.pseudo);
  }
  /// More than any list has entries.
  [[nodiscard]] std::size_t weights_stride() const {
    return options_.sinks + options_.window + options_.selected + options_.lists() +
           options_.pseudo + 3;
  }
  /// Returns the entries of a query head.
  [[nodiscard]] std::size_t entries(std::size_t query_head) const {
    const std::size_t list = query_head * options_.lists() / options_.shape.query_heads;
    const std::size_t selected = options_.selected == 0 ? 0 : selected_count_[list];
    return options_.sinks + options_.window + selected + options_.pseudo;
  }
  [[nodiscard]] std::size_t tokens() const { return options_.sinks + options_.window + 7; }

  AttentionCase options_;
  BlockStore store_;
  std::vector<float> query_;
  std::vector<std::byte*> selected_;
  std::vector<float> selected_bias_;
  std::vector<std::uint32_t> selected_count_;
  std::vector<std::byte> pseudo_memory_;
  std::vector<const std::byte*> pseudo_rows_;
  std::vector<float> pseudo_bias_;
  std::vector<std::uint32_t> pseudo_count_;
  std::vector<float> scratch_;
  std::vector<float> weights_scratch_;

 private:
  bool guards_intact_ = true;
};

/// Returns the largest difference of two vectors; infinite if only one has a NaN at some place.
inline double max_difference(const std::vector<float>& a, const std::vector<float>& b) {
  double difference = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (std::isnan(a[i]) && std::isnan(b[i])) continue;
    if (std::isnan(a[i]) != std::isnan(b[i])) return HUGE_VAL;
    difference = std::max(difference, std::abs(double{a[i]} - double{b[i]}));
  }
  return difference;
}

}  // namespace terrace::testing
