// Selections: see terrace/kernels/select.hpp. Logits, group weights and top-k, one KV head a part.
#include "terrace/kernels/select.hpp"

#include <algorithm>
#include <limits>

#include "host/group_weights.hpp"
#include "host/pq_words.hpp"
#include "host/scores.hpp"
#include "terrace/kernels/signs.hpp"
#include "terrace/kernels/topk.hpp"

namespace terrace::kernels::host {
namespace {

/// Makes NaN of the numbers that held candidates have in each of `rows` rows.
void leave_out_held(const SelectCommon& common, std::size_t head, float* numbers, std::size_t rows,
                    std::size_t stride) {
  const TokenRange held = common.held.among(common.candidates, head);
  for (std::size_t i = held.begin; i < held.end; ++i) {
    float* const number = numbers + (common.held.positions[i] - common.candidates.begin);
    for (std::size_t row = 0; row < rows; ++row) {
      number[row * stride] = std::numeric_limits<float>::quiet_NaN();
    }
  }
}

/// Selects for one KV head; write_logits(rows, stride) provides the logits.
template <typename WriteLogits>
void select_head(const SelectCommon& common, std::size_t head, WriteLogits write_logits) {
  const std::size_t candidates = common.candidates.size();
  const std::size_t group = common.shape.group();
  const std::size_t stride = (candidates + 63) / 64 * 64;
  float* logits = common.scratch + head * (group + 1) * stride;
  float* weights = logits + group * stride;
  write_logits(logits, stride);
  leave_out_held(common, head, logits, group, stride);
  // The row that holds no weights serves the top-k.
  const float* ranked = logits;
  float* spare = weights;
  if (group > 1) {
    for (std::size_t q = 0; q < group; ++q) {
      std::fill(logits + q * stride + candidates, logits + (q + 1) * stride,
                -std::numeric_limits<float>::infinity());
    }
    reduce_group({.rows = logits, .group = group, .stride = stride, .size = stride},
                 common.reduction, weights);
    leave_out_held(common, head, weights, 1, stride);
    ranked = weights;
    spare = logits;
  }
  std::uint32_t* ids = common.ids + head * common.id_stride;
  const std::size_t count = select_topk(ranked, candidates, common.wanted(head),
                                        reinterpret_cast<std::uint32_t*>(spare), ids);
  for (std::size_t i = 0; i < count; ++i) {
    ids[i] += static_cast<std::uint32_t>(common.candidates.begin);
  }
  common.id_count[head] = static_cast<std::uint32_t>(count);
}

}  // namespace

void pq_select(const PqSelect& op, Parallel& threads) {
  // Words are ranked whole: a candidate that is held cannot be told from others of its word.
  const bool by_words = op.common.held.positions == nullptr && has_few_words(op);
  threads.for_each(op.common.shape.kv_heads, [&](std::size_t head) {
    if (by_words) return select_by_words(op, head);
    select_head(op.common, head, [&](float* logits, std::size_t stride) {
      write_pq_logits(op, head, logits, stride);
    });
  });
}

void exact_select(const ExactSelect& op, Parallel& threads) {
  threads.for_each(op.common.shape.kv_heads, [&](std::size_t head) {
    select_head(op.common, head, [&](float* logits, std::size_t stride) {
      write_exact_logits(op, head, logits, stride);
    });
  });
}

void channel_select(const ChannelSelect& op, Parallel& threads) {
  threads.for_each(op.common.shape.kv_heads, [&](std::size_t head) {
    select_head(op.common, head, [&](float* logits, std::size_t stride) {
      write_channel_logits(op, head, logits, stride);
    });
  });
}

void sign_select(const SignSelect& op, Parallel& threads) {
  threads.for_each(op.common.shape.kv_heads, [&](std::size_t head) {
    select_head(op.common, head, [&](float* logits, std::size_t stride) {
      write_sign_logits(op, head, logits, stride);
    });
  });
}

}  // namespace terrace::kernels::host
