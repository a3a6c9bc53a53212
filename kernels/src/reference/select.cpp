#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <vector>

#include "reference/weights.hpp"
#include "terrace/kernels/reference.hpp"

namespace terrace::kernels::reference {
namespace {

/// Makes NaN, which ranks last, of the numbers of held candidates.
void leave_out_held(const SelectCommon& common, std::size_t head, double* numbers) {
  const std::uint32_t* positions = common.held.positions;
  if (positions == nullptr) return;
  for (std::size_t i = 0; i < common.held.count[head]; ++i) {
    const std::size_t position = positions[head * common.held.stride + i];
    if (!common.candidates.contains(position)) continue;
    numbers[position - common.candidates.begin] = std::numeric_limits<double>::quiet_NaN();
  }
}

/// Reduces a group's logits; score(query, candidate) is the score before scaling.
template <typename Score>
void weigh(const SelectCommon& common, std::size_t head, Score score, double* weights) {
  const std::size_t candidates = common.candidates.size();
  const std::size_t group = common.shape.group();
  const double scale = static_cast<double>(common.shape.logit_scale());
  std::fill_n(weights, candidates, 0.0);
  for (std::size_t q = 0; q < group; ++q) {
    const float* query = common.query + (head * group + q) * common.shape.head_dim;
    std::vector<double> logits(candidates);
    for (std::size_t i = 0; i < candidates; ++i) logits[i] = scale * score(query, i);
    leave_out_held(common, head, logits.data());
    if (group == 1) {
      std::copy_n(logits.data(), candidates, weights);
      return;
    }
    make_addends(logits, common.reduction);
    for (std::size_t i = 0; i < candidates; ++i) {
      weights[i] = merged(weights[i], logits[i], common.reduction);
    }
  }
  leave_out_held(common, head, weights);
}

template <typename Weigh>
void select(const SelectCommon& common, Weigh weigh_head) {
  std::vector<double> weights(common.candidates.size());
  for (std::size_t head = 0; head < common.shape.kv_heads; ++head) {
    weigh_head(head, weights.data());
    std::uint32_t* ids = common.ids + head * common.id_stride;
    const std::size_t count = select_topk(weights.data(), weights.size(), common.wanted(head), ids);
    for (std::size_t i = 0; i < count; ++i) {
      ids[i] += static_cast<std::uint32_t>(common.candidates.begin);
    }
    common.id_count[head] = static_cast<std::uint32_t>(count);
  }
}

}  // namespace

void pq_weights(const PqSelect& op, std::size_t head, double* weights) {
  const std::size_t subspaces = op.pq.subspaces;
  const std::size_t dims = op.common.shape.head_dim / subspaces;
  const auto* codebooks = reinterpret_cast<const float*>(op.index.fixed);
  const auto score = [&](const float* query, std::size_t candidate) {
    const std::size_t token = op.common.candidates.begin + candidate - op.index.first_token;
    const std::byte* chunk = op.index.chunks[token / op.index.chunk_tokens];
    double sum = 0;
    for (std::size_t j = 0; j < subspaces; ++j) {
      const std::size_t plane = head * subspaces + j;
      const auto code = std::to_integer<std::size_t>(
          chunk[plane * op.index.chunk_tokens + token % op.index.chunk_tokens]);
      const float* centroid = codebooks + (plane * op.pq.centroids() + code) * dims;
      for (std::size_t i = 0; i < dims; ++i) {
        sum += double{query[j * dims + i]} * double{centroid[i]};
      }
    }
    return sum;
  };
  weigh(op.common, head, score, weights);
}

void exact_weights(const ExactSelect& op, std::size_t head, double* weights) {
  const KvShape& shape = op.common.shape;
  const auto score = [&](const float* query, std::size_t candidate) {
    const std::size_t token = op.common.candidates.begin + candidate - op.index.first_token;
    const std::byte* chunk = op.index.chunks[token / op.index.chunk_tokens];
    const std::size_t place = head * op.index.chunk_tokens + token % op.index.chunk_tokens;
    double sum = 0;
    for (std::size_t i = 0; i < shape.head_dim; ++i) {
      sum += double{query[i]} * double{load_f32(chunk, shape.dtype, place * shape.head_dim + i)};
    }
    return sum;
  };
  weigh(op.common, head, score, weights);
}

namespace {

/// The channels that a KV head reads, and their places in what is stored. Sums are f32: they say
/// which channels count, so all backends must have the same.
struct ReadChannels {
  std::vector<std::size_t> numbers;
  std::vector<std::size_t> places;

  ReadChannels(const ChannelSelect& op, std::size_t head)
      : numbers(op.common.shape.head_dim), places(op.channels.count) {
    const std::size_t dims = op.common.shape.head_dim;
    std::iota(numbers.begin(), numbers.end(), std::size_t{0});
    std::iota(places.begin(), places.end(), std::size_t{0});
    if (op.channels.partial) {
      const auto* stored = reinterpret_cast<const std::uint32_t*>(op.index.fixed);
      numbers.assign(stored + head * places.size(), stored + (head + 1) * places.size());
      return;
    }
    std::vector<float> sums(dims);
    const std::size_t group = op.common.shape.group();
    for (std::size_t q = head * group; q < (head + 1) * group; ++q) {
      for (std::size_t i = 0; i < dims; ++i) sums[i] += std::abs(op.common.query[q * dims + i]);
    }
    for (float& sum : sums) sum = std::isnan(sum) ? -1.0F : sum;
    std::ranges::stable_sort(numbers, std::greater<>(), [&](std::size_t i) { return sums[i]; });
    numbers.resize(op.channels.count);
    places = numbers;
  }
};

}  // namespace

void channel_weights(const ChannelSelect& op, std::size_t head, double* weights) {
  const KvShape& shape = op.common.shape;
  const ReadChannels read(op, head);
  const auto score = [&](const float* query, std::size_t candidate) {
    const std::size_t token = op.common.candidates.begin + candidate - op.index.first_token;
    const std::byte* chunk = op.index.chunks[token / op.index.chunk_tokens];
    double whole = 0;
    double part = 0;
    double sum = 0;
    for (std::size_t i = 0; i < shape.head_dim; ++i) whole += std::abs(double{query[i]});
    for (std::size_t c = 0; c < read.numbers.size(); ++c) {
      const std::size_t plane = head * op.channels.stored(shape) + read.places[c];
      const std::size_t place = plane * op.index.chunk_tokens + token % op.index.chunk_tokens;
      part += std::abs(double{query[read.numbers[c]]});
      sum += double{query[read.numbers[c]]} * double{load_f32(chunk, shape.dtype, place)};
    }
    if (!std::isfinite(whole)) return std::numeric_limits<double>::quiet_NaN();
    return sum / std::sqrt(part > 0 ? part / whole : 1.0);
  };
  weigh(op.common, head, score, weights);
}

void sign_weights(const SignSelect& op, std::size_t head, double* weights) {
  const auto score = [&](const float* query, std::size_t candidate) {
    const auto query_head =
        static_cast<std::size_t>(query - op.common.query) / op.common.shape.head_dim;
    return sign_score(op, query_head, op.common.candidates.begin + candidate);
  };
  weigh(op.common, head, score, weights);
}

std::size_t select_topk(const double* weights, std::size_t n, std::size_t k, std::uint32_t* ids) {
  std::vector<std::uint32_t> order(n);
  std::iota(order.begin(), order.end(), 0U);
  std::ranges::sort(order, [weights](std::uint32_t a, std::uint32_t b) {
    if (is_above(weights[a], weights[b])) return true;
    return !is_above(weights[b], weights[a]) && a < b;
  });
  const std::size_t count = std::min(k, n);
  std::sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(count));
  std::copy_n(order.begin(), count, ids);
  return count;
}

void pq_select(const PqSelect& op) {
  select(op.common, [&](std::size_t head, double* weights) { pq_weights(op, head, weights); });
}

void exact_select(const ExactSelect& op) {
  select(op.common, [&](std::size_t head, double* weights) { exact_weights(op, head, weights); });
}

void channel_select(const ChannelSelect& op) {
  select(op.common, [&](std::size_t head, double* weights) { channel_weights(op, head, weights); });
}

void sign_select(const SignSelect& op) {
  select(op.common, [&](std::size_t head, double* weights) { sign_weights(op, head, weights); });
}

}  // namespace terrace::kernels::reference
