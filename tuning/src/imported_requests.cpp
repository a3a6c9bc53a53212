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

TraceHead prefixes_head(std::string source, std::size_t block_tokens,
                        const std::optional<ImportedModel>& model) {
  TraceHead head = requests_head(std::move(source), block_tokens);
  head.prefixes = true;
  head.arrivals = true;
  if (!model) return head;
  head.model = model->name;
  head.model_fingerprint = model->fingerprint;
  head.weight_bytes = model->weight_bytes;
  head.shape = model->shape;
  head.layers_alike = true;
  head.slot_rows = head.block_tokens * head.shape.kv_heads;
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
