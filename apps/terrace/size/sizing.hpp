// The memory that sequences of a model's shape take, tier by tier, and how many of them fit.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "terrace/core/config.hpp"
#include "terrace/core/shape.hpp"
#include "terrace/core/tier.hpp"
#include "terrace/runtime/memory_need.hpp"

namespace terrace::apps {

/// Sequences that are alike, in one batch.
struct SizeQuery {
  KvShape shape = {};
  std::size_t tokens = 0;       ///< of a sequence, prompt and output
  std::size_t sequences = 1;    ///< that decode together
  std::size_t step_tokens = 1;  ///< of a prompt's largest piece
};

/// Bytes of a tier. A limit of none stands for a tier without one.
struct TierSize {
  std::size_t needed = 0;  ///< by all sequences
  std::optional<std::size_t> limit = {};
  std::optional<std::size_t> fits = {};  ///< sequences, where there is a limit

  [[nodiscard]] bool is_enough(std::size_t sequences) const noexcept {
    return !fits || *fits >= sequences;
  }
};

struct Sizing {
  std::string policy;
  bool keeps_everything = false;  ///< all rows are on the device
  MemoryNeed need = {};           ///< of each sequence
  TierSize device = {};
  TierSize host = {};
  TierSize nvme = {};                   ///< the file, if there is one and host memory has a limit
  std::size_t selected_tokens = 0;      ///< by a token, in a layer
  std::size_t step_index_bytes = 0;     ///< that a token's step scans, all layers
  std::size_t step_selected_bytes = 0;  ///< of rows that it selects, at most, all layers

  /// Returns the tiers with room for the fewest sequences, from the top; none without a limit.
  [[nodiscard]] std::vector<Tier> binding() const;
  [[nodiscard]] const TierSize& of(Tier tier) const noexcept;
  [[nodiscard]] bool is_enough(std::size_t sequences) const noexcept {
    return device.is_enough(sequences) && host.is_enough(sequences) && nvme.is_enough(sequences);
  }
};

/// Sizes a policy by its config: limits of tiers, budget and cache.
///
/// Memory   takes none: there are no weights, no rows and no device
/// Errors   those of Runtime::open and Runtime::memory_need
Result<Sizing> size_policy(const Config& config, const SizeQuery& query);

}  // namespace terrace::apps
