#include "prefix_publisher.hpp"

#include <algorithm>

#include "prefix/prefix_library.hpp"
#include "prefix/saved_index.hpp"
#include "terrace/core/bytes.hpp"

namespace terrace {
namespace {

Status check_idle(SequenceState& state) {
  TERRACE_TRY(state.parts.progress.require(SequencePhase::idle));
  if (state.runtime().prefixes == nullptr) {
    return fail(Errc::unsupported,
                "no prefixes are kept: they need tier.nvme.path or daemon.socket, tier.model, a "
                "policy that keeps "
                "rows on the host, and no retention");
  }
  return {};
}

Status check(SequenceState& state, const PrefixQuery& query) {
  TERRACE_TRY(check_idle(state));
  TERRACE_TRY(state.runtime().prefixes->check(query));
  const std::size_t length = state.parts.progress.length();
  if (query.length() <= length) return {};
  return fail(Errc::invalid_argument, "{} tokens of a sequence that has {}", query.length(),
              length);
}

/// Clears the rows of the last page that are of tokens from `end` on: rows of later tokens, or of
/// another sequence that had the page before.
void clear_behind(const RuntimePlan& plan, const LayerRows& rows, std::size_t end,
                  std::vector<std::byte>& pages) {
  if (end % plan.block_tokens() == 0) return;
  std::byte* const page = pages.data() + pages.size() - plan.block_bytes();
  for (std::size_t head = 0; head < plan.shape().kv_heads; ++head) {
    std::fill(page + rows.row_offset(head, end), page + rows.row_offset(head + 1, 0), std::byte{});
  }
}

/// Returns the rows of a chunk, in pages as they lie on the host.
Result<std::vector<tiers::PartBytes>> rows_of(const SequenceParts& parts, TokenRange tokens) {
  const std::size_t bytes = parts.plan.block_bytes();
  const std::size_t first = tokens.begin / parts.plan.block_tokens();
  const std::size_t blocks = divide_up(tokens.size(), parts.plan.block_tokens());
  std::vector<tiers::PartBytes> all;
  for (const auto& layer : parts.layers) {
    TERRACE_ASSIGN(const HostRows rows, layer->host_rows(tokens));
    tiers::PartBytes part{.name = PrefixLibrary::rows_of(layer->number)};
    part.bytes.reserve(blocks * bytes);
    for (std::size_t block = first; block < first + blocks; ++block) {
      const std::byte* const page = rows.page(block);
      part.bytes.insert(part.bytes.end(), page, page + bytes);
    }
    clear_behind(parts.plan, layer->rows, tokens.end, part.bytes);
    all.push_back(std::move(part));
  }
  return all;
}

/// Parts of a chunk, and the tokens that they are of.
struct NewChunk {
  tiers::ChunkKey key = {};
  std::size_t tokens = 0;
  std::vector<tiers::PartBytes> parts;
};

/// Where chunks go, and by which names.
struct Publication {
  PrefixLibrary& library;
  const PrefixNames& names;
  tiers::ChunkLease& lease;  ///< of all that was written, and of the chunks before it
};

Result<tiers::Published> publish(const Publication& to, NewChunk chunk, SequenceWork& work,
                                 PublishReport& report) {
  const std::uint64_t bytes = tiers::bytes_of(chunk.parts);
  TERRACE_ASSIGN(const tiers::Published published,
                 to.library.chunks().publish({.root = to.names.root,
                                              .tenant = to.names.tenant,
                                              .key = chunk.key,
                                              .tokens = static_cast<std::uint32_t>(chunk.tokens),
                                              .now = work.clock().now()},
                                             std::move(chunk.parts), to.lease));
  if (published == tiers::Published::written) {
    work.counters.store.written += bytes;
    report.bytes += bytes;
  }
  return published;
}

/// Writes the chunks that the store lacks, in their order, as far as they can be had: chunks behind
/// a missing one are of no use.
Status publish_chunks(const Publication& to, SequenceParts& parts, PublishReport& report) {
  for (std::size_t i = 0; i < to.names.chunks.size(); ++i) {
    const tiers::ChunkKey& key = to.names.chunks[i];
    const TokenRange tokens = to.names.tokens_of(i);
    if (!to.lease.covers(key)) {
      NewChunk chunk{.key = key, .tokens = tokens.size(), .parts = {}};
      TERRACE_ASSIGN(chunk.parts, rows_of(parts, tokens));
      TERRACE_ASSIGN(const tiers::Published published,
                     publish(to, std::move(chunk), parts.work, report));
      if (published == tiers::Published::under_way) return {};
      if (published == tiers::Published::written) ++report.chunks;
    }
    report.tokens = tokens.end;
  }
  return {};
}

/// Whether the store has all indexes of the first `tokens` tokens, the last of a chunk.
Result<bool> has_indexes(SequenceState& state, const PrefixNames& names, std::size_t tokens) {
  if (state.parts.plan.layout.empty()) return true;
  PrefixLibrary& library = *state.runtime().prefixes;
  const std::size_t chunks = divide_up(tokens, library.chunk_tokens());
  TERRACE_ASSIGN(const tiers::ChunkKey index, library.index_key(names.chunks[chunks - 1]));
  const TimePoint now = state.parts.work.clock().now();
  TERRACE_ASSIGN(const tiers::ChunkLease indexed,
                 library.chunks().lease(names.request({&index, 1}, now)));
  return indexed.covers(index);
}

}  // namespace

Result<PublishReport> publish_rows(SequenceState& state, const PrefixQuery& query) {
  SequenceParts& parts = state.parts;
  TERRACE_TRY(check(state, query));
  PrefixLibrary& library = *state.runtime().prefixes;
  TERRACE_ASSIGN(const PrefixNames names, library.names_of(query));
  PublishReport report;
  if (names.chunks.empty()) return report;
  for (const auto& layer : parts.layers) {
    TERRACE_TRY(parts.work.await(WaitReason::rows, layer->tickets().offloaded));
  }
  const tiers::FindRequest all = names.request(names.chunks, parts.work.clock().now());
  // New chunks make no room among those that they go on from.
  TERRACE_ASSIGN(tiers::ChunkLease lease, library.chunks().lease(all));
  const Status published = publish_chunks({library, names, lease}, parts, report);
  library.chunks().touch(names.request(names.chunks, parts.work.clock().now()));
  TERRACE_TRY(published);
  if (report.tokens == 0) return report;
  TERRACE_ASSIGN(report.indexed, has_indexes(state, names, report.tokens));
  if (state.unindexed_prefix > 0 && state.unindexed_prefix < report.tokens) {
    // Another sequence may have stored them meanwhile.
    TERRACE_ASSIGN(const bool indexed, has_indexes(state, names, state.unindexed_prefix));
    if (indexed) state.unindexed_prefix = 0;
  }
  return report;
}

Result<bool> publish_indexes(SequenceState& state, const PrefixQuery& query,
                             PublishReport& report) {
  SequenceParts& parts = state.parts;
  const std::size_t length = parts.progress.length();
  TERRACE_TRY(check_idle(state));
  TERRACE_TRY(state.await_indexes());
  for (const auto& layer : parts.layers) {
    TERRACE_TRY(parts.work.await(WaitReason::index, layer->index.coded));
  }
  PrefixLibrary& library = *state.runtime().prefixes;
  TERRACE_ASSIGN(PrefixNames names, library.names_of(query));
  names.keep_first(divide_up(length, library.chunk_tokens()));
  // Indexes make no room among the rows that they are of.
  TERRACE_ASSIGN(tiers::ChunkLease lease,
                 library.chunks().lease(names.request(names.chunks, parts.work.clock().now())));
  NewChunk chunk{.tokens = length, .parts = write_indexes(parts.plan.layout, parts.layers)};
  TERRACE_ASSIGN(chunk.key, library.index_key(names.chunks.back()));
  TERRACE_ASSIGN(const tiers::Published published,
                 publish({library, names, lease}, std::move(chunk), parts.work, report));
  return published != tiers::Published::under_way;
}

}  // namespace terrace
