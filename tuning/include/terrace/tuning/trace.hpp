// Traces: what each layer of each step selected, as a file.
//
// A file is a magic and chunks. Each chunk has a header of 24 bytes, little endian:
//   u32 kind | u32 payload bytes | u32 number of the chunk, from 0 | u32 records
//   u64 XXH64 of those 16 bytes and the payload
// The first chunk is the head and the last the end, both JSON; between them lie records, none of
// which straddles chunks. So every byte is covered by a checksum, chunks cannot be lost or change
// places, and a file that was cut has no end. Numbers of records are LEB128, ascending ids are
// stored as differences.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
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

/// What ids of a selection stand for.
enum class TraceUnit : std::uint8_t {
  token,    ///< positions of a KV head: any block size can be made of them
  block,    ///< blocks of TraceHead::block_tokens positions, all KV heads
  cluster,  ///< clusters of one KV head, sizes in rows; keeping one costs the rows not fetched
};

std::string_view to_string(TraceUnit unit) noexcept;

/// What a trace was recorded from.
struct TraceHead {
  TraceUnit unit = TraceUnit::token;
  std::string source;             ///< "run", "mooncake", "generator"
  std::string model;              ///< name of the model's folder
  std::string model_fingerprint;  ///< of its config.json; empty = no model
  std::uint64_t weight_bytes = 0;
  std::string policy;  ///< of retrieval
  std::string budget;  ///< as configured
  KvShape shape;
  Placement placement = Placement::offload;
  std::size_t block_tokens = 1;
  std::size_t slot_rows = 1;  ///< cluster: rows that a slot holds
  std::size_t sink_tokens = 0;
  std::size_t window_tokens = 0;
  std::size_t selected_tokens = 0;
  std::size_t context_tokens = 0;
  CacheOptions cache;  ///< of the live run
  /// Config keys of the run that were not at their defaults, but for its cache and its machine.
  std::vector<std::pair<std::string, std::string>> settings;
  std::uint64_t seed = 0;

  /// What a run with these selections caches as one. Units that stand for no clusters of a policy,
  /// as imported prefixes, are blocks to whoever configures a run.
  [[nodiscard]] CacheGranularity granularity() const noexcept {
    return unit == TraceUnit::cluster && !policy.empty() ? CacheGranularity::cluster
                                                         : CacheGranularity::block;
  }

  /// Tokens, of all KV heads, that a slot of a cache with blocks of `tokens_per_block` holds.
  [[nodiscard]] std::size_t slot_tokens(std::size_t tokens_per_block) const noexcept {
    return unit == TraceUnit::cluster ? std::max<std::size_t>(1, slot_rows / shape.kv_heads)
                                      : tokens_per_block;
  }
};

/// What the live run counted and measured, for comparison and as costs.
struct RecordedRun {
  CacheCounters cache;
  LinkBytes bytes;
  double decode_seconds = 0;           ///< per token, all of it
  double link_seconds = 0;             ///< of that: fetches and waiting for data
  double select_seconds = 0;           ///< of that: choosing rows
  std::size_t fixed_device_bytes = 0;  ///< all but blocks of rows
  std::string machine;
};

struct TraceEnd {
  std::uint64_t layer_steps = 0;
  std::uint64_t steps = 0;
  std::uint64_t selections = 0;  ///< units wanted, at the head's granularity (token: its blocks)
  std::uint64_t rows = 0;
  std::size_t last_position = 0;
  std::size_t sequences = 0;
  std::optional<RecordedRun> run;
};

/// A cluster or block that a layer wanted.
struct SelectedUnit {
  UnitKey unit = 0;
  std::uint32_t rows = 0;
  std::uint32_t size_rows = 0;  ///< cluster only
};

struct TraceRecord {
  enum class Kind : std::uint8_t { share, prompt, selection, step_end, pause, load, close };

  Kind kind = Kind::selection;
  std::uint64_t sequence = 0;
  std::size_t sharers = 0;          ///< share
  TokenRange prompt;                ///< prompt
  std::uint64_t offload_bytes = 0;  ///< step_end
  std::uint64_t index_bytes = 0;    ///< step_end
  std::uint64_t ids_bytes = 0;      ///< step_end: of index_bytes, to the host

  // selection and load, as LayerSelection and LayerLoad say
  std::size_t layer = 0;
  std::size_t position = 0;
  std::size_t window_begin = 0;
  std::vector<UnitKey> dropped;
  std::uint64_t loaded_bytes = 0;  ///< load

  // selection
  std::size_t sinks_end = 0;
  std::size_t resident_head = 0;  ///< in blocks
  std::size_t resident_tail = 0;
  std::vector<UnitKey> dropped_late;
  std::vector<UnitKey> unplaced;
  std::vector<std::uint32_t> head_counts;  ///< token
  std::vector<std::uint32_t> positions;    ///< token: ascending, head after head
  std::vector<SelectedUnit> units;         ///< block, cluster: ascending
  std::uint64_t rows_resident = 0;         ///< cluster: wanted, and in device memory anyway
  bool renamed = false;                    ///< cluster: keys mean others than before
};

}  // namespace terrace::tuning
