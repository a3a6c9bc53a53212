#include "imported_requests.hpp"

#include <cmath>
#include <utility>

namespace terrace::tuning {

TraceHead requests_head(std::string source, std::size_t block_tokens) {
  // A request computes or fetches the whole of a missing unit, so admitting it moves nothing more:
  // units are clusters.
  TraceHead head{.unit = TraceUnit::cluster,
                 .source = std::move(source),
                 .shape = {.layers = 1, .query_heads = 1, .kv_heads = 1, .head_dim = 64},
                 .block_tokens = block_tokens};
  head.slot_rows = block_tokens;
  return head;
}

std::optional<std::uint64_t> whole_number(double value) noexcept {
  constexpr double exact_end = 0x1p53;
  const bool whole = value >= 0 && value < exact_end && value == std::floor(value);
  return whole ? std::optional(static_cast<std::uint64_t>(value)) : std::nullopt;
}

void append_request(TraceWriter& writer, TraceRecord& record) {
  record.kind = TraceRecord::Kind::selection;
  writer.append(record);
  record.kind = TraceRecord::Kind::step_end;
  writer.append(record);
}

}  // namespace terrace::tuning
