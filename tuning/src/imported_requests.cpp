#include "imported_requests.hpp"

namespace terrace::tuning {

void append_request(TraceWriter& writer, std::size_t layers, TraceRecord& record) {
  record.kind = TraceRecord::Kind::selection;
  for (record.layer = 0; record.layer < layers; ++record.layer) writer.append(record);
  record.kind = TraceRecord::Kind::step_end;
  writer.append(record);
}

}  // namespace terrace::tuning
