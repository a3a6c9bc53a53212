// The mean of those rows that can be clustered.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "clusterable.hpp"

namespace terrace::policies {

class RowMean {
 public:
  explicit RowMean(std::size_t dims) : sum_(dims) {}

  /// Adds one row or several, [rows, dims].
  void add(std::span<const float> rows) {
    for (std::size_t at = 0; at < rows.size(); at += sum_.size()) {
      const auto row = rows.subspan(at, sum_.size());
      if (!can_be_clustered(row)) continue;
      for (std::size_t i = 0; i < sum_.size(); ++i) sum_[i] += double{row[i]};
      ++count_;
    }
  }

  /// How many rows are in it.
  [[nodiscard]] std::size_t count() const noexcept { return count_; }

  /// Returns the mean of dimension `i`; 0 without rows.
  [[nodiscard]] double of(std::size_t i) const noexcept {
    return count_ > 0 ? sum_[i] / static_cast<double>(count_) : 0;
  }

 private:
  std::vector<double> sum_;
  std::size_t count_ = 0;
};

}  // namespace terrace::policies
