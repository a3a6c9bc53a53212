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

/// Parts of a chunk, and the tokens that they are of.
struct NewChunk {
  tiers::ChunkKey key = {};
  std::size_t tokens = 0;
  std::vector<tiers::PartBytes> parts;
};

Result<tiers::Published> publish(SequenceContext& context, const PrefixNames& names, NewChunk chunk,
                                 tiers::ChunkLease& lease, PublishReport& report) {
  const std::uint64_t bytes = bytes_of(chunk.parts);
  TERRACE_ASSIGN(const tiers::Published published,
                 context.runtime.prefixes()->chunks().publish(
                     {.root = names.root,
                      .tenant = names.tenant,
                      .key = chunk.key,
                      .tokens = static_cast<std::uint32_t>(chunk.tokens),
                      .now = context.clock().now()},
                     std::move(chunk.parts), lease));
  if (published == tiers::Published::written) {
    context.counters.store.written += bytes;
    report.bytes += bytes;
  }
  return published;
}

/// Writes the chunks that the store lacks, in their order, as far as they can be had: chunks behind
/// a missing one are of no use.
Status publish_chunks(SequenceState& state, const PrefixNames& names, tiers::ChunkLease& lease,
                      PublishReport& report) {
  SequenceContext& context = state.parts.context;
  const std::size_t size = context.runtime.prefixes()->chunk_tokens();
  for (const tiers::ChunkKey& key : names.chunks) {
    const TokenRange tokens{report.tokens, report.tokens + size};
    if (!lease.covers(key)) {
      NewChunk chunk{.key = key, .tokens = size, .parts = {}};
      TERRACE_ASSIGN(chunk.parts, rows_of(state, tokens));
      TERRACE_ASSIGN(const tiers::Published published,
                     publish(context, names, std::move(chunk), lease, report));
      if (published == tiers::Published::under_way) return {};
      if (published == tiers::Published::written) ++report.chunks;
    }
    report.tokens = tokens.end;
  }
  return {};
}

}  // namespace

Result<PublishReport> publish_rows(SequenceState& state, const PrefixQuery& query) {
  SequenceContext& context = state.parts.context;
  TERRACE_TRY(check(context, query));
  PrefixLibrary& library = *context.runtime.prefixes();
  TERRACE_ASSIGN(const PrefixNames names, library.names_of(query));
  PublishReport report;
  if (names.chunks.empty()) return report;
  for (const auto& layer : state.parts.layers) {
    TERRACE_TRY(context.await(WaitReason::rows, layer->tickets().offloaded));
  }
  const tiers::FindRequest all = names.request(names.chunks, context.clock().now());
  TERRACE_TRY(library.chunks().has(all));
  // New chunks make no room among those that they go on from.
  tiers::ChunkLease lease = library.chunks().lease(all);
  const Status published = publish_chunks(state, names, lease, report);
  library.chunks().touch(names.chunks, context.clock().now());
  TERRACE_TRY(published);
  if (report.tokens == 0) return report;
  const std::size_t chunks = report.tokens / library.chunk_tokens();
  TERRACE_ASSIGN(const tiers::ChunkKey index, library.index_key(names.chunks[chunks - 1]));
  TERRACE_ASSIGN(const std::vector<bool> indexed,
                 library.chunks().has(names.request({&index, 1}, context.clock().now())));
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
  TERRACE_ASSIGN(PrefixNames names, library.names_of(query));
  names.chunks.resize(report.tokens / library.chunk_tokens());
  // Indexes make no room among the rows that they are of.
  tiers::ChunkLease lease =
      library.chunks().lease(names.request(names.chunks, context.clock().now()));
  NewChunk chunk{.tokens = report.tokens,
                 .parts = write_indexes(context.layout(), state.parts.layers)};
  TERRACE_ASSIGN(chunk.key, library.index_key(names.chunks.back()));
  TERRACE_ASSIGN(const tiers::Published published,
                 publish(context, names, std::move(chunk), lease, report));
  report.indexed = published != tiers::Published::under_way;
  return {};
}

}  // namespace terrace
