#include "cluster_index.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <span>
#include <vector>

#include "clusterable.hpp"
#include "row_mean.hpp"
#include "terrace/core/bytes.hpp"
#include "terrace/core/rng.hpp"
#include "terrace/kernels/cluster_plane.hpp"
#include "terrace/kernels/kmeans.hpp"
#include "terrace/kernels/rows.hpp"

namespace terrace::policies {
namespace {

using kernels::ClusterPlane;

/// A batch of tokens of one KV head.
struct Batch {
  TokenRange tokens;
  std::size_t head = 0;
};

/// A batch on its way into the index.
class Clusters {
 public:
  Clusters(const BuildRequest& request, const ClusterIndexOptions& options, const Batch& batch)
      : request_(request),
        options_(options),
        batch_(batch),
        row_dims_(options.shape.estimates ? 2 * request.shape.head_dim : request.shape.head_dim) {}

  /// Computes a cluster again from its tokens before the batch's begin, if later tokens had joined
  /// it. Returns false if no token can have joined.
  bool take_those_left();

  [[nodiscard]] Result<BuildReport> write();

 private:
  [[nodiscard]] const float* row(std::size_t i) const noexcept {
    return rows_.get() + i * row_dims_;
  }
  [[nodiscard]] ClusterPlane plane(std::size_t chunk) const noexcept {
    return kernels::cluster_plane(request_.shape, options_.shape, request_.index.chunks[chunk],
                                  batch_.head);
  }
  /// The label of a token, by the token's place in the index.
  [[nodiscard]] std::uint32_t& label_at(std::size_t at) const noexcept {
    return plane(at / options_.shape.chunk_tokens).labels[at % options_.shape.chunk_tokens];
  }
  [[nodiscard]] std::size_t first_at() const noexcept {
    return batch_.tokens.begin - request_.index.first_token;
  }

  /// Whether a place has a cluster that begins before the batch; one that does not was cut off.
  [[nodiscard]] bool lives(const ClusterPlane& plane, std::size_t slot) const noexcept {
    return plane.sizes[slot] > 0 && plane.firsts[slot] < first_at();
  }
  void find_places();
  /// Returns the last cluster in the chunk that the batch begins in; there must be one.
  [[nodiscard]] std::uint32_t last_cluster() const noexcept;
  void join_the_last();
  void take_members_of(std::uint32_t cluster);
  [[nodiscard]] Status read_rows();
  [[nodiscard]] const float* keys_to_compare();
  Status cluster();
  /// Returns the positions of the first centroids at equal distances, or nothing if they are drawn
  /// at random.
  [[nodiscard]] std::vector<std::uint32_t> strided_seeds(const float* keys) const;
  void list_members();
  void split_large();
  void write_cluster(std::uint32_t place, std::span<const std::uint32_t> members);

  const BuildRequest& request_;
  const ClusterIndexOptions& options_;
  Batch batch_;
  std::size_t row_dims_;
  std::vector<std::uint32_t> places_;  // free ones for clusters
  std::unique_ptr<float[]> rows_;      // [tokens, row_dims]: keys, with estimates values beside
  std::vector<float> keys_;            // [tokens, head_dim]: what is compared, where rows are not
  std::vector<std::uint32_t> labels_;  // [tokens]
  std::size_t clusters_ = 0;
  std::vector<std::vector<std::uint32_t>> members_;  // of each cluster that has some
  BuildReport report_;
};

Result<BuildReport> Clusters::write() {
  if (places_.empty()) find_places();
  if (places_.empty()) join_the_last();
  TERRACE_TRY(read_rows());
  if (members_.empty()) TERRACE_TRY(cluster());
  for (std::size_t i = 0; i < members_.size(); ++i) write_cluster(places_[i], members_[i]);
  return report_;
}

void Clusters::find_places() {
  const ClusterShape& shape = options_.shape;
  const std::size_t first = first_at() / shape.chunk_tokens;
  const std::size_t last =
      (batch_.tokens.end - 1 - request_.index.first_token) / shape.chunk_tokens;
  for (std::size_t chunk = first; chunk <= last; ++chunk) {
    // Only a chunk that has tokens already can have clusters.
    const bool in_use = chunk == first && first_at() % shape.chunk_tokens != 0;
    const ClusterPlane target = plane(chunk);
    for (std::size_t slot = 0; slot < shape.slots; ++slot) {
      if (in_use && lives(target, slot)) continue;
      target.sizes[slot] = 0;
      places_.push_back(static_cast<std::uint32_t>(chunk * shape.slots + slot));
    }
  }
}

std::uint32_t Clusters::last_cluster() const noexcept {
  const std::size_t first_place = first_at() / options_.shape.chunk_tokens * options_.shape.slots;
  std::size_t last = first_at() - 1;
  while (label_at(last) < first_place) --last;
  return label_at(last);
}

/// Possible after many short extensions of one chunk: the tokens join the last cluster there.
void Clusters::join_the_last() {
  const std::uint32_t cluster = last_cluster();
  for (std::size_t i = 0; i < batch_.tokens.size(); ++i) label_at(first_at() + i) = cluster;
  take_members_of(cluster);
}

bool Clusters::take_those_left() {
  const std::size_t slots = options_.shape.slots;
  const std::size_t chunk = first_at() / options_.shape.chunk_tokens;
  if (first_at() % options_.shape.chunk_tokens == 0) return false;
  // Tokens join only where no place is left, and then the last cluster: no other can have lost any.
  const ClusterPlane target = plane(chunk);
  for (std::size_t slot = 0; slot < slots; ++slot) {
    if (!lives(target, slot)) return false;
  }
  const std::uint32_t cluster = last_cluster();
  take_members_of(cluster);
  return members_.front().size() != target.sizes[cluster % slots];
}

void Clusters::take_members_of(std::uint32_t cluster) {
  const std::size_t slots = options_.shape.slots;
  places_ = {cluster};
  batch_.tokens.begin = request_.index.first_token + plane(cluster / slots).firsts[cluster % slots];
  members_.resize(1);
  for (std::uint32_t i = 0; i < batch_.tokens.size(); ++i) {
    if (label_at(first_at() + i) == cluster) members_.front().push_back(i);
  }
}

Status Clusters::read_rows() {
  rows_ = std::make_unique_for_overwrite<float[]>(batch_.tokens.size() * row_dims_);
  // A row is a key followed by its value: the numbers after the key's dimensions are the value.
  return kernels::host::read_keys({.shape = request_.shape,
                                   .rows = request_.rows,
                                   .tokens = batch_.tokens,
                                   .head = batch_.head,
                                   .dims = row_dims_},
                                  rows_.get());
}

const float* Clusters::keys_to_compare() {
  const std::size_t dims = request_.shape.head_dim;
  const std::size_t count = batch_.tokens.size();
  if (row_dims_ == dims && !options_.centred) return rows_.get();
  keys_.resize(count * dims);
  for (std::size_t i = 0; i < count; ++i) std::copy_n(row(i), dims, &keys_[i * dims]);
  if (!options_.centred) return keys_.data();
  RowMean mean(dims);
  mean.add(keys_);
  std::vector<float> center(dims);
  for (std::size_t k = 0; k < dims; ++k) center[k] = static_cast<float>(mean.of(k));
  for (std::size_t i = 0; i < count; ++i) {
    float* const key = &keys_[i * dims];
    for (std::size_t k = 0; k < dims; ++k) key[k] -= center[k];
  }
  return keys_.data();
}

Status Clusters::cluster() {
  const std::size_t count = batch_.tokens.size();
  const std::size_t dims = request_.shape.head_dim;
  const float* const keys = keys_to_compare();
  labels_.resize(count);
  clusters_ = std::clamp<std::size_t>(count / options_.tokens_per_cluster, 1, places_.size());
  std::vector<float> centroids(clusters_ * dims);
  const std::vector<std::uint32_t> seeds = strided_seeds(keys);
  Rng seed(request_.seed, {index(request_.layer), batch_.head, batch_.tokens.begin});
  Serial alone;
  TERRACE_ASSIGN(
      const kernels::KmeansReport report,
      kernels::host::kmeans({.rows = keys, .row_count = count, .dims = dims},
                            {.clusters = clusters_,
                             .iterations = request_.iterations,
                             .metric = options_.metric,
                             .seed = seed(),
                             .initial_rows = seeds,
                             .cancelled = request_.cancelled,
                             .measures_inertia = false},
                            {.centroids = centroids.data(), .labels = labels_.data()}, alone));
  report_.iterations = report.iterations;
  list_members();
  return {};
}

std::vector<std::uint32_t> Clusters::strided_seeds(const float* keys) const {
  const std::size_t count = batch_.tokens.size();
  const std::size_t dims = request_.shape.head_dim;
  std::vector<std::uint32_t> seeds(options_.strided_seeds ? clusters_ : 0);
  for (std::size_t c = 0; c < seeds.size(); ++c) {
    seeds[c] = static_cast<std::uint32_t>((2 * c + 1) * count / (2 * clusters_));
  }
  // Seeds must be among the rows that are clustered; where one is not, k-means draws them.
  const bool clusterable = std::ranges::all_of(
      seeds, [&](std::uint32_t i) { return can_be_clustered({keys + i * dims, dims}); });
  if (!clusterable) seeds.clear();
  return seeds;
}

void Clusters::list_members() {
  if (options_.members_max > 0) split_large();
  members_.resize(clusters_);
  for (std::uint32_t i = 0; i < labels_.size(); ++i) members_[labels_[i]].push_back(i);
  std::erase_if(members_, [](const auto& one) { return one.empty(); });
}

void Clusters::split_large() {
  std::vector<std::uint32_t> current(clusters_);
  std::iota(current.begin(), current.end(), 0U);
  std::vector<std::size_t> taken(clusters_);
  // Members part in the order of their positions: neighbours tend to be wanted together.
  for (std::uint32_t& one : labels_) {
    const std::uint32_t original = one;
    if (taken[original] == options_.members_max && clusters_ < places_.size()) {
      current[original] = static_cast<std::uint32_t>(clusters_++);
      taken[original] = 0;
    }
    ++taken[original];
    one = current[original];
  }
}

void Clusters::write_cluster(std::uint32_t place, std::span<const std::uint32_t> members) {
  const Dtype dtype = request_.shape.dtype;
  const std::size_t dims = request_.shape.head_dim;
  const std::size_t slot = place % options_.shape.slots;
  const ClusterPlane target = plane(place / options_.shape.slots);
  RowMean mean(row_dims_);
  for (const std::uint32_t i : members) {
    label_at(first_at() + i) = place;
    mean.add({row(i), row_dims_});
  }
  std::byte* const stored =
      target.centroids + slot * kernels::centroid_bytes(request_.shape, options_.shape);
  std::vector<double> center(dims);  // as it is stored
  for (std::size_t k = 0; k < row_dims_; ++k) {
    store_f32(stored, dtype, k, static_cast<float>(mean.of(k)));
    if (k < dims) center[k] = double{load_f32(stored, dtype, k)};
  }
  target.sizes[slot] = static_cast<std::uint32_t>(members.size());
  target.firsts[slot] = static_cast<std::uint32_t>(first_at() + members.front());
  if (!options_.shape.estimates) return;
  double sum = 0;
  for (const std::uint32_t i : members) {
    double square = 0;
    const float* const key = row(i);
    for (std::size_t k = 0; k < dims; ++k) square += std::pow(double{key[k]} - center[k], 2);
    if (std::isfinite(square)) sum += square;
  }
  target.variance[slot] =
      static_cast<float>(sum / static_cast<double>(std::max<std::size_t>(mean.count(), 1) * dims));
}

}  // namespace

Result<IndexLayout> ClusterIndex::index_layout(const KvShape& shape) const {
  return IndexLayout{
      .chunk_tokens = options_.shape.chunk_tokens,
      .chunk_bytes = shape.kv_heads * kernels::cluster_plane_bytes(shape, options_.shape),
      .chunk_clusters = options_.shape.slots};
}

const std::uint32_t* ClusterIndex::labels(const KvShape& shape, std::byte* chunk,
                                          std::size_t head) const noexcept {
  return kernels::cluster_plane(shape, options_.shape, chunk, head).labels;
}

std::size_t ClusterIndex::select_scratch_floats(const KvShape& shape,
                                                std::size_t candidates) const noexcept {
  return cluster_scratch_floats(shape, options_.shape, candidates);
}

std::size_t ClusterIndex::build_parts(const BuildRequest& request) const noexcept {
  const auto [first, end] = segments_of(request);
  return (end - first) * request.shape.kv_heads;
}

Result<BuildReport> ClusterIndex::build_part(const BuildRequest& request, std::size_t part) const {
  const std::size_t segment = segments_of(request).begin + part / request.shape.kv_heads;
  TokenRange tokens = request.tokens;
  if (options_.segment_tokens > 0) {
    const std::size_t begin = request.index.first_token + segment * options_.segment_tokens;
    tokens = {std::max(begin, tokens.begin), std::min(begin + options_.segment_tokens, tokens.end)};
  }
  return Clusters(request, options_, {.tokens = tokens, .head = part % request.shape.kv_heads})
      .write();
}

Result<bool> ClusterIndex::do_cut(const BuildRequest& request) const {
  bool changed = false;
  for (std::size_t head = 0; head < request.shape.kv_heads; ++head) {
    Clusters cluster(request, options_, {.tokens = request.tokens, .head = head});
    if (!cluster.take_those_left()) continue;
    TERRACE_TRY(cluster.write());
    changed = true;
  }
  return changed;
}

TokenRange ClusterIndex::segments_of(const BuildRequest& request) const noexcept {
  if (options_.segment_tokens == 0) return {0, 1};
  const std::size_t first = request.index.first_token;
  return {(request.tokens.begin - first) / options_.segment_tokens,
          divide_up(request.tokens.end - first, options_.segment_tokens)};
}

}  // namespace terrace::policies
