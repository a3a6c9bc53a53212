// Shared by tests of retention: a budget in round numbers, and looks at the entries that there
// are.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "api/sequence_state.hpp"
#include "layer/layer_retention.hpp"
#include "runtime/scenario.hpp"
#include "terrace/policies/outlier_heads.hpp"

namespace terrace::testing::retained {

// A budget of 65 has 4 sinks, 15 tokens of the window, 45 entries, and the token itself.
inline constexpr std::size_t budget = 65;
inline constexpr std::size_t sinks = 4;
inline constexpr std::size_t window = 15;
inline constexpr std::size_t middle = 45;

inline constexpr const char* with_outliers = "chelsea_with_outlier_heads";

/// Makes one of four KV heads an outlier head.
inline std::shared_ptr<const policies::OutlierHeads> outlier_heads() {
  const KvShape shape = Scenario{}.runtime.shape;
  return std::make_shared<const policies::OutlierHeads>(
      policies::OutlierHeads::create(shape.layers, shape.kv_heads, {{LayerId{0}, HeadId{1}}})
          .value());
}

inline Scenario scenario_with(const std::string& policy) {
  Scenario scenario;
  scenario.runtime.policy = "streaming";
  scenario.runtime.retention_policy = policy;
  if (policy == with_outliers) {
    scenario.runtime.retention_policy = "chelsea";
    scenario.runtime.retention.outlier_heads = outlier_heads();
  }
  scenario.runtime.budget.value = budget;
  scenario.runtime.window_share = 0.25;
  scenario.runtime.retention.score_window = 8;
  return scenario;
}

inline const EntryList& entries_of(Sequence& sequence, std::size_t layer, std::size_t head) {
  return state_of(sequence).parts.layers[layer]->retention.entries.now().heads[head];
}

inline const std::byte* entry_row(Sequence& sequence, std::size_t layer, std::size_t head,
                                  std::size_t entry) {
  return state_of(sequence).parts.layers[layer]->retention.entries.now().memory().row(head, entry);
}

/// Checks that every token is a sink, in the window, an entry or part of one, or dropped; and that
/// entries of one token have that token's row, or are not read as if they had.
inline void expect_conservation(Sequence& sequence, const Traffic& traffic) {
  const KvShape& shape = traffic.shape();
  const std::size_t decided = sequence.window().begin - sinks;
  std::uint64_t standing = 0;
  for (std::size_t layer = 0; layer < shape.layers; ++layer) {
    for (std::size_t head = 0; head < shape.kv_heads; ++head) {
      const EntryList& list = entries_of(sequence, layer, head);
      EXPECT_TRUE(std::ranges::is_sorted(list.positions));
      standing += std::accumulate(list.degrees.begin(), list.degrees.end(), std::uint64_t{0});
      for (std::size_t i = 0; i < list.size(); ++i) {
        ASSERT_GE(list.positions[i], sinks);
        ASSERT_LT(list.positions[i], sinks + decided);
        const std::vector<std::byte> row = traffic.row(layer, head, list.positions[i]);
        std::vector<std::byte> read(row.size());
        const auto done = sequence.read_rows(static_cast<LayerId>(layer), static_cast<HeadId>(head),
                                             {&list.positions[i], 1}, read);
        if (!list.is_token(i)) {
          ASSERT_FALSE(done.has_value()) << "it is not the token's row";
          continue;
        }
        ASSERT_TRUE(done.has_value()) << done.error().message();
        EXPECT_EQ(read, row);
      }
    }
  }
  EXPECT_EQ(standing + sequence.retention().dropped, decided * shape.layers * shape.kv_heads);
}

}  // namespace terrace::testing::retained
