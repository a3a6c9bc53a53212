// Outlier heads of chelsea: KV heads whose keys are unlike each other, so that merging would lose
// most there. These heads keep all their tokens as far as there is room, and the other heads keep
// fewer.
//
//   MatchSurvey survey(shape, 256);
//   survey.add(layer, head, keys);                        // of windows of a text, each head's
//   const HeadShares found = survey.shares(0.25);
//   auto heads = OutlierHeads::create(shape.layers, shape.kv_heads, found.largest(0.04));
//   options.retention.outlier_heads = std::make_shared<const OutlierHeads>(*heads);
//
// Source: Chelsea (CentroidKV), arXiv 2506.11418.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "terrace/core/ids.hpp"
#include "terrace/core/result.hpp"
#include "terrace/core/retention.hpp"

namespace terrace::policies {

/// A KV head of a model.
struct KvHead {
  LayerId layer = {};
  HeadId head = {};

  auto operator<=>(const KvHead&) const = default;
};

/// Threads  any, at once
class OutlierHeads {
 public:
  /// Takes some KV heads of a model of that size.
  ///
  /// Errors   invalid_argument: a head that the model has not, twice the same, or all that there
  /// are
  [[nodiscard]] static Result<OutlierHeads> create(std::size_t layers, std::size_t kv_heads,
                                                   std::vector<KvHead> heads);

  /// Returns how many entries stay of a KV head. Each outlier head has room for all of `tokens`,
  /// unless the other heads would get less than half of the mean. The room of all KV heads together
  /// is what it would be without outlier heads. The request is of the model of create().
  [[nodiscard]] std::size_t keep_of(const KeepRequest& request) const noexcept;

  [[nodiscard]] std::span<const KvHead> heads() const noexcept { return heads_; }

 private:
  OutlierHeads(std::size_t all, std::vector<KvHead> heads) noexcept
      : all_(all), heads_(std::move(heads)) {}

  std::size_t all_;            ///< KV heads of the model
  std::vector<KvHead> heads_;  ///< in rising order
};

/// The share of a KV head's entries that find no match, mean over windows.
struct HeadShare {
  KvHead head;
  double share = 0;
};

struct HeadShares {
  double threshold = 0;          ///< the cosine that a match needs
  std::vector<HeadShare> heads;  ///< all of the model, layer by layer

  /// Returns the KV heads with the largest shares, of equal ones the first: the `part` of all that
  /// there are, rounded, at least one.
  [[nodiscard]] std::vector<KvHead> largest(double part) const;
};

/// Measures how many entries of each KV head would find no match: in chunks of a window, every
/// second entry looks among the remaining entries for the nearest key, as chelsea does.
///
/// Memory   4 bytes for every other key that was added
/// Threads  one at a time
class MatchSurvey {
 public:
  /// `chunk`: entries among which matches are looked for, at least 2; 0 = all.
  MatchSurvey(const KvShape& shape, std::size_t chunk);

  /// Adds a window's rows of a KV head, whose keys are finite numbers: [tokens], host memory, KV
  /// dtype; at least two.
  void add(const KvHead& head, std::span<const std::byte* const> rows);

  /// Returns each head's share of entries whose best match is less alike than `quantile` of the
  /// best matches of all heads and windows. At least one window was added, of all heads.
  [[nodiscard]] HeadShares shares(double quantile) const;

 private:
  using Likeness = std::vector<float>;

  KvShape shape_;
  std::size_t chunk_;
  std::vector<std::vector<Likeness>> windows_;  ///< [layers * kv_heads][windows]
};

}  // namespace terrace::policies
