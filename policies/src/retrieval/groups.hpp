// Groups of alike tokens in an index, and estimates of what a selection leaves of them.
#pragma once

#include <span>
#include <string_view>

#include "terrace/core/retrieval.hpp"
#include "terrace/policies/retrieval.hpp"

namespace terrace::policies {

/// The groups of an index: tokens of a page whose keys are alike, found by soft matching, and the
/// means of their rows.
class Groups {
 public:
  static constexpr std::size_t page_tokens = 64;  ///< divides the chunks of all indexes

  /// Errors: invalid_argument naming the key of options.group_tokens, which is no divisor of a
  /// page.
  [[nodiscard]] static Status check(const EstimateOptions& options, std::string_view key);

  /// `chunk_begin`: bytes of a chunk that lie before.
  Groups(const EstimateOptions& options, std::size_t chunk_begin) noexcept;

  [[nodiscard]] const GroupShape& shape() const noexcept { return shape_; }

  /// Writes the groups of each page whose last token is among those of the request, of a KV head.
  void write(const BuildRequest& request, std::size_t head) const;

  /// See RetrievalPolicy::rows_within().
  [[nodiscard]] RowCounts rows_within(const SelectRequest& request) const noexcept;

  /// See RetrievalPolicy::rests().
  [[nodiscard]] GroupRests rests(const RestsRequest& request) const noexcept;

 private:
  /// Returns how many entries a KV head may have.
  [[nodiscard]] std::size_t entries_of(const SelectRequest& request) const noexcept;

  GroupShape shape_;
  bool in_budget_;
};

}  // namespace terrace::policies
