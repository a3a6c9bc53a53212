#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "terrace/kernels/reference.hpp"
#include "terrace/kernels/row_address.hpp"

namespace terrace::kernels::reference {
namespace {

struct Entry {
  const std::byte* row;
  double bias;
};

/// Lists the entries of a query head in the order they are attended to.
std::vector<Entry> list_entries(const DecodeAttention& op, std::size_t query_head) {
  const std::size_t kv_head = query_head / op.shape.group();
  const std::size_t list = op.scope == ListScope::kv_head ? kv_head : query_head;
  std::vector<Entry> entries;
  for (const TokenRange& range : {op.sinks, op.window}) {
    for (std::size_t p = range.begin; p < range.end; ++p) {
      entries.push_back({row_address(op.shape, op.resident, kv_head, p), 0});
    }
  }
  for (std::size_t i = 0; op.selected != nullptr && i < op.selected_count[list]; ++i) {
    const std::size_t place = list * op.selected_stride + i;
    const float* bias = op.selected_bias;
    entries.push_back({op.selected[place], bias == nullptr ? 0.0 : double{bias[place]}});
  }
  for (std::size_t i = 0; op.pseudo.count != nullptr && i < op.pseudo.count[list]; ++i) {
    const std::size_t place = list * op.pseudo.stride + i;
    const float* bias = op.pseudo.bias;
    entries.push_back({op.pseudo.rows[place], bias == nullptr ? 0.0 : double{bias[place]}});
  }
  return entries;
}

double logit(const DecodeAttention& op, std::size_t query_head, const Entry& entry) {
  double dot = 0;
  for (std::size_t i = 0; i < op.shape.head_dim; ++i) {
    dot += double{op.query[query_head * op.shape.head_dim + i]} *
           double{load_f32(entry.row, op.shape.dtype, i)};
  }
  return double{op.scale} * dot + entry.bias;
}

/// Attends with a query head, and returns the weight of each entry.
std::vector<double> attend(const DecodeAttention& op, std::size_t query_head) {
  const std::size_t dims = op.shape.head_dim;
  const std::vector<Entry> entries = list_entries(op, query_head);
  std::vector<double> weights(entries.size());
  double maximum = -std::numeric_limits<double>::infinity();
  for (std::size_t e = 0; e < entries.size(); ++e) {
    weights[e] = logit(op, query_head, entries[e]);
    if (!(weights[e] <= maximum)) maximum = weights[e];  // NaN is taken over, too
  }
  if (std::isinf(maximum) && maximum < 0) maximum = 0;
  double sum = 0;
  for (double& weight : weights) {
    weight = std::exp(weight - maximum);
    sum += weight;
  }
  for (std::size_t i = 0; i < dims; ++i) {
    double value = 0;
    for (std::size_t e = 0; e < entries.size(); ++e) {
      value += weights[e] * double{load_f32(entries[e].row, op.shape.dtype, dims + i)};
    }
    op.output[query_head * dims + i] = sum == 0 ? 0.0F : static_cast<float>(value / sum);
  }
  for (double& weight : weights) weight = sum == 0 ? 0.0 : weight / sum;
  return weights;
}

}  // namespace

void decode_attention(const DecodeAttention& op) {
  if (op.rests.ids != nullptr) {
    estimate_rest(EstimateRest::of(op));
    return decode_attention(with_rests_written(op));
  }
  const std::size_t lists = list_count(op.shape, op.weights.scope);
  const std::size_t heads = op.shape.query_heads / lists;
  for (std::size_t list = 0; list < lists; ++list) {
    std::vector<double> sums;
    for (std::size_t head = list * heads; head < (list + 1) * heads; ++head) {
      const std::vector<double> weights = attend(op, head);
      // Query heads with lists of their own have no sums.
      sums.resize(std::max(sums.size(), weights.size()));
      for (std::size_t i = 0; i < weights.size(); ++i) sums[i] += weights[i];
    }
    if (op.weights.sums == nullptr) continue;
    float* target = op.weights.sums + list * op.weights.stride;
    for (const double sum : sums) *target++ = static_cast<float>(sum);
  }
}

}  // namespace terrace::kernels::reference
