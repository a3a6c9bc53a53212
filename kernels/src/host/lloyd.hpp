// Lloyd's iterations over the rows of one problem; see terrace/kernels/kmeans.hpp.
#pragma once

#include <hwy/aligned_allocator.h>

#include <algorithm>
#include <array>
#include <optional>

#include "host/centroid_search.hpp"
#include "host/centroid_tiles.hpp"
#include "terrace/kernels/kmeans.hpp"

namespace terrace::kernels::host {

/// All of it is a row of stages, each of parts in runs that share nothing: threads take the runs of
/// a stage at once, and work in pieces takes one part at a time.
class Lloyd {
 public:
  Lloyd(const KmeansRows& input, const KmeansOptions& options, const KmeansOutput& output) noexcept
      : input_(input), options_(options), output_(output) {}

  /// Returns false when memory is short. The first thing to call.
  [[nodiscard]] bool allocate();

  bool do_piece();
  void finish(Parallel& threads);

  [[nodiscard]] Result<KmeansReport> report() const;

 private:
  template <typename T>
  using Buffer = hwy::AlignedFreeUniquePtr<T[]>;

  static constexpr std::size_t rows_of_a_sample = 16;
  static constexpr std::size_t sampled_rows = 8 * rows_of_a_sample;
  using SampledLabels = std::array<std::uint32_t, sampled_rows>;

  /// Parts, then what follows from all of them.
  struct Stage {
    std::size_t parts;
    void (Lloyd::*part)(std::size_t);
    void (Lloyd::*then)();
    std::size_t run = 1;  ///< parts that come one after the other
  };
  struct Rows {
    std::size_t begin;
    std::size_t end;
  };

  void finish_run(std::size_t run);
  void end_stage();

  // Stages, in their order; what follows one chooses the next.
  void admit_part(std::size_t part);
  void after_admission();
  void begin_assignment();
  void assign_part(std::size_t part);
  void after_assignment();
  void begin_update();
  void measure_part(std::size_t part);
  void after_measuring();
  void sum_part(std::size_t part);
  void begin_means();
  void mean_part(std::size_t part);
  void after_update();
  void inertia_part(std::size_t part);
  void after_inertia();

  /// Writes the first centroids. Returns true when they are all the distinct rows there are.
  bool place_centroids();

  /// Whether labels of some rows by rounded numbers are nearly as good as exact ones. Leaves other
  /// centroids packed.
  [[nodiscard]] bool rounding_is_harmless() noexcept;
  [[nodiscard]] SampledLabels label_samples(Exactness exactness) noexcept;
  [[nodiscard]] std::size_t sampled_row(std::size_t i) const noexcept;

  void stop_rounding() noexcept { exactness_ = Exactness::f32; }

  /// The last means are exact.
  [[nodiscard]] bool sums_rounded_rows() const noexcept {
    return exactness_ == Exactness::rounded && report_.iterations + 1 != options_.iterations;
  }

  [[nodiscard]] bool may_go_on() const noexcept {
    if (options_.cancelled != nullptr && options_.cancelled->load(std::memory_order_acquire)) {
      return false;
    }
    return options_.clock == nullptr || options_.clock->now() < options_.deadline;
  }
  [[nodiscard]] Rows rows_of(std::size_t part) const noexcept;
  [[nodiscard]] const float* row(std::size_t i) const noexcept {
    return input_.rows + i * input_.dims;
  }
  [[nodiscard]] float* centroid(std::size_t c) const noexcept {
    return output_.centroids + c * input_.dims;
  }
  /// Returns the distance of a row to the centroid of its label.
  [[nodiscard]] float distance(std::size_t i) const noexcept {
    return exact_distance(row(i), centroid(output_.labels[i]), input_.dims, options_.metric);
  }
  void copy_row_to_centroid(std::size_t c, std::size_t i) noexcept {
    std::copy_n(row(i), input_.dims, centroid(c));
  }
  [[nodiscard]] bool is_last_assignment() const noexcept {
    return ends_ || report_.iterations == options_.iterations;
  }
  /// Sets the sums and members of a run to zero before its first part.
  void begin_run(std::size_t part) noexcept;
  /// Adds rows to the sums of their run.
  void add_to_sums(Rows rows, std::size_t run) noexcept;
  void fill_empty_clusters() noexcept;
  /// Returns whether a label is new.
  bool assign_rows(Rows rows, std::size_t run) noexcept;
  void write_mean(std::size_t c) noexcept;

  KmeansRows input_;
  KmeansOptions options_;
  KmeansOutput output_;
  std::size_t parts_ = 0;
  std::size_t run_parts_ = 0;  // of rows, summed together
  std::size_t runs_ = 0;
  Stage stage_{};
  std::size_t next_part_ = 0;
  bool done_ = false;
  bool ends_ = false;  // no iteration follows
  Status status_;
  KmeansReport report_;
  std::size_t admitted_count_ = 0;
  Buffer<std::uint8_t> admitted_;  // [row_count]: takes part
  Buffer<std::uint32_t> numbers_;  // [admitted_count]: of admitted rows, in any order
  Buffer<float> distances_;        // [row_count]: to the own centroid, when clusters are empty
  Buffer<std::uint32_t> members_;  // [clusters + 1]: how many each has
  Buffer<std::uint32_t> slots_;    // for finding distinct rows
  Buffer<float> sums_;             // [runs, clusters, dims]
  Buffer<std::uint32_t> counts_;   // [runs, clusters]: members there
  std::optional<CentroidSearch> search_;
  Exactness exactness_ = Exactness::f32;
  Buffer<double> part_result_;  // [parts]
};

}  // namespace terrace::kernels::host
