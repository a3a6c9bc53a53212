#include "terrace/kernels/retained_rows.hpp"

#include <algorithm>
#include <cstring>
#include <numbers>
#include <vector>

#include "host/row_products.hpp"
#include "host/row_sums.hpp"
#include "host/scores.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "host/retained_rows.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "host/exp-inl.hpp"
#include "host/vectors-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace terrace::kernels::host::HWY_NAMESPACE {

/// Makes logits to the base 2 of their powers, relative to `most`, and returns the sum of these.
float exponentiate(float* logits, std::size_t count, float most) {
  const FloatTag tag;
  const Floats greatest = hn::Set(tag, most);
  Floats sums = hn::Zero(tag);
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const Floats power = exp2_nonpositive(hn::Sub(hn::LoadU(tag, logits + i), greatest));
    hn::StoreU(power, tag, logits + i);
    sums = hn::Add(sums, power);
  }
  float sum = sum_of_lanes(sums);
  for (; i < count; ++i) {
    logits[i] = hn::GetLane(exp2_nonpositive(hn::Set(tag, logits[i] - most)));
    sum += logits[i];
  }
  return sum;
}

}  // namespace terrace::kernels::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace terrace::kernels::host {
namespace {

HWY_EXPORT(exponentiate);

constexpr float log2e = std::numbers::log2e_v<float>;

/// Logits to the base 2 of all tokens and rows: [tokens * group, rows].
std::vector<float> write_logits(const QueryWeights& op) {
  const std::size_t group = op.shape.group();
  const std::size_t count = op.rows.size();
  std::vector<float> logits(op.tokens * group * count);
  // This many keys stay in a core's cache while all queries pass over them.
  constexpr std::size_t rows_at_once = 256;
  for (std::size_t begin = 0; begin < count; begin += rows_at_once) {
    for (std::size_t token = 0; token < op.tokens; ++token) {
      row_products({.dtype = op.shape.dtype,
                    .dims = op.shape.head_dim,
                    .scale = op.shape.logit_scale() * log2e,
                    .queries = op.queries + token * op.query_stride,
                    .query_count = group,
                    .keys = op.rows.data() + begin,
                    .key_count = std::min(rows_at_once, count - begin),
                    .logits = logits.data() + token * group * count + begin,
                    .stride = count});
    }
  }
  return logits;
}

}  // namespace

void add_query_weights(const QueryWeights& op) {
  const std::size_t group = op.shape.group();
  const std::size_t count = op.rows.size();
  std::vector<float> all = write_logits(op);
  for (std::size_t query = 0; query < op.tokens * group; ++query) {
    float* const logits = all.data() + query * count;
    const std::size_t seen = std::min(count, op.seen + query / group);
    if (seen == 0) continue;
    for (std::size_t i = 0; i < op.bias.size(); ++i) logits[i] += op.bias[i] * log2e;
    const float most = *std::max_element(logits, logits + seen);
    const float sum = HWY_DYNAMIC_DISPATCH(exponentiate)(logits, seen, most);
    if (!(sum > 0)) continue;  // no weights: all logits are -inf, or one is NaN
    float* const sums = op.sums + query % group * op.stride;
    for (std::size_t i = 0; i < seen; ++i) sums[i] += logits[i] / sum;
  }
}

void merge_rows(const MergeRows& op) {
  if (op.rows.size() == 1) {
    std::memcpy(op.merged, op.rows.front(), op.shape.row_bytes());
    return;
  }
  const std::size_t dims = 2 * op.shape.head_dim;
  std::vector<float> sums(dims);
  std::uint64_t tokens = 0;
  for (std::size_t i = 0; i < op.rows.size(); ++i) {
    const auto degree = static_cast<float>(op.degrees[i]);
    add_row(op.rows[i], op.shape.dtype, degree, dims, sums.data());
    tokens += op.degrees[i];
  }
  for (std::size_t i = 0; i < dims; ++i) {
    store_f32(op.merged, op.shape.dtype, i, sums[i] / static_cast<float>(tokens));
  }
}

}  // namespace terrace::kernels::host
#endif  // HWY_ONCE
