// Clustering of standard normal rows: seeding, ten iterations, final labels.
#include "terrace/kernels/kmeans.hpp"

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "kernels/questions.hpp"
#include "kernels/sample_rows.hpp"
#include "terrace/core/version.hpp"
#include "terrace/offload/parallel.hpp"

namespace terrace::bench {
namespace {

using kernels::KmeansReport;
using kernels::Metric;

constexpr std::size_t iterations = 10;

struct KmeansSetting {
  std::string name;
  std::size_t rows = 32768;
  std::size_t dims = 64;
  std::size_t clusters = 64;
  Metric metric = Metric::l2;
  std::size_t threads = 1;  ///< of more, one thread is the peer
};

/// Returns as many rows as rounded searches need.
std::size_t quick_rows(const KmeansSetting& setting) {
  return std::max<std::size_t>(1024, 4 * setting.clusters);
}

class Clustering {
 public:
  Clustering(const KmeansSetting& setting, std::unique_ptr<Parallel> threads, bool quick)
      : setting_(setting),
        threads_(std::move(threads)),
        row_count_(quick ? quick_rows(setting) : setting.rows),
        rows_(normal_numbers(row_count_ * setting.dims, 7)),
        centroids_(setting.clusters * setting.dims),
        labels_(row_count_) {}

  void run() {
    report_ = kernels::host::kmeans(
        {.rows = rows_.data(), .row_count = row_count_, .dims = setting_.dims},
        {.clusters = setting_.clusters,
         .iterations = iterations,
         .metric = setting_.metric,
         .seed = 8,
         .measures_inertia = false},
        {.centroids = centroids_.data(), .labels = labels_.data()}, *threads_);
  }

  /// Every sixteenth label must be the nearest centroid, or as near but for rounding.
  [[nodiscard]] Status verify() const {
    if (!report_) return tl::unexpected(report_.error());
    if (report_->iterations != iterations && !report_->converged) {
      return fail(Errc::corrupt, "{} iterations, not {}", report_->iterations, iterations);
    }
    for (std::size_t row = 0; row < row_count_; row += 16) {
      const double labelled = distance(row, labels_[row]);
      for (std::size_t c = 0; c < setting_.clusters; ++c) {
        if (distance(row, c) < labelled - 1e-4 * (1 + std::fabs(labelled))) {
          return fail(Errc::corrupt, "row {} is nearer to centroid {} than to {}", row, c,
                      labels_[row]);
        }
      }
    }
    return {};
  }

 private:
  /// Squared distance; or 1 - cosine, times the row's length.
  [[nodiscard]] double distance(std::size_t row, std::size_t centroid) const {
    const float* const x = rows_.data() + row * setting_.dims;
    const float* const c = centroids_.data() + centroid * setting_.dims;
    double squares = 0;
    double product = 0;
    double length = 0;
    for (std::size_t i = 0; i < setting_.dims; ++i) {
      const double gap = static_cast<double>(x[i]) - static_cast<double>(c[i]);
      squares += gap * gap;
      product += static_cast<double>(x[i]) * static_cast<double>(c[i]);
      length += static_cast<double>(c[i]) * static_cast<double>(c[i]);
    }
    return setting_.metric == Metric::l2 ? squares : -product / std::sqrt(length);
  }

  KmeansSetting setting_;
  std::unique_ptr<Parallel> threads_;
  std::size_t row_count_;
  std::vector<float> rows_;
  std::vector<float> centroids_;
  std::vector<std::uint32_t> labels_;
  Result<KmeansReport> report_;
};

Result<Contender> kmeans_contender(const KmeansSetting& setting, std::size_t threads, bool quick) {
  TERRACE_ASSIGN(std::unique_ptr<Parallel> parallel, offload::make_parallel({.threads = threads}));
  const auto clustering = std::make_shared<Clustering>(setting, std::move(parallel), quick);
  return Contender{.name = threads == 1 ? "one thread" : setting.name,
                   .version = std::string(version()),
                   .run = [clustering] { clustering->run(); },
                   .verify = [clustering] { return clustering->verify(); }};
}

Question kmeans_question(const KmeansSetting& setting) {
  const auto prepare = [setting](bool quick) -> Result<Contest> {
    TERRACE_ASSIGN(Contender ours, kmeans_contender(setting, setting.threads, quick));
    if (setting.threads == 1) return Contest{.ours = std::move(ours), .peer = {}};
    TERRACE_ASSIGN(Contender peer, kmeans_contender(setting, 1, quick));
    return Contest{.ours = std::move(ours), .peer = std::move(peer)};
  };
  return {.name = setting.name,
          .unit = "s",
          .parameters = {{"threads", setting.threads},
                         {"rows", setting.rows},
                         {"dims", setting.dims},
                         {"clusters", setting.clusters},
                         {"iterations", iterations},
                         {"metric", setting.metric == Metric::l2 ? "l2" : "cosine"},
                         {"dtype", "f32"}},
          .prepare = prepare};
}

}  // namespace

std::vector<Question> kmeans_questions() {
  return {
      kmeans_question({.name = "kmeans_l2_n32768_d64_k64_i10"}),
      kmeans_question({.name = "kmeans_l2_n32768_d64_k256_i10", .clusters = 256}),
      kmeans_question({.name = "kmeans_cosine_n32768_d128_k400_i10",
                       .dims = 128,
                       .clusters = 400,
                       .metric = Metric::cosine}),
      kmeans_question(
          {.name = "kmeans_l2_n32768_d64_k256_i10_two_threads", .clusters = 256, .threads = 2})};
}

}  // namespace terrace::bench
