// Cluster selection: see terrace/kernels/cluster_select.hpp, whose host kernel this follows.
//
// Three kernels: members of each cluster are counted, one KV head a block; clusters are scored,
// tiles of them and the rows attended anyway; and they are ranked, chosen and listed, one list a
// block. Which are chosen depends on those before, so one warp walks down the ranking.
#include <cuda_runtime.h>

#include <cmath>

#include "device/calls.cuh"
#include "device/choice.cuh"
#include "device/cluster_mass.cuh"
#include "device/cluster_rows.cuh"
#include "device/dot_rows.cuh"
#include "device/elements.cuh"
#include "device/launch_kernel.cuh"
#include "device/ranking.cuh"
#include "device/row_place.cuh"
#include "selection.hpp"
#include "terrace/kernels/cuda/ops.hpp"

extern __shared__ uint4 dynamic_shared_memory[];

namespace terrace::kernels::cuda {
namespace {

constexpr unsigned score_threads = 256;
constexpr unsigned tile = 128;  // clusters of a block
constexpr unsigned heads = 4;   // query heads of a block
// Counts and rankings are in shared memory up to here, beside what kernels have there anyway.
constexpr std::size_t shared_work_bytes = std::size_t{32} << 10;

/// Returns the bytes of shared memory for work of so many words a cluster: all that it needs, or 0.
__host__ __device__ constexpr std::size_t shared_work(std::size_t room, unsigned words) {
  const std::size_t bytes = room * words * sizeof(std::uint32_t);
  return bytes <= shared_work_bytes ? bytes : 0;
}
constexpr unsigned count_words = 1;
constexpr unsigned rank_words = 2;

/// Counts the candidates of each cluster and names the active ones. blockIdx: KV head; z: call.
template <unsigned capacity>
__global__ void __launch_bounds__(choose_threads)
    count_members(const Calls<ClusterSelect, capacity> __grid_constant__ calls) {
  const ClusterSelect& op = calls.of_block();
  __shared__ BlockScan<choose_threads>::Shared scan_shared;
  BlockScan<choose_threads> scan(scan_shared);
  const ClusterRows rows(op, blockIdx.x);
  const ClusterPlaces places(op, blockIdx.x);
  const bool in_shared = shared_work(rows.room(), count_words) > 0;
  std::uint32_t* const counts =
      in_shared ? reinterpret_cast<std::uint32_t*>(dynamic_shared_memory) : rows.counts();
  for (unsigned c = threadIdx.x; c < rows.room(); c += choose_threads) counts[c] = 0;
  __syncthreads();
  const std::size_t first_token = op.common.candidates.begin - op.index.first_token;
  const auto candidates = static_cast<unsigned>(op.common.candidates.size());
#pragma unroll 4
  for (unsigned i = threadIdx.x; i < candidates; i += choose_threads) {
    atomicAdd(&counts[places.label(first_token + i)], 1U);
  }
  __syncthreads();
  unsigned active = 0;
  for (unsigned begin = 0; begin < rows.room(); begin += choose_threads) {
    const unsigned cluster = begin + threadIdx.x;
    const std::uint32_t members = cluster < rows.room() ? counts[cluster] : 0;
    unsigned found = 0;
    const unsigned before = scan.exclusive_sum(members > 0 ? 1 : 0, found);
    if (members > 0) rows.active()[active + before] = cluster;
    if (in_shared && cluster < rows.room()) rows.counts()[cluster] = members;
    active += found;
  }
  if (threadIdx.x == 0) rows.active_count() = active;
}

/// The scoring of some clusters, or of the rows attended anyway, for up to `heads` query heads.
template <typename Elements>
struct Scoring {
  const ClusterSelect& op;
  ClusterRows rows;
  unsigned head;
  unsigned first_query;  ///< of the group
  unsigned used;         ///< query heads
  const float* queries;  ///< shared, times the scale of logits

  [[nodiscard]] __device__ unsigned dims() const {
    return static_cast<unsigned>(op.common.shape.head_dim);
  }

  /// Scores of active clusters from `begin` on.
  __device__ void score_tile(unsigned begin, float* squares) const {
    const unsigned warp = threadIdx.x / 32;
    const unsigned padded = padded_dims<Elements>(dims());
    if (warp < heads) {
      float square = 0;
      for (unsigned d = threadIdx.x % 32; d < dims(); d += 32) {
        square += queries[warp * padded + d] * queries[warp * padded + d];
      }
      square = warp_sum(square);  // |q|^2 / head_dim
      if (threadIdx.x % 32 == 0) squares[warp] = square;
    }
    const ClusterPlaces places(op, head);
    const unsigned left = rows.active_count() - begin;
    const unsigned count = left < tile ? left : tile;
    const auto centroid = [&](unsigned i) { return places.centroid(rows.active()[begin + i]); };
    const bool whole = sync_and_find_whole<Elements>(dims(), count, centroid);
    dot_rows<Elements, heads>(queries, dims(), count, whole, centroid,
                              [&](unsigned q, unsigned i, float dot) {
                                if (q >= used) return;
                                const std::uint32_t cluster = rows.active()[begin + i];
                                rows.scores(first_query + q)[begin + i] =
                                    dot + cluster_spread(op, places, cluster, squares[q]);
                              });
  }

  /// The logarithm of the weight of sinks and window, -inf where they take no part. A warp sums
  /// for each query head.
  __device__ void score_steady_rows(float (*logits)[tile]) const {
    const auto sinks = static_cast<unsigned>(op.sinks.size());
    const unsigned total =
        op.resident.blocks == nullptr ? 0 : sinks + static_cast<unsigned>(op.window.size());
    const unsigned warp = threadIdx.x / 32;
    float maximum = -INFINITY;
    float sum = 0;  // relative to exp(maximum)
    for (unsigned begin = 0; begin < total; begin += tile) {
      const unsigned count = total - begin < tile ? total - begin : tile;
      const auto key = [&](unsigned i) -> const std::byte* {
        i += begin;
        const std::size_t position = i < sinks ? op.sinks.begin + i : op.window.begin + (i - sinks);
        return row_place(op.common.shape, op.resident, head, static_cast<unsigned>(position));
      };
      // The logits before have been summed, too.
      const bool whole = sync_and_find_whole<Elements>(dims(), count, key);
      dot_rows<Elements, heads>(
          queries, dims(), count, whole, key,
          [&](unsigned q, unsigned i, float dot) { logits[q][i] = limit(dot); });
      __syncthreads();
      if (warp < heads) add_exponentials(logits[warp], count, maximum, sum);
    }
    if (warp < used && threadIdx.x % 32 == 0) {
      rows.scores(first_query + warp)[rows.active_count()] =
          sum > 0 ? maximum + logf(sum) : -INFINITY;
    }
  }

 private:
  __device__ static void add_exponentials(const float* logits, unsigned count, float& maximum,
                                          float& sum) {
    const unsigned lane = threadIdx.x % 32;
    float larger = maximum;
    for (unsigned i = lane; i < count; i += 32) larger = fmaxf(larger, logits[i]);
    larger = warp_max(larger);
    if (larger == -INFINITY) return;
    float own = 0;
    for (unsigned i = lane; i < count; i += 32) own += expf(logits[i] - larger);
    sum = sum * expf(maximum - larger) + warp_sum(own);
    maximum = larger;
  }
};

/// blockIdx: tile of active clusters, then the rows attended anyway; KV head; call and part of the
/// group's query heads.
template <typename Elements, unsigned capacity>
__global__ void __launch_bounds__(score_threads)
    score_clusters(const Calls<ClusterSelect, capacity> __grid_constant__ calls, float scale) {
  __shared__ float logits[heads][tile];
  __shared__ float squares[heads];
  const ClusterSelect& op = calls.of_block();
  const ClusterRows rows(op, blockIdx.y);
  const unsigned tiles = (rows.room() + tile - 1) / tile;
  const bool steady = blockIdx.x == tiles;
  if (blockIdx.x > tiles || (!steady && blockIdx.x * tile >= rows.active_count())) return;
  const auto dims = static_cast<unsigned>(op.common.shape.head_dim);
  const auto group = static_cast<unsigned>(op.common.shape.group());
  const unsigned first_query = calls.part() * heads;
  const unsigned used = group - first_query < heads ? group - first_query : heads;
  auto* const queries = reinterpret_cast<float*>(dynamic_shared_memory);
  share_queries<Elements>(
      op.common.query + (static_cast<std::size_t>(blockIdx.y) * group + first_query) * dims, used,
      heads, dims, scale, queries);
  __syncthreads();
  const Scoring<Elements> scoring{op, rows, blockIdx.y, first_query, used, queries};
  if (steady) {
    scoring.score_steady_rows(logits);
  } else {
    scoring.score_tile(blockIdx.x * tile, squares);
  }
}

/// The fate of a cluster.
enum Mark : std::uint32_t { left_out, chosen, chosen_in_part, estimated };

/// Memory that the threads of a list's block share.
struct ListMemory {
  ListMass::Shared mass;
  BlockScan<choose_threads>::Shared scan;
  float reduction[choose_threads / 32];
  unsigned cut_to;  ///< candidates of the cluster chosen in part
};

/// One list: clusters ranked for query heads [first, first + count) of the group.
struct ClusterList {
  const ClusterSelect& op;
  unsigned list;
  unsigned head;
  unsigned first;
  unsigned count;
  ClusterRows rows;
  Ranking ranking;       ///< of active clusters
  std::uint32_t* marks;  ///< [room], of clusters by number, in place of the weights
  ListMemory& memory;

  /// Puts the active clusters in falling order of their weights.
  __device__ void rank() const {
    const unsigned active = rows.active_count();
    auto* const weights = reinterpret_cast<float*>(marks);
    if (count == 1) {
      // The order of a single head needs no softmax, whose underflow would make ties.
      const float* const scores = rows.scores(first);
      for (unsigned i = threadIdx.x; i < active; i += choose_threads) {
        weights[i] = scores[i] + (of_member() ? 0.0F : rows.log_members(i));
      }
    } else {
      for (unsigned i = threadIdx.x; i < active; i += choose_threads) weights[i] = 0;
      for (unsigned q = first; q < first + count; ++q) add_softmax(rows.scores(q), weights);
      for (unsigned i = threadIdx.x; !of_member() && i < active; i += choose_threads) {
        weights[i] *= static_cast<float>(rows.members(i));
      }
    }
    for (unsigned i = threadIdx.x; i < active; i += choose_threads) {
      ranking.keys[i] = key_of(weights[i]);
      ranking.items[i] = i;
    }
    __syncthreads();
    ranking.sort(active);
    for (unsigned c = threadIdx.x; c < rows.room(); c += choose_threads) marks[c] = left_out;
  }

  /// Chooses clusters from the front of the ranking. A single warp calls it.
  __device__ void choose(const ListMass& mass) const {
    const unsigned active = rows.active_count();
    auto left = static_cast<unsigned>(op.common.wanted(head));
    unsigned passed_over = 0;
    if (threadIdx.x == 0) memory.cut_to = 0;
    for (unsigned begin = 0; begin < active; begin += 32) {
      // Lanes read ahead; all of them take the decisions.
      const bool there = begin + threadIdx.x < active;
      const std::uint32_t own = there ? ranking.items[begin + threadIdx.x] : 0;
      const std::uint32_t own_members = there ? rows.members(own) : 0;
      for (unsigned lane = 0; lane < 32 && begin + lane < active; ++lane) {
        if (left == 0 || mass.is_enough()) return;
        const std::uint32_t best = __shfl_sync(all_lanes, own, static_cast<int>(lane));
        const std::uint32_t members = __shfl_sync(all_lanes, own_members, static_cast<int>(lane));
        const unsigned taken = members < left ? members : left;
        if (taken < members && !op.trims) {
          if (++passed_over == clusters_passed_over_max) return;
          continue;
        }
        if (threadIdx.x == 0) {
          marks[rows.active()[best]] = taken == members ? chosen : chosen_in_part;
          if (taken < members) memory.cut_to = taken;
        }
        mass.choose(best);
        left -= taken;
      }
    }
  }

  /// Writes the candidates of chosen clusters.
  __device__ void write_members() const {
    const ClusterPlaces places(op, head);
    const std::size_t first_token = op.common.candidates.begin - op.index.first_token;
    const auto standing = [&](unsigned i) {
      const std::uint32_t mark = marks[places.label(first_token + i)];
      if (mark == chosen) return Standing::in;
      return mark == chosen_in_part ? Standing::cut : Standing::out;
    };
    const auto position = [&](unsigned i) {
      return static_cast<unsigned>(op.common.candidates.begin) + i;
    };
    PositionList members{op.common.ids + list * op.common.id_stride, memory.cut_to};
    write_positions(members, static_cast<unsigned>(op.common.candidates.size()), standing, position,
                    memory.scan);
    if (threadIdx.x == 0) op.common.id_count[list] = members.count();
  }

  /// Writes entries that stand for the best clusters left out, in rising order of their numbers.
  __device__ void write_pseudo_entries() const {
    mark_estimated();
    BlockScan<choose_threads> scan(memory.scan);
    const unsigned active = rows.active_count();
    const float query_square = mean_square_of_queries();
    const ClusterPlaces places(op, head);
    unsigned entries = 0;
    for (unsigned begin = 0; begin < active; begin += choose_threads) {
      const unsigned i = begin + threadIdx.x;
      const std::uint32_t cluster = i < active ? rows.active()[i] : 0;
      const bool stands = i < active && marks[cluster] == estimated;
      unsigned found = 0;
      const unsigned at = entries + scan.exclusive_sum(stands ? 1 : 0, found);
      if (stands) {
        const std::size_t place = list * op.pseudo.stride + at;
        op.pseudo.rows[place] = places.centroid(cluster);
        op.pseudo.bias[place] =
            rows.log_members(i) + cluster_spread(op, places, cluster, query_square);
      }
      entries += found;
    }
    if (threadIdx.x == 0) op.pseudo.count[list] = entries;
  }

 private:
  [[nodiscard]] __device__ bool of_member() const {
    return op.ranking == ClusterRanking::token_weight;
  }

  /// Adds a query head's softmax over members of clusters and what is attended anyway: the share of
  /// one member.
  __device__ void add_softmax(const float* scores, float* weights) const {
    const unsigned active = rows.active_count();
    float maximum = -INFINITY;
    for (unsigned i = threadIdx.x; i <= active; i += choose_threads) {
      maximum = fmaxf(maximum, limit(scores[i]));
    }
    maximum = reduce_block(maximum, Maximum(), memory.reduction);
    const float base = maximum == -INFINITY ? 0.0F : maximum;
    float sum = 0;
    for (unsigned i = threadIdx.x; i <= active; i += choose_threads) {
      const float counted = i < active ? static_cast<float>(rows.members(i)) : 1.0F;
      sum += counted * expf(limit(scores[i]) - base);
    }
    sum = reduce_block(sum, Sum(), memory.reduction);
    const float factor = sum > 0 ? 1.0F / sum : 0.0F;
    for (unsigned i = threadIdx.x; i < active; i += choose_threads) {
      weights[i] += expf(limit(scores[i]) - base) * factor;
    }
  }

  __device__ void mark_estimated() const {
    BlockScan<choose_threads> scan(memory.scan);
    const unsigned active = rows.active_count();
    const std::size_t most = op.estimated < op.pseudo.stride ? op.estimated : op.pseudo.stride;
    unsigned before = 0;
    for (unsigned begin = 0; begin < active && before < most; begin += choose_threads) {
      const unsigned place = begin + threadIdx.x;
      const std::uint32_t cluster = place < active ? rows.active()[ranking.items[place]] : 0;
      const bool rest = place < active && marks[cluster] == left_out;
      unsigned found = 0;
      const unsigned rank = before + scan.exclusive_sum(rest ? 1 : 0, found);
      if (rest && rank < most) marks[cluster] = estimated;
      before += found;
    }
    __syncthreads();
  }

  /// Returns |q|^2 / head_dim, of the group's query heads in the mean.
  [[nodiscard]] __device__ float mean_square_of_queries() const {
    const auto group = static_cast<unsigned>(op.common.shape.group());
    const unsigned elements = group * static_cast<unsigned>(op.common.shape.head_dim);
    const float* const queries = op.common.query + static_cast<std::size_t>(head) * elements;
    float square = 0;
    for (unsigned i = threadIdx.x; i < elements; i += choose_threads) {
      square += queries[i] * queries[i];
    }
    return reduce_block(square, Sum(), memory.reduction) / static_cast<float>(elements);
  }
};

/// blockIdx: list; z: call.
template <unsigned capacity>
__global__ void __launch_bounds__(choose_threads)
    choose_clusters(const Calls<ClusterSelect, capacity> __grid_constant__ calls) {
  __shared__ ListMemory memory;
  const ClusterSelect& op = calls.of_block();
  const bool per_query = op.scope == ListScope::query_head;
  const auto group = static_cast<unsigned>(op.common.shape.group());
  const unsigned head = per_query ? blockIdx.x / group : blockIdx.x;
  const unsigned first = per_query ? blockIdx.x % group : 0;
  const ClusterRows rows(op, head);
  Ranking ranking{rows.keys(first), rows.order(first)};
  if (shared_work(rows.room(), rank_words) > 0) {
    ranking.keys = reinterpret_cast<std::uint32_t*>(dynamic_shared_memory);
    ranking.items = ranking.keys + rows.room();
  }
  const ClusterList list{op,      blockIdx.x,       head,  first, per_query ? 1 : group, rows,
                         ranking, rows.keys(first), memory};
  const ListMass mass(op, head, list.first, list.count, memory.mass);
  list.rank();
  mass.start();
  __syncthreads();
  if (threadIdx.x < 32) list.choose(mass);
  __syncthreads();
  list.write_members();
  if (op.pseudo.count != nullptr) {
    __syncthreads();
    list.write_pseudo_entries();
  }
}

std::size_t room_of(const ClusterSelect& op) {
  return cluster_room(op.clusters, op.index.token_count);
}

/// Returns shared memory for each of the calls: of those that have some, the most.
template <unsigned capacity>
std::size_t shared_work_of(const Calls<ClusterSelect, capacity>& calls, unsigned words) {
  return calls.largest([=](const ClusterSelect& op) { return shared_work(room_of(op), words); });
}

template <typename Elements, unsigned capacity>
Status launch_scores(const Calls<ClusterSelect, capacity>& calls, const Launch& launch) {
  const KvShape& shape = calls.each[0].common.shape;
  const dim3 grid = calls.grid(blocks_for(calls.largest(room_of), tile, 0x7ffffffeU) + 1,
                               static_cast<unsigned>(shape.kv_heads),
                               static_cast<unsigned>((shape.group() + heads - 1) / heads));
  const std::size_t shared =
      heads * sizeof(float) * padded_dims<Elements>(static_cast<unsigned>(shape.head_dim));
  return launch_kernel(launch, {grid, score_threads, shared}, "cluster_select",
                       score_clusters<Elements, capacity>, calls, shape.logit_scale());
}

template <unsigned capacity>
Status launch_scores_of(const Calls<ClusterSelect, capacity>& calls, const Launch& launch) {
  return with_elements(calls.each[0].common.shape.dtype, [&](auto elements) {
    return launch_scores<decltype(elements)>(calls, launch);
  });
}

template <unsigned capacity>
Status launch_selection(const Calls<ClusterSelect, capacity>& calls, const Launch& launch) {
  const ClusterSelect& op = calls.each[0];
  const dim3 heads_grid = calls.grid(static_cast<unsigned>(op.common.shape.kv_heads));
  const dim3 lists_grid = calls.grid(static_cast<unsigned>(list_count(op.common.shape, op.scope)));
  TERRACE_TRY(launch_kernel(launch,
                            {heads_grid, choose_threads, shared_work_of(calls, count_words)},
                            "cluster_select", count_members<capacity>, calls));
  TERRACE_TRY(launch_scores_of(calls, launch));
  return launch_kernel(launch, {lists_grid, choose_threads, shared_work_of(calls, rank_words)},
                       "cluster_select", choose_clusters<capacity>, calls);
}

}  // namespace

Status cluster_select(std::span<const ClusterSelect> batch, const Launch& launch) {
  return launch_calls(batch, [&](const auto& calls) { return launch_selection(calls, launch); });
}

}  // namespace terrace::kernels::cuda
