#include "fuzz/trace_chunks.hpp"

#include <xxhash.h>

#include <cstring>
#include <utility>

namespace terrace {
namespace {

constexpr std::string_view magic = "TRRCTRC8";
constexpr std::size_t header_bytes = 24;
constexpr std::size_t hashed_bytes = 16;

std::uint32_t number_at(std::string_view bytes, std::size_t at) {
  std::uint32_t number = 0;
  std::memcpy(&number, bytes.data() + at, sizeof number);
  return number;
}

/// Numbers of records take one byte up to 127, and may be of ten: both ends, and what is cut.
void edit_record(std::string& payload, Rng& rng) {
  using namespace std::string_view_literals;
  constexpr std::string_view numbers[] = {
      "\0"sv,
      "\1"sv,
      "\x7f"sv,
      "\x80\x01"sv,
      "\xff\xff\xff\xff\x0f"sv,
      "\x80\x80\x80\x80\x10"sv,
      "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"sv,
      "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"sv,
  };
  if (payload.empty()) payload.assign(1, '\0');
  const std::size_t place = rng.below(payload.size());
  switch (rng.below(4)) {
    case 0:
      payload[place] = static_cast<char>(rng.below(256));
      return;
    case 1:
      payload[place] = static_cast<char>(payload[place] + (rng.below(2) == 0 ? 1 : -1));
      return;
    case 2:
      payload.replace(place, 1, numbers[rng.below(std::size(numbers))]);
      return;
    default:
      payload.erase(place, 1 + rng.below(4));
  }
}

void edit_chunk(std::vector<TraceChunk>& chunks, const Corpus& json, Rng& rng) {
  const std::size_t at = rng.below(chunks.size());
  TraceChunk& chunk = chunks[at];
  switch (rng.below(16)) {
    case 0:
      chunk.records = static_cast<std::uint32_t>(rng.below(4));
      return;
    case 1:
      chunk.kind = chunks[rng.below(chunks.size())].kind;
      return;
    case 2:
      chunks.insert(chunks.begin() + static_cast<std::ptrdiff_t>(at), TraceChunk(chunk));
      return;
    case 3:
      if (chunks.size() > 1) chunks.erase(chunks.begin() + static_cast<std::ptrdiff_t>(at));
      return;
    case 4:
      std::swap(chunk, chunks[rng.below(chunks.size())]);
      return;
    default:
      if (chunk.is_json()) {
        edit(chunk.payload, json, rng);
      } else {
        edit_record(chunk.payload, rng);
      }
  }
}

}  // namespace

std::vector<TraceChunk> trace_chunks(std::string_view file) {
  std::vector<TraceChunk> chunks;
  for (std::size_t at = magic.size(); at < file.size();) {
    const std::uint32_t bytes = number_at(file, at + 4);
    chunks.push_back({.kind = number_at(file, at),
                      .records = number_at(file, at + 12),
                      .payload = std::string(file.substr(at + header_bytes, bytes))});
    at += header_bytes + bytes;
  }
  return chunks;
}

std::string trace_file(const std::vector<TraceChunk>& chunks) {
  std::string file(magic);
  std::uint32_t number = 0;
  for (const TraceChunk& chunk : chunks) {
    const std::uint32_t header[] = {chunk.kind, static_cast<std::uint32_t>(chunk.payload.size()),
                                    number++, chunk.records};
    static_assert(sizeof header == hashed_bytes);
    const std::uint64_t hash =
        XXH64(chunk.payload.data(), chunk.payload.size(), XXH64(header, hashed_bytes, 0));
    file.append(reinterpret_cast<const char*>(header), hashed_bytes);
    file.append(reinterpret_cast<const char*>(&hash), sizeof hash);
    file += chunk.payload;
  }
  return file;
}

std::string mutate_trace(const std::vector<std::string>& files, Rng& rng) {
  const std::string& file = files[rng.below(files.size())];
  std::vector<TraceChunk> chunks = trace_chunks(file);
  Corpus json;
  for (const TraceChunk& chunk : chunks) {
    if (chunk.is_json()) json.push_back({{}, chunk.payload});
  }
  if (rng.below(8) == 0) {
    std::string damaged = file;
    edit(damaged, json, rng);
    return damaged;
  }
  for (std::uint64_t edits = rng.below(4); edits > 0; --edits) edit_chunk(chunks, json, rng);
  return trace_file(chunks);
}

}  // namespace terrace
