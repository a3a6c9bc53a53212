// Records and the two JSON chunks of a trace as bytes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "terrace/core/result.hpp"
#include "terrace/tuning/trace.hpp"

namespace terrace::tuning {

/// Units and positions are indexes of arrays in every replayed cache: a trace must not name
/// impossible ones, or a few bytes of it would ask for gigabytes.
inline constexpr std::uint64_t trace_units_max = std::uint64_t{1} << 24;

void encode(const TraceHead& head, const TraceRecord& record, std::string& bytes);

/// Returns the fault of a record that no run can have recorded, or no reader would accept; null if
/// it has no fault.
const char* flaw_of(const TraceHead& head, const TraceRecord& record);

/// Reads a record from `bytes` at `at` and moves `at` past it; false: the bytes are no record, or a
/// faulty one.
bool decode(const TraceHead& head, std::string_view bytes, std::size_t& at, TraceRecord& record);

std::string encode_head(const TraceHead& head);
std::string encode_end(const TraceEnd& end);

/// Errors: corrupt naming the field.
Result<TraceHead> decode_head(const std::string& json);
Result<TraceEnd> decode_end(const std::string& json);

}  // namespace terrace::tuning
