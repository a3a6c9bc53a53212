// Assignment runs over parts of rows, each against tiles of centroids, so that distances live in
// registers only. The update reads the rows in their order and adds each to the sum of its label;
// parts of rows have sums of their own, cut by the rows' number alone, so that the order of
// additions is the same whoever computes it.
#include "host/lloyd.hpp"

#include <array>
#include <bit>
#include <span>

#include "host/amx_search.hpp"
#include "host/bf16_search.hpp"
#include "host/isa_choice.hpp"
#include "host/kmeans_seeds.hpp"
#include "terrace/core/bytes.hpp"

namespace terrace::kernels::host {
namespace {

constexpr std::size_t part_rows = 1024;
constexpr std::size_t part_clusters = 64;
constexpr std::size_t summed_rows_min = 4096;  // that have sums of their own
constexpr std::size_t summed_parts_max = 16;
constexpr std::size_t rounding_rows_min = 4096;  // of fewer, iterations are cheap

}  // namespace

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
  stage_ = {parts_, &Lloyd::admit_part, &Lloyd::after_admission};
  return admitted_ && numbers_ && distances_ && members_ && slots_ && sums_ && tiles_ &&
         part_result_;
}

Lloyd::Rows Lloyd::rows_of(std::size_t part) const noexcept {
  return {part * part_rows, std::min(input_.row_count, (part + 1) * part_rows)};
}

bool Lloyd::do_piece() {
  if (done_) return true;
  (this->*stage_.part)(next_part_++);
  if (next_part_ == stage_.parts) end_stage();
  return done_;
}

void Lloyd::finish(Parallel& threads) {
  while (!done_) {
    threads.for_each(stage_.parts - next_part_,
                     [this](std::size_t part) { (this->*stage_.part)(next_part_ + part); });
    end_stage();
  }
}

void Lloyd::end_stage() {
  next_part_ = 0;
  (this->*stage_.then)();
}

Result<KmeansReport> Lloyd::report() const {
  TERRACE_TRY(status_);
  return report_;
}

void Lloyd::admit_part(std::size_t part) {
  const Rows rows = rows_of(part);
  for (std::size_t i = rows.begin; i < rows.end; ++i) {
    admitted_[i] = is_finite(row(i), input_.dims);
  }
}

void Lloyd::after_admission() {
  for (std::size_t i = 0; i < input_.row_count; ++i) {
    if (admitted_[i] != 0) numbers_[admitted_count_++] = static_cast<std::uint32_t>(i);
  }
  if (!std::ranges::all_of(options_.initial_rows,
                           [this](std::uint32_t i) { return admitted_[i] != 0; })) {
    status_ = fail(Errc::invalid_argument, "k-means: an initial row is not finite");
    done_ = true;
    return;
  }
  report_.converged = place_centroids();
  if (!report_.converged && options_.iterations > 0 && may_round()) {
    stage_ = {parts_, &Lloyd::round_part, &Lloyd::begin_assignment};
  } else {
    begin_assignment();
  }
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

bool Lloyd::may_round() {
  if (input_.row_count < rounding_rows_min) return false;
  const Search search = search_of(input_.dims);
  if (search == Search::f32) return false;
  const std::size_t row_elements = bf16_row_elements(input_.dims);
  const std::size_t whole_rows = align_up(input_.row_count, amx_rows);
  const std::size_t tiles = divide_up(options_.clusters, bf16_tile_centroids);
  bf16_rows_ = hwy::AllocateAligned<std::uint16_t>(whole_rows * row_elements);
  bf16_tiles_ = hwy::AllocateAligned<std::byte>(tiles * bf16_tile_bytes(input_.dims));
  if (!bf16_rows_ || !bf16_tiles_) return false;  // f32 needs neither
  std::fill(&bf16_rows_[input_.row_count * row_elements], &bf16_rows_[whole_rows * row_elements],
            std::uint16_t{0});
  search_ = search;
  return true;
}

void Lloyd::round_part(std::size_t part) {
  const Rows rows = rows_of(part);
  rows_to_bf16(row(rows.begin), rows.end - rows.begin, input_.dims,
               &bf16_rows_[rows.begin * bf16_row_elements(input_.dims)]);
}

void Lloyd::pack_tiles() noexcept {
  const std::size_t clusters = options_.clusters;
  const std::size_t dims = input_.dims;
  const bool rounds = search_ != Search::f32;
  const std::size_t size = rounds ? bf16_tile_centroids : tile_centroids;
  for (std::size_t c = 0; c < clusters; c += size) {
    const std::size_t count = std::min(size, clusters - c);
    if (rounds) {
      pack_bf16_tile(centroid(c), count, dims, options_.metric,
                     &bf16_tiles_[c / size * bf16_tile_bytes(dims)]);
    } else {
      pack_tile(centroid(c), count, dims, options_.metric, &tiles_[c / size * tile_floats(dims)]);
    }
  }
}

void Lloyd::begin_assignment() {
  pack_tiles();
  stage_ = {parts_, &Lloyd::assign_part, &Lloyd::after_assignment};
}

void Lloyd::assign_part(std::size_t part) {
  const Rows rows = rows_of(part);
  part_result_[part] = 0;
  for (std::size_t i = rows.begin; i < rows.end; i += search_rows_max) {
    if (assign_rows(i, std::min(rows.end, i + search_rows_max))) part_result_[part] = 1;
  }
}

void Lloyd::after_assignment() {
  const bool changed = std::any_of(part_result_.get(), part_result_.get() + parts_,
                                   [](double one) { return one != 0; });
  if (!ends_ && report_.iterations > 0 && !changed) {
    // Labels repeat when those of f32 do.
    if (stop_rounding()) return begin_assignment();
    report_.converged = true;
  }
  ends_ = ends_ || report_.converged || report_.iterations == options_.iterations || !may_go_on();
  if (!ends_) return begin_update();
  if (stop_rounding()) return begin_assignment();
  done_ = !options_.measures_inertia;
  stage_ = {parts_, &Lloyd::inertia_part, &Lloyd::after_inertia};
}

bool Lloyd::assign_rows(std::size_t begin, std::size_t end) noexcept {
  const std::size_t dims = input_.dims;
  NearestSearch search;
  search.rows = row(begin);
  search.row_count = end - begin;
  search.dims = dims;
  begin_search(search);
  if (search_ == Search::f32) {
    search_tiles(search, tiles_.get(), tile_count(options_.clusters), 0);
  } else {
    search_rounded(search, &bf16_rows_[begin * bf16_row_elements(dims)]);
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

void Lloyd::search_rounded(NearestSearch& search, const std::uint16_t* rows) const noexcept {
  const auto search_tile = search_ == Search::amx ? search_amx_tile : search_bf16_tile;
  for (std::size_t c = 0; c < options_.clusters; c += bf16_tile_centroids) {
    search_tile(search,
                {.rows = rows,
                 .data = &bf16_tiles_[c / bf16_tile_centroids * bf16_tile_bytes(search.dims)],
                 .count = std::min(bf16_tile_centroids, options_.clusters - c),
                 .first = static_cast<std::uint32_t>(c)});
  }
}

void Lloyd::begin_update() {
  const std::span members(members_.get(), options_.clusters);
  std::ranges::fill(members, 0U);
  for (std::size_t i = 0; i < input_.row_count; ++i) members[output_.labels[i]] += admitted_[i];
  if (std::ranges::find(members, 0U) == members.end()) return begin_sums();
  stage_ = {parts_, &Lloyd::measure_part, &Lloyd::after_measuring};
}

void Lloyd::measure_part(std::size_t part) {
  const Rows rows = rows_of(part);
  for (std::size_t i = rows.begin; i < rows.end; ++i) {
    if (admitted_[i] != 0) distances_[i] = distance(i);
  }
}

void Lloyd::after_measuring() {
  fill_empty_clusters();
  begin_sums();
}

void Lloyd::fill_empty_clusters() noexcept {
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

void Lloyd::begin_sums() { stage_ = {summed_parts_, &Lloyd::sum_part, &Lloyd::begin_means}; }

void Lloyd::sum_part(std::size_t part) {
  const std::size_t size = options_.clusters * input_.dims;
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
}

void Lloyd::begin_means() {
  const std::size_t parts = (options_.clusters + part_clusters - 1) / part_clusters;
  stage_ = {parts, &Lloyd::mean_part, &Lloyd::after_update};
}

void Lloyd::mean_part(std::size_t part) {
  const std::size_t end = std::min(options_.clusters, (part + 1) * part_clusters);
  for (std::size_t c = part * part_clusters; c < end; ++c) write_mean(c);
}

void Lloyd::after_update() {
  ++report_.iterations;
  if (report_.iterations == options_.iterations) stop_rounding();
  begin_assignment();
}

void Lloyd::inertia_part(std::size_t part) {
  const Rows rows = rows_of(part);
  double sum = 0;
  for (std::size_t i = rows.begin; i < rows.end; ++i) {
    if (admitted_[i] != 0) sum += static_cast<double>(distance(i));
  }
  part_result_[part] = sum;
}

void Lloyd::after_inertia() {
  for (std::size_t part = 0; part < parts_; ++part) report_.inertia += part_result_[part];
  done_ = true;
}

}  // namespace terrace::kernels::host
