// The queries of a layer's last tokens, on the host: a retention policy chooses by how they look at
// the rows.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "terrace/core/backend.hpp"
#include "terrace/core/ops.hpp"

namespace terrace {

/// Threads  one at a time: the sequence's own. Copies that were listed have to be done before
/// queries are read.
class LastQueries {
 public:
  /// Allocates room for queries of `window` tokens, whatever tokens are rejected after them.
  /// Errors: out_of_memory.
  Status reserve(Backend& backend, const KvShape& shape, std::size_t window);

  /// Records that the last queries of `tokens` come, and lists their copies. `query` is the first
  /// token's query, `stride` floats before the next token's.
  void list_copies(TokenRange tokens, const float* query, std::size_t stride,
                   std::vector<CopyExtent>& extents);

  struct Run {
    std::size_t first = 0;       ///< position
    std::vector<float> queries;  ///< [tokens, query_heads, head_dim]
  };
  /// Returns the queries of the last tokens before `end`: the longest run without a gap.
  [[nodiscard]] Run before(std::size_t end) const;

  /// Copies another layer's. Errors: out_of_memory.
  Status copy_from(const LastQueries& other, Backend& backend);
  /// Forgets all of them.
  void clear() noexcept { positions_.assign(positions_.size(), none); }

 private:
  static constexpr std::size_t none = static_cast<std::size_t>(-1);
  [[nodiscard]] float* queries_at(std::size_t place) const noexcept {
    return memory_.as<float>() + place * numbers_;
  }
  /// The first place, from `from` on, that has the queries of that position; one past the last
  /// place if no place has them.
  [[nodiscard]] std::size_t place_of(std::size_t position, std::size_t from) const noexcept;

  Status allocate(Backend& backend, std::size_t places);

  Buffer memory_;                       ///< [2 * window, query_heads, head_dim]
  std::vector<std::size_t> positions_;  ///< [2 * window] whose queries are there
  std::size_t numbers_ = 0;             ///< of a token's queries
};

}  // namespace terrace
