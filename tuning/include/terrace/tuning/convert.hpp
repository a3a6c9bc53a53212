// Other forms of traces, and traces made to order.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "terrace/core/result.hpp"
#include "terrace/tuning/trace_file.hpp"

namespace terrace::tuning {

/// A file to read and one to write, which is there when it is whole.
struct Conversion {
  std::filesystem::path source;
  std::filesystem::path target;
  /// Called with the share of the source that has been read, which never falls.
  std::function<void(double)> progress = {};
};

/// Writes a trace of tokens as one of blocks, smaller and of one block size, without clusters.
/// If the recorded run cached other units, its counters become those of a replay, and the upkeep of
/// the other units is taken out of its time and memory. Errors: those of the trace;
/// invalid_argument: it has no tokens.
[[nodiscard]] Status convert_to_blocks(const Conversion& files, std::size_t block_tokens);

/// Writes lines `key,sequence,layer,step,unit,rows,slots` for other simulators. A key is a text
/// that names a unit among those of all layers and sequences, as s0.l3.u17. Units that are renamed
/// get numbers that no unit of the layer had before. Errors: those of the trace; invalid_argument:
/// units that it cannot serve.
[[nodiscard]] Status convert_to_csv(const Conversion& files, const CacheUnit& unit);

}  // namespace terrace::tuning
