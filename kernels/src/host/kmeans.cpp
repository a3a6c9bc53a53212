// K-means: see terrace/kernels/kmeans.hpp. The work is Lloyd's.
#include "terrace/kernels/kmeans.hpp"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "host/lloyd.hpp"
#include "terrace/core/memory_range.hpp"

namespace terrace::kernels::host {
namespace {

/// 4 PiB of f32, more than a machine has. Working memory takes less than 2^10 times as much, so its
/// size in bytes does not wrap.
constexpr std::size_t elements_max = std::size_t{1} << 50;

bool is_within_memory(std::size_t vectors, std::size_t dims) {
  return vectors <= elements_max / dims;
}

/// Outputs are written while rows and each other are read.
Status check_apart(const KmeansRows& input, std::size_t clusters, const KmeansOutput& output) {
  const MemoryRange rows = range_of(input.rows, input.row_count * input.dims);
  const MemoryRange centroids = range_of(output.centroids, clusters * input.dims);
  const MemoryRange labels = range_of(output.labels, input.row_count);
  if (!overlap(rows, centroids) && !overlap(rows, labels) && !overlap(centroids, labels)) return {};
  return fail(Errc::invalid_argument, "k-means: rows, centroids and labels must not overlap");
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
  if (!is_within_memory(input.row_count, input.dims) ||
      !is_within_memory(options.clusters, input.dims)) {
    return fail(Errc::invalid_argument,
                "k-means of {} rows of {} dims into {} clusters: rows and centroids may have 2^50 "
                "elements each",
                input.row_count, input.dims, options.clusters);
  }
  TERRACE_TRY(check_apart(input, options.clusters, output));
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

Result<KmeansInPieces> KmeansInPieces::begin(const KmeansRows& input, const KmeansOptions& options,
                                             const KmeansOutput& output) {
  TERRACE_TRY(check(input, options, output));
  auto lloyd = std::make_unique<Lloyd>(input, options, output);
  if (lloyd->allocate()) return KmeansInPieces(std::move(lloyd));
  return fail(Errc::out_of_memory, "k-means of {} rows: no memory to work in", input.row_count);
}

KmeansInPieces::KmeansInPieces(std::unique_ptr<Lloyd> lloyd) noexcept : lloyd_(std::move(lloyd)) {}
KmeansInPieces::KmeansInPieces(KmeansInPieces&&) noexcept = default;
KmeansInPieces& KmeansInPieces::operator=(KmeansInPieces&&) noexcept = default;
KmeansInPieces::~KmeansInPieces() = default;

bool KmeansInPieces::do_piece() { return lloyd_->do_piece(); }
void KmeansInPieces::finish(Parallel& threads) { lloyd_->finish(threads); }
Result<KmeansReport> KmeansInPieces::report() const { return lloyd_->report(); }

Result<KmeansReport> kmeans(const KmeansRows& input, const KmeansOptions& options,
                            const KmeansOutput& output, Parallel& threads) {
  TERRACE_ASSIGN(KmeansInPieces all, KmeansInPieces::begin(input, options, output));
  all.finish(threads);
  return all.report();
}

}  // namespace terrace::kernels::host
