// Says of recorded requests what tiers of stored prefixes bring them: the tokens that each tier
// has, the time that is saved against computing them, and what other sizes would bring.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "terrace/core/result.hpp"
#include "terrace/tuning/prefix_tiers.hpp"
#include "terrace/tuning/trace.hpp"

namespace terrace::tuning {

inline constexpr std::uint64_t unlimited_bytes = std::numeric_limits<std::uint64_t>::max();

struct PrefixTier {
  std::string name;  ///< "memory", "nvme"
  std::uint64_t bytes = 0;
  double load_bytes_per_second = 0;
};

struct PrefixTuneRequest {
  std::filesystem::path trace;
  std::vector<PrefixTier> tiers;  ///< from the top, with sizes that were asked for
  std::uint64_t token_bytes = 0;  ///< of all layers
  double prefill_tokens_per_second = 0;
  std::function<void(double)> progress = {};  ///< called with the share of the trace that was read
};

/// Sizes of the tiers, and what they bring.
struct PrefixChoice {
  std::string name;                       ///< "asked", "nvme_x2"
  std::vector<std::uint64_t> bytes = {};  ///< of each tier
  std::size_t tier = 0;                   ///< that has another size than what was asked for
  std::uint64_t times = 1;                ///< so many times that size; 0 = none of such a size
  PrefixFigures figures = {};
  std::vector<double> saved_seconds = {};  ///< of each tier; below zero where loading takes longer

  [[nodiscard]] double all_saved_seconds() const noexcept;
};

/// The first choice is what was asked for. Then come, in this order: twice of each tier; 4, 8 and
/// up to 64 times of the lowest, as long as that holds chunks that half of it would not; with more
/// than one tier the lowest alone with the bytes of all; tiers without limits.
struct PrefixTuneResult {
  TraceHead head;
  std::uint64_t chunk_bytes = 0;
  double prefill_seconds = 0;        ///< for all tokens
  std::uint64_t timed_requests = 0;  ///< that have a time
  std::vector<PrefixChoice> choices = {};

  [[nodiscard]] const PrefixChoice& asked() const { return choices.front(); }
  [[nodiscard]] const PrefixChoice& unlimited() const { return choices.back(); }
};

/// Runs the requests of a trace through each choice, in one pass. A chunk is a block of the trace;
/// a block that no request fills is none.
///
/// Errors   those of the trace; invalid_argument: it is of no prefixes, or has no request; a tier
///          without room for a chunk, a rate that is not above zero
[[nodiscard]] Result<PrefixTuneResult> tune_prefixes(const PrefixTuneRequest& request);

/// Returns the choice that recommend() names: a larger one that is worth it, else what was asked
/// for.
[[nodiscard]] const PrefixChoice& recommended(const PrefixTuneResult& result);

/// Returns a sentence on which size to change, if any: twice of the tier that gains most by it, or
/// a larger size of the lowest where twice gains too little. `result` is of `request`.
[[nodiscard]] std::string recommend(const PrefixTuneRequest& request,
                                    const PrefixTuneResult& result);

}  // namespace terrace::tuning
