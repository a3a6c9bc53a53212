// Choosing among proposed candidates: see terrace/kernels/refine.hpp.
#include <algorithm>
#include <array>
#include <limits>

#include "host/code_logits.hpp"
#include "host/group_weights.hpp"
#include "host/refine_codes.hpp"
#include "host/row_products.hpp"
#include "host/scores.hpp"
#include "terrace/kernels/refine.hpp"
#include "terrace/kernels/topk.hpp"

namespace terrace::kernels::host {
namespace {

constexpr std::size_t candidates_at_once = 1024;

/// The refined scores of one KV head's proposed candidates.
class RefinedHead {
 public:
  RefinedHead(const RefineSelect& op, std::size_t head) noexcept
      : op_(op),
        head_(head),
        proposed_(op.proposed + head * op.proposed_stride),
        count_(op.proposed_count[head]),
        stride_(align_up(op.proposed_stride, 64)),
        logits_(op.common.scratch + head * (group() + 1) * stride_) {}

  void run() noexcept {
    for (std::size_t q = 0; q < group(); q += queries_of_codes_max) {
      write_logits(q, std::min(queries_of_codes_max, group() - q));
    }
    choose();
  }

 private:
  using Places = std::array<const std::byte*, candidates_at_once>;

  [[nodiscard]] const KvShape& shape() const noexcept { return op_.common.shape; }
  [[nodiscard]] std::size_t group() const noexcept { return shape().group(); }

  void write_logits(std::size_t first_query, std::size_t queries) noexcept {
    const std::size_t dims = shape().head_dim;
    std::array<float, queries_of_codes_max * KvShape::head_dim_max> numbers;
    std::array<float, queries_of_codes_max> units{};
    for (std::size_t q = 0; q < queries; ++q) {
      const float* const query = op_.common.query + (head_ * group() + first_query + q) * dims;
      units[q] = round_query(query, dims, &numbers[q * dims]).unit * shape().logit_scale();
    }
    ChunkWalk walk(op_.index);
    for (std::size_t begin = 0; begin < count_; begin += candidates_at_once) {
      const std::size_t some = std::min(candidates_at_once, count_ - begin);
      Places codes;
      std::array<float, candidates_at_once> factors;
      for (std::size_t i = 0; i < some; ++i) {
        walk.go_to(proposed_[begin + i]);
        const RefinePlace at(shape(), op_.codes, op_.index, head_, walk);
        codes[i] = at.code();
        factors[i] = at.factor();
      }
      write_code_logits({.codes = codes.data(),
                         .factors = factors.data(),
                         .count = some,
                         .bits = op_.codes.bits,
                         .code_bytes = op_.codes.code_bytes(shape()),
                         .dims = dims,
                         .queries = numbers.data(),
                         .units = units.data(),
                         .query_count = queries,
                         .logits = logits_ + first_query * stride_ + begin,
                         .stride = stride_});
    }
    if (op_.codes.pq.subspaces == 0) add_vectors(first_query, queries);
    for (std::size_t j = 0; j < op_.codes.pq.subspaces; ++j) add_coarse(j, first_query, queries);
  }

  /// Adds the scores of the vectors of chunks.
  void add_vectors(std::size_t first_query, std::size_t queries) noexcept {
    const std::size_t dims = shape().head_dim;
    ChunkWalk walk(op_.index);
    for (std::size_t begin = 0; begin < count_; begin += candidates_at_once) {
      const std::size_t some = std::min(candidates_at_once, count_ - begin);
      Places vectors;
      std::array<std::uint16_t, candidates_at_once> vector_of;
      std::size_t chunks = 0;
      const std::byte* last = nullptr;
      for (std::size_t i = 0; i < some; ++i) {
        walk.go_to(proposed_[begin + i]);
        if (walk.chunk() != last) {
          last = walk.chunk();
          vectors[chunks++] = reinterpret_cast<const std::byte*>(
              vector_in(walk.chunk(), shape(), op_.codes, head_));
        }
        vector_of[i] = static_cast<std::uint16_t>(chunks - 1);
      }
      std::array<float, queries_of_codes_max * candidates_at_once> products;
      row_products({.dtype = Dtype::f32,
                    .dims = dims,
                    .scale = shape().logit_scale(),
                    .queries = op_.common.query + (head_ * group() + first_query) * dims,
                    .query_count = queries,
                    .keys = vectors.data(),
                    .key_count = chunks,
                    .logits = products.data(),
                    .stride = candidates_at_once});
      for (std::size_t q = 0; q < queries; ++q) {
        float* const logits = logits_ + (first_query + q) * stride_ + begin;
        for (std::size_t i = 0; i < some; ++i) {
          logits[i] += products[q * candidates_at_once + vector_of[i]];
        }
      }
    }
  }

  /// Adds the scores of one of the index's own codes.
  void add_coarse(std::size_t subspace, std::size_t first_query, std::size_t queries) noexcept {
    const PqShape& pq = op_.codes.pq;
    const PqSelect coarse{op_.common, pq, op_.index};
    std::array<std::array<float, 256>, queries_of_codes_max> tables;
    for (std::size_t q = 0; q < queries; ++q) {
      write_pq_table(coarse, head_ * group() + first_query + q, subspace, tables[q].data());
    }
    float* const logits = logits_ + first_query * stride_;
    ChunkWalk walk(op_.index);
    for (std::size_t i = 0; i < count_; ++i) {
      walk.go_to(proposed_[i]);
      const std::size_t code =
          RefinePlace(shape(), op_.codes, op_.index, head_, walk).pq_code(pq, head_, subspace);
      for (std::size_t q = 0; q < queries; ++q) logits[q * stride_ + i] += tables[q][code];
    }
  }

  void choose() noexcept {
    float* const weights = logits_ + group() * stride_;
    const float* ranked = logits_;
    float* spare = weights;
    if (group() > 1) {
      const std::size_t size = align_up(count_, 64);
      for (std::size_t q = 0; q < group(); ++q) {
        std::fill(logits_ + q * stride_ + count_, logits_ + q * stride_ + size,
                  -std::numeric_limits<float>::infinity());
      }
      reduce_group({.rows = logits_, .group = group(), .stride = stride_, .size = size},
                   op_.common.reduction, weights);
      ranked = weights;
      spare = logits_;
    }
    std::uint32_t* const ids = op_.common.ids + head_ * op_.common.id_stride;
    const std::size_t chosen = select_topk(ranked, count_, op_.common.wanted(head_),
                                           reinterpret_cast<std::uint32_t*>(spare), ids);
    for (std::size_t i = 0; i < chosen; ++i) ids[i] = proposed_[ids[i]];
    op_.common.id_count[head_] = static_cast<std::uint32_t>(chosen);
  }

  const RefineSelect& op_;
  std::size_t head_;
  const std::uint32_t* proposed_;
  std::size_t count_;
  std::size_t stride_;
  float* logits_;  ///< [group + 1, stride]
};

}  // namespace

void refine_select(const RefineSelect& op, Parallel& threads) {
  threads.for_each(op.common.shape.kv_heads,
                   [&](std::size_t head) { RefinedHead(op, head).run(); });
}

}  // namespace terrace::kernels::host
