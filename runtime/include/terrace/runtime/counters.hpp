// The bytes that a sequence has moved, its hits and its builds: exact counts, never estimates.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "terrace/core/clock.hpp"

namespace terrace {

/// Bytes moved across the link between device and host, since the last reset.
struct LinkBytes {
  std::uint64_t offload = 0;  ///< rows, device to host
  std::uint64_t demand = 0;   ///< missed rows x row bytes, host to device
  std::uint64_t refill =
      0;  ///< admitted blocks, and those that a resumed sequence needs, host to device
  std::uint64_t streamed = 0;  ///< rows that exact attention over the host's reads, host to device
  std::uint64_t index = 0;     ///< codes, centroids, selected ids, queries of samples; either way
};

/// Bytes of rows moved between the host and the store below it, since the last reset.
struct StoreBytes {
  std::uint64_t read = 0;
  std::uint64_t written = 0;
};

/// Rows and blocks that steps wanted from the middle. A row that several lists of its KV head want
/// counts once: it is fetched once.
struct CacheCounters {
  std::uint64_t rows_hit = 0;  ///< in a cached block
  std::uint64_t rows_missed = 0;
  std::uint64_t rows_resident =
      0;  ///< in a block that placement keeps in device memory: no look-up
  std::uint64_t blocks_hit = 0;
  std::uint64_t blocks_missed = 0;
  std::uint64_t admitted = 0;
  std::uint64_t adopted = 0;  ///< were in device memory when they became the cache's: no refill
  std::uint64_t evicted = 0;
  std::uint64_t refused = 0;
};

struct ClusteringReport {
  std::vector<std::size_t> iterations = {};  ///< done, per layer
  bool planned = false;
  std::size_t late_layers = 0;  ///< whose clustering outlasted the compute that was to hide it
  Duration busy{};              ///< spent clustering, summed over layers
  Duration waited{};            ///< that the first step waited for it
};

/// The work of retention since the sequence was opened, and the entries that there are now.
struct RetentionReport {
  std::uint64_t flushes = 0;
  std::uint64_t dropped = 0;  ///< tokens, each counted in every layer and KV head that dropped it
  std::uint64_t kept = 0;     ///< entries of one token, of all layers and KV heads
  std::uint64_t merged = 0;   ///< entries that have more tokens' values in them
  std::uint64_t lists = 0;    ///< layers * KV heads: the divisor of the three
  Duration busy{};            ///< spent deciding, summed over layers
};

/// Reasons for which a call waits.
enum class WaitReason : std::uint8_t {
  rows,       ///< new rows and selections reach the host
  compute,    ///< the step's work ends
  refill,     ///< rows reach the cache, or come back to the device
  index,      ///< an index is built or extended
  upload,     ///< changes of an index reach the device
  copy,       ///< a copy that a call makes by itself
  rest,       ///< all queues quiesce, for a failure, a cut or a pause
  retention,  ///< a retention policy decides
};
inline constexpr std::size_t wait_reasons = 8;
[[nodiscard]] std::string_view to_string(WaitReason reason) noexcept;

struct SequenceCounters {
  LinkBytes bytes = {};
  StoreBytes store = {};
  CacheCounters cache = {};
  std::uint64_t steps = 0;
  std::uint64_t prompt_steps = 0;  ///< of these, with tokens of prompts that attended exactly
  std::uint64_t exact_steps = 0;   ///< of decoding, that attended exactly until indexes were built
  std::uint64_t builds = 0;        ///< of whole indexes of a layer
  std::uint64_t refreshes = 0;     ///< indexes that took over from older ones
  /// Entries, summed over lists, layers and steps. Tokens of prompts that attend exactly are not
  /// counted.
  std::uint64_t attended = 0;
  std::uint64_t pseudo_entries = 0;
  std::uint64_t lists = 0;  ///< lists summed over layers and steps: the divisor of both
  /// Shares of full attention's softmax weight that lie on the tokens attended to, summed over
  /// samples (RuntimeOptions::mass_every). Estimates, which stand for several tokens, have none.
  double attention_mass = 0;
  std::uint64_t mass_samples = 0;              ///< the divisor of attention_mass
  std::array<Duration, wait_reasons> waits{};  ///< by WaitReason
  Duration upkeep{};                           ///< host time of cache upkeep; none without a cache
  Duration upkeep_waited{};                    ///< of that, at most: no compute of the step hid it
};

}  // namespace terrace
