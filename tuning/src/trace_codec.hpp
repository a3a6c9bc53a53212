// Records and the two JSON chunks of a trace as bytes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "terrace/core/result.hpp"
#include "terrace/tuning/trace.hpp"

namespace terrace::tuning {

/// Units and positions are keys of arrays, which every cache that is replayed has: a trace must not
/// name ones that nobody could have, or a few bytes of it would ask for gigabytes.
inline constexpr std::uint64_t trace_units_max = std::uint64_t{1} << 24;

void encode(const TraceHead& head, const TraceRecord& record, std::string& bytes);

/// Says what is wrong with a record that nobody could have recorded, or read again; null where
/// nothing is.
const char* flaw_of(const TraceHead& head, const TraceRecord& record);

/// Reads one record from `bytes` at `at` and moves `at` behind it; false: these are no record, or
/// one with a flaw.
bool decode(const TraceHead& head, std::string_view bytes, std::size_t& at, TraceRecord& record);

std::string encode_head(const TraceHead& head);
std::string encode_end(const TraceEnd& end);

/// Errors: corrupt naming the field.
Result<TraceHead> decode_head(const std::string& json);
Result<TraceEnd> decode_end(const std::string& json);

}  // namespace terrace::tuning
