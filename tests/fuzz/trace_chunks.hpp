// Traces taken apart into chunks, so that their checksums can be made right after any edit.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "fuzz/mutation.hpp"
#include "terrace/core/rng.hpp"

namespace terrace {

struct TraceChunk {
  std::uint32_t kind = 0;
  std::uint32_t records = 0;
  std::string payload;

  [[nodiscard]] bool is_json() const { return payload.starts_with('{'); }
};

/// Takes a right trace apart.
std::vector<TraceChunk> trace_chunks(std::string_view file);

/// Puts chunks together, numbered and with their checksums.
std::string trace_file(const std::vector<TraceChunk>& chunks);

/// Returns a damaged trace: one among `files`, with up to three edits to its chunks, sealed again,
/// or with wrong bytes.
std::string mutate_trace(const std::vector<std::string>& files, Rng& rng);

}  // namespace terrace
