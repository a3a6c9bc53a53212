// Lloyd's k-means: see terrace/kernels/kmeans.hpp.
//
// Assignment runs over parts of rows, each against tiles of centroids, so that distances live in
// registers only. The update reads the rows in their order and adds each to the sum of its label;
// parts of rows have sums of their own, cut by the rows' number alone, so that the order of
// additions is the same whoever computes it.
#include "terrace/kernels/kmeans.hpp"

#include <hwy/aligned_allocator.h>

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <utility>

#include "host/bf16_search.hpp"
#include "host/centroid_tiles.hpp"
#include "host/isa_choice.hpp"
#include "host/kmeans_seeds.hpp"

namespace terrace::kernels::host {
namespace {

constexpr std::size_t part_rows = 1024;
constexpr std::size_t part_clusters = 8;
constexpr std::size_t summed_rows_min = 4096;  // that have sums of their own
constexpr std::size_t summed_parts_max = 16;
constexpr std::size_t rounding_rows_min = 4096;  // of fewer, iterations are cheap

template <typename T>
using Buffer = hwy::AlignedFreeUniquePtr<T[]>;

class Lloyd {
 public:
  Lloyd(const KmeansRows& input, const KmeansOptions& options, const KmeansOutput& output,
        Parallel& threads) noexcept
      : input_(input), options_(options), output_(output), threads_(threads) {}

  /// Returns false when memory is short.
  bool allocate();

  /// Finds the rows that take part. Returns false if a given initial row does not.
  bool admit_rows();

  /// Writes the first centroids. Returns true when they are all the distinct rows there are.
  bool place_centroids();

  /// Makes assign() round, where that is faster and worth it.
  void round_searches();

  /// Makes assign() exact in f32. Returns whether it was not.
  bool stop_rounding() noexcept { return std::exchange(rounds_, false); }

  /// Labels all rows; returns whether any label changed.
  bool assign();

  /// Makes centroids the means of their members.
  void update();

  [[nodiscard]] bool may_go_on() const noexcept {
    if (options_.cancelled != nullptr && options_.cancelled->load(std::memory_order_acquire)) {
      return false;
    }
    return options_.clock == nullptr || options_.clock->now() < options_.deadline;
  }

  /// Returns the sum of exact distances.
  double inertia();

 private:
  [[nodiscard]] const float* row(std::size_t i) const noexcept {
    return input_.rows + i * input_.dims;
  }
  [[nodiscard]] float* centroid(std::size_t c) const noexcept {
    return output_.centroids + c * input_.dims;
  }
  void copy_row_to_centroid(std::size_t c, std::size_t i) noexcept {
    std::copy_n(row(i), input_.dims, centroid(c));
  }
  template <typename PerRow>
  void for_each_part(PerRow part);
  void pack_tiles() noexcept;
  bool assign_rows(std::size_t begin, std::size_t end) noexcept;
  void count_members() noexcept;
  void fill_empty_clusters();
  void write_mean(std::size_t c) noexcept;

  const KmeansRows& input_;
  const KmeansOptions& options_;
  const KmeansOutput& output_;
  Parallel& threads_;
  std::size_t parts_ = 0;
  std::size_t summed_parts_ = 0;
  std::size_t admitted_count_ = 0;
  Buffer<std::uint8_t> admitted_;  // [row_count]: finite
  Buffer<std::uint32_t> numbers_;  // [admitted_count]: of admitted rows, in any order
  Buffer<float> distances_;        // [row_count]: to the own centroid, when clusters are empty
  Buffer<std::uint32_t> members_;  // [clusters + 1]: how many each has
  Buffer<std::uint32_t> slots_;    // for finding distinct rows
  Buffer<float> sums_;             // [summed_parts, clusters, dims]
  Buffer<float> tiles_;
  bool rounds_ = false;  // searches are of what follows
  Buffer<std::uint16_t> bf16_rows_;
  Buffer<std::byte> bf16_tiles_;
  Buffer<double> part_result_;  // [parts]
};

bool Lloyd::allocate() {
  const std::size_t rows = input_.row_count;
  const std::size_t clusters = options_.clusters;
  const std::size_t tiles = tile_count(clusters);
  summed_parts_ = std::clamp(rows / summed_rows_min, std::size_t{1}, summed_parts_max);
  parts_ = (rows + part_rows - 1) / part_rows;
  admitted_ = hwy::AllocateAligned<std::uint8_t>(rows);
  numbers_ = hwy::AllocateAligned<std::uint32_t>(rows);
  distances_ = hwy::AllocateAligned<float>(rows);
  members_ = hwy::AllocateAligned<std::uint32_t>(clusters + 1);
  sums_ = hwy::AllocateAligned<float>(summed_parts_ * clusters * input_.dims);
  slots_ = hwy::AllocateAligned<std::uint32_t>(2 * std::bit_ceil(clusters + 1));
  tiles_ = hwy::AllocateAligned<float>(tiles * tile_floats(input_.dims));
  part_result_ = hwy::AllocateAligned<double>(parts_);
  return admitted_ && numbers_ && distances_ && members_ && slots_ && sums_ && tiles_ &&
         part_result_;
}

template <typename PerPart>
void Lloyd::for_each_part(PerPart part) {
  threads_.for_each(parts_, [&](std::size_t p) {
    part(p, p * part_rows, std::min(input_.row_count, (p + 1) * part_rows));
  });
}

bool Lloyd::admit_rows() {
  for_each_part([this](std::size_t, std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) admitted_[i] = is_finite(row(i), input_.dims);
  });
  for (std::size_t i = 0; i < input_.row_count; ++i) {
    if (admitted_[i] != 0) numbers_[admitted_count_++] = static_cast<std::uint32_t>(i);
  }
  return std::ranges::all_of(options_.initial_rows,
                             [this](std::uint32_t i) { return admitted_[i] != 0; });
}

bool Lloyd::place_centroids() {
  const std::size_t clusters = options_.clusters;
  std::fill_n(output_.labels, input_.row_count, 0U);
  const std::span<std::uint32_t> candidates(numbers_.get(), admitted_count_);
  const std::span<std::uint32_t> distinct(members_.get(), clusters + 1);
  const std::span<std::uint32_t> slots(slots_.get(), 2 * std::bit_ceil(clusters + 1));
  const std::size_t found = find_distinct_rows(input_, candidates, distinct, slots);
  if (found <= clusters) {
    std::fill_n(output_.centroids, clusters * input_.dims, 0.0F);
    for (std::size_t c = 0; found > 0 && c < clusters; ++c) {
      copy_row_to_centroid(c, distinct[c < found ? c : 0]);
    }
    return true;
  }
  std::span<const std::uint32_t> chosen = options_.initial_rows;
  if (chosen.empty()) {
    draw_rows(candidates, clusters, options_.seed);
    chosen = candidates;
  }
  for (std::size_t c = 0; c < clusters; ++c) copy_row_to_centroid(c, chosen[c]);
  return false;
}

void Lloyd::round_searches() {
  if (input_.row_count < rounding_rows_min || !searches_in_bf16()) return;
  const std::size_t elements = bf16_row_elements(input_.dims);
  const std::size_t tiles = (options_.clusters + bf16_tile_centroids - 1) / bf16_tile_centroids;
  bf16_rows_ = hwy::AllocateAligned<std::uint16_t>(input_.row_count * elements);
  bf16_tiles_ = hwy::AllocateAligned<std::byte>(tiles * bf16_tile_bytes(input_.dims));
  if (!bf16_rows_ || !bf16_tiles_) return;  // f32 needs neither
  for_each_part([&](std::size_t, std::size_t begin, std::size_t end) {
    rows_to_bf16(row(begin), end - begin, input_.dims, &bf16_rows_[begin * elements]);
  });
  rounds_ = true;
}

void Lloyd::pack_tiles() noexcept {
  const std::size_t clusters = options_.clusters;
  const std::size_t dims = input_.dims;
  const std::size_t size = rounds_ ? bf16_tile_centroids : tile_centroids;
  for (std::size_t c = 0; c < clusters; c += size) {
    const std::size_t count = std::min(size, clusters - c);
    if (rounds_) {
      pack_bf16_tile(centroid(c), count, dims, options_.metric,
                     &bf16_tiles_[c / size * bf16_tile_bytes(dims)]);
    } else {
      pack_tile(centroid(c), count, dims, options_.metric, &tiles_[c / size * tile_floats(dims)]);
    }
  }
}

bool Lloyd::assign() {
  pack_tiles();
  for_each_part([this](std::size_t part, std::size_t begin, std::size_t end) {
    part_result_[part] = 0;
    for (std::size_t i = begin; i < end; i += search_rows_max) {
      if (assign_rows(i, std::min(end, i + search_rows_max))) part_result_[part] = 1;
    }
  });
  return std::any_of(part_result_.get(), part_result_.get() + parts_,
                     [](double changed) { return changed != 0; });
}

bool Lloyd::assign_rows(std::size_t begin, std::size_t end) noexcept {
  const std::size_t dims = input_.dims;
  NearestSearch search;
  search.rows = row(begin);
  search.row_count = end - begin;
  search.dims = dims;
  begin_search(search);
  if (rounds_) {
    const std::uint16_t* const rows = &bf16_rows_[begin * bf16_row_elements(dims)];
    for (std::size_t c = 0; c < options_.clusters; c += bf16_tile_centroids) {
      search_bf16_tile(search, rows, &bf16_tiles_[c / bf16_tile_centroids * bf16_tile_bytes(dims)],
                       std::min(bf16_tile_centroids, options_.clusters - c),
                       static_cast<std::uint32_t>(c));
    }
  } else {
    search_tiles(search, tiles_.get(), tile_count(options_.clusters), 0);
  }
  std::array<std::uint32_t, search_rows_max> labels;
  end_search(search, labels.data());
  bool changed = false;
  for (std::size_t i = begin; i < end; ++i) {
    const std::uint32_t label = admitted_[i] != 0 ? labels[i - begin] : 0;
    changed |= label != output_.labels[i];
    output_.labels[i] = label;
  }
  return changed;
}

void Lloyd::count_members() noexcept {
  std::fill_n(members_.get(), options_.clusters, 0U);
  for (std::size_t i = 0; i < input_.row_count; ++i) members_[output_.labels[i]] += admitted_[i];
}

void Lloyd::fill_empty_clusters() {
  for_each_part([this](std::size_t, std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) {
      if (admitted_[i] == 0) continue;
      distances_[i] =
          exact_distance(row(i), centroid(output_.labels[i]), input_.dims, options_.metric);
    }
  });
  // A heap with the farthest row, of equals the lowest, on top: few of the rows are ever taken out.
  const auto nearer = [this](std::uint32_t a, std::uint32_t b) {
    return distances_[a] != distances_[b] ? distances_[a] < distances_[b] : a > b;
  };
  std::span<std::uint32_t> rows(numbers_.get(), admitted_count_);
  std::ranges::make_heap(rows, nearer);
  for (std::size_t c = 0; c < options_.clusters; ++c) {
    while (members_[c] == 0 && !rows.empty()) {
      std::ranges::pop_heap(rows, nearer);
      const std::uint32_t farthest = rows.back();
      rows = rows.first(rows.size() - 1);
      std::uint32_t& label = output_.labels[farthest];
      // A row that is its own centroid would not lower the inertia, nor would any after it.
      if (!(distances_[farthest] > 0)) return;
      if (members_[label] == 1) continue;
      --members_[label];
      label = static_cast<std::uint32_t>(c);
      members_[c] = 1;
    }
  }
}

void Lloyd::write_mean(std::size_t c) noexcept {
  if (members_[c] == 0) return;  // nothing is left to give it: it keeps its centroid
  const std::size_t dims = input_.dims;
  const float scale = 1.0F / static_cast<float>(members_[c]);
  for (std::size_t i = 0; i < dims; ++i) {
    float sum = 0;
    for (std::size_t part = 0; part < summed_parts_; ++part) {
      sum += sums_[(part * options_.clusters + c) * dims + i];
    }
    centroid(c)[i] = sum * scale;
  }
}

void Lloyd::update() {
  const std::size_t clusters = options_.clusters;
  const std::size_t size = clusters * input_.dims;
  count_members();
  if (std::find(members_.get(), members_.get() + clusters, 0U) != members_.get() + clusters) {
    fill_empty_clusters();
  }
  threads_.for_each(summed_parts_, [&](std::size_t part) {
    const std::size_t begin = input_.row_count * part / summed_parts_;
    const std::size_t end = input_.row_count * (part + 1) / summed_parts_;
    float* const sums = &sums_[part * size];
    std::fill_n(sums, size, 0.0F);
    add_rows({.rows = row(begin),
              .row_count = end - begin,
              .dims = input_.dims,
              .labels = &output_.labels[begin],
              .admitted = &admitted_[begin]},
             sums);
  });
  threads_.for_each((clusters + part_clusters - 1) / part_clusters, [&](std::size_t part) {
    const std::size_t end = std::min(clusters, (part + 1) * part_clusters);
    for (std::size_t c = part * part_clusters; c < end; ++c) write_mean(c);
  });
}

double Lloyd::inertia() {
  for_each_part([this](std::size_t part, std::size_t begin, std::size_t end) {
    double sum = 0;
    for (std::size_t i = begin; i < end; ++i) {
      if (admitted_[i] == 0) continue;
      sum += static_cast<double>(
          exact_distance(row(i), centroid(output_.labels[i]), input_.dims, options_.metric));
    }
    part_result_[part] = sum;
  });
  double sum = 0;
  for (std::size_t part = 0; part < parts_; ++part) sum += part_result_[part];
  return sum;
}

Status check(const KmeansRows& input, const KmeansOptions& options, const KmeansOutput& output) {
  constexpr std::size_t limit = std::size_t{1} << 32;
  const auto is_within = [](std::size_t size) { return size > 0 && size < limit; };
  if (!is_within(input.row_count) || !is_within(input.dims) || !is_within(options.clusters)) {
    return fail(Errc::invalid_argument, "k-means of {} rows of {} dims into {} clusters",
                input.row_count, input.dims, options.clusters);
  }
  if (input.rows == nullptr || output.centroids == nullptr || output.labels == nullptr) {
    return fail(Errc::invalid_argument, "k-means: rows, centroids and labels must be given");
  }
  const auto out_of_range = [&input](std::uint32_t i) { return i >= input.row_count; };
  const auto& initial = options.initial_rows;
  if (!initial.empty() &&
      (initial.size() != options.clusters || std::ranges::any_of(initial, out_of_range))) {
    return fail(Errc::invalid_argument, "k-means: {} initial rows do not name {} of {} rows",
                initial.size(), options.clusters, input.row_count);
  }
  return {};
}

}  // namespace

Result<KmeansReport> kmeans(const KmeansRows& input, const KmeansOptions& options,
                            const KmeansOutput& output, Parallel& threads) {
  TERRACE_TRY(check(input, options, output));
  Lloyd lloyd(input, options, output, threads);
  if (!lloyd.allocate()) {
    return fail(Errc::out_of_memory, "k-means of {} rows: no memory to work in", input.row_count);
  }
  if (!lloyd.admit_rows()) {
    return fail(Errc::invalid_argument, "k-means: an initial row is not finite");
  }
  KmeansReport report;
  report.converged = lloyd.place_centroids();
  if (!report.converged && options.iterations > 0) lloyd.round_searches();
  lloyd.assign();
  while (!report.converged && report.iterations < options.iterations && lloyd.may_go_on()) {
    lloyd.update();
    ++report.iterations;
    if (report.iterations == options.iterations) lloyd.stop_rounding();
    bool changed = lloyd.assign();
    // Labels repeat when those of f32 do.
    if (!changed && lloyd.stop_rounding()) changed = lloyd.assign();
    report.converged = !changed;
  }
  if (lloyd.stop_rounding()) lloyd.assign();
  if (options.measures_inertia) report.inertia = lloyd.inertia();
  return report;
}

}  // namespace terrace::kernels::host
