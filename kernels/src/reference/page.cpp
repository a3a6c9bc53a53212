#include <algorithm>
#include <cmath>
#include <vector>

#include "reference/weights.hpp"
#include "terrace/kernels/reference.hpp"

namespace terrace::kernels::reference {
namespace {

double score(const PageSelect& op, std::size_t query_head, std::size_t page) {
  const KvShape& shape = op.common.shape;
  const std::size_t chunk_pages = op.index.chunk_tokens / op.pages.page_tokens;
  const std::size_t dims = op.pages.dims(shape);
  const std::byte* const vector = op.index.chunks[page / chunk_pages] +
                                  (query_head / shape.group() * chunk_pages + page % chunk_pages) *
                                      dims * size_bytes(shape.dtype);
  double sum = 0;
  for (std::size_t i = 0; i < shape.head_dim; ++i) {
    const double q = double{op.common.query[query_head * shape.head_dim + i]};
    if (!op.pages.bounds) {
      sum += q * double{load_f32(vector, shape.dtype, i)};
      continue;
    }
    // The larger product; NaN if a factor is NaN.
    sum += std::max(q, 0.0) * double{load_f32(vector, shape.dtype, i)};
    sum += std::min(q, 0.0) * double{load_f32(vector, shape.dtype, shape.head_dim + i)};
  }
  return sum * static_cast<double>(shape.logit_scale());
}

/// Weights of the pages from `first` on.
std::vector<double> weights_of(const PageSelect& op, std::size_t head, std::size_t first,
                               std::size_t pages) {
  const std::size_t group = op.common.shape.group();
  std::vector<double> weights(pages);
  for (std::size_t q = 0; q < group; ++q) {
    std::vector<double> scores;
    scores.reserve(pages);
    for (std::size_t i = 0; i < pages; ++i) {
      scores.push_back(score(op, head * group + q, first + i));
    }
    if (group == 1) return scores;
    make_addends(scores, op.common.reduction);
    for (std::size_t i = 0; i < pages; ++i) {
      weights[i] = merged(weights[i], scores[i], op.common.reduction);
    }
  }
  return weights;
}

}  // namespace

void page_select(const PageSelect& op) {
  const SelectCommon& common = op.common;
  const auto page_of = [&](std::size_t p) {
    return (p - op.index.first_token) / op.pages.page_tokens;
  };
  for (std::size_t head = 0; head < common.shape.kv_heads; ++head) {
    common.id_count[head] = 0;
    if (common.candidates.empty()) continue;
    const std::size_t first = page_of(common.candidates.begin);
    const std::vector<double> weights =
        weights_of(op, head, first, page_of(common.candidates.end - 1) + 1 - first);
    std::vector<std::size_t> order(weights.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::ranges::stable_sort(order, is_above, [&](std::size_t i) { return weights[i]; });
    std::vector<std::uint32_t> ids;
    for (const std::size_t page : order) {
      for (std::size_t p = common.candidates.begin; p < common.candidates.end; ++p) {
        if (page_of(p) - first == page && ids.size() < common.wanted(head)) {
          ids.push_back(static_cast<std::uint32_t>(p));
        }
      }
    }
    std::ranges::sort(ids);
    std::ranges::copy(ids, common.ids + head * common.id_stride);
    common.id_count[head] = static_cast<std::uint32_t>(ids.size());
  }
}

}  // namespace terrace::kernels::reference
