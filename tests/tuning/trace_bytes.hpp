// Traces as bytes, for tests that alter them.
#pragma once

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "tuning/made_up_trace.hpp"

namespace terrace::tuning {

inline std::string read_bytes(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline void write_bytes(const std::filesystem::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

/// A head with fields that differ from other heads.
inline TraceHead token_head() {
  TraceHead head = made_up_head({.unit = TraceUnit::token, .clusters = true});
  head.model = "a \"model\" \xff";
  head.policy = "oracle";
  head.budget = "0.1";
  head.cache.refill.horizon_steps = 12.5;
  head.cache.granularity = CacheGranularity::cluster;
  head.staged_rows = 77;
  head.source = "run";
  head.model_fingerprint = "0123456789abcdef";
  head.weight_bytes = std::uint64_t{3} << 33;
  head.placement = Placement::resident_first;
  head.sink_tokens = 5;
  head.window_tokens = 19;
  head.seed = UINT64_MAX;
  head.arrivals = true;
  head.settings = {{"retrieval.window_share", "0.25"}};
  return head;
}

}  // namespace terrace::tuning
