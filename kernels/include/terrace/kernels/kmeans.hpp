// Lloyd's k-means over f32 rows, the same bits on any number of threads.
//
//   std::vector<float> keys(n * dims), centroids(64 * dims);
//   host::read_keys(slice, keys.data());
//   auto report = host::kmeans({.rows = keys.data(), .row_count = n, .dims = dims},
//                              {.clusters = 64, .iterations = 10, .seed = 7},
//                              {.centroids = centroids.data(), .labels = labels.data()}, threads);
//
// To cluster many small problems at once make each a part of a Parallel and give it a Serial.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>

#include "terrace/core/clock.hpp"
#include "terrace/core/parallel.hpp"
#include "terrace/core/result.hpp"

namespace terrace::kernels {

/// The measure that rows are compared by. Centroids are plain means of their members under either.
enum class Metric : std::uint8_t { l2, cosine };

/// Rows with a NaN, or an element as large as this or larger, are left out: their distances might
/// be NaN or infinite. Distances of rows of up to 4,096 elements below it are finite.
inline constexpr float clustered_below = 0x1p56F;

struct KmeansRows {
  const float* rows = nullptr;  ///< [row_count, dims]
  std::size_t row_count = 0;
  std::size_t dims = 0;
};

struct KmeansOptions {
  std::size_t clusters = 0;
  std::size_t iterations = 0;  ///< at most; an iteration is an update and an assignment
  Metric metric = Metric::l2;
  std::uint64_t seed = 0;                         ///< draws the initial rows
  std::span<const std::uint32_t> initial_rows{};  ///< [clusters]; given, nothing is drawn
  const Clock* clock = nullptr;                   ///< needed for a deadline only
  TimePoint deadline = TimePoint::max();          ///< no new iteration starts after it
  const std::atomic<bool>* cancelled = nullptr;   ///< looked at between iterations
  bool measures_inertia = true;                   ///< takes about half as long as an assignment
};

struct KmeansOutput {
  float* centroids = nullptr;       ///< [clusters, dims]
  std::uint32_t* labels = nullptr;  ///< [row_count]
};

struct KmeansReport {
  std::size_t iterations = 0;  ///< done
  bool converged = false;      ///< labels repeated
  double inertia = 0;          ///< sum over rows that take part of |x - c|^2, or of 1 - cos(x, c);
                               ///< 0 unless measured
};

namespace host {

/// Clusters rows; labels are the nearest of the centroids returned, ties to the lower one.
///
/// 1. Rows not `clustered_below` get label 0 and take no part.
/// 2. If there are no more distinct rows than clusters, the distinct rows in order of appearance
///    are the centroids, and the remaining centroids repeat the first, so that no row is nearest to
///    them (decision 0058).
/// 3. Otherwise initial centroids are rows drawn without replacement.
/// 4. Each iteration makes centroids the means of their members and assigns anew. A cluster without
///    members first takes over the row farthest from its centroid (ties to the lower row) whose
///    cluster has other members.
/// 5. Clustering ends at `iterations`, when labels repeat, at the deadline, or when cancelled; the
///    result is whole in each case.
///
/// Iterations before the last may see rows rounded to bf16, as distances from the middle of some
/// rows: if this is faster, and raises the inertia of a sample by a thousandth at most. The last
/// means, and the means after labels have repeated, are of unrounded rows. A clustering that ends
/// early gives the result of as many iterations as it reports: with rounded rows it ends the
/// iteration that it is in, with exact sums, and labels once more, which takes about as long as one
/// iteration in f32. The returned labels are of the nearest centroids, except where squared
/// distances differ by less than 2^-13 of |x - o| |c - o|, with o that middle.
///
/// Under l2 inertia never increases (but for rounding). Under cosine the zero vector is equally far
/// from all centroids. Products below f32's least normal number may count as zero, so that rows and
/// centroids without an element above 1e-19 may be as far from each other as from themselves.
///
/// Memory   rows, centroids and labels must not overlap
/// Errors   invalid_argument: no clusters, dims or rows, 2^32 or more of one of them, more than
///          2^50 elements of rows or centroids, a null pointer, memory that overlaps, or
///          initial_rows of another size, out of range or not clustered; out_of_memory:
///          about 13 bytes a row, and two for each of its elements where rows are rounded, and the
///          centroids up to sixteen times, could not be had. Then nothing is written
/// Threads  runs of 4096 rows or more, or 64 clusters; one problem per thread needs no locking
/// Cost     2 * row_count * clusters * dims flops an iteration; no distance matrix
/// Source   Lloyd 1982
/// Tests    tests/kernels/kmeans_test.cpp
[[nodiscard]] Result<KmeansReport> kmeans(const KmeansRows& input, const KmeansOptions& options,
                                          const KmeansOutput& output, Parallel& threads);

class Lloyd;

/// kmeans() for work that is interrupted and continued: the same bits.
///
///   auto clustering = KmeansInPieces::begin(rows, options, output);
///   while (!clustering->do_piece()) look_at_the_clock();
///
/// Arguments of begin() must stay in place and unchanged until the end.
class KmeansInPieces {
 public:
  /// Errors: those of kmeans(), but for an initial row that is not clustered, which report() tells
  [[nodiscard]] static Result<KmeansInPieces> begin(const KmeansRows& input,
                                                    const KmeansOptions& options,
                                                    const KmeansOutput& output);
  KmeansInPieces(KmeansInPieces&&) noexcept;
  KmeansInPieces& operator=(KmeansInPieces&&) noexcept;
  ~KmeansInPieces();

  /// Does about the work of 1024 rows in an iteration; returns whether no work is left.
  bool do_piece();

  /// Does all that is left.
  void finish(Parallel& threads);

  /// Returns the report of a clustering that has ended.
  [[nodiscard]] Result<KmeansReport> report() const;

 private:
  explicit KmeansInPieces(std::unique_ptr<Lloyd> lloyd) noexcept;
  std::unique_ptr<Lloyd> lloyd_;
};

}  // namespace host
}  // namespace terrace::kernels
