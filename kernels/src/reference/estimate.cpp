#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "reference/weights.hpp"
#include "terrace/core/dtype.hpp"
#include "terrace/kernels/reference.hpp"

namespace terrace::kernels::reference {
namespace {

/// The rest of a group.
struct Rest {
  std::size_t tokens = 0;
  const std::byte* whole = nullptr;  ///< where no row is selected: the row in the index
  std::vector<double> mean;          ///< [2, head_dim]
};

/// `group`: number in its page.
Rest rest_of(const EstimateRest& op, std::size_t head, std::size_t page, std::size_t group) {
  const KvShape& shape = op.shape;
  const std::size_t chunk_tokens = op.index.chunk_tokens;
  const std::size_t pages = chunk_tokens / op.groups.page_tokens;
  const std::byte* const chunk = op.index.chunks[page / pages];
  const std::size_t number = page % pages * op.groups.groups + group;
  const std::size_t numbers = 2 * shape.head_dim;
  const std::byte* const sizes = chunk + op.groups.sizes_at(shape, chunk_tokens, head);
  const std::size_t size = reinterpret_cast<const std::uint16_t*>(sizes)[number];
  const std::byte* const means = chunk + op.groups.means_at(shape, chunk_tokens, head);
  Rest rest{size, means + number * shape.row_bytes(), std::vector<double>(numbers)};
  for (std::size_t k = 0; k < numbers; ++k) {
    rest.mean[k] =
        static_cast<double>(size) * double{load_f32(means, shape.dtype, number * numbers + k)};
  }
  const std::byte* const labels =
      chunk + op.groups.labels_at(shape, chunk_tokens, head) + page % pages * op.groups.page_tokens;
  const std::size_t begin = op.index.first_token + page * op.groups.page_tokens;
  for (std::size_t i = 0; i < op.id_count[head]; ++i) {
    const std::size_t at = head * op.id_stride + i;
    if (op.ids[at] < begin || op.ids[at] >= begin + op.groups.page_tokens) continue;
    if (std::to_integer<std::size_t>(labels[op.ids[at] - begin]) != group) continue;
    for (std::size_t k = 0; k < numbers; ++k) {
      rest.mean[k] -= double{load_f32(op.rows[at], shape.dtype, k)};
    }
    --rest.tokens;
    rest.whole = nullptr;
  }
  for (double& x : rest.mean) x /= static_cast<double>(rest.tokens);
  return rest;
}

std::vector<double> weights_of(const EstimateRest& op, std::size_t head,
                               const std::vector<Rest>& rests) {
  const KvShape& shape = op.shape;
  std::vector<double> weights(rests.size());
  for (std::size_t q = 0; q < shape.group(); ++q) {
    const float* const query = op.query + (head * shape.group() + q) * shape.head_dim;
    std::vector<double> logits;
    for (const Rest& rest : rests) {
      double product = 0;
      for (std::size_t i = 0; i < shape.head_dim; ++i) product += double{query[i]} * rest.mean[i];
      logits.push_back(rest.tokens == 0 ? std::numeric_limits<double>::quiet_NaN()
                                        : product * double{op.scale} +
                                              std::log(static_cast<double>(rest.tokens)));
    }
    if (shape.group() == 1) return logits;
    make_addends(logits, GroupReduction::sum_softmax);
    for (std::size_t i = 0; i < logits.size(); ++i) weights[i] += logits[i];
  }
  return weights;
}

}  // namespace

void estimate_rest(const EstimateRest& op) {
  for (std::size_t head = 0; head < op.shape.kv_heads; ++head) {
    std::vector<Rest> rests;
    for (std::size_t page = op.pages.begin; page < op.pages.end; ++page) {
      for (std::size_t group = 0; group < op.groups.groups; ++group) {
        rests.push_back(rest_of(op, head, page, group));
      }
    }
    std::vector<std::uint32_t> chosen(rests.size());
    const std::vector<double> weights = weights_of(op, head, rests);
    chosen.resize(select_topk(weights.data(), weights.size(), op.most, chosen.data()));
    std::size_t entries = 0;
    for (const std::uint32_t group : chosen) {
      const Rest& rest = rests[group];
      if (rest.tokens == 0) continue;
      const std::size_t first = head * op.pseudo.stride;
      std::byte* const row = op.means + (first + group) * op.shape.row_bytes();
      if (rest.whole == nullptr) {
        for (std::size_t k = 0; k < rest.mean.size(); ++k) {
          store_f32(row, op.shape.dtype, k, static_cast<float>(rest.mean[k]));
        }
      }
      const std::size_t at = first + entries++;
      op.pseudo.rows[at] = rest.whole == nullptr ? row : rest.whole;
      op.pseudo.bias[at] = static_cast<float>(std::log(static_cast<double>(rest.tokens)));
    }
    op.pseudo.count[head] = static_cast<std::uint32_t>(entries);
    if (op.counted != nullptr) op.counted[head] = op.pseudo.count[head];
  }
}

}  // namespace terrace::kernels::reference
