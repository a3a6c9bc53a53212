#include "saved_index.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "terrace/core/bytes.hpp"
#include "terrace/policies/settings_text.hpp"

namespace terrace {
namespace {

using Json = nlohmann::json;

constexpr tiers::PartName record_name{.kind = tiers::PartKind::state};

tiers::PartName index_name(const Layer& layer) {
  return {.kind = tiers::PartKind::index, .layer = static_cast<std::uint32_t>(layer.number)};
}

/// The lists of hints that are kept with an index, in the order written.
std::array<const std::vector<float>*, 3> lists_of(const KeptHints& hints) {
  return {&hints.pre_rope_keys, &hints.query_window, &hints.attention_scores};
}

Json describe(const LayerIndex& index) {
  const IndexCoverage::State state = index.image.coverage.state();
  Json hints = Json::array();
  for (const std::vector<float>* list : lists_of(index.build.hints)) hints.push_back(list->size());
  return {{"begin", state.tokens.begin}, {"end", state.tokens.end},      {"batches", state.batches},
          {"trained", state.trained},    {"fresh_end", state.fresh_end}, {"hints", hints}};
}

std::size_t chunks_of(TokenRange tokens, const IndexLayout& layout) {
  return divide_up(tokens.size(), layout.chunk_tokens);
}

void append(std::vector<std::byte>& bytes, const void* from, std::size_t count) {
  const auto* const begin = static_cast<const std::byte*>(from);
  bytes.insert(bytes.end(), begin, begin + count);
}

std::vector<std::byte> bytes_of(const LayerIndex& index, const IndexLayout& layout) {
  std::vector<std::byte> bytes;
  append(bytes, index.image.memory.fixed(), layout.fixed_bytes);
  const std::size_t chunks = chunks_of(index.image.coverage.tokens(), layout);
  for (std::size_t i = 0; i < chunks; ++i) {
    append(bytes, index.image.memory.chunk(i), layout.chunk_bytes);
  }
  for (const std::vector<float>* list : lists_of(index.build.hints)) {
    append(bytes, list->data(), list->size() * sizeof(float));
  }
  return bytes;
}

/// An index that was read, and is not a layer's yet.
struct ReadIndex {
  IndexImage image;
  KeptHints hints;
};

/// Takes `count` bytes from the front.
bool take(std::span<const std::byte>& bytes, void* to, std::size_t count) {
  if (bytes.size() < count) return false;
  if (count > 0) std::memcpy(to, bytes.data(), count);
  bytes = bytes.subspan(count);
  return true;
}

Result<ReadIndex> parse_fields(const Json& record, std::span<const std::byte> bytes,
                               const IndexTarget& target) {
  const IndexLayout& layout = target.layout;
  const auto damaged = fail(Errc::corrupt, "a saved index has another shape than its record says");
  ReadIndex read;
  IndexCoverage::State state{
      .tokens = {record.value("begin", std::size_t{0}), record.value("end", std::size_t{0})},
      .batches = record.value("batches", std::vector<std::size_t>{}),
      .trained = record.value("trained", std::size_t{0}),
      .fresh_end = record.value("fresh_end", std::size_t{0})};
  const bool ordered = state.tokens.begin < state.tokens.end && !state.batches.empty() &&
                       state.batches.front() == state.tokens.begin &&
                       std::ranges::is_sorted(state.batches) &&
                       state.batches.back() < state.tokens.end;
  if (!ordered || state.tokens.end > target.length) return damaged;
  const std::size_t chunks = chunks_of(state.tokens, layout);
  TERRACE_TRY(read.image.memory.reserve(target.backend, layout, chunks));
  bool whole = take(bytes, read.image.memory.fixed(), layout.fixed_bytes);
  for (std::size_t i = 0; whole && i < chunks; ++i) {
    whole = take(bytes, read.image.memory.chunk(i), layout.chunk_bytes);
  }
  const auto sizes = record.value("hints", std::vector<std::size_t>{});
  const std::array lists{&read.hints.pre_rope_keys, &read.hints.query_window,
                         &read.hints.attention_scores};
  whole = whole && sizes.size() == lists.size();
  for (std::size_t i = 0; whole && i < lists.size(); ++i) {
    whole = sizes[i] <= bytes.size() / sizeof(float);
    if (!whole) break;
    lists[i]->resize(sizes[i]);
    whole = take(bytes, lists[i]->data(), sizes[i] * sizeof(float));
  }
  if (!whole || !bytes.empty()) return damaged;
  read.image.coverage = IndexCoverage::of(std::move(state));
  return read;
}

Result<ReadIndex> parse(const Json& record, std::span<const std::byte> bytes,
                        const IndexTarget& target) {
  try {
    return parse_fields(record, bytes, target);
  } catch (const Json::exception& error) {
    return fail(Errc::corrupt, "the record of a saved index: {}", error.what());
  }
}

Result<Json> read_record(tiers::HeldChunks& chunks, const tiers::Manifest& manifest) {
  const tiers::Part* const part = manifest.find(record_name);
  if (part == nullptr) return fail(Errc::corrupt, "saved indexes without a record");
  TERRACE_ASSIGN(const std::vector<std::byte> text, chunks.read(manifest, *part));
  const auto* const begin = reinterpret_cast<const char*>(text.data());
  Json record = Json::parse(begin, begin + text.size(), nullptr, /*allow_exceptions=*/false);
  if (!record.is_array()) return fail(Errc::corrupt, "the record of saved indexes is no list");
  return record;
}

}  // namespace

std::string index_identity(const RuntimePlan& plan) {
  const RuntimeOptions& options = plan.options;
  const IndexLayout& layout = plan.layout;
  return fmt::format(
      "index 1; policy {}; {}; query heads {}; sinks {}; dense {}; seed {}; {} {} {} {}",
      plan.policy->traits().name, policies::settings_text(options.retrieval),
      options.shape.query_heads, options.sink_tokens, options.dense_layers, options.seed,
      layout.fixed_bytes, layout.chunk_tokens, layout.chunk_bytes, layout.chunk_clusters);
}

std::vector<tiers::PartBytes> write_indexes(const IndexLayout& layout,
                                            std::span<const std::unique_ptr<Layer>> layers) {
  Json record = Json::array();
  std::vector<tiers::PartBytes> parts(1);
  for (const auto& layer : layers) {
    if (layer->index.image.coverage.tokens().empty()) {
      record.push_back(nullptr);
      continue;
    }
    record.push_back(describe(layer->index));
    parts.push_back({.name = index_name(*layer), .bytes = bytes_of(layer->index, layout)});
  }
  const std::string text = record.dump();
  parts.front().name = record_name;
  append(parts.front().bytes, text.data(), text.size());
  return parts;
}

Status read_indexes(tiers::HeldChunks& chunks, const tiers::Manifest& manifest,
                    const IndexTarget& target, std::span<const std::unique_ptr<Layer>> layers) {
  TERRACE_ASSIGN(const Json record, read_record(chunks, manifest));
  if (record.size() != layers.size()) {
    return fail(Errc::corrupt, "saved indexes of {} layers, of {}", record.size(), layers.size());
  }
  std::vector<ReadIndex> read(layers.size());
  for (const auto& layer : layers) {
    const tiers::Part* const part = manifest.find(index_name(*layer));
    if (part == nullptr || !record[layer->number].is_object()) continue;
    TERRACE_ASSIGN(const std::vector<std::byte> bytes, chunks.read(manifest, *part));
    TERRACE_ASSIGN(read[layer->number], parse(record[layer->number], bytes, target));
  }
  for (const auto& layer : layers) {
    layer->index.image = std::move(read[layer->number].image);
    layer->index.build.hints = std::move(read[layer->number].hints);
  }
  return {};
}

}  // namespace terrace
