// Estimates of what a selection leaves out: see terrace/kernels/estimate.hpp.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>

#include "host/convert_numbers.hpp"
#include "host/group_place.hpp"
#include "host/group_rest.hpp"
#include "host/group_weights.hpp"
#include "host/prefetch.hpp"
#include "host/row_products.hpp"
#include "host/row_sums.hpp"
#include "host/scores.hpp"
#include "terrace/kernels/estimate.hpp"
#include "terrace/kernels/row_address.hpp"
#include "terrace/kernels/topk.hpp"

namespace terrace::kernels::host {
namespace {

constexpr std::size_t pages_ahead = 4;  // asked for while one is looked at: attention reads all

void divide(std::span<float> numbers, std::size_t by) noexcept {
  const auto divisor = static_cast<float>(by);
  for (float& number : numbers) number /= divisor;
}

/// The selected rows of one KV head, taken by rising positions.
class SelectedRows {
 public:
  struct Some {
    std::span<const std::uint32_t> ids;
    std::byte* const* rows;  ///< of `ids`
  };

  /// Those from the first page on.
  SelectedRows(const EstimateRest& op, std::size_t head) noexcept
      : ids_(op.ids + head * op.id_stride, op.id_count[head]),
        rows_(op.rows + head * op.id_stride) {
    const std::size_t begin = op.index.first_token + op.pages().begin * op.groups.page_tokens;
    next_ = static_cast<std::size_t>(std::ranges::lower_bound(ids_, begin) - ids_.begin());
  }

  /// Those of tokens that follow the ones taken so far.
  [[nodiscard]] Some take(TokenRange tokens) noexcept {
    const std::size_t first = next_;
    while (next_ < ids_.size() && ids_[next_] < tokens.end) ++next_;
    return {ids_.subspan(first, next_ - first), rows_ + first};
  }

 private:
  std::span<const std::uint32_t> ids_;
  std::byte* const* rows_;
  std::size_t next_;
};

/// The entries of one KV head. A group's row and bias lie at its number in the target of the
/// entries, until those that stay move together.
class HeadRest {
 public:
  HeadRest(const EstimateRest& op, std::size_t head) noexcept
      : op_(op),
        head_(head),
        groups_(RestWork(op).groups()),
        stride_(RestWork(op).stride()),
        rows_(op.pseudo.rows + head * op.pseudo.stride),
        bias_(op.pseudo.bias + head * op.pseudo.stride),
        logits_(op.scratch + RestWork(op).logits(head)),
        left_(reinterpret_cast<std::uint32_t*>(op.scratch + RestWork(op).left(head))),
        chosen_(reinterpret_cast<std::uint32_t*>(op.scratch + RestWork(op).chosen(head))) {
    for (std::size_t i = 1; i <= op.groups.page_tokens; ++i) {
      logarithms_[i] = std::log(static_cast<float>(i));
    }
  }

  void run() noexcept {
    list_rests();
    std::size_t chosen = std::min(op_.most, groups_);
    if (chosen < groups_) {
      chosen = choose(chosen);
    } else {
      std::iota(chosen_, chosen_ + chosen, 0U);
    }
    std::uint32_t entries = 0;
    for (std::size_t i = 0; i < chosen; ++i) {
      const std::uint32_t group = chosen_[i];
      if (left_[group] == 0) continue;
      rows_[entries] = rows_[group];  // groups rise: an entry's number is not above its group's
      bias_[entries] = logarithms_[left_[group]];
      ++entries;
    }
    op_.pseudo.count[head_] = entries;
  }

 private:
  [[nodiscard]] std::size_t query_heads() const noexcept { return op_.shape.group(); }

  /// Says which rows the groups have left, page by page.
  void list_rests() noexcept {
    const TokenRange pages = op_.pages();
    SelectedRows selected(op_, head_);
    SelectedRows asked = selected;
    std::size_t ahead = pages.begin;
    for (std::size_t page = pages.begin; page < pages.end; ++page) {
      for (; ahead < std::min(page + pages_ahead, pages.end); ++ahead) ask_for(ahead, asked);
      list_rests_of(page, selected.take(tokens_of(page)));
    }
  }

  [[nodiscard]] TokenRange tokens_of(std::size_t page) const noexcept {
    const std::size_t begin = op_.index.first_token + page * op_.groups.page_tokens;
    return {begin, begin + op_.groups.page_tokens};
  }

  void ask_for(std::size_t page, SelectedRows& selected) const noexcept {
    const GroupPlace place(op_.shape, op_.groups, op_.index, head_, page);
    prefetch(place.means(), op_.groups.groups * op_.shape.row_bytes());
    const SelectedRows::Some some = selected.take(tokens_of(page));
    for (std::size_t i = 0; i < some.ids.size(); ++i) prefetch(some.rows[i], op_.shape.row_bytes());
  }

  void list_rests_of(std::size_t page, SelectedRows::Some selected) noexcept {
    const GroupPlace from(op_.shape, op_.groups, op_.index, head_, page);
    put_by_group(selected, from.labels(), tokens_of(page).begin);
    const std::size_t first = (page - op_.pages().begin) * op_.groups.groups;
    std::size_t rests = 0;
    for (std::size_t group = 0; group < op_.groups.groups; ++group) {
      const std::byte* const mean = from.means() + group * op_.shape.row_bytes();
      const std::size_t size = from.sizes()[group];
      const std::size_t taken = taken_[group];
      left_[first + group] = static_cast<std::uint32_t>(size - taken);
      const bool differs = taken > 0 && taken < size;
      std::byte* const rest =
          op_.means + (head_ * op_.pseudo.stride + first + group) * op_.shape.row_bytes();
      rests_[rests] = {.mean = mean,
                       .size = size,
                       .rows = by_group_.data() + ends_[group] - taken,
                       .count = taken,
                       .rest = rest};
      rests += differs ? 1 : 0;
      rows_[first + group] = differs ? rest : mean;
    }
    average_rests(op_.shape.dtype, 2 * op_.shape.head_dim, {rests_.data(), rests});
  }

  /// Puts the rows of a page's groups one behind the other.
  void put_by_group(SelectedRows::Some selected, const std::uint8_t* labels,
                    std::size_t begin) noexcept {
    std::fill_n(taken_.data(), op_.groups.groups, std::uint16_t{0});
    for (const std::uint32_t id : selected.ids) ++taken_[labels[id - begin]];
    std::exclusive_scan(taken_.data(), taken_.data() + op_.groups.groups, ends_.data(),
                        std::uint16_t{0});
    ends_[GroupShape::none] = ends_[op_.groups.groups - 1] + taken_[op_.groups.groups - 1];
    for (std::size_t i = 0; i < selected.ids.size(); ++i) {
      by_group_[ends_[labels[selected.ids[i] - begin]]++] = selected.rows[i];
    }
  }

  /// Chooses groups, and returns how many.
  std::size_t choose(std::size_t most) noexcept {
    write_logits();
    for (std::size_t q = 0; q < query_heads(); ++q) {
      float* const logits = logits_ + q * stride_;
      for (std::size_t i = 0; i < groups_; ++i) {
        logits[i] = left_[i] > 0 ? logits[i] + logarithms_[left_[i]]
                                 : std::numeric_limits<float>::quiet_NaN();
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
    row_products({.dtype = op_.shape.dtype,
                  .dims = op_.shape.head_dim,
                  .scale = logit_scale(op_.shape),
                  .queries = op_.query + head_ * query_heads() * op_.shape.head_dim,
                  .query_count = query_heads(),
                  .keys = rows_,
                  .key_count = groups_,
                  .logits = logits_,
                  .stride = stride_});
  }

  const EstimateRest& op_;
  std::size_t head_;
  std::size_t groups_;
  std::size_t stride_;
  const std::byte** rows_;
  float* bias_;
  float* logits_;          ///< [query_heads + 1, stride]
  std::uint32_t* left_;    ///< [groups]: rows that are not selected
  std::uint32_t* chosen_;  ///< [groups]
  std::array<float, GroupShape::page_tokens_max + 1> logarithms_;  ///< of 1 to page_tokens
  // Of one page.
  std::array<std::uint16_t, GroupShape::none + 1> taken_;  ///< selected rows of each group
  std::array<std::uint16_t, GroupShape::none + 1> ends_;   ///< of each group's rows in by_group_
  std::array<const std::byte*, GroupShape::page_tokens_max> by_group_;
  std::array<GroupRest, GroupShape::none + 1> rests_;
};

}  // namespace

bool fits_a_group(const std::byte* row, Dtype dtype, std::size_t count) noexcept {
  std::array<float, 2 * KvShape::head_dim_max> numbers;
  convert_numbers(row, dtype, count, reinterpret_cast<std::byte*>(numbers.data()), Dtype::f32);
  constexpr float largest = std::numeric_limits<float>::max() / GroupShape::page_tokens_max;
  bool fits = true;
  for (std::size_t i = 0; i < count; ++i) fits &= std::abs(numbers[i]) <= largest;
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
    if (size > 0) divide(std::span(mean).first(numbers), size);
    convert_numbers(reinterpret_cast<const std::byte*>(mean.data()), Dtype::f32, numbers,
                    to.means() + group * op.shape.row_bytes(), op.shape.dtype);
    to.sizes()[group] = size;
  }
}

void estimate_rest(const EstimateRest& op, Parallel& threads) {
  threads.for_each(op.shape.kv_heads, [&](std::size_t head) { HeadRest(op, head).run(); });
}

}  // namespace terrace::kernels::host
