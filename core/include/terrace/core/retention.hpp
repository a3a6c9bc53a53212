// What a retention policy decides: which rows of a KV head stay at all, and which merge into one.
// A row is then no longer a token position: it stands for `degree` tokens, and attention adds
// log(degree) to its logit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "terrace/core/ids.hpp"
#include "terrace/core/ops.hpp"
#include "terrace/core/result.hpp"

namespace terrace {

struct RetentionTraits {
  std::string_view name;
  bool merges = false;  ///< rows may merge: attention needs the log-degree bias
  bool needs_attention_scores = false;
  bool needs_pre_rope_keys = false;
};

/// What is known of the rows of one (layer, KV head).
struct RetentionRequest {
  LayerId layer{};
  HeadId head{};
  KvShape shape;
  BlockTable rows;  ///< host blocks
  std::size_t row_count = 0;
  std::size_t rows_to_keep = 0;
  std::span<const std::uint32_t> positions;  ///< [row_count]; of a merged row, its first token's
  std::span<const std::uint32_t> degrees;    ///< [row_count]
  std::span<const float> attention_scores;   ///< [row_count] if needed, else empty
};

/// What becomes of each row.
struct RowFate {
  static constexpr std::uint32_t dropped = 0xffffffffU;
  std::uint32_t into =
      dropped;  ///< its own number: stays; another row's: merges into it; or dropped
};

/// Threads  safe from any thread: no mutable state
class RetentionPolicy {
 public:
  RetentionPolicy() = default;
  RetentionPolicy(const RetentionPolicy&) = delete;
  RetentionPolicy& operator=(const RetentionPolicy&) = delete;
  virtual ~RetentionPolicy() = default;

  [[nodiscard]] virtual const RetentionTraits& traits() const noexcept = 0;

  /// Decides the fate of every row. Only decides: the caller drops and merges.
  ///
  /// Shapes   fates [row_count]; fates[i].into == i for at most rows_to_keep rows, and merges
  ///          go into rows that stay only
  [[nodiscard]] virtual Status decide(const RetentionRequest& request,
                                      std::span<RowFate> fates) const = 0;
};

}  // namespace terrace
