// Assignment runs over blocks of rows, each against packed centroids, so that distances live in
// registers only, and adds the rows of a block to the sums of their labels while they are in the
// cache. Runs of rows have sums of their own, cut by the rows' number alone, so that the order of
// additions is the same on any number of threads.
#include "host/lloyd.hpp"

#include <array>
#include <bit>
#include <span>

#include "host/kmeans_seeds.hpp"
#include "terrace/core/bytes.hpp"

namespace terrace::kernels::host {
namespace {

constexpr std::size_t part_rows = 1024;
constexpr std::size_t rows_in_cache = 32;  // the first one keeps between two looks at them
constexpr std::size_t part_clusters = 64;
constexpr std::size_t run_parts_min = 4;  // that have sums of their own
constexpr std::size_t runs_max = 16;
constexpr std::size_t rounding_rows_min = 512;  // of fewer, iterations are cheap
constexpr double rounding_excess_max = 1e-3;    // of inertia, by labels that are not the nearest

}  // namespace

bool Lloyd::allocate() {
  const std::size_t rows = input_.row_count;
  const std::size_t clusters = options_.clusters;
  parts_ = divide_up(rows, part_rows);
  run_parts_ = std::max(run_parts_min, divide_up(parts_, runs_max));
  runs_ = divide_up(parts_, run_parts_);
  admitted_ = hwy::AllocateAligned<std::uint8_t>(rows);
  numbers_ = hwy::AllocateAligned<std::uint32_t>(rows);
  distances_ = hwy::AllocateAligned<float>(rows);
  members_ = hwy::AllocateAligned<std::uint32_t>(clusters + 1);
  sums_ = hwy::AllocateAligned<float>(runs_ * clusters * input_.dims);
  counts_ = hwy::AllocateAligned<std::uint32_t>(runs_ * clusters);
  slots_ = hwy::AllocateAligned<std::uint32_t>(2 * std::bit_ceil(clusters + 1));
  part_result_ = hwy::AllocateAligned<double>(parts_);
  search_.emplace(CentroidSearchOptions{
      .rows = input_,
      .centroids = clusters,
      .metric = options_.metric,
      .by = rows < rounding_rows_min ? Search::f32 : search_in_use(),
      .may_round = options_.iterations > 0,
      .typical = options_.initial_rows,
      .callers = runs_,
  });
  stage_ = {parts_, &Lloyd::admit_part, &Lloyd::after_admission};
  return admitted_ && numbers_ && distances_ && members_ && sums_ && counts_ && slots_ &&
         part_result_ && search_->allocate();
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
    const std::size_t first = next_part_ / stage_.run;
    threads.for_each(divide_up(stage_.parts, stage_.run) - first,
                     [this, first](std::size_t run) { finish_run(first + run); });
    end_stage();
  }
}

void Lloyd::finish_run(std::size_t run) {
  const std::size_t end = std::min(stage_.parts, (run + 1) * stage_.run);
  for (std::size_t part = std::max(next_part_, run * stage_.run); part < end; ++part) {
    (this->*stage_.part)(part);
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
  for (std::size_t begin = rows.begin; begin < rows.end; begin += rows_in_cache) {
    const std::size_t end = std::min(rows.end, begin + rows_in_cache);
    find_clustered(row(begin), end - begin, input_.dims, &admitted_[begin]);
    if (search_->rounds()) search_->round_rows(begin, end);
  }
}

void Lloyd::after_admission() {
  for (std::size_t i = 0; i < input_.row_count; ++i) {
    if (admitted_[i] != 0) numbers_[admitted_count_++] = static_cast<std::uint32_t>(i);
  }
  if (!std::ranges::all_of(options_.initial_rows,
                           [this](std::uint32_t i) { return admitted_[i] != 0; })) {
    status_ = fail(Errc::invalid_argument,
                   "k-means: an initial row has a NaN or an element of 2^56 or more");
    done_ = true;
    return;
  }
  report_.converged = place_centroids();
  ends_ = report_.converged || !may_go_on();
  if (!is_last_assignment() && search_->rounds() && rounding_is_harmless()) {
    exactness_ = Exactness::rounded;
  }
  begin_assignment();
}

bool Lloyd::rounding_is_harmless() noexcept {
  const SampledLabels exact = label_samples(Exactness::f32);
  const SampledLabels rounded = label_samples(Exactness::rounded);
  double inertia = 0;
  double excess = 0;
  for (std::size_t i = 0; i < exact.size(); ++i) {
    const std::size_t r = sampled_row(i);
    if (admitted_[r] == 0) continue;
    const auto to = [&](std::uint32_t label) {
      return double{exact_distance(row(r), centroid(label), input_.dims, options_.metric)};
    };
    inertia += to(exact[i]);
    if (rounded[i] != exact[i]) excess += to(rounded[i]) - to(exact[i]);
  }
  return excess <= rounding_excess_max * inertia;
}

Lloyd::SampledLabels Lloyd::label_samples(Exactness exactness) noexcept {
  search_->pack_centroids(output_.centroids, exactness);
  SampledLabels labels;
  for (std::size_t i = 0; i < labels.size(); i += rows_of_a_sample) {
    const std::size_t begin = sampled_row(i);
    search_->find(begin, begin + rows_of_a_sample, 0, &labels[i]);
  }
  return labels;
}

std::size_t Lloyd::sampled_row(std::size_t i) const noexcept {
  const std::size_t samples = sampled_rows / rows_of_a_sample;
  const std::size_t sample = i / rows_of_a_sample;
  const std::size_t begin = (input_.row_count - rows_of_a_sample) * sample / (samples - 1);
  return begin / rows_of_a_sample * rows_of_a_sample + i % rows_of_a_sample;
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

void Lloyd::begin_assignment() {
  search_->pack_centroids(output_.centroids, exactness_);
  stage_ = {parts_, &Lloyd::assign_part, &Lloyd::after_assignment, run_parts_};
}

void Lloyd::assign_part(std::size_t part) {
  const Rows rows = rows_of(part);
  const std::size_t run = part / run_parts_;
  begin_run(part);
  bool changed = false;
  for (std::size_t begin = rows.begin; begin < rows.end; begin += search_rows_max) {
    const Rows block{begin, std::min(rows.end, begin + search_rows_max)};
    changed |= assign_rows(block, run);
    if (!is_last_assignment()) add_to_sums(block, run);
  }
  part_result_[part] = changed ? 1 : 0;
}

void Lloyd::begin_run(std::size_t part) noexcept {
  if (part % run_parts_ != 0) return;
  const std::size_t first = part / run_parts_ * options_.clusters;
  std::fill_n(&counts_[first], options_.clusters, 0U);
  std::fill_n(&sums_[first * input_.dims], options_.clusters * input_.dims, 0.0F);
}

void Lloyd::after_assignment() {
  const bool changed = std::any_of(part_result_.get(), part_result_.get() + parts_,
                                   [](double one) { return one != 0; });
  const bool repeats = !ends_ && report_.iterations > 0 && !changed;
  report_.converged |= repeats && exactness_ == Exactness::f32;
  ends_ = report_.converged || is_last_assignment();
  const bool cut_short = !ends_ && !may_go_on();
  if (cut_short && exactness_ == Exactness::rounded) options_.iterations = report_.iterations + 1;
  if (cut_short && exactness_ == Exactness::f32) ends_ = true;
  if (ends_) {
    done_ = !options_.measures_inertia;
    stage_ = {parts_, &Lloyd::inertia_part, &Lloyd::after_inertia};
  } else if (repeats || cut_short) {
    stop_rounding();
    stage_ = {parts_, &Lloyd::sum_part, &Lloyd::begin_update, run_parts_};
  } else {
    begin_update();
  }
}

bool Lloyd::assign_rows(Rows rows, std::size_t run) noexcept {
  std::array<std::uint32_t, search_rows_max> found;
  search_->find(rows.begin, rows.end, run, found.data());
  const auto labels = std::span(found).first(rows.end - rows.begin);
  if (admitted_count_ < input_.row_count) {
    for (std::size_t i = 0; i < labels.size(); ++i) {
      if (admitted_[rows.begin + i] == 0) labels[i] = 0;
    }
  }
  std::uint32_t* const known = output_.labels + rows.begin;
  const bool changed = !std::equal(labels.begin(), labels.end(), known);
  std::ranges::copy(labels, known);
  return changed;
}

void Lloyd::add_to_sums(Rows rows, std::size_t run) noexcept {
  const std::size_t first = run * options_.clusters;
  const RowSums target{.sums = &sums_[first * input_.dims], .counts = &counts_[first]};
  LabelledRows labelled{.rows = row(rows.begin),
                        .row_count = rows.end - rows.begin,
                        .row_elements = input_.dims,
                        .dims = input_.dims,
                        .labels = &output_.labels[rows.begin],
                        .admitted = &admitted_[rows.begin]};
  if (!sums_rounded_rows()) return add_f32_rows(labelled, target);
  labelled.rows = search_->rounded_row(rows.begin);
  labelled.row_elements = search_->rounded_elements();
  add_bf16_rows(labelled, target);
}

void Lloyd::begin_update() {
  const std::span members(members_.get(), options_.clusters);
  for (std::size_t c = 0; c < members.size(); ++c) {
    members[c] = 0;
    for (std::size_t run = 0; run < runs_; ++run) members[c] += counts_[run * members.size() + c];
  }
  if (std::ranges::find(members, 0U) == members.end()) return begin_means();
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
  stage_ = {parts_, &Lloyd::sum_part, &Lloyd::begin_means, run_parts_};
}

/// Sums anew, because labels changed since, or sums were of rounded rows.
void Lloyd::sum_part(std::size_t part) {
  begin_run(part);
  add_to_sums(rows_of(part), part / run_parts_);
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
  float* const mean = centroid(c);
  std::fill_n(mean, dims, 0.0F);
  for (std::size_t run = 0; run < runs_; ++run) {
    const float* const sums = &sums_[(run * options_.clusters + c) * dims];
    for (std::size_t i = 0; i < dims; ++i) mean[i] += sums[i];
  }
  for (std::size_t i = 0; i < dims; ++i) mean[i] *= scale;
  if (!sums_rounded_rows()) return;
  for (std::size_t i = 0; i < dims; ++i) mean[i] += search_->origin()[i];
}

void Lloyd::begin_means() {
  const std::size_t parts = divide_up(options_.clusters, part_clusters);
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
