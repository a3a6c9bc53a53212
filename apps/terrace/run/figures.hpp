// The figures of a run for one policy: the numbers of its report. No value = not applicable.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "run/quality_pass.hpp"
#include "run/timed_pass.hpp"

namespace terrace::apps {

struct MeanWithError {
  double mean = 0;
  std::optional<double> standard_error = {};  ///< of two values or more
};

struct CacheFigures {
  std::string policy = {};
  std::string granularity = {};
  std::size_t capacity_tokens = 0;  ///< per layer, all KV heads
  std::optional<double> hit_rate_tokens = {};
  std::optional<double> hit_rate_units = {};
  CacheCounters counters = {};
};

/// The mean of bytes moved per token: rows to the host per token of the sequence, all else per
/// step.
struct BytesPerToken {
  double offload = 0;
  double demand = 0;
  double refill = 0;
  double index = 0;
};

/// The tokens that a run generated.
struct GeneratedTokens {
  std::vector<TokenId> tokens = {};  ///< not generating: empty
  bool ended = false;                ///< the last one is one that ends a text
};

/// Figures of a later prompt, and of the tokens decoded after it.
struct TurnFigures {
  std::size_t prompt_tokens = 0;
  std::size_t decoded_tokens = 0;
  double prompt_seconds = 0;
  double decode_per_token = 0;  ///< seconds
  std::uint64_t streamed_bytes = 0;
  std::optional<double> bits_per_token = {};
  GeneratedTokens generated = {};
};

/// The entries that retention left at the end of decoding, mean over layers and KV heads.
struct RetentionFigures {
  std::string policy = {};
  double kept_mean = 0;    ///< entries of one token
  double merged_mean = 0;  ///< entries of several tokens
  double dropped = 0;      ///< tokens
  std::uint64_t flushes = 0;
  double flush_seconds = 0;  ///< spent deciding, summed over layers
};

struct PolicyFigures {
  std::string policy = {};
  std::string placement = {};
  std::string gemm = {};  ///< what multiplies a prompt's rows with weights
  std::size_t budget_tokens = 0;
  std::size_t selected_tokens = 0;
  double attended_tokens_mean = 0;
  std::optional<double> bits_per_token = {};
  std::optional<double> bits_per_byte = {};
  std::optional<MeanWithError> bits_delta = {};
  std::optional<double> top1_agreement = {};
  std::optional<double> recall = {};
  double attention_mass = 0;
  std::optional<double> attention_error = {};
  std::optional<RetentionFigures> retention = {};
  double pseudo_entries_mean = 0;
  std::vector<NeedleScore> needles = {};  ///< empty: no question was asked
  AskedAt needles_asked = AskedAt::after;
  std::string needles_form = {};  ///< empty = that of a file
  std::optional<CacheFigures> cache = {};
  LinkBytes bytes = {};
  std::optional<StoreBytes> nvme = {};           ///< none without a file for rows
  std::optional<RestoredContext> restored = {};  ///< none where nothing was looked for
  std::optional<PublishReport> kept = {};        ///< none where nothing was to be kept
  BytesPerToken bytes_per_token = {};
  RunSeconds seconds = {};
  double attend_bytes_per_second = 0;
  double cache_upkeep_ratio = 0;  ///< host time of cache upkeep, hidden or not, over decode time
  double cache_upkeep_waited_ratio = 0;  ///< of that, at most: no compute hid it
  ClusteringReport clustering = {};
  std::optional<policies::CostModel> planned_by = {};  ///< where iterations were planned
  std::optional<double> hidden_ratio = {};
  std::size_t device_peak_bytes = 0;              ///< of decoding
  std::size_t prompt_device_peak_bytes = 0;       ///< of prompts
  std::array<Duration, wait_reasons> waits = {};  ///< that decoding took, by WaitReason
  std::size_t host_peak_bytes = 0;
  std::size_t index_bytes = 0;  ///< of all layers, for the context and what was decoded
  GeneratedTokens generated = {};
  std::vector<TurnFigures> turns = {};

  /// Returns rows attended and entries that stand for clusters, mean per head and step.
  [[nodiscard]] double entries_mean() const noexcept {
    return attended_tokens_mean + pseudo_entries_mean;
  }
};

/// Returns the figures of a cache from what it counted.
CacheFigures cache_figures(std::string policy, std::string granularity, std::size_t capacity_tokens,
                           const CacheCounters& counters);

/// Returns all figures but the needles' scores.
PolicyFigures make_figures(const RunJob& job, const Session& session, const TimedPass& timed,
                           const QualityPass& quality, const ReferencePass& reference);

/// Returns the mean of a[i] - b[i] and its standard error, which takes means over stretches of
/// about sqrt(steps) steps to be independent; there is no error for fewer than two steps.
MeanWithError paired_difference(std::span<const double> a, std::span<const double> b);

}  // namespace terrace::apps
