// Page selection: see terrace/kernels/page_select.hpp.
#include "terrace/kernels/page_select.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>

#include "host/group_weights.hpp"
#include "host/row_products.hpp"
#include "host/scores.hpp"
#include "host/weight_keys.hpp"

namespace terrace::kernels::host {
namespace {

constexpr float never_chosen = -std::numeric_limits<float>::infinity();
constexpr std::size_t pages_at_once = 64;

class PagesOfHead {
 public:
  PagesOfHead(const PageSelect& op, std::size_t head) noexcept : op_(op), head_(head) {
    const SelectCommon& common = op.common;
    const std::size_t size = op.pages.page_tokens;
    if (!common.candidates.empty()) {
      first_page_ = (common.candidates.begin - op.index.first_token) / size;
      pages_ = (common.candidates.end - 1 - op.index.first_token) / size + 1 - first_page_;
    }
    stride_ = align_up(common.candidates.size() / size + 2, 64);
    const std::size_t dims = op.pages.dims(common.shape);
    scores_ = common.scratch + head * ((group() + 2) * stride_ + group() * dims);
    weights_ = scores_ + group() * stride_;
    order_ = reinterpret_cast<std::uint32_t*>(weights_ + stride_);
    queries_ = weights_ + 2 * stride_;
  }

  void run() noexcept {
    expand_queries();
    score();
    choose();
  }

 private:
  [[nodiscard]] std::size_t group() const noexcept { return op_.common.shape.group(); }

  /// The candidates of a page.
  [[nodiscard]] TokenRange candidates(std::size_t page) const noexcept {
    const std::size_t begin = op_.index.first_token + (first_page_ + page) * op_.pages.page_tokens;
    return {std::max(begin, op_.common.candidates.begin),
            std::min(begin + op_.pages.page_tokens, op_.common.candidates.end)};
  }

  /// Against bounds a query's positive elements meet the maxima, its negative ones the minima: the
  /// largest product is one dot product of twice the length.
  void expand_queries() noexcept {
    const std::size_t dims = op_.common.shape.head_dim;
    for (std::size_t q = 0; q < group(); ++q) {
      const float* const source = op_.common.query + (head_ * group() + q) * dims;
      float* const target = queries_ + q * op_.pages.dims(op_.common.shape);
      for (std::size_t i = 0; i < dims; ++i) {
        target[i] = op_.pages.bounds ? std::max(source[i], 0.0F) : source[i];
        if (op_.pages.bounds) target[dims + i] = std::min(source[i], 0.0F);
      }
    }
  }

  void score() noexcept {
    const KvShape& shape = op_.common.shape;
    const std::size_t dims = op_.pages.dims(shape);
    const std::size_t chunk_pages = op_.index.chunk_tokens / op_.pages.page_tokens;
    std::array<const std::byte*, pages_at_once> vectors;
    for (std::size_t begin = 0; begin < pages_; begin += pages_at_once) {
      const std::size_t count = std::min(pages_at_once, pages_ - begin);
      for (std::size_t i = 0; i < count; ++i) {
        const std::size_t page = first_page_ + begin + i;
        vectors[i] = op_.index.chunks[page / chunk_pages] +
                     (head_ * chunk_pages + page % chunk_pages) * dims * size_bytes(shape.dtype);
      }
      row_products({.dtype = shape.dtype,
                    .dims = dims,
                    .scale = shape.logit_scale(),
                    .queries = queries_,
                    .query_count = group(),
                    .keys = vectors.data(),
                    .key_count = count,
                    .logits = scores_ + begin,
                    .stride = stride_});
    }
    for (std::size_t q = 0; q < group(); ++q) {
      std::fill(scores_ + q * stride_ + pages_, scores_ + (q + 1) * stride_, never_chosen);
    }
  }

  void choose() noexcept {
    const float* weights = scores_;
    if (group() > 1) {
      reduce_group({.rows = scores_, .group = group(), .stride = stride_, .size = stride_},
                   op_.common.reduction, weights_);
      weights = weights_;
    }
    const auto worse = [weights](std::uint32_t a, std::uint32_t b) {
      const Key key = key_of(weights[a]);
      const Key other = key_of(weights[b]);
      return key != other ? key < other : a > b;
    };
    const std::span<std::uint32_t> heap(order_, pages_);
    std::iota(heap.begin(), heap.end(), 0U);
    std::ranges::make_heap(heap, worse);
    std::size_t left = op_.common.wanted(head_);
    std::size_t popped = 0;
    std::uint32_t cut_page = 0;
    std::size_t cut_to = op_.pages.page_tokens;
    while (left > 0) {
      std::ranges::pop_heap(heap.first(pages_ - popped), worse);
      ++popped;
      const std::uint32_t best = heap[pages_ - popped];
      const std::size_t size = candidates(best).size();
      if (size > left) {
        cut_page = best;
        cut_to = left;
      }
      left -= std::min(size, left);
    }
    const std::span<std::uint32_t> chosen = heap.last(popped);
    std::ranges::sort(chosen);
    std::uint32_t* const ids = op_.common.ids + head_ * op_.common.id_stride;
    std::uint32_t listed = 0;
    for (const std::uint32_t page : chosen) {
      TokenRange range = candidates(page);
      if (page == cut_page) range.end = std::min(range.end, range.begin + cut_to);
      for (std::size_t p = range.begin; p < range.end; ++p) {
        ids[listed++] = static_cast<std::uint32_t>(p);
      }
    }
    op_.common.id_count[head_] = listed;
  }

  const PageSelect& op_;
  std::size_t head_;
  std::size_t first_page_ = 0;  ///< that has a candidate
  std::size_t pages_ = 0;
  std::size_t stride_ = 0;
  float* scores_ = nullptr;   ///< [group, stride]
  float* weights_ = nullptr;  ///< [stride]
  std::uint32_t* order_ = nullptr;
  float* queries_ = nullptr;  ///< [group, dims]
};

}  // namespace

void page_select(const PageSelect& op, Parallel& threads) {
  threads.for_each(op.common.shape.kv_heads,
                   [&](std::size_t head) { PagesOfHead(op, head).run(); });
}

}  // namespace terrace::kernels::host
