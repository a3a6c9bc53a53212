// Estimates of what a selection leaves out: see terrace/kernels/estimate.hpp.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>

#include "host/convert_numbers.hpp"
#include "host/group_weights.hpp"
#include "host/row_products.hpp"
#include "host/row_sums.hpp"
#include "host/scores.hpp"
#include "terrace/kernels/estimate.hpp"
#include "terrace/kernels/row_address.hpp"
#include "terrace/kernels/topk.hpp"

namespace terrace::kernels::host {
namespace {

/// The groups of a page: where they lie.
class GroupPlace {
 public:
  GroupPlace(const KvShape& shape, const GroupShape& groups, const IndexView& index,
             std::size_t head, std::size_t page) noexcept {
    const std::size_t pages = index.chunk_tokens / groups.page_tokens;
    const std::size_t first = page % pages * groups.groups;
    std::byte* const chunk = index.chunks[page / pages];
    const std::size_t mean_bytes = 2 * shape.head_dim * sizeof(std::uint16_t);
    means_ = chunk + groups.means_at(shape, index.chunk_tokens, head) + first * mean_bytes;
    sizes_ =
        reinterpret_cast<std::uint16_t*>(chunk + groups.sizes_at(shape, index.chunk_tokens, head)) +
        first;
    labels_ =
        reinterpret_cast<std::uint8_t*>(chunk + groups.labels_at(shape, index.chunk_tokens, head)) +
        page % pages * groups.page_tokens;
  }

  [[nodiscard]] std::byte* means() const noexcept { return means_; }  ///< f16 [groups, 2, head_dim]
  [[nodiscard]] std::uint16_t* sizes() const noexcept { return sizes_; }   ///< [groups]
  [[nodiscard]] std::uint8_t* labels() const noexcept { return labels_; }  ///< [page_tokens]

 private:
  std::byte* means_;
  std::uint16_t* sizes_;
  std::uint8_t* labels_;
};

void multiply(float* numbers, std::size_t count, std::size_t by) noexcept {
  const auto factor = static_cast<float>(by);
  for (std::size_t i = 0; i < count; ++i) numbers[i] *= factor;
}

void divide(float* numbers, std::size_t count, std::size_t by) noexcept {
  const auto divisor = static_cast<float>(by);
  for (std::size_t i = 0; i < count; ++i) numbers[i] /= divisor;
}

/// The entries of one KV head.
class HeadRest {
 public:
  HeadRest(const EstimateRest& op, std::size_t head) noexcept
      : op_(op),
        head_(head),
        groups_(RestWork(op).groups()),
        stride_(RestWork(op).stride()),
        means_(op.scratch + RestWork(op).means(head)),
        logits_(op.scratch + RestWork(op).logits(head)),
        left_(reinterpret_cast<std::uint32_t*>(op.scratch + RestWork(op).left(head))),
        chosen_(reinterpret_cast<std::uint32_t*>(op.scratch + RestWork(op).chosen(head))) {}

  void run() noexcept {
    average_rest();
    std::size_t chosen = std::min(op_.most, groups_);
    if (chosen < groups_) {
      chosen = choose(chosen);
    } else {
      std::iota(chosen_, chosen_ + chosen, 0U);
    }
    std::size_t entries = 0;
    for (std::size_t i = 0; i < chosen; ++i) {
      if (left_[chosen_[i]] > 0) write(entries++, chosen_[i]);
    }
    op_.pseudo.count[head_] = static_cast<std::uint32_t>(entries);
  }

 private:
  [[nodiscard]] std::size_t query_heads() const noexcept { return op_.shape.group(); }
  [[nodiscard]] std::size_t numbers() const noexcept { return 2 * op_.shape.head_dim; }

  /// Makes the means of what is not selected, page by page.
  void average_rest() noexcept {
    const std::uint32_t* const ids = op_.ids + head_ * op_.id_stride;
    const std::uint32_t* const end = ids + op_.id_count[head_];
    const std::size_t size = op_.groups.page_tokens;
    const TokenRange pages = op_.pages();
    std::size_t begin = op_.index.first_token + pages.begin * size;
    const std::uint32_t* id = std::lower_bound(ids, end, begin);
    for (std::size_t page = pages.begin; page < pages.end; ++page, begin += size) {
      const std::uint32_t* const first = id;
      while (id != end && *id < begin + size) ++id;
      average_rest_of(page, begin, {first, id});
    }
  }

  /// `begin`: position of the page's first token; `selected`: its positions that are.
  void average_rest_of(std::size_t page, std::size_t begin,
                       std::span<const std::uint32_t> selected) noexcept {
    const GroupPlace from(op_.shape, op_.groups, op_.index, head_, page);
    const std::size_t first = (page - op_.pages().begin) * op_.groups.groups;
    std::uint32_t* const left = left_ + first;
    float* const means = means_ + first * numbers();
    convert_numbers(from.means(), Dtype::f16, op_.groups.groups * numbers(),
                    reinterpret_cast<std::byte*>(means), Dtype::f32);
    std::copy_n(from.sizes(), op_.groups.groups, left);
    for (const std::uint32_t& id : selected) {
      const std::size_t group = from.labels()[id - begin];
      if (group == GroupShape::none) continue;
      float* const sum = means + group * numbers();
      if (left[group] == from.sizes()[group]) multiply(sum, numbers(), left[group]);
      add_row(op_.rows[&id - op_.ids], op_.shape.dtype, -1, numbers(), sum);
      --left[group];
    }
    for (std::size_t group = 0; group < op_.groups.groups; ++group) {
      if (left[group] == from.sizes()[group] || left[group] == 0) continue;
      divide(means + group * numbers(), numbers(), left[group]);
    }
  }

  [[nodiscard]] float bias(std::size_t group) const noexcept {
    return std::log(static_cast<float>(left_[group]));
  }

  /// Chooses groups, and returns how many.
  std::size_t choose(std::size_t most) noexcept {
    write_logits();
    for (std::size_t q = 0; q < query_heads(); ++q) {
      float* const logits = logits_ + q * stride_;
      for (std::size_t i = 0; i < groups_; ++i) {
        logits[i] = left_[i] > 0 ? logits[i] + bias(i) : std::numeric_limits<float>::quiet_NaN();
      }
      std::fill(logits + groups_, logits + stride_, -std::numeric_limits<float>::infinity());
    }
    float* const weights = logits_ + query_heads() * stride_;
    const bool reduced = query_heads() > 1;
    if (reduced) {
      reduce_group({.rows = logits_, .group = query_heads(), .stride = stride_, .size = stride_},
                   GroupReduction::sum_softmax, weights);
    }
    auto* const spare = reinterpret_cast<std::uint32_t*>(reduced ? logits_ : weights);
    return select_topk(reduced ? weights : logits_, groups_, most, spare, chosen_);
  }

  void write_logits() noexcept {
    constexpr std::size_t at_once = 256;
    std::array<const std::byte*, at_once> keys;
    for (std::size_t begin = 0; begin < groups_; begin += at_once) {
      const std::size_t some = std::min(at_once, groups_ - begin);
      for (std::size_t i = 0; i < some; ++i) {
        keys[i] = reinterpret_cast<const std::byte*>(means_ + (begin + i) * numbers());
      }
      row_products({.dtype = Dtype::f32,
                    .dims = op_.shape.head_dim,
                    .scale = logit_scale(op_.shape),
                    .queries = op_.query + head_ * query_heads() * op_.shape.head_dim,
                    .query_count = query_heads(),
                    .keys = keys.data(),
                    .key_count = some,
                    .logits = logits_ + begin,
                    .stride = stride_});
    }
  }

  void write(std::size_t entry, std::size_t group) const noexcept {
    const std::size_t at = head_ * op_.pseudo.stride + entry;
    std::byte* const row = op_.means + at * op_.shape.row_bytes();
    const auto* const mean = reinterpret_cast<const std::byte*>(means_ + group * numbers());
    convert_numbers(mean, Dtype::f32, numbers(), row, op_.shape.dtype);
    op_.pseudo.rows[at] = row;
    op_.pseudo.bias[at] = bias(group);
  }

  const EstimateRest& op_;
  std::size_t head_;
  std::size_t groups_;
  std::size_t stride_;
  float* means_;           ///< [groups, 2, head_dim]
  float* logits_;          ///< [query_heads + 1, stride]
  std::uint32_t* left_;    ///< [groups]: rows that are not selected
  std::uint32_t* chosen_;  ///< [groups]
};

}  // namespace

bool fits_a_group(const std::byte* row, Dtype dtype, std::size_t count) noexcept {
  std::array<float, 2 * KvShape::head_dim_max> numbers;
  convert_numbers(row, dtype, count, reinterpret_cast<std::byte*>(numbers.data()), Dtype::f32);
  bool fits = true;
  for (std::size_t i = 0; i < count; ++i) fits &= std::abs(numbers[i]) <= 65504.0F;
  return fits;
}

void average_groups(const AverageGroups& op) noexcept {
  const std::size_t numbers = 2 * op.shape.head_dim;
  const GroupPlace to(op.shape, op.groups, op.index, op.head, op.page);
  std::ranges::copy(op.group_of, to.labels());
  std::array<float, 2 * KvShape::head_dim_max> mean;
  for (std::size_t group = 0; group < op.groups.groups; ++group) {
    std::fill_n(mean.data(), numbers, 0.0F);
    std::uint16_t size = 0;
    for (std::size_t i = 0; i < op.group_of.size(); ++i) {
      if (op.group_of[i] != group) continue;
      const std::size_t position = op.index.first_token + op.page * op.groups.page_tokens + i;
      add_row(row_address(op.shape, op.rows, op.head, position), op.shape.dtype, 1, numbers,
              mean.data());
      ++size;
    }
    if (size > 0) divide(mean.data(), numbers, size);
    convert_numbers(reinterpret_cast<const std::byte*>(mean.data()), Dtype::f32, numbers,
                    to.means() + group * numbers * sizeof(std::uint16_t), Dtype::f16);
    to.sizes()[group] = size;
  }
}

void estimate_rest(const EstimateRest& op, Parallel& threads) {
  threads.for_each(op.shape.kv_heads, [&](std::size_t head) { HeadRest(op, head).run(); });
}

}  // namespace terrace::kernels::host
