#include "host/rest_attention.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numbers>
#include <span>

#include "host/group_place.hpp"
#include "host/group_weights.hpp"
#include "host/rest_weights.hpp"
#include "host/row_blend.hpp"
#include "host/row_products.hpp"
#include "terrace/kernels/topk.hpp"

namespace terrace::kernels::host {
namespace {

constexpr float no_logit = -std::numeric_limits<float>::infinity();

/// Cuts a KV head's part of GroupRests::scratch.
class Scratch {
 public:
  Scratch(const KvShape& shape, const GroupRests& rests, std::size_t head) noexcept
      : next_(rests.scratch +
              estimate_scratch_floats(shape, rests.groups, rests.candidates.size()) /
                  shape.kv_heads * head) {}

  template <typename Number = float>
  Number* take(std::size_t count) noexcept {
    static_assert(sizeof(Number) == sizeof(float));
    auto* const taken = reinterpret_cast<Number*>(next_);
    next_ += count;
    return taken;
  }

 private:
  float* next_;
};

/// Numbers that go with rows left of a group.
struct OfRowsLeft {
  std::array<float, GroupShape::page_tokens_max + 1> inverse;    ///< inverse[0] is 0
  std::array<float, GroupShape::page_tokens_max + 1> logarithm;  ///< logarithm[0] is -inf

  OfRowsLeft() noexcept {
    inverse[0] = 0;
    logarithm[0] = no_logit;
    for (std::size_t rows = 1; rows < inverse.size(); ++rows) {
      inverse[rows] = 1 / static_cast<float>(rows);
      logarithm[rows] = std::log(static_cast<float>(rows));
    }
  }
};

/// Attention to the rests of one KV head.
class RestAttention {
 public:
  RestAttention(const DecodeAttention& op, std::size_t head) noexcept
      : op_(op),
        rests_(op.rests),
        shape_(op.shape),
        head_(head),
        ids_(rests_.ids + head * op.selected_stride, op.selected_count[head]),
        rows_(op.selected + head * op.selected_stride),
        means_(rests_.pseudo.rows + head * rests_.pseudo.stride),
        groups_(rests_.pages().size() * rests_.groups.groups),
        row_stride_(align_up(ids_.size(), 64)),
        group_stride_(align_up(groups_ + 1, 64)) {
    Scratch scratch(shape_, rests_, head);
    const std::size_t heads = shape_.group();
    row_logits_ = scratch.take(heads * row_stride_);
    group_of_ = scratch.take<std::uint32_t>(row_stride_);
    group_logits_ = scratch.take(heads * group_stride_);
    sizes_ = scratch.take(group_stride_);
    per_left_ = scratch.take(group_stride_);
    bias_ = scratch.take(group_stride_);
    spare_ = scratch.take((heads + 1) * group_stride_);
    chosen_ = scratch.take<std::uint32_t>(group_stride_);
  }

  void run(float* partial, std::size_t stride) noexcept {
    list_groups();
    write_logits();
    for (std::size_t q = 0; q < shape_.group(); ++q) leave_selected_out(logits_of(q), spare_);
    if (rests_.most < groups_) choose();
    rests_.pseudo.count[head_] = count_entries();
    if (rests_.counted != nullptr) rests_.counted[head_] = rests_.pseudo.count[head_];
    for (std::size_t q = 0; q < shape_.group(); ++q) {
      const RestSoftmax softmax = weigh_values(logits_of(q), spare_);
      float* const of_head = partial + q * stride;
      of_head[shape_.head_dim] = softmax.maximum * std::numbers::log2e_v<float>;
      of_head[shape_.head_dim + 1] = softmax.sum;
    }
    add_values(partial, stride);
  }

 private:
  [[nodiscard]] RestLogits logits_of(std::size_t q) const noexcept {
    return {.rows = row_logits_ + q * row_stride_,
            .groups = group_logits_ + q * group_stride_,
            .group_of = group_of_,
            .none = groups_,
            .row_count = ids_.size(),
            .row_stride = row_stride_,
            .left = {group_stride_, sizes_, per_left_, bias_}};
  }

  /// Says which group each selected row is of, and how many rows the groups have left.
  void list_groups() noexcept {
    std::fill_n(group_of_, row_stride_, static_cast<std::uint32_t>(groups_));
    const TokenRange pages = rests_.pages();
    std::size_t begin = rests_.index.first_token + pages.begin * rests_.groups.page_tokens;
    auto id = static_cast<std::size_t>(std::ranges::lower_bound(ids_, begin) - ids_.begin());
    for (std::size_t page = pages.begin; page < pages.end; ++page) {
      const std::size_t end = begin + rests_.groups.page_tokens;
      const std::size_t first = id;
      while (id < ids_.size() && ids_[id] < end) ++id;
      list_page(page, begin, first, id);
      begin = end;
    }
    // The last groups stand for rows without a group.
    for (float* const numbers : {sizes_, per_left_}) {
      std::fill(numbers + groups_, numbers + group_stride_, 0.0F);
    }
    std::fill(bias_ + groups_, bias_ + group_stride_, no_logit);
  }

  /// `begin`: position of the page's first token. Selected rows [first, last) are of the page.
  void list_page(std::size_t page, std::size_t begin, std::size_t first,
                 std::size_t last) noexcept {
    const GroupPlace from(shape_, rests_.groups, rests_.index, head_, page);
    const std::size_t groups = rests_.groups.groups;
    const std::size_t number = (page - rests_.pages().begin) * groups;  // of the first group
    std::array<std::uint16_t, GroupShape::none + 1> left;
    std::copy_n(from.sizes(), groups, left.data());
    left[GroupShape::none] = 0;
    for (std::size_t i = first; i < last; ++i) {
      const std::uint8_t label = from.labels()[ids_[i] - begin];
      --left[label];
      if (label != GroupShape::none) group_of_[i] = static_cast<std::uint32_t>(number + label);
    }
    for (std::size_t group = 0; group < groups; ++group) {
      means_[number + group] = from.means() + group * shape_.row_bytes();
      sizes_[number + group] = from.sizes()[group];
      per_left_[number + group] = of_left.inverse[left[group]];
      bias_[number + group] = of_left.logarithm[left[group]];
    }
  }

  /// Rows, and their logits or weights: [query heads, stride].
  struct Section {
    const std::byte* const* rows;
    std::size_t count;
    float* logits;
    std::size_t stride;
  };
  [[nodiscard]] std::array<Section, 2> sections() const noexcept {
    return {{{rows_, ids_.size(), row_logits_, row_stride_},
             {means_, groups_, group_logits_, group_stride_}}};
  }

  void write_logits() noexcept {
    RowProducts products{.dtype = shape_.dtype,
                         .dims = shape_.head_dim,
                         .scale = op_.scale,
                         .queries = op_.query + head_ * shape_.group() * shape_.head_dim,
                         .query_count = shape_.group(),
                         .ask_ahead = true};
    for (const Section& section : sections()) {
      products.keys = section.rows;
      products.key_count = section.count;
      products.logits = section.logits;
      products.stride = section.stride;
      row_products(products);
    }
    for (std::size_t q = 0; q < shape_.group(); ++q) {
      float* const rows = row_logits_ + q * row_stride_;
      float* const groups = group_logits_ + q * group_stride_;
      std::fill(rows + ids_.size(), rows + row_stride_, no_logit);
      std::fill(groups + groups_, groups + group_stride_, 0.0F);
    }
  }

  /// Leaves the groups with the largest weights, and nothing of others.
  void choose() noexcept {
    const std::size_t heads = shape_.group();
    std::copy_n(group_logits_, heads * group_stride_, spare_);
    for (std::size_t group = 0; group < groups_; ++group) {
      if (per_left_[group] > 0) continue;
      for (std::size_t q = 0; q < heads; ++q) {
        spare_[q * group_stride_ + group] = std::numeric_limits<float>::quiet_NaN();
      }
    }
    float* const weights = heads > 1 ? spare_ + heads * group_stride_ : spare_;
    float* const other = heads > 1 ? spare_ : spare_ + group_stride_;
    if (heads > 1) {
      reduce_group({.rows = spare_, .group = heads, .stride = group_stride_, .size = group_stride_},
                   GroupReduction::sum_softmax, weights);
    }
    const std::size_t count = select_topk(weights, groups_, rests_.most,
                                          reinterpret_cast<std::uint32_t*>(other), chosen_);
    std::size_t group = 0;
    for (std::size_t i = 0; i <= count; ++i) {
      const std::size_t end = i < count ? chosen_[i] : groups_;
      for (; group < end; ++group) drop(group);
      ++group;
    }
  }

  void drop(std::size_t group) noexcept {
    per_left_[group] = 0;
    for (std::size_t q = 0; q < shape_.group(); ++q) {
      group_logits_[q * group_stride_ + group] = no_logit;
    }
  }

  [[nodiscard]] std::uint32_t count_entries() const noexcept {
    return static_cast<std::uint32_t>(
        std::count_if(per_left_, per_left_ + groups_, [](float share) { return share > 0; }));
  }

  void add_values(float* partial, std::size_t stride) const noexcept {
    const std::size_t heads = shape_.group();
    for (std::size_t q = 0; q < heads; ++q)
      std::fill_n(partial + q * stride, shape_.head_dim, 0.0F);
    RowBlend blend{.dtype = shape_.dtype,
                   .begin = shape_.row_bytes() / 2,
                   .numbers = shape_.head_dim,
                   .sums = partial,
                   .sum_count = heads,
                   .sum_stride = stride};
    for (const Section& section : sections()) {
      blend.rows = section.rows;
      blend.row_count = section.count;
      blend.weights = section.logits;
      blend.weight_stride = section.stride;
      blend_rows(blend);
    }
  }

  static inline const OfRowsLeft of_left;

  const DecodeAttention& op_;
  const GroupRests& rests_;
  const KvShape& shape_;
  std::size_t head_;
  std::span<const std::uint32_t> ids_;
  std::byte* const* rows_;   ///< of `ids_`
  const std::byte** means_;  ///< [groups]
  std::size_t groups_;
  std::size_t row_stride_;
  std::size_t group_stride_;
  float* row_logits_;        ///< [query heads, row_stride]: then weights
  std::uint32_t* group_of_;  ///< [row_stride]
  float* group_logits_;      ///< [query heads, group_stride]: then weights
  // [group_stride]: see GroupsLeft.
  float* sizes_;
  float* per_left_;
  float* bias_;
  float* spare_;           ///< [query heads + 1, group_stride]
  std::uint32_t* chosen_;  ///< [group_stride]
};

}  // namespace

void attend_rests(const DecodeAttention& op, std::size_t head, float* partial,
                  std::size_t stride) noexcept {
  RestAttention(op, head).run(partial, stride);
}

}  // namespace terrace::kernels::host
