// A policy's index of one layer in plain memory, built, extended and selected from as a runtime
// does it, one layer and one step at a time.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "kernels/block_store.hpp"
#include "terrace/core/bytes.hpp"
#include "terrace/kernels/reference.hpp"
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
  using Lists = std::vector<std::vector<std::uint32_t>>;
  struct Wanted {
    std::vector<float> query;
    std::size_t window;
    std::size_t count;
  };

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
  Lists select(const std::vector<float>& query, std::size_t window, std::size_t count) {
    return select_all({{query, window, count}}).front();
  }

  /// Selects as a batch.
  std::vector<Lists> select_all(const std::vector<Wanted>& all) {
    std::vector<Chosen> chosen(all.size());
    std::vector<SelectRequest> batch;
    for (std::size_t i = 0; i < all.size(); ++i) batch.push_back(choose(all[i], chosen[i]));
    std::vector<SelectRequest> of_rows = batch;
    for (SelectRequest& request : of_rows) request.count = policy_.rows_within(request);
    const auto selected = policy_.select(of_rows, *compute_, backend_->ops());
    EXPECT_TRUE(selected.has_value());
    EXPECT_TRUE(compute_->drain(std::chrono::seconds{60}).has_value());
    if (policy_.traits().estimates_rest) write_rests(batch, chosen);
    std::vector<Lists> result;
    for (std::size_t i = 0; i < all.size(); ++i) {
      const std::size_t capacity = batch[i].out.capacity;
      Lists& lists = result.emplace_back(chosen[i].counts.size());
      for (std::size_t list = 0; list < lists.size(); ++list) {
        const std::uint32_t* const ids = chosen[i].ids.data() + list * capacity;
        lists[list].assign(ids, ids + chosen[i].counts[list]);
      }
    }
    pseudo_rows = std::move(chosen.back().pseudo_rows);
    pseudo_bias = std::move(chosen.back().pseudo_bias);
    pseudo_counts = std::move(chosen.back().pseudo_counts);
    means_ = std::move(chosen.back().means);
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
  [[nodiscard]] const std::byte* row(std::size_t head, std::size_t position) const {
    return rows_.row(head, position);
  }

  std::vector<float> query_window;
  std::vector<float> speculated;  ///< query of any selection; empty = the query itself
  double mass_wanted = 0;
  // Pseudo-entries of the last selection.
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

  /// The memory of a selection.
  struct Chosen {
    std::vector<std::uint32_t> ids;
    std::vector<std::uint32_t> counts;
    std::vector<float> scratch;
    std::vector<const std::byte*> pseudo_rows;
    std::vector<float> pseudo_bias;
    std::vector<std::uint32_t> pseudo_counts;
    std::vector<std::byte*> rows;  ///< that were selected
    std::vector<std::byte> means;  ///< of what was not
  };

  /// Writes down what the selections left out.
  void write_rests(std::span<const SelectRequest> batch, std::span<Chosen> all) {
    for (std::size_t i = 0; i < batch.size(); ++i) {
      Chosen& chosen = all[i];
      const std::size_t capacity = batch[i].out.capacity;
      chosen.rows.resize(chosen.ids.size());
      for (std::size_t list = 0; list < chosen.counts.size(); ++list) {
        for (std::size_t k = 0; k < chosen.counts[list]; ++k) {
          const std::size_t at = list * capacity + k;
          chosen.rows[at] = rows_.row(list, chosen.ids[at]);
        }
      }
      chosen.means.resize(chosen.pseudo_rows.size() * rows_.shape().row_bytes());
      const DecodeAttention attention{
          .shape = batch[i].shape,
          .query = batch[i].query,
          .selected = chosen.rows.data(),
          .selected_count = chosen.counts.data(),
          .selected_stride = capacity,
          .rests = policy_.rests({batch[i], chosen.means.data()}),
          .scale = 1 / std::sqrt(static_cast<float>(batch[i].shape.head_dim))};
      kernels::reference::estimate_rest(kernels::EstimateRest::of(attention));
    }
  }

  /// Makes room for a selection, and returns the request for it.
  SelectRequest choose(const Wanted& wanted, Chosen& chosen) {
    const KvShape& shape = rows_.shape();
    const RetrievalTraits& traits = policy_.traits();
    const std::size_t lists = list_count(shape, traits.lists);
    const std::size_t pseudo = policy_.pseudo_capacity(indexed_.size());
    const std::size_t capacity = std::max<std::size_t>(wanted.count, 1);
    chosen.ids.assign(lists * capacity, 0xffffffffU);
    chosen.counts.assign(lists, 0);
    chosen.scratch.resize(policy_.select_scratch_floats(shape, indexed_.size()));
    chosen.pseudo_rows.resize(lists * pseudo);
    chosen.pseudo_bias.resize(lists * pseudo);
    chosen.pseudo_counts.assign(lists, 0);
    SelectRequest request{
        .shape = shape,
        .query = wanted.query.data(),
        .speculated_query = speculated.empty() ? wanted.query.data() : speculated.data(),
        .candidates = {sinks_, wanted.window},
        .count = {.mean = wanted.count},
        .mass = mass_wanted,
        .index = view(),
        .resident = rows_.table(),
        .sinks = {0, sinks_},
        .window = {wanted.window, rows_.tokens()},
        .scratch = chosen.scratch.data(),
        .out = {.capacity = capacity, .ids = chosen.ids.data(), .id_count = chosen.counts.data()}};
    if (traits.gives_pseudo_entries) {
      request.out.pseudo = {chosen.pseudo_rows.data(), chosen.pseudo_bias.data(),
                            chosen.pseudo_counts.data(), pseudo};
    }
    return request;
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
  std::vector<std::byte> means_;  ///< of the last selection
};

}  // namespace terrace::testing
