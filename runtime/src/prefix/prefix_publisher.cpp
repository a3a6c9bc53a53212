#include "prefix_publisher.hpp"

#include <algorithm>

#include "prefix_library.hpp"
#include "saved_index.hpp"

namespace terrace {
namespace {

Status check(const SequenceContext& context, const PrefixQuery& query) {
  TERRACE_TRY(context.require(SequencePhase::idle));
  if (context.runtime.prefixes() == nullptr) {
    return fail(Errc::unsupported,
                "no prefixes are kept: they need tier.nvme.path, tier.model, a policy that keeps "
                "rows on the host, and no retention");
  }
  if (query.tokens.size() > context.length) {
    return fail(Errc::invalid_argument, "{} tokens of a sequence that has {}", query.tokens.size(),
                context.length);
  }
  return {};
}

/// Returns the rows of a chunk, in pages as they lie on the host.
Result<std::vector<tiers::PartBytes>> rows_of(SequenceState& state, TokenRange tokens) {
  const SequenceContext& context = state.parts.context;
  const std::size_t bytes = context.runtime.block_bytes();
  const std::size_t first = tokens.begin / context.block_tokens();
  const std::size_t blocks = tokens.size() / context.block_tokens();
  std::vector<tiers::PartBytes> parts;
  for (const auto& layer : state.parts.layers) {
    TERRACE_ASSIGN(const HostRows rows, layer->host_rows(tokens));
    tiers::PartBytes part{.name = PrefixLibrary::rows_of(layer->number)};
    part.bytes.reserve(blocks * bytes);
    for (std::size_t block = first; block < first + blocks; ++block) {
      const std::byte* const page = rows.page(block);
      part.bytes.insert(part.bytes.end(), page, page + bytes);
    }
    parts.push_back(std::move(part));
  }
  return parts;
}

std::uint64_t bytes_of(std::span<const tiers::PartBytes> parts) {
  std::uint64_t bytes = 0;
  for (const tiers::PartBytes& part : parts) bytes += part.bytes.size();
  return bytes;
}

Status publish(SequenceState& state, const tiers::ChunkKey& chunk, TokenRange tokens,
               PublishReport& report) {
  PrefixLibrary& library = *state.parts.context.runtime.prefixes();
  TERRACE_ASSIGN(auto parts, rows_of(state, tokens));
  const std::uint64_t bytes = bytes_of(parts);
  TERRACE_TRY(
      library.chunks().publish(chunk, static_cast<std::uint32_t>(tokens.size()), std::move(parts)));
  ++report.chunks;
  report.bytes += bytes;
  return {};
}

}  // namespace

Result<PublishReport> publish_rows(SequenceState& state, const PrefixQuery& query) {
  SequenceContext& context = state.parts.context;
  TERRACE_TRY(check(context, query));
  PrefixLibrary& library = *context.runtime.prefixes();
  TERRACE_ASSIGN(const std::vector<tiers::ChunkKey> keys, library.keys_of(query));
  PublishReport report;
  if (keys.empty()) return report;
  for (const auto& layer : state.parts.layers) {
    TERRACE_TRY(context.await(WaitReason::rows, layer->tickets().offloaded));
  }
  TERRACE_ASSIGN(const std::vector<bool> there, library.chunks().has(keys));
  const std::size_t size = library.chunk_tokens();
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (there[i]) continue;
    TERRACE_TRY(publish(state, keys[i], {i * size, (i + 1) * size}, report));
  }
  context.counters.store.written += report.bytes;
  report.tokens = keys.size() * size;
  TERRACE_ASSIGN(const tiers::ChunkKey index, library.index_key(keys.back()));
  TERRACE_ASSIGN(const std::vector<bool> indexed, library.chunks().has({&index, 1}));
  report.indexed = context.layout().empty() || indexed.front();
  return report;
}

Status publish_indexes(SequenceState& state, const PrefixQuery& query, PublishReport& report) {
  SequenceContext& context = state.parts.context;
  TERRACE_TRY(check(context, {.tokens = query.tokens.first(report.tokens)}));
  TERRACE_TRY(state.await_indexes());
  for (const auto& layer : state.parts.layers) {
    TERRACE_TRY(context.await(WaitReason::index, layer->index.coded));
  }
  PrefixLibrary& library = *context.runtime.prefixes();
  TERRACE_ASSIGN(const std::vector<tiers::ChunkKey> keys, library.keys_of(query));
  TERRACE_ASSIGN(const tiers::ChunkKey key,
                 library.index_key(keys[report.tokens / library.chunk_tokens() - 1]));
  auto parts = write_indexes(context.layout(), state.parts.layers);
  const std::uint64_t bytes = bytes_of(parts);
  TERRACE_TRY(
      library.chunks().publish(key, static_cast<std::uint32_t>(report.tokens), std::move(parts)));
  context.counters.store.written += bytes;
  report.bytes += bytes;
  report.indexed = true;
  return {};
}

}  // namespace terrace
