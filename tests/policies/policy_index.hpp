// A policy's index of one layer in plain memory, built, extended and selected from as a runtime
// does it, one layer and one step at a time.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "kernels/block_store.hpp"
#include "terrace/core/bytes.hpp"
#include "terrace/offload/host_backend.hpp"
#include "terrace/policies/retrieval.hpp"

namespace terrace::testing {

/// A query of normal numbers, [query_heads, head_dim].
inline std::vector<float> normal_query(const KvShape& shape, std::uint64_t stream) {
  Rng rng(seed(), {stream});
  std::vector<float> query(shape.query_heads * shape.head_dim);
  for (float& x : query) x = normal(rng);
  return query;
}

class PolicyIndex {
 public:
  PolicyIndex(const RetrievalPolicy& policy, BlockStore& rows, std::size_t sinks)
      : policy_(policy),
        rows_(rows),
        sinks_(sinks),
        layout_(policy.index_layout(rows.shape()).value()),
        backend_(offload::HostBackend::create({}).value()),
        compute_(backend_->make_queue({.name = "compute"}).value()),
        fixed_(layout_.fixed_bytes) {}

  void build(std::size_t end) {
    index({sinks_, end});
    indexed_ = {sinks_, end};
  }

  void extend(std::size_t end) {
    index({indexed_.end, end});
    indexed_.end = end;
  }

  /// Forgets the tokens from `end` on, where an extension began. Returns whether that changed what
  /// stands for others.
  bool truncate(std::size_t end) {
    indexed_.end = end;
    const Result<bool> changed = policy_.cut(request({end, end}));
    EXPECT_TRUE(changed.has_value());
    return changed.value_or(false);
  }

  /// Selects `count` of the indexed tokens before `window`; returns the lists.
  std::vector<std::vector<std::uint32_t>> select(const std::vector<float>& query,
                                                 std::size_t window, std::size_t count) {
    const KvShape& shape = rows_.shape();
    const RetrievalTraits& traits = policy_.traits();
    const std::size_t lists =
        traits.lists == ListScope::kv_head ? shape.kv_heads : shape.query_heads;
    const std::size_t pseudo = policy_.pseudo_capacity(indexed_.size());
    const std::size_t capacity = std::max<std::size_t>(count, 1);
    ids_.assign(lists * capacity, 0xffffffffU);
    counts_.assign(lists, 0);
    scratch_.resize(policy_.select_scratch_floats(shape, indexed_.size()));
    pseudo_rows.resize(lists * pseudo);
    pseudo_bias.resize(lists * pseudo);
    pseudo_counts.assign(lists, 0);
    const SelectRequest request{.shape = shape,
                                .query = query.data(),
                                .candidates = {sinks_, window},
                                .count = {.mean = count},
                                .mass = mass_wanted,
                                .index = view(),
                                .resident = rows_.table(),
                                .sinks = {0, sinks_},
                                .window = {window, rows_.tokens()},
                                .scratch = scratch_.data()};
    Selection out{.capacity = capacity, .ids = ids_.data(), .id_count = counts_.data()};
    if (traits.gives_pseudo_entries) {
      out.pseudo = {pseudo_rows.data(), pseudo_bias.data(), pseudo_counts.data(), pseudo};
    }
    const auto selected = policy_.select(request, out, *compute_, backend_->ops());
    EXPECT_TRUE(selected.has_value());
    EXPECT_TRUE(compute_->drain(std::chrono::seconds{60}).has_value());
    std::vector<std::vector<std::uint32_t>> result(lists);
    for (std::size_t i = 0; i < lists; ++i) {
      result[i].assign(ids_.data() + i * capacity, ids_.data() + i * capacity + counts_[i]);
    }
    return result;
  }

  [[nodiscard]] IndexView view() const {
    return {.fixed = fixed_.data(),
            .chunks = chunks_.data(),
            .chunk_tokens = layout_.chunk_tokens,
            .first_token = sinks_,
            .token_count = indexed_.size()};
  }
  [[nodiscard]] BuildRequest request(TokenRange tokens) {
    BuildRequest made{.shape = rows_.shape(),
                      .rows = rows_.table(),
                      .tokens = tokens,
                      .hints = {.query_window = query_window},
                      .fixed = fixed_.data(),
                      .index = view(),
                      .iterations = 10,
                      .seed = seed()};
    made.index.token_count = tokens.begin - sinks_;
    return made;
  }
  [[nodiscard]] const std::vector<std::vector<std::byte>>& chunks() const { return memory_; }
  [[nodiscard]] TokenRange indexed() const { return indexed_; }

  std::vector<float> query_window;
  double mass_wanted = 0;
  // Of the last selection.
  std::vector<const std::byte*> pseudo_rows;
  std::vector<float> pseudo_bias;
  std::vector<std::uint32_t> pseudo_counts;

 private:
  void reserve(std::size_t end) {
    while (memory_.size() < divide_up(end - sinks_, layout_.chunk_tokens)) {
      // Memory is never clean.
      memory_.emplace_back(layout_.chunk_bytes, std::byte{0xee});
      chunks_.push_back(memory_.back().data());
    }
  }

  void index(TokenRange tokens) {
    reserve(tokens.end);
    Serial alone;
    const auto report = policy_.build(request(tokens), alone);
    ASSERT_TRUE(report.has_value()) << report.error().message();
  }

  const RetrievalPolicy& policy_;
  BlockStore& rows_;
  std::size_t sinks_;
  IndexLayout layout_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Queue> compute_;
  std::vector<std::byte> fixed_;
  std::vector<std::vector<std::byte>> memory_;
  std::vector<std::byte*> chunks_;
  TokenRange indexed_;
  std::vector<std::uint32_t> ids_;
  std::vector<std::uint32_t> counts_;
  std::vector<float> scratch_;
};

}  // namespace terrace::testing
