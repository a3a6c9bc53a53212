// Traces: the selections of each layer of each step, as a file.
//
// A file is a magic and chunks. Each chunk has a header of 24 bytes, little endian:
//   u32 kind | u32 payload bytes | u32 number of the chunk, from 0 | u32 records
//   u64 XXH64 of those 16 bytes and the payload
// The first chunk is the head and the last the end, both JSON; between them lie records, and no
// record straddles chunks. Every byte is covered by a checksum, chunks cannot be lost or reordered
// unnoticed, and a file that was cut has no end. Numbers of records are LEB128, ascending ids are
// stored as differences.
#pragma once

#include <algorithm>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "terrace/core/ids.hpp"
#include "terrace/core/ops.hpp"
#include "terrace/core/replacement.hpp"
#include "terrace/core/shape.hpp"
#include "terrace/runtime/cache_options.hpp"
#include "terrace/runtime/counters.hpp"
#include "terrace/runtime/options.hpp"

namespace terrace::tuning {

/// The meaning of the ids of a selection.
enum class TraceUnit : std::uint8_t {
  token,    ///< positions of a KV head, for blocks of any size; where the policy has clusters,
            ///< those of one KV head besides
  block,    ///< blocks of TraceHead::block_tokens positions, all KV heads
  cluster,  ///< clusters alone, as imported prefixes; sizes in rows, keeping one costs the rows not
            ///< fetched
};

std::string_view to_string(TraceUnit unit) noexcept;

/// The unit of a cache, as a run's config says it.
struct CacheUnit {
  CacheGranularity granularity = CacheGranularity::block;
  std::size_t block_tokens = 0;

  auto operator<=>(const CacheUnit&) const = default;
};

/// Whether a run's setting of a config key belongs in its trace: it has a say in what is selected
/// and computed. The cache's, which a trace is tuned for, and the machine's do not.
bool is_recorded_key(std::string_view key) noexcept;

/// The origin of a trace: the run, or the requests, that it was recorded from.
struct TraceHead {
  TraceUnit unit = TraceUnit::token;
  std::string source;             ///< "run", "mooncake", ...
  std::string model;              ///< name of the model's folder
  std::string model_fingerprint;  ///< model_fingerprint(); empty = no model
  std::uint64_t weight_bytes = 0;
  std::string policy;  ///< of retrieval; empty = requests were imported
  std::string budget;  ///< as configured
  KvShape shape;
  /// All layers want the same, as those of requests do: records are of layer 0, for each of them.
  bool layers_alike = false;
  /// Units are blocks of prompts, each with all tokens before it: one that is there serves a
  /// request only if those before it are.
  bool prefixes = false;
  bool arrivals = false;  ///< selections have TraceRecord::arrival_ms
  Placement placement = Placement::offload;
  std::size_t block_tokens = 1;
  std::size_t slot_rows = 0;    ///< that a slot of clusters holds; 0 = there are no clusters
  std::size_t staged_rows = 0;  ///< that a layer's step has room to fetch
  std::size_t sink_tokens = 0;
  std::size_t window_tokens = 0;
  std::size_t selected_tokens = 0;
  std::size_t context_tokens = 0;
  CacheOptions cache;  ///< of the live run
  /// Config keys of the run that were not at their defaults, but for its cache and its machine.
  std::vector<std::pair<std::string, std::string>> settings;
  std::uint64_t seed = 0;

  /// Returns the unit of the live run's cache. Clusters that no policy made, as imported prefixes,
  /// are blocks in a run's config.
  [[nodiscard]] CacheUnit recorded() const noexcept { return {cache.granularity, block_tokens}; }

  /// Returns what the run's config said of a key; empty where that is its default.
  [[nodiscard]] std::string_view setting(std::string_view key) const noexcept {
    for (const auto& [name, text] : settings) {
      if (name == key) return text;
    }
    return {};
  }

  /// Returns how many layers have records of their own.
  [[nodiscard]] std::size_t recorded_layers() const noexcept {
    return layers_alike ? 1 : shape.layers;
  }

  /// Returns for how many layers a record stands.
  [[nodiscard]] std::size_t layers_per_record() const noexcept {
    return layers_alike ? shape.layers : 1;
  }

  /// Whether no run was recorded, with a policy that selected: requests were imported.
  [[nodiscard]] bool of_requests() const noexcept { return policy.empty(); }

  /// Returns the name of a step, for figures that are given of one.
  [[nodiscard]] std::string_view step_name() const noexcept {
    return of_requests() ? "request" : "token";
  }

  [[nodiscard]] bool has_clusters() const noexcept { return slot_rows > 0; }

  /// Whether a cache of such units can be replayed: of tokens blocks of any size, rows in slots of
  /// such blocks, and clusters in blocks of the recorded size; else what was recorded.
  [[nodiscard]] bool serves(const CacheUnit& asked) const noexcept {
    if (unit != TraceUnit::token) return asked == recorded();
    if (asked.granularity != CacheGranularity::cluster) return asked.block_tokens > 0;
    return has_clusters() && asked.block_tokens == block_tokens;
  }

  /// Whether units of that granularity have sizes of their own.
  [[nodiscard]] bool has_sizes(CacheGranularity granularity) const noexcept {
    return unit == TraceUnit::cluster || granularity == CacheGranularity::cluster;
  }

  /// Tokens, of all KV heads, that a slot of a cache of such units holds.
  [[nodiscard]] std::size_t slot_tokens(const CacheUnit& of) const noexcept {
    return has_sizes(of.granularity) ? std::max<std::size_t>(1, slot_rows / shape.kv_heads)
                                     : of.block_tokens;
  }
};

/// The live run's counts and measured times, for comparison and as costs.
struct RecordedRun {
  CacheCounters cache;
  LinkBytes bytes;
  double decode_seconds = 0;           ///< per token, all of it
  double link_seconds = 0;             ///< of that: fetches and waiting for data
  double select_seconds = 0;           ///< of that: choosing rows
  double upkeep_seconds = 0;           ///< of that: upkeep of the cache, as far as no compute
                                       ///< hid it; 0 without a cache
  std::size_t fixed_device_bytes = 0;  ///< all but blocks of rows
  std::string machine;
};

/// Counts of what is in the file: where layers are alike, of one of them.
struct TraceEnd {
  std::uint64_t layer_steps = 0;
  std::uint64_t steps = 0;
  std::uint64_t selections = 0;  ///< units wanted, of those that the live run cached
  std::uint64_t rows = 0;
  std::size_t last_position = 0;
  std::size_t sequences = 0;
  /// How often the run abandoned a step, or its cache lost a unit for lack of device memory. No
  /// record says what the cache held then: where this is not 0, replaying is approximate.
  std::uint64_t losses = 0;
  std::optional<RecordedRun> run;
};

/// A cluster or block that a layer wanted.
struct SelectedUnit {
  UnitKey unit = 0;
  std::uint32_t rows = 0;
  std::uint32_t size_rows = 0;  ///< of a cluster

  bool operator==(const SelectedUnit&) const = default;
};

struct TraceRecord {
  enum class Kind : std::uint8_t { share, prompt, selection, step_end, pause, load, close };

  Kind kind = Kind::selection;
  std::uint64_t sequence = 0;
  std::size_t sharers = 0;          ///< share
  std::uint64_t offload_bytes = 0;  ///< step_end
  std::uint64_t index_bytes = 0;    ///< step_end
  std::uint64_t ids_bytes = 0;      ///< step_end: of index_bytes, to the host

  // prompt, selection and load, as LayerPrompt and those beside it say
  std::size_t layer = 0;
  TokenRange prompt;             ///< prompt
  std::size_t placed_begin = 0;  ///< prompt
  std::size_t position = 0;      ///< selection, load
  std::size_t window_begin = 0;
  std::uint64_t loaded_bytes = 0;  ///< load

  // selection
  std::size_t sinks_end = 0;
  std::size_t resident_head = 0;  ///< in blocks
  std::size_t resident_tail = 0;
  std::vector<std::uint32_t> head_counts;  ///< token
  std::vector<std::uint32_t> positions;    ///< token: ascending, head after head
  /// Ascending: blocks, or clusters, of these without rows in device memory anyway.
  std::vector<SelectedUnit> units;
  bool renamed = false;  ///< keys of clusters mean others than before
  /// When a request came, in milliseconds of any clock below 2^53; nothing if nobody said it.
  std::optional<std::uint64_t> arrival_ms = {};
};

}  // namespace terrace::tuning
