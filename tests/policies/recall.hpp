// How much of what queries really look at a selection finds.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "policies/policy_index.hpp"

namespace terrace::testing {

/// Returns the share of the exact top `count` of `candidates` that lists find, in the mean over
/// `queries`, [queries, query_heads, head_dim]. The policy has a list for each query head, or there
/// is one query head for each KV head.
inline double recall(PolicyIndex& index, const BlockStore& rows, const std::vector<float>& queries,
                     TokenRange candidates, std::size_t count) {
  const KvShape& shape = rows.shape();
  const std::size_t whole = shape.query_heads * shape.head_dim;
  std::size_t found = 0;
  std::size_t wanted = 0;
  for (std::size_t at = 0; at + whole <= queries.size(); at += whole) {
    const std::vector<float> query(&queries[at], &queries[at] + whole);
    const auto lists = index.select(query, candidates.end, count);
    for (std::size_t head = 0; head < lists.size(); ++head) {
      std::vector<std::pair<double, std::uint32_t>> order;
      for (std::size_t p = candidates.begin; p < candidates.end; ++p) {
        double dot = 0;
        for (std::size_t i = 0; i < shape.head_dim; ++i) {
          dot += double{query[head * shape.head_dim + i]} *
                 double{rows.key(head / shape.group(), p, i)};
        }
        order.emplace_back(-dot, static_cast<std::uint32_t>(p));
      }
      std::ranges::sort(order);
      order.resize(count);
      wanted += count;
      for (const auto& [worth, id] : order) {
        found += std::ranges::binary_search(lists[head], id) ? 1U : 0U;
      }
    }
  }
  return static_cast<double>(found) / static_cast<double>(wanted);
}

}  // namespace terrace::testing
