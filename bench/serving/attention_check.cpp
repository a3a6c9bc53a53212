#include "serving/attention_check.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace terrace::bench {
namespace {

/// Outputs are weighted means of values of about 1; f32 sums of thousands of products err by less.
constexpr double tolerance = 1e-3;
constexpr double cosine_min = 0.8;

/// Plain attention of a token's query heads over rows of its KV heads.
class PlainAttention {
 public:
  explicit PlainAttention(const AttendedToken& token)
      : token_(token),
        shape_(token.traffic.pool().shape()),
        query_(shape_.query_heads * shape_.head_dim),
        output_(shape_.head_dim) {
    token.traffic.fill_query(token.layer, token.position, query_);
  }

  /// Returns [head_dim] of a query head over the rows of those positions.
  std::span<const double> over(std::size_t query_head, std::span<const std::size_t> positions) {
    const std::size_t head = query_head / shape_.group();
    const auto query = std::span(query_).subspan(query_head * shape_.head_dim, shape_.head_dim);
    logits_.clear();
    double largest = -std::numeric_limits<double>::infinity();
    for (const std::size_t position : positions) {
      const auto key = row(head, position).first(shape_.head_dim);
      double sum = 0;
      for (std::size_t i = 0; i < key.size(); ++i) {
        sum += static_cast<double>(key[i]) * static_cast<double>(query[i]);
      }
      logits_.push_back(sum / std::sqrt(static_cast<double>(shape_.head_dim)));
      largest = std::max(largest, logits_.back());
    }
    std::ranges::fill(output_, 0.0);
    double weights = 0;
    for (std::size_t i = 0; i < positions.size(); ++i) {
      const double weight = std::exp(logits_[i] - largest);
      weights += weight;
      const auto value = row(head, positions[i]).last(shape_.head_dim);
      for (std::size_t j = 0; j < value.size(); ++j) {
        output_[j] += weight * static_cast<double>(value[j]);
      }
    }
    for (double& number : output_) number /= weights;
    return output_;
  }

 private:
  [[nodiscard]] std::span<const float> row(std::size_t head, std::size_t position) const {
    const Traffic& traffic = token_.traffic;
    return traffic.pool().floats(traffic.row(token_.layer, head, position));
  }

  const AttendedToken& token_;
  const KvShape& shape_;
  std::vector<float> query_;
  std::vector<double> logits_;
  std::vector<double> output_;
};

void append(std::vector<std::size_t>& positions, TokenRange range) {
  for (std::size_t i = range.begin; i < range.end; ++i) positions.push_back(i);
}

/// The positions that a list's heads attended to, in order.
std::vector<std::size_t> positions_of(const StepSelection& attended, std::size_t list) {
  std::vector<std::size_t> positions;
  append(positions, attended.sinks);
  append(positions, attended.window);
  if (!attended.counts.empty()) {
    const auto ids = attended.ids.subspan(list * attended.stride, attended.counts[list]);
    positions.insert(positions.end(), ids.begin(), ids.end());
  }
  std::ranges::sort(positions);
  return positions;
}

std::span<const float> output_of(const AttendedToken& token, std::size_t query_head) {
  const std::size_t head_dim = token.traffic.pool().shape().head_dim;
  return token.output.subspan(query_head * head_dim, head_dim);
}

double dot(std::span<const double> a, std::span<const double> b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

}  // namespace

Status check_attended_rows(const AttendedToken& token, const StepSelection& attended) {
  const KvShape& shape = token.traffic.pool().shape();
  PlainAttention plain(token);
  for (std::size_t head = 0; head < shape.query_heads; head += token.head_stride) {
    const std::size_t list = attended.scope == ListScope::query_head ? head : head / shape.group();
    const std::vector<std::size_t> positions = positions_of(attended, list);
    if (positions.empty() || positions.back() != token.position) {
      return fail(Errc::corrupt, "layer {}, query head {} did not attend to its own token {}",
                  token.layer, head, token.position);
    }
    if (const auto twice = std::ranges::adjacent_find(positions); twice != positions.end()) {
      return fail(Errc::corrupt, "layer {}, query head {} attended twice to token {}", token.layer,
                  head, *twice);
    }
    const auto expected = plain.over(head, positions);
    const auto output = output_of(token, head);
    for (std::size_t i = 0; i < output.size(); ++i) {
      if (!(std::fabs(static_cast<double>(output[i]) - expected[i]) <= tolerance)) {
        return fail(Errc::corrupt, "token {}, layer {}, query head {}: output {} is {}, not {}",
                    token.position, token.layer, head, i, output[i], expected[i]);
      }
    }
  }
  return {};
}

Status check_near_full_attention(const AttendedToken& token) {
  const KvShape& shape = token.traffic.pool().shape();
  PlainAttention plain(token);
  std::vector<std::size_t> all;
  append(all, {0, token.position + 1});
  for (std::size_t head = 0; head < shape.query_heads; head += token.head_stride) {
    const auto full = plain.over(head, all);
    const auto numbers = output_of(token, head);
    const std::vector<double> output(numbers.begin(), numbers.end());
    const double cosine = dot(output, full) / std::sqrt(dot(output, output) * dot(full, full));
    if (cosine > cosine_min) continue;
    return fail(Errc::corrupt,
                "token {}, layer {}, query head {}: cosine with full attention is {:.3f}, not "
                "above {}",
                token.position, token.layer, head, cosine, cosine_min);
  }
  return {};
}

}  // namespace terrace::bench
