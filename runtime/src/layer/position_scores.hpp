// The score of each position of a layer, by which a retention policy chooses. Scores of tokens that
// were dropped stay: neighbours are pooled with them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace terrace {

class PositionScores {
 public:
  /// Forgets all scores; there are `heads` KV heads, or query heads.
  void start(std::size_t heads) { heads_.assign(heads, {}); }
  void clear() noexcept { heads_.clear(); }
  [[nodiscard]] bool empty() const noexcept { return heads_.empty(); }

  void add(std::size_t head, std::size_t position, float score) { at(head, position) += score; }
  /// Adds to those of the positions from `first` on.
  void add(std::size_t head, std::size_t first, std::span<const float> more) {
    if (more.empty()) return;
    at(head, first + more.size() - 1) += 0;
    float* const to = heads_[head].data() + first;
    std::transform(more.begin(), more.end(), to, to, std::plus{});
  }
  /// Adds `more` to the scores of `positions`, which ascend.
  void add(std::size_t head, std::span<const std::uint32_t> positions, const float* more) {
    if (positions.empty()) return;
    at(head, positions.back()) += 0;
    float* const scores = heads_[head].data();
    for (std::size_t i = 0; i < positions.size(); ++i) scores[positions[i]] += more[i];
  }
  /// Replaces the scores of the positions from 0 on by `scores`.
  void replace(std::size_t head, std::span<const float> scores) {
    if (scores.empty()) return;
    at(head, scores.size() - 1) = 0;
    std::ranges::copy(scores, heads_[head].begin());
  }
  /// Writes those of the first positions.
  void write(std::size_t head, std::span<float> to) const {
    const std::size_t count = empty() ? 0 : std::min(to.size(), heads_[head].size());
    if (count > 0) std::copy_n(heads_[head].begin(), count, to.begin());
    std::ranges::fill(to.subspan(count), 0.0F);
  }
  void set(std::size_t head, std::size_t position, float score) { at(head, position) = score; }
  /// Forgets the scores of positions from `length` on.
  void cut(std::size_t length) {
    for (std::vector<float>& scores : heads_) scores.resize(std::min(scores.size(), length));
  }

  /// Returns [heads, length]; positions that have none have 0.
  [[nodiscard]] std::vector<float> of(std::size_t length) const {
    std::vector<float> all(heads_.size() * length);
    for (std::size_t head = 0; head < heads_.size(); ++head) {
      write(head, std::span(all).subspan(head * length, length));
    }
    return all;
  }

 private:
  float& at(std::size_t head, std::size_t position) {
    std::vector<float>& scores = heads_[head];
    if (scores.size() <= position) scores.resize(position + 1);
    return scores[position];
  }

  std::vector<std::vector<float>> heads_;
};

}  // namespace terrace
