#include "terrace/kernels/refine.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "host/refine_codes.hpp"
#include "reference/weights.hpp"
#include "terrace/kernels/reference.hpp"

namespace terrace::kernels::reference {

double refine_score(const RefineSelect& op, std::size_t query_head, std::size_t position) {
  const KvShape& shape = op.common.shape;
  const std::size_t head = query_head / shape.group();
  const float* const query = op.common.query + query_head * shape.head_dim;
  host::ChunkWalk walk(op.index);
  walk.go_to(position);
  const host::RefinePlace place(shape, op.codes, op.index, head, walk);
  const PqShape& pq = op.codes.pq;
  double sum = 0;
  for (std::size_t i = 0; pq.subspaces == 0 && i < shape.head_dim; ++i) {
    sum += double{query[i]} * double{host::vector_in(walk.chunk(), shape, op.codes, head)[i]};
  }
  for (std::size_t i = 0; pq.subspaces > 0 && i < shape.head_dim; ++i) {
    const std::size_t width = shape.head_dim / pq.subspaces;
    const std::size_t plane = head * pq.subspaces + i / width;
    const std::size_t centroid = place.pq_code(pq, head, i / width);
    sum += double{query[i]} *
           double{reinterpret_cast<const float*>(
               op.index.fixed)[(plane * pq.centroids() + centroid) * width + i % width]};
  }
  std::vector<float> numbers(shape.head_dim);
  const double unit = double{round_query(query, shape.head_dim, numbers.data()).unit};
  const std::size_t bytes = op.codes.code_bytes(shape);
  double product = 0;
  for (std::size_t i = 0; i < shape.head_dim; ++i) {
    const unsigned byte = std::to_integer<unsigned>(place.code()[i % bytes]);
    const unsigned top = (1U << op.codes.bits) - 1;
    const unsigned code = byte >> (i / bytes * op.codes.bits) & top;
    product += double{numbers[i]} * (2.0 * code - top);
  }
  return sum + double{place.factor()} * unit * product;
}

namespace {

std::vector<double> weights_of(const RefineSelect& op, std::size_t head,
                               std::span<const std::uint32_t> proposed) {
  const KvShape& shape = op.common.shape;
  const double scale = static_cast<double>(shape.logit_scale());
  std::vector<double> weights(proposed.size());
  for (std::size_t q = 0; q < shape.group(); ++q) {
    std::vector<double> logits;
    for (const std::uint32_t position : proposed) {
      logits.push_back(scale * refine_score(op, head * shape.group() + q, position));
    }
    if (shape.group() == 1) return logits;
    make_addends(logits, op.common.reduction);
    for (std::size_t i = 0; i < logits.size(); ++i) {
      weights[i] = merged(weights[i], logits[i], op.common.reduction);
    }
  }
  return weights;
}

}  // namespace

void refine_select(const RefineSelect& op) {
  for (std::size_t head = 0; head < op.common.shape.kv_heads; ++head) {
    const std::span proposed(op.proposed + head * op.proposed_stride, op.proposed_count[head]);
    const std::vector<double> weights = weights_of(op, head, proposed);
    std::uint32_t* const ids = op.common.ids + head * op.common.id_stride;
    const std::size_t count =
        select_topk(weights.data(), weights.size(), op.common.wanted(head), ids);
    for (std::size_t i = 0; i < count; ++i) ids[i] = proposed[ids[i]];
    op.common.id_count[head] = static_cast<std::uint32_t>(count);
  }
}

}  // namespace terrace::kernels::reference
