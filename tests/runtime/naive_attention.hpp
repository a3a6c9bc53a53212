// Attention as its definition has it, for outputs of the runtime to be held against.
#pragma once

#include <cmath>
#include <cstddef>
#include <span>
#include <vector>

#include "terrace/core/dtype.hpp"
#include "terrace/core/shape.hpp"

namespace terrace::testing {

/// Attention of one query over rows with a bias each, in double.
class NaiveAttention {
 public:
  NaiveAttention(const KvShape& shape, std::span<const float> query)
      : shape_(shape), query_(query), values_(shape.head_dim) {}

  void add(const std::byte* row, double bias) {
    double dot = 0;
    for (std::size_t i = 0; i < shape_.head_dim; ++i) {
      dot += static_cast<double>(query_[i]) * static_cast<double>(load_f32(row, shape_.dtype, i));
    }
    const double weight = std::exp(dot / std::sqrt(static_cast<double>(shape_.head_dim)) + bias);
    total_ += weight;
    for (std::size_t i = 0; i < shape_.head_dim; ++i) {
      values_[i] += weight * static_cast<double>(load_f32(row, shape_.dtype, shape_.head_dim + i));
    }
  }
  [[nodiscard]] double output(std::size_t i) const { return values_[i] / total_; }

 private:
  KvShape shape_;
  std::span<const float> query_;
  std::vector<double> values_;
  double total_ = 0;
};

}  // namespace terrace::testing
