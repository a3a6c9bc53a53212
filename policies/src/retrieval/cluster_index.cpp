#include "cluster_index.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "all_finite.hpp"
#include "terrace/core/bytes.hpp"
#include "terrace/core/rng.hpp"
#include "terrace/kernels/cluster_plane.hpp"
#include "terrace/kernels/cluster_select.hpp"
#include "terrace/kernels/rows.hpp"

namespace terrace::policies {
namespace {

using kernels::ClusterPlane;

/// A batch of tokens of one KV head on its way into the index.
class Batch {
 public:
  Batch(const BuildRequest& request, const ClusterIndexOptions& options, TokenRange tokens,
        std::size_t head)
      : request_(request),
        options_(options),
        tokens_(tokens),
        head_(head),
        row_dims_(options.shape.estimates ? 2 * request.shape.head_dim : request.shape.head_dim),
        labels_(tokens.size()) {}

  /// Reads the rows and labels them with 0, 1, ...; of clusters as many as `room` at most.
  Result<BuildReport> cluster(std::size_t room);

  /// Gives each cluster with members the next of `places` and writes it there.
  void write(std::span<const std::uint32_t> places);

  /// Labels all tokens with an existing cluster.
  void join(std::uint32_t cluster);

 private:
  [[nodiscard]] const float* row(std::size_t i) const noexcept {
    return rows_.data() + i * row_dims_;
  }
  [[nodiscard]] ClusterPlane plane(std::size_t chunk) const noexcept {
    return kernels::cluster_plane(request_.shape, options_.shape, request_.index.chunks[chunk],
                                  head_);
  }
  std::vector<float> keys_to_compare() const;
  void split_large(std::size_t room);
  void label(std::size_t i, std::uint32_t cluster) noexcept;
  void write_cluster(std::uint32_t place, std::span<const std::uint32_t> members);

  const BuildRequest& request_;
  const ClusterIndexOptions& options_;
  TokenRange tokens_;
  std::size_t head_;
  std::size_t row_dims_;
  std::vector<float> rows_;            // [tokens, row_dims]: keys, with estimates values beside
  std::vector<std::uint32_t> labels_;  // [tokens]
  std::size_t clusters_ = 0;
};

std::vector<float> Batch::keys_to_compare() const {
  const std::size_t dims = request_.shape.head_dim;
  std::vector<float> keys(tokens_.size() * dims);
  std::vector<double> mean(dims);
  std::size_t finite = 0;
  for (std::size_t i = 0; i < tokens_.size(); ++i) {
    std::copy_n(row(i), dims, &keys[i * dims]);
    if (!options_.centred || !all_finite({row(i), dims})) continue;
    ++finite;
    for (std::size_t k = 0; k < dims; ++k) mean[k] += double{row(i)[k]};
  }
  if (finite == 0) return keys;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    keys[i] -= static_cast<float>(mean[i % dims] / static_cast<double>(finite));
  }
  return keys;
}

Result<BuildReport> Batch::cluster(std::size_t room) {
  const std::size_t count = tokens_.size();
  const std::size_t dims = request_.shape.head_dim;
  rows_.resize(count * row_dims_);
  // A row is a key and a value side by side: what lies behind the key's dimensions is the value.
  kernels::host::read_keys({.shape = request_.shape,
                            .rows = request_.rows,
                            .tokens = tokens_,
                            .head = head_,
                            .dims = row_dims_},
                           rows_.data());
  const std::vector<float> keys = keys_to_compare();
  clusters_ = std::clamp<std::size_t>(count / options_.tokens_per_cluster, 1, room);
  std::vector<float> centroids(clusters_ * dims);
  std::vector<std::uint32_t> seeds(options_.strided_seeds ? clusters_ : 0);
  for (std::size_t c = 0; c < seeds.size(); ++c) {
    seeds[c] = static_cast<std::uint32_t>((2 * c + 1) * count / (2 * clusters_));
  }
  // A seed must be finite; where one is not, seeds are drawn among those that are.
  const bool finite = std::ranges::all_of(
      seeds, [&](std::uint32_t i) { return all_finite({&keys[i * dims], dims}); });
  if (!finite) seeds.clear();
  Serial alone;
  TERRACE_ASSIGN(const kernels::KmeansReport report,
                 kernels::host::kmeans(
                     {.rows = keys.data(), .row_count = count, .dims = dims},
                     {.clusters = clusters_,
                      .iterations = request_.iterations,
                      .metric = options_.metric,
                      .seed = Rng(request_.seed, {index(request_.layer), head_, tokens_.begin})(),
                      .initial_rows = seeds,
                      .clock = request_.clock,
                      .deadline = request_.deadline,
                      .cancelled = request_.cancelled,
                      .measures_inertia = false},
                     {.centroids = centroids.data(), .labels = labels_.data()}, alone));
  if (options_.members_max > 0) split_large(room);
  return BuildReport{.iterations = report.iterations};
}

void Batch::split_large(std::size_t room) {
  std::vector<std::size_t> sizes(clusters_);
  for (const std::uint32_t one : labels_) ++sizes[one];
  std::vector<std::uint32_t> current(clusters_);
  std::iota(current.begin(), current.end(), 0U);
  std::vector<std::size_t> taken(clusters_);
  // Members part in the order of their positions: neighbours tend to be wanted together.
  for (std::uint32_t& one : labels_) {
    const std::uint32_t original = one;
    if (taken[original] == options_.members_max && clusters_ < room) {
      current[original] = static_cast<std::uint32_t>(clusters_++);
      taken[original] = 0;
    }
    ++taken[original];
    one = current[original];
  }
}

void Batch::label(std::size_t i, std::uint32_t cluster) noexcept {
  const std::size_t at = tokens_.begin + i - request_.index.first_token;
  plane(at / options_.shape.chunk_tokens).labels[at % options_.shape.chunk_tokens] = cluster;
}

void Batch::join(std::uint32_t cluster) {
  for (std::size_t i = 0; i < tokens_.size(); ++i) label(i, cluster);
}

void Batch::write(std::span<const std::uint32_t> places) {
  std::vector<std::vector<std::uint32_t>> members(clusters_);
  for (std::uint32_t i = 0; i < labels_.size(); ++i) members[labels_[i]].push_back(i);
  std::size_t used = 0;
  for (const auto& one : members) {
    if (!one.empty()) write_cluster(places[used++], one);
  }
}

void Batch::write_cluster(std::uint32_t place, std::span<const std::uint32_t> members) {
  const Dtype dtype = request_.shape.dtype;
  const std::size_t dims = request_.shape.head_dim;
  const std::size_t slot = place % options_.shape.slots;
  const ClusterPlane target = plane(place / options_.shape.slots);
  std::vector<double> mean(row_dims_);
  std::size_t finite = 0;
  for (const std::uint32_t i : members) {
    label(i, place);
    if (!all_finite({row(i), row_dims_})) continue;
    ++finite;
    for (std::size_t k = 0; k < row_dims_; ++k) mean[k] += double{row(i)[k]};
  }
  std::byte* const stored =
      target.centroids + slot * kernels::centroid_bytes(request_.shape, options_.shape);
  double rounding = 0;
  for (std::size_t k = 0; k < row_dims_; ++k) {
    if (finite > 0) mean[k] /= static_cast<double>(finite);
    store_f32(stored, dtype, k, static_cast<float>(mean[k]));
    if (k < dims) rounding += std::pow(mean[k] - double{load_f32(stored, dtype, k)}, 2);
  }
  target.sizes[slot] = static_cast<std::uint32_t>(members.size());
  if (!options_.shape.estimates) return;
  double radius = 0;
  double sum = 0;
  for (const std::uint32_t i : members) {
    double square = 0;
    for (std::size_t k = 0; k < dims; ++k) {
      square += std::pow(double{row(i)[k]} - double{load_f32(stored, dtype, k)}, 2);
    }
    if (std::isfinite(square)) sum += square;
    radius =
        std::isfinite(square) ? std::max(radius, square) : std::numeric_limits<double>::infinity();
  }
  // Rounded up: they are promised to be large enough.
  const auto above = [](double square) {
    return std::nextafter(static_cast<float>(std::sqrt(square)),
                          std::numeric_limits<float>::infinity());
  };
  target.radius[slot] = above(radius);
  target.rounding[slot] = above(rounding);
  target.variance[slot] =
      static_cast<float>(sum / static_cast<double>(std::max<std::size_t>(finite, 1) * dims));
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
  return kernels::cluster_scratch_floats(shape, options_.shape, candidates);
}

std::size_t ClusterIndex::build_parts(const BuildRequest& request) const noexcept {
  return divide_up(request.tokens.size(), segment_tokens(request)) * request.shape.kv_heads;
}

Result<BuildReport> ClusterIndex::build_part(const BuildRequest& request, std::size_t part) const {
  const std::size_t segment = segment_tokens(request);
  const std::size_t begin = request.tokens.begin + part / request.shape.kv_heads * segment;
  return cluster_head(request, {begin, std::min(begin + segment, request.tokens.end)},
                      part % request.shape.kv_heads, /*fresh=*/true);
}

Result<Ticket> ClusterIndex::extend(const BuildRequest& request, Queue& queue,
                                    const Ops& /*host_ops*/) const {
  return queue.call(Phase::update, [this, request]() -> Result<std::size_t> {
    for (std::size_t head = 0; head < request.shape.kv_heads; ++head) {
      TERRACE_TRY(cluster_head(request, request.tokens, head, /*fresh=*/false));
    }
    return 0;
  });
}

Result<BuildReport> ClusterIndex::cluster_head(const BuildRequest& request, TokenRange tokens,
                                               std::size_t head, bool fresh) const {
  const ClusterShape& shape = options_.shape;
  const IndexView& index = request.index;
  const auto plane = [&](std::size_t chunk) {
    return kernels::cluster_plane(request.shape, shape, index.chunks[chunk], head);
  };
  const std::size_t first_chunk = (tokens.begin - index.first_token) / shape.chunk_tokens;
  const std::size_t last_chunk = (tokens.end - 1 - index.first_token) / shape.chunk_tokens;
  const std::size_t first_place = first_chunk * shape.slots;
  std::vector<bool> used((last_chunk + 1 - first_chunk) * shape.slots);
  // What was truncated leaves clusters without members: their places are free again.
  const std::size_t before = fresh ? 0 : tokens.begin - index.first_token;
  for (std::size_t token = 0; token < before; ++token) {
    const std::uint32_t label =
        plane(token / shape.chunk_tokens).labels[token % shape.chunk_tokens];
    if (label >= first_place && label - first_place < used.size()) used[label - first_place] = true;
  }
  std::vector<std::uint32_t> places;
  for (std::size_t i = 0; i < used.size(); ++i) {
    if (!used[i]) places.push_back(static_cast<std::uint32_t>(first_place + i));
  }
  Batch batch(request, options_, tokens, head);
  if (places.empty()) {
    // Possible after many short extensions of one chunk: the tokens join those before them.
    const std::size_t last = before - 1;
    batch.join(plane(last / shape.chunk_tokens).labels[last % shape.chunk_tokens]);
    return BuildReport{};
  }
  TERRACE_ASSIGN(const BuildReport report, batch.cluster(places.size()));
  batch.write(places);
  return report;
}

}  // namespace terrace::policies
